"""matmul, einsum and tensordot with any sizes, letters and axes against NumPy: values and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import gradtape as tf

SIZE = st.integers(0, 3)


def array(seed: int, shape: Any) -> Any:
    return np.random.default_rng(seed).normal(size=tuple(shape))


def agree(f: Callable[..., Any], reference: Callable[..., Any], *arrays: Any) -> None:
    """The value by NumPy; the gradients by the bilinearity of products: ⟨ȳ, f(…, e, …)⟩ for every unit vector e."""
    want = reference(*arrays)
    xs = [tf.Variable(a) for a in arrays]
    with tf.GradientTape() as tape:
        y = f(*xs)
    assert y.shape == want.shape
    assert np.allclose(y, want)
    weight = np.cos(np.arange(want.size)).reshape(want.shape) + 0.5
    for k, g in enumerate(tape.gradient(y, xs, output_gradients=tf.constant(weight))):
        due = np.zeros_like(arrays[k])
        for index in np.ndindex(due.shape):
            unit = np.zeros_like(due)
            unit[index] = 1.0
            due[index] = np.sum(weight * reference(*arrays[:k], unit, *arrays[k + 1 :]))
        assert g.shape == due.shape
        assert np.allclose(tf.convert_to_tensor(g), due)


@st.composite
def matrices(draw: Any) -> Any:
    """Two shapes whose batch axes broadcast, and which of the matrices are transposed."""
    m, k, n = (draw(SIZE) for _ in range(3))
    batch = draw(st.lists(SIZE, max_size=2))
    flags = draw(st.tuples(st.booleans(), st.booleans()))
    shapes = []
    for matrix, flip in (((m, k), flags[0]), ((k, n), flags[1])):
        own = [1 if draw(st.booleans()) else b for b in batch][draw(st.integers(0, len(batch))) :]
        shapes.append((*own, *(reversed(matrix) if flip else matrix)))
    return shapes, flags


@given(matrices(), st.integers(0, 99))
def test_matmul(drawn: Any, seed: int) -> None:
    (a, b), (flip_a, flip_b) = drawn

    def reference(x: Any, y: Any) -> Any:
        return np.matmul(np.swapaxes(x, -1, -2) if flip_a else x, np.swapaxes(y, -1, -2) if flip_b else y)

    agree(
        lambda x, y: tf.matmul(x, y, transpose_a=flip_a, transpose_b=flip_b),
        reference,
        array(seed, a),
        array(seed + 1, b),
    )


@st.composite
def equations(draw: Any) -> Any:
    """Subscripts of one to three operands, letters repeated or not, with a result of some of them."""
    letters = "abcd"[: draw(st.integers(1, 4))]
    sizes = {c: draw(SIZE) for c in letters}
    parts = draw(st.lists(st.text(st.sampled_from(letters), max_size=3), min_size=1, max_size=3))
    used = sorted(set("".join(parts)))
    result = draw(st.permutations(used))[: draw(st.integers(0, len(used)))]
    arrow = draw(st.booleans())
    text = ",".join(parts) + ("->" + "".join(result) if arrow else "")
    return text, [[sizes[c] for c in p] for p in parts]


@given(equations(), st.integers(0, 99))
def test_einsum(drawn: Any, seed: int) -> None:
    text, shapes = drawn
    agree(
        lambda *xs: tf.einsum(text, *xs),
        lambda *xs: np.asarray(np.einsum(text, *xs)),
        *(array(seed + k, s) for k, s in enumerate(shapes)),
    )


@st.composite
def ellipses(draw: Any) -> Any:
    """Batch axes under `...` that broadcast, named or not in the result."""
    i, j, k = (draw(SIZE) for _ in range(3))
    batch = draw(st.lists(st.integers(1, 3), max_size=2))
    shapes = []
    for matrix in ((i, j), (j, k)):
        own = [1 if draw(st.booleans()) else b for b in batch][draw(st.integers(0, len(batch))) :]
        shapes.append((*own, *matrix))
    return draw(st.sampled_from(["...ij,...jk->...ik", "...ij,...jk->ki...", "...ij,...jk"])), shapes


@given(ellipses(), st.integers(0, 99))
def test_einsum_with_ellipses(drawn: Any, seed: int) -> None:
    text, shapes = drawn
    agree(
        lambda x, y: tf.einsum(text, x, y),
        lambda x, y: np.einsum(text, x, y),
        *(array(seed + k, s) for k, s in enumerate(shapes)),
    )


@st.composite
def contracted(draw: Any) -> Any:
    """Two shapes, and the axes to contract as a number or as two lists with negative ones among them."""
    shared = draw(st.lists(SIZE, max_size=2))
    left, right = (draw(st.lists(SIZE, max_size=2)) for _ in range(2))
    if draw(st.booleans()):
        return (*left, *shared), (*shared, *right), len(shared)
    a, b = draw(st.permutations(range(len(left) + len(shared)))), draw(st.permutations(range(len(right) + len(shared))))
    shape_a, shape_b = [0] * len(a), [0] * len(b)
    for axes, shape, own in ((a, shape_a, left), (b, shape_b, right)):
        for place, size in zip(axes, [*shared, *own], strict=True):
            shape[place] = size
    over = [[k - len(x) if draw(st.booleans()) else k for k in x[: len(shared)]] for x in (a, b)]
    return tuple(shape_a), tuple(shape_b), over


@given(contracted(), st.integers(0, 99))
def test_tensordot(drawn: Any, seed: int) -> None:
    a, b, axes = drawn
    agree(
        lambda x, y: tf.tensordot(x, y, axes),
        lambda x, y: np.tensordot(x, y, axes),
        array(seed, a),
        array(seed + 1, b),
    )
