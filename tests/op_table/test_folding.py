"""Composite ops run for all rows at once: the op itself, with rows lying on its loop axes, against one run per row.

Every composite that spells its axes is run with every sample and every choice of operands that depend on rows. Where
one operand does, its rows have structure too: letters that they share with a loop axis, that no factor has, that stand
at positions. It finds letters that lie on the wrong axis, operands that are not repeated for them, results in another
order. What is chosen where is seen in the last tests."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from gradtape.ir.dtypes import float64
from gradtape.ir.graph import Node, order
from gradtape.ir.index import Index
from gradtape.ops.composite import Composite
from gradtape.ops.op import Op, apply
from gradtape.runtime.jacobian import Backward, Rows, cheaper
from gradtape.runtime.record import Path
from gradtape.transforms.rows.entering import free
from gradtape.transforms.rows.folding import folded
from gradtape.transforms.rows.letters import pair, whole
from gradtape.transforms.rows.terms import Factor, Term
from tests.op_table.cases import CASES, Case, each_op
from tests.op_table.running import results_of
from tests.op_table.tally import Checks
from tests.transforms.row_bench import Bench

ROWS = (2, 3)


def spells_axes(op: Op) -> bool:
    return isinstance(op, Composite) and op.axes is not None


def node_of(case: Case, bench: Bench) -> Node:
    """The op on operands with numbers."""
    operands = [bench.given(a) for a in case.draw(float64)]
    node = apply(case.step, operands)[0].node
    assert node is not None
    return node


def spelled(op: Composite, node: Node) -> tuple[list[tuple[str | None, ...]], tuple[str | None, ...]]:
    return op.names([len(v.aval.dims) for v in (*node.inputs, *node.outputs)])


def row_by_row(case: Case, arrays: Sequence[Any], varying: Sequence[int], rows: tuple[int, ...]) -> Any:
    """The op on one row after the other; operands that vary have the row axes in front."""
    found = []
    for at in np.ndindex(rows):
        found += results_of(case.step, [a[at] if i in varying else a for i, a in enumerate(arrays)])
    return np.stack(found).reshape(*rows, *found[0].shape)


@each_op(spells_axes)
def test_rows_that_vary_freely(op: Composite, checks: Checks) -> None:
    for case in CASES[op.name]:
        count = len(case.sample.specs)
        for which in (c for n in range(1, count + 1) for c in itertools.combinations(range(count), n)):
            bench = Bench()
            node = node_of(case, bench)
            wide = [bench.operand(*ROWS, *v.aval.dims) if i in which else v for i, v in enumerate(node.inputs)]
            given = [free(bench.b, w, ROWS) if i in which else w for i, w in enumerate(wide)]
            result = folded(bench.b, node, given)
            names, out = spelled(op, node)
            assert (result is None) == (not any(c and all(c in names[i] for i in which) for c in out))
            if result is not None:
                want = row_by_row(case, [bench.array(w) for w in wide], which, ROWS)
                np.testing.assert_allclose(
                    bench.read(result), want, rtol=1e-11, atol=1e-12, err_msg=repr((case, which))
                )
            checks()


def structures(bench: Bench, dims: tuple[int, ...], k: int) -> Iterator[tuple[str, Rows]]:
    """Rows over an axis of 2 and over axis k, whose letter they share."""
    axes, r = tuple(whole(n) for n in dims), whole(2)
    letters = [p.letter for a in axes for p in a]
    (mine,) = axes[k]
    rows = (2, dims[k])

    def of(over: Sequence[Any], own: Sequence[Any]) -> Rows:
        factor = Factor(bench.operand(*(c.size for c in over)), tuple(over))
        return bench.term(Term((factor,), (r, (mine,)), tuple(own)), rows, dims)

    moved = pair(mine.letter, Index(np.arange(dims[k])[::-1]), dims[k])
    yield "shared", of([r[0].letter, *letters], axes)
    yield "in no factor", of([r[0].letter, *(c for c in letters if c is not mine.letter)], axes)
    yield "backwards", of([*letters, r[0].letter], [(moved,) if n == k else a for n, a in enumerate(axes)])


@each_op(spells_axes)
def test_rows_that_share_a_letter_with_a_loop_axis(op: Composite, checks: Checks) -> None:
    for case in CASES[op.name]:
        for i in range(len(case.sample.specs)):
            shape = case.sample.specs[i].shape
            bench = Bench()
            node = node_of(case, bench)
            names, out = spelled(op, node)
            loops = [k for k, name in enumerate(names[i]) if name and name in out and shape[k] > 1]
            for k in loops if 0 not in shape else []:
                for what, rows in structures(bench, shape, k):
                    result = folded(bench.b, node, [rows if j == i else v for j, v in enumerate(node.inputs)])
                    assert result is not None
                    arrays = [bench.read(rows) if j == i else bench.array(v) for j, v in enumerate(node.inputs)]
                    want, where = row_by_row(case, arrays, [i], rows.rows), repr((case, i, k, what))
                    np.testing.assert_allclose(bench.read(result), want, rtol=1e-11, atol=1e-12, err_msg=where)
                    checks()


# ------------------------------------------------------------------ what is chosen


def steps(y: tf.Tensor, x: tf.Tensor, tape: tf.GradientTape, batch: tuple[int, ...] | None) -> list[str]:
    """The ops of the program of a Jacobian."""
    recorder = tape._recorder
    backward = Backward(Path(recorder.node, {}), recorder.slots[y._id], (recorder.slots[x._id],))
    (pulled,), (source,) = backward.pulled, backward.xs
    value = cheaper(pulled, backward.y, source, backward.cotangent, backward.given, batch, "reverse")
    return [n.step.name for n in order([value], backward.given)]


def images(*shape: int) -> tf.Tensor:
    return tf.constant(np.random.default_rng(2).standard_normal(shape).astype(np.float32))


K1, K2, W = images(3, 3, 1, 8), images(3, 3, 8, 8), images(288, 10)


def network(x: tf.Tensor) -> tf.Tensor:
    h = tf.nn.elu(tf.nn.conv2d(x, K1, 1, "VALID"))
    h = tf.nn.elu(tf.nn.conv2d(h, K2, 2, "VALID"))
    return tf.matmul(tf.reshape(h, [-1, 288]), W)


def test_a_network_keeps_its_convolutions() -> None:
    x = images(4, 16, 16, 1)
    with tf.GradientTape(watch_accessed_variables=False, persistent=True) as tape:
        tape.watch(x)
        y = network(x)
    made = steps(y, x, tape, (0,))
    assert made.count("convolve_input") == 2 and "gather" not in made
    blocks = np.asarray(tape.batch_jacobian(y, x))
    for k in range(10):
        with tf.GradientTape() as one:
            one.watch(x)
            part = network(x)[:, k]
        np.testing.assert_allclose(blocks[:, k], np.asarray(one.gradient(part, x)), rtol=1e-4, atol=1e-5)


def test_a_layer_alone_keeps_its_windows() -> None:
    """The Jacobian of one convolution has the kernel's numbers at the windows' places: nothing is multiplied."""
    x = images(2, 6, 6, 1)
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(x)
        y = tf.nn.conv2d(x, K1, 1, "VALID")
    made = steps(y, x, tape, None)
    assert "convolve_input" not in made and "contract" not in made


if __name__ == "__main__":
    pytest.main([__file__])
