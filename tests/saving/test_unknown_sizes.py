"""Functions of unknown sizes in files: each program against itself before it was saved, for many sizes."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import optree
import pytest

import gradtape as tf
from gradtape.saving.formulas import Formulas, NoFormula, with_parts, worked_out
from gradtape.saving.ranges import OFFSETS
from tests.functions import test_unknown_shapes as programs

UNROLLED = {programs.maps, programs.python_function}  # their graphs are others for other sizes, or Python
SAVED = [p for p in programs.PROGRAMS if p not in UNROLLED]


def loaded(f: Callable[..., Any], signature: Any, folder: Path) -> tuple[Any, Any, Any]:
    model = tf.Module()
    model.f, model.state = tf.function(f, input_signature=signature), [programs.W, programs.B]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tf.saved_model.save(model, folder)
    return model, tf.saved_model.load(folder), json.loads((folder / "saved_model.json").read_text())["content"]


def leaves(x: Any) -> list[Any]:
    return [np.asarray(t) for t in optree.tree_leaves(x)]


def assert_same(a: Any, b: Any) -> None:
    for x, y in zip(leaves(a), leaves(b), strict=True):
        np.testing.assert_allclose(x, y, 1e-4, 1e-5)


@pytest.mark.parametrize("f", SAVED, ids=lambda f: f.__name__)
def test_programs(f: Callable[[Any], Any], tmp_path: Path) -> None:
    model, again, _ = loaded(f, programs.SPEC, tmp_path)
    rng = np.random.default_rng(0)
    for n in (1, 2, 3, 7, 64):
        x = tf.constant(rng.standard_normal([n, 2]), tf.float32)
        programs.B.assign(0.5)
        again.state[1].assign(0.5)
        assert_same(model.f(x), again.f(x))
        assert float(programs.B) == pytest.approx(float(again.state[1]))


@pytest.mark.parametrize("f", sorted(UNROLLED, key=lambda f: f.__name__), ids=lambda f: f.__name__)
def test_what_no_formula_tells_is_refused(f: Callable[[Any], Any], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be saved: it is traced for unknown sizes"):
        loaded(f, programs.SPEC, tmp_path)


def attention(x: Any) -> Any:
    n = tf.shape(x)[1]
    place = tf.cast(tf.range(n), tf.float32)[:, None] / tf.pow(100.0, tf.cast(tf.range(8), tf.float32) / 8.0)
    x += tf.sin(place)
    a = tf.matmul(x, x, transpose_b=True) / tf.sqrt(8.0)
    a = tf.where(tf.linalg.band_part(tf.ones([n, n]), -1, 0) > 0, a, -1e9)
    y = tf.nn.softmax(a) @ x
    return tf.reshape(y, [-1, 8]), tf.concat([y, x], 1), tf.eye(n) * tf.reduce_mean(x)


def test_two_sizes_and_constants_that_follow_them(tmp_path: Path) -> None:
    model, again, _ = loaded(attention, [tf.TensorSpec([None, None, 8])], tmp_path)
    for b, n in ((2, 3), (1, 5), (4, 1), (1, 1), (3, 40), (2, 0)):
        x = tf.constant(np.random.default_rng(b + n).standard_normal([b, n, 8]), tf.float32)
        assert_same(model.f(x), again.f(x))


def joined(x: Any, y: Any) -> Any:
    return x + y, x * tf.reduce_sum(y)


def test_sizes_that_must_be_alike_or_one(tmp_path: Path) -> None:
    model, again, _ = loaded(joined, [tf.TensorSpec([None]), tf.TensorSpec([None])], tmp_path)
    for a, b in ((3, 3), (1, 4), (4, 1), (1, 1), (0, 0), (0, 1), (9, 9)):
        assert_same(model.f(tf.ones(a), 2.0 * tf.ones(b)), again.f(tf.ones(a), 2.0 * tf.ones(b)))
    with pytest.raises(tf.errors.InvalidArgumentError, match="has no result for"):
        again.f(tf.ones(3), tf.ones(2))


def squares(x: Any) -> Any:
    return x * x + tf.reduce_sum(x)


def test_unknown_ranks(tmp_path: Path) -> None:
    model, again, _ = loaded(squares, [tf.TensorSpec(None)], tmp_path)
    for shape in ((), (1,), (4,), (2, 3), (1, 2, 1), (2, 1, 3, 2), (0, 2)):
        x = tf.constant(np.random.default_rng(1).standard_normal(shape), tf.float32)
        assert_same(model.f(x), again.f(x))
    with pytest.raises(tf.errors.InvalidArgumentError, match="has no result for"):
        again.f(tf.ones([1] * 7))


def pooled(x: Any) -> Any:
    x = tf.nn.relu(tf.nn.conv2d(x, tf.ones([3, 3, 1, 2]), 1, "SAME"))
    return tf.reduce_mean(tf.nn.max_pool2d(x, 2, 2, "VALID"), [1, 2])


def test_convolutions_of_batches(tmp_path: Path) -> None:
    model, again, content = loaded(pooled, [tf.TensorSpec([None, 8, 8, 1])], tmp_path)
    for n in (1, 2, 5):
        x = tf.constant(np.random.default_rng(n).standard_normal([n, 8, 8, 1]), tf.float32)
        assert_same(model.f(x), again.f(x))
    assert len(content["functions"][0]["variants"][0]["bodies"]) == 1


def cut(x: Any) -> Any:
    return tf.reduce_sum(tf.reshape(x, [-1, 4]), 0), x[1:-1], x[::-1]


def test_a_size_with_a_divisor(tmp_path: Path) -> None:
    model = tf.Module()
    model.f = tf.function(cut, input_signature=[tf.TensorSpec([None])])
    model.f(tf.ones([8]))
    tf.saved_model.save(model, tmp_path)
    again = tf.saved_model.load(tmp_path)
    for n in (4, 8, 40):
        x = tf.range(float(n))
        assert_same(model.f(x), again.f(x))
    with pytest.raises(tf.errors.InvalidArgumentError):
        again.f(tf.ones([6]))


# ------------------------------------------------------------------ formulas

SIZES = [(100 + a, 110 + OFFSETS[3 * i % len(OFFSETS)]) for i, a in enumerate(OFFSETS)]


@pytest.mark.parametrize(
    "of",
    [
        lambda n, m: n,
        lambda n, m: 3 * n - 2,
        lambda n, m: n * m,
        lambda n, m: 2 * n * m + n + 1,
        lambda n, m: n * n,
        lambda n, m: (n * n - n) // 2,
        lambda n, m: n + m,
        lambda n, m: 1.0 / n,
        lambda n, m: 2.5 / (n * m),
        lambda n, m: float(np.float32(1.0 / m)),
        lambda n, m: n**0.5,
        lambda n, m: float(n - 1),
        lambda n, m: list(range(n)),
        lambda n, m: list(range(0, 3 * n, 3)),
        lambda n, m: list(range(n))[::-1],
        lambda n, m: n % 3,
        lambda n, m: n // 8 * 8,
        lambda n, m: [(n + 1) // 2, (m + 1) // 2, 3 * ((n + 1) // 2) * ((m + 1) // 2)],
        lambda n, m: [(n + 1) // 2, ((n + 1) // 2 + 1) // 2, -(-n // 2) * 2 - n],
        lambda n, m: {"a": [n, "text", None], "b": m},
    ],
)
def test_formulas_hold_for_sizes_that_they_were_not_found_from(of: Callable[[int, int], Any]) -> None:
    formulas = Formulas(SIZES)
    tree = formulas.merged([of(*s) for s in SIZES])
    for n, m in ((2, 3), (100, 8), (1, 6)):
        found, truth = (leaves(t) for t in (worked_out(tree, with_parts((n, m), formulas.parts)), of(n, m)))
        if not isinstance(of(n, m), dict):
            np.testing.assert_allclose(found, truth, 1e-6)
        else:
            assert worked_out(tree, (n, m)) == of(n, m)


@pytest.mark.parametrize(
    "of",
    [
        lambda n, m: n if n < 120 else n + 1,
        lambda n, m: min(n, 120),
        lambda n, m: "text" if n < 120 else "other",
        lambda n, m: [[n]] * n,
        lambda n, m: n % 500,
        lambda n, m: True if n < 120 else 1,
        lambda n, m: {"a": 1} if n < 120 else {"b": 1},
        lambda n, m: float(np.sin(n)),
    ],
)
def test_no_formula_is_made_up(of: Callable[[int, int], Any]) -> None:
    with pytest.raises(NoFormula):
        Formulas(SIZES).merged([of(*s) for s in SIZES])
