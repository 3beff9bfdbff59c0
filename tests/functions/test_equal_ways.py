"""One program, four ways to run it, with its first and second gradients: eagerly; traced; traced, with its clusters
rendered and interpreted; traced, with its clusters compiled. NaN and infinities among the inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gradtape as tf
from gradtape.backends.clusters import POLICY
from gradtape.ir.graph import check
from gradtape.kernels.compiled import Compiler
from gradtape.kernels.spelling import spells
from gradtape.transforms.fuse import fuse, fused_nodes
from tests.devices import examples
from tests.kernels.conftest import fast, folder, strict  # noqa: F401  (fixtures: compilers of kernels)
from tests.kernels.test_render import by_kernels
from tests.tape.test_random_programs import PROGRAMS, SHAPES, STEPS, Program, dense, run

RARE = [np.nan, np.inf, -np.inf, 0.0, -0.0]
EXACT = {"float32": 2e-4, "float64": 1e-9}  # of the largest finite number beside it
DTYPES = sorted(EXACT)


def with_gradients(program: Program) -> Callable[..., list[Any]]:
    """The value, the gradients, and the gradients of a function of the gradients."""

    def question(*xs: Any) -> list[Any]:
        with tf.GradientTape() as outer:
            outer.watch(xs)
            with tf.GradientTape() as inner:
                inner.watch(xs)
                y = run(program, xs)
            first = dense(inner.gradient(y, xs, unconnected_gradients="zero"))
            total = tf.add_n([tf.reduce_sum(tf.sin(g)) for g in first])
        return [y, *first, *dense(outer.gradient(total, xs, unconnected_gradients="zero"))]

    return question


def numbers(seed: int, dtype: str, rare: int) -> list[Any]:
    """Inputs; `rare` of their numbers are NaN, infinite or zero."""
    rng = np.random.default_rng(seed)
    arrays = [np.asarray(rng.normal(size=s), dtype) for s in SHAPES]
    for _ in range(rare):
        a = arrays[rng.integers(len(arrays))]
        a[tuple(rng.integers(n) for n in a.shape)] = RARE[rng.integers(len(RARE))]
    return arrays


def assert_same(found: Sequence[Any], wanted: Sequence[Any], dtype: str) -> None:
    for a, b in zip(map(np.asarray, found), map(np.asarray, wanted), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        finite = np.abs(b[np.isfinite(b)])
        np.testing.assert_allclose(a, b, rtol=EXACT[dtype], atol=EXACT[dtype] * (1 + finite.max(initial=0)))


def traced(program: Program, arrays: Sequence[Any]) -> tuple[Any, list[Any]]:
    """The traced function, and what the program gives eagerly."""
    xs = [tf.constant(a) for a in arrays]
    question = with_gradients(program)
    return tf.function(question), [t.numpy() for t in question(*xs)]


CASES = (PROGRAMS, st.integers(0, 2**32 - 1), st.sampled_from(DTYPES), st.sampled_from([0, 0, 1, 3]))


@settings(max_examples=examples(60))
@given(*CASES)
def test_eager_programs_equal_traced_and_interpreted_ones(program: Program, seed: int, dtype: str, rare: int) -> None:
    arrays = numbers(seed, dtype, rare)
    function, wanted = traced(program, arrays)
    with np.errstate(all="ignore"):
        assert_same([t.numpy() for t in function(*arrays)], wanted, dtype)
        concrete = function.get_concrete_function(*arrays)
        fused = fuse(concrete.graph, spells)
        check(fused)
        captured = [t.numpy() for t in concrete.trace.captured]
        assert_same(by_kernels(fused, [*arrays, *captured], 2), wanted, dtype)


def test_interpreted_programs_have_kernels() -> None:
    """The test above compares something: the usual program has clusters."""
    program: Program = [("sin", 3, 3, 0.3), ("multiply", -1, 3, 0.3), ("exp", -1, -1, 0.7), ("softmax", -1, -1, 0.3)]
    function, _ = traced(program, numbers(1, "float64", 0))
    fused = fuse(function.get_concrete_function(*numbers(1, "float64", 0)).graph, spells)
    assert len(list(fused_nodes(fused))) > 1


@pytest.mark.host("kernels of the host")
@pytest.mark.parametrize("seed", range(4))
def test_eager_programs_equal_compiled_ones(seed: int, fast: Compiler) -> None:  # noqa: F811
    rng = np.random.default_rng(seed)
    steps = sorted(STEPS)
    program: Program = [
        (steps[rng.integers(len(steps))], int(rng.integers(16)), int(rng.integers(16)), 0.3) for _ in range(12)
    ]
    dtype = DTYPES[seed % 2]
    POLICY.compile = "never"
    function, _ = traced(program, numbers(seed, dtype, 0))
    expected = [traced(program, numbers(seed + k, dtype, k))[1] for k in range(3)]
    POLICY.compile = "now"
    with np.errstate(all="ignore"):
        for k, wanted in enumerate(expected):
            assert_same([t.numpy() for t in function(*numbers(seed + k, dtype, k))], wanted, dtype)
    assert fast.compiled + fast.loaded > 0
