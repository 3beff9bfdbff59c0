"""Functions that do something else at some sizes: after loading they do that too, or say that they were not saved for
such sizes; no answer is another one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gradtape as tf

ROW = [tf.TensorSpec([None])]
SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 18, 20, 31, 39, 40, 41, 64, 99, 100, 101, 200, 1000, 3001)


def reloaded(f: Callable[..., Any], signature: Any, folder: Path, **options: Any) -> tuple[Any, Any]:
    model = tf.Module()
    model.f = tf.function(f, input_signature=signature, **options)
    tf.saved_model.save(model, folder)
    return model.f, tf.saved_model.load(folder).f


def numbers(*shape: int) -> Any:
    return tf.constant(np.random.default_rng(0).standard_normal(shape), tf.float32)


def assert_same(f: Any, again: Any, shapes: Any) -> None:
    """Values, shapes and errors."""
    for each in shapes:
        given = [numbers(*s) for s in each]
        try:
            expected = f(*given)
        except (tf.errors.OpError, ValueError):
            with pytest.raises((tf.errors.OpError, ValueError)):
                again(*given)
            continue
        made = again(*given)
        assert made.shape == expected.shape == made.numpy().shape, each
        np.testing.assert_allclose(made.numpy(), expected.numpy(), 1e-4, 1e-5)


def first(x: Any) -> Any:
    return x[:100]


def few(x: Any) -> Any:
    return x[:4]


def between(x: Any) -> Any:
    return x[20:40]


def but_last(x: Any) -> Any:
    return x[:-30]


def last(x: Any) -> Any:
    return x[-8:]


def rest(x: Any) -> Any:
    return x[5:]


def least(x: Any) -> Any:
    return x[: tf.minimum(tf.shape(x)[0], 8)]


def every_second(x: Any) -> Any:
    return x[::2]


def every_third(x: Any) -> Any:
    return x[1::3]


def half(x: Any) -> Any:
    return x[: tf.shape(x)[0] // 2]


def whole_rows(x: Any) -> Any:
    return tf.reshape(x[: tf.shape(x)[0] // 8 * 8], [-1, 8])


def padded(x: Any) -> Any:
    return tf.pad(x, [[0, (-tf.shape(x)[0]) % 8]])


def branch(x: Any) -> Any:
    if tf.shape(x)[0] > 17:
        return x * 2.0
    return x


def by_cond(x: Any) -> Any:
    return tf.cond(tf.size(x) > 50, lambda: x * 2.0, lambda: x)


def even(x: Any) -> Any:
    if tf.shape(x)[0] % 2 == 0:
        return x * 2.0
    return x


def spectrum(x: Any) -> Any:
    return tf.abs(tf.signal.rfft(x))


def halves(x: Any) -> Any:
    return tf.concat(tf.split(x, 2)[::-1], 0)


def best(x: Any) -> Any:
    return tf.math.top_k(x, 8)[0]


def two_slices(x: Any) -> Any:
    return x[7:][:10]


ROWS = [
    first,
    few,
    between,
    but_last,
    last,
    rest,
    least,
    every_second,
    every_third,
    half,
    whole_rows,
    padded,
    branch,
    by_cond,
    even,
    spectrum,
    halves,
    best,
    two_slices,
]


@pytest.mark.parametrize("f", ROWS, ids=lambda f: f.__name__)
def test_rows(f: Any, tmp_path: Path) -> None:
    assert_same(*reloaded(f, ROW, tmp_path), [[(n,)] for n in SIZES])


@pytest.mark.parametrize("f", [half, branch, few], ids=lambda f: f.__name__)
def test_rows_that_python_is_traced_for_one_by_one(f: Any, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="traced anew") if f is not few else contextlib.nullcontext():
        model, again = reloaded(f, ROW, tmp_path, autograph=False)
        assert_same(model, again, [[(n,)] for n in SIZES])


def test_the_gradient_of_the_last_elements(tmp_path: Path) -> None:
    _, again = reloaded(last, ROW, tmp_path)
    for n in (1, 5, 8, 12):
        x = numbers(n)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(again(x))
        assert tape.gradient(y, x).numpy().tolist() == [0.0] * (n - 8) + [1.0] * min(n, 8)


def test_tokens_are_cut_off(tmp_path: Path) -> None:
    signature = [tf.TensorSpec([None, None])]
    shapes = [[(2, 200)], [(2, 128)], [(3, 5)], [(1, 129)], [(1, 0)]]
    assert_same(*reloaded(lambda ids: ids[:, :128], signature, tmp_path), shapes)


def test_a_product_of_sizes_decides(tmp_path: Path) -> None:
    def f(x: Any) -> Any:
        return tf.cond(tf.size(x) > 50, lambda: x * 2.0, lambda: x)

    shapes = [[(3, 4)], [(10, 10)], [(1, 60)], [(60, 1)], [(5, 10)], [(17, 3)]]
    assert_same(*reloaded(f, [tf.TensorSpec([None, None])], tmp_path), shapes)


# ------------------------------------------------------------------ images, and sizes that are independent

IMAGES = [tf.TensorSpec([None, None, None, 2])]
KERNEL = numbers(3, 3, 2, 3)


def strided(x: Any) -> Any:
    return tf.nn.conv2d(x, KERNEL, 2, "SAME")


def pooled(x: Any) -> Any:
    return tf.nn.avg_pool2d(tf.nn.max_pool2d(x, 2, 2, "SAME"), 2, 2, "VALID")


def stacked(x: Any) -> Any:
    x = tf.nn.conv2d(tf.nn.conv2d(x, KERNEL[..., :2], 2, "SAME"), KERNEL, 2, "SAME")
    return tf.reshape(x, [tf.shape(x)[0], -1])


@pytest.mark.parametrize("f", [strided, pooled, stacked], ids=lambda f: f.__name__)
def test_images_of_any_size(f: Any, tmp_path: Path) -> None:
    sides = ((7, 8), (4, 4), (8, 5), (28, 28), (1, 2), (2, 3), (64, 33))
    assert_same(*reloaded(f, IMAGES, tmp_path), [[(b, h, w, 2)] for b in (1, 2) for h, w in sides])


def attention(q: Any, k: Any) -> Any:
    return tf.nn.softmax(tf.matmul(q, k, transpose_b=True)) @ k


PAIRS: dict[str, tuple[Callable[..., Any], Any, Any]] = {
    "product": (lambda a, b: a @ b, [[None, None]] * 2, [((2, 3), (3, 4)), ((2, 2), (2, 2)), ((1, 3), (3, 1))]),
    "columns": (lambda a, b: tf.concat([a, b], 1), [[None, None]] * 2, [((2, 3), (2, 4)), ((1, 1), (1, 1))]),
    "attention": (attention, [[None, 4]] * 2, [((3, 4), (5, 4)), ((1, 4), (7, 4))]),
    "outer": (lambda a, b: a[:, None] * b, [[None]] * 2, [((3,), (5,)), ((1,), (0,))]),
}


@pytest.mark.parametrize("name", PAIRS)
def test_sizes_are_alike_only_where_they_must_be(name: str, tmp_path: Path) -> None:
    f, shapes, calls = PAIRS[name]
    assert_same(*reloaded(f, [tf.TensorSpec(s) for s in shapes], tmp_path), calls)


# ------------------------------------------------------------------ sizes that the function implies

IMPLIED: dict[str, tuple[Callable[..., Any], Any, Any]] = {
    "a vector": (lambda x: x * tf.constant([1.0, 2.0, 3.0]), [None], [(3,), (1,), (2,)]),
    "a matrix": (lambda x: x + tf.ones([4, 3]), [None, None], [(4, 3), (1, 3), (4, 1), (1, 1), (2, 3)]),
    "blocks": (lambda x: tf.reshape(x, [-1, 4, 6]), [None, None], [(4, 6), (2, 12), (24, 5), (5, 5)]),
}


@pytest.mark.parametrize("name", IMPLIED)
def test_sizes_that_a_function_implies(name: str, tmp_path: Path) -> None:
    f, shape, calls = IMPLIED[name]
    assert_same(*reloaded(f, [tf.TensorSpec(shape)], tmp_path), [[s] for s in calls])


def test_windows_that_small_images_do_not_hold(tmp_path: Path) -> None:
    kernel = tf.ones([5, 5, 1, 1])
    f, again = reloaded(lambda x: tf.nn.conv2d(x, kernel, 1, "VALID"), [tf.TensorSpec([None, None, None, 1])], tmp_path)
    assert_same(f, again, [[(1, 5, 5, 1)], [(2, 9, 20, 1)], [(1, 4, 4, 1)]])


def test_a_function_without_a_result_says_for_which_sizes_it_was_tried() -> None:
    f = tf.function(lambda x: tf.reshape(x, [7, 11]), input_signature=ROW)
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        f.get_concrete_function()
    assert "were tried as 2, 1, 3" in "\n".join(raised.value.__notes__)


# ------------------------------------------------------------------ what is refused


@tf.custom_gradient
def capricious(x: Any) -> Any:
    def rule(up: Any) -> Any:
        if x.shape[0] == 1000:
            return up * 0.0
        return tf.reshape(up, x.shape)

    return tf.identity(x), rule


@tf.custom_gradient
def reshaping(x: Any) -> Any:
    return tf.identity(x), lambda up: tf.reshape(up * 2.0, [x.shape[0]])


def slope(f: Any) -> Callable[[Any], Any]:
    def g(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(f(x))
        return tape.gradient(y, x)

    return g


def test_python_that_decides_by_sizes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"Python looks at sizes at .*test_sizes_that_matter.py"):
        reloaded(slope(capricious), ROW, tmp_path)
    assert_same(*reloaded(slope(reshaping), ROW, tmp_path), [[(n,)] for n in SIZES])


def test_what_was_never_tried_is_refused_when_it_is_called(tmp_path: Path) -> None:
    def f(x: Any) -> Any:
        if tf.shape(x)[0] * 3 + 1 == 1000:
            return x * 2.0
        return x

    model, again = reloaded(f, ROW, tmp_path)
    assert_same(model, again, [[(n,)] for n in SIZES])
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"(?s)has no result for float32\(333,\).*float32\(n\), where cond"
    ):
        again(tf.ones(333))


def test_sizes_that_meet_are_refused_where_they_differ(tmp_path: Path) -> None:
    _, again = reloaded(lambda x, y: x[: tf.shape(y)[0]], ROW * 2, tmp_path)
    assert again(tf.ones(4), tf.ones(4)).shape == (4,)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"float32\(n\), float32\(n\)"):
        again(tf.ones(9), tf.ones(4))
