"""Convolution and pooling as a whole: strides with gaps, groups, channels first, explicit padding, nothing at all,
ties, second derivatives, and dropout. Against their definition, one product after the other."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import gradtape as tf

FIRST = {1: "NCW", 2: "NCHW", 3: "NCDHW"}


def same_padding(n: int, reach: int, stride: int) -> tuple[int, int]:
    """TensorFlow's: as many windows as strides fit, what is missing shared out, the odd one at the end."""
    total = max((-(-n // stride) - 1) * stride + reach - n, 0)
    return total // 2, total - total // 2


class Windows:
    """Where windows lie, by chance."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = np.random.default_rng(seed)
        d = self.rank = int(rng.integers(1, 4))
        self.window = [int(n) for n in rng.integers(1, 4, d)]
        self.strides = [int(n) for n in rng.integers(1, 4, d)]
        self.dilations = [int(n) for n in rng.integers(1, 3, d)]
        self.reach = [(k - 1) * g + 1 for k, g in zip(self.window, self.dilations, strict=True)]
        self.kind = rng.choice(["SAME", "VALID", "EXPLICIT"])
        least = self.reach if self.kind == "VALID" else [1] * d
        self.space = [int(rng.integers(m, m + 5)) for m in least]
        if self.kind == "SAME":
            self.pads = [same_padding(*n) for n in zip(self.space, self.reach, self.strides, strict=True)]
        elif self.kind == "VALID":
            self.pads = [(0, 0)] * d
        else:
            self.pads = [(r - 1, int(rng.integers(0, 3))) for r in self.reach]
        steps = zip(self.space, self.pads, self.reach, self.strides, strict=True)
        self.counts = [(n + a + b - r) // s + 1 for n, (a, b), r, s in steps]

    def padding(self, first: bool = False) -> Any:
        if self.kind != "EXPLICIT":
            return str(self.kind)
        return [[0, 0]] * (1 + first) + [list(p) for p in self.pads] + [[0, 0]] * (not first)

    def elements(self, t: tuple[int, ...]) -> Any:
        """Places in the window and in the image, of elements inside."""
        for w in np.ndindex(*self.window):
            steps = zip(t, self.strides, w, self.dilations, self.pads, strict=True)
            at = tuple(i * s + j * g - low for i, s, j, g, (low, _) in steps)
            if all(0 <= k < n for k, n in zip(at, self.space, strict=True)):
                yield w, at

    def convolved(self, x: Any, k: Any) -> Any:
        depth, results = k.shape[-2:]
        groups = x.shape[-1] // depth
        out = np.zeros((len(x), *self.counts, results))
        for t in np.ndindex(*self.counts):
            for (w, at), g in itertools.product(list(self.elements(t)), range(groups)):
                o = slice(g * results // groups, (g + 1) * results // groups)
                out[(slice(None), *t, o)] += x[(slice(None), *at)][:, g * depth : (g + 1) * depth] @ k[w][:, o]
        return out

    def pooled(self, x: Any, kind: str) -> Any:
        out = np.zeros((len(x), *self.counts, x.shape[-1]))
        for t in np.ndindex(*self.counts):
            found = np.array([x[(slice(None), *at)] for _, at in self.elements(t)])
            if kind == "MAX":
                out[(slice(None), *t)] = found.max(0) if len(found) else -np.inf
            elif len(found):
                out[(slice(None), *t)] = found.mean(0)
        return out


def first(x: Any) -> Any:
    return np.moveaxis(x, -1, 1)


def slope(f: Any, x: Any, direction: Any, step: float = 1e-4) -> Any:
    return (f(x + step * direction) - f(x - step * direction)) / (2 * step)


@pytest.mark.parametrize("seed", range(60))
def test_convolutions_by_chance(seed: int) -> None:
    w = Windows(seed)
    groups, depth, per_group, n = (int(w.rng.choice(c)) for c in ([1, 1, 2, 3], [1, 2, 5], [1, 2], [0, 1, 3]))
    x = w.rng.standard_normal((n, *w.space, groups * depth))
    k = w.rng.standard_normal((*w.window, depth, groups * per_group))
    want = w.convolved(x, k)
    options = {"strides": w.strides, "dilations": w.dilations}
    images, kernel = tf.constant(x), tf.constant(k)
    with tf.GradientTape() as tape:
        tape.watch([images, kernel])
        y = tf.nn.convolution(images, kernel, padding=w.padding(), **options)
    np.testing.assert_allclose(y, want, atol=1e-12)
    c = w.rng.standard_normal(want.shape)
    of_images, of_kernel = tape.gradient(y, [images, kernel], output_gradients=tf.constant(c))
    dx, dk = w.rng.standard_normal(x.shape), w.rng.standard_normal(k.shape)
    np.testing.assert_allclose(np.sum(of_images * dx), np.sum(c * w.convolved(dx, k)), atol=1e-9)
    np.testing.assert_allclose(np.sum(of_kernel * dk), np.sum(c * w.convolved(x, dk)), atol=1e-9)
    turned = tf.nn.convolution(first(x), kernel, padding=w.padding(True), data_format=FIRST[w.rank], **options)
    np.testing.assert_allclose(turned, first(want), atol=1e-12)
    back = tf.nn.conv_transpose(tf.constant(c), kernel, x.shape, padding=w.padding(), **options)
    np.testing.assert_allclose(back, of_images, atol=1e-12)


@pytest.mark.parametrize("kind", ["MAX", "AVG"])
@pytest.mark.parametrize("seed", range(100, 140))
def test_pooling_by_chance(seed: int, kind: str) -> None:
    w = Windows(seed)
    x = w.rng.permutation(np.arange(2 * np.prod(w.space) * 3.0)).reshape(2, *w.space, 3)
    want = w.pooled(x, kind)
    options = {"strides": w.strides, "dilations": w.dilations}
    images = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(images)
        y = tf.nn.pool(images, w.window, kind, padding=w.padding(), **options)
    np.testing.assert_allclose(y, want)
    turned = tf.nn.pool(first(x), w.window, kind, padding=w.padding(True), data_format=FIRST[w.rank], **options)
    np.testing.assert_allclose(turned, first(want))
    c, direction = w.rng.standard_normal(want.shape), w.rng.uniform(-1, 1, x.shape)
    grad = tape.gradient(y, images, output_gradients=tf.constant(c))
    with np.errstate(invalid="ignore"):
        change = slope(lambda a: w.pooled(a, kind), x, direction)
    finite = np.where(np.isfinite(want), change, 0)
    np.testing.assert_allclose(np.sum(grad * direction), np.sum(c * finite), atol=1e-6)


def test_ties_go_to_the_first_of_a_window() -> None:
    x = tf.constant([[[2.0], [2.0], [2.0], [1.0]]])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.nn.max_pool1d(x, 3, 1, "VALID")
    assert tape.gradient(y, x).numpy().ravel().tolist() == [1.0, 1.0, 0.0, 0.0]


def test_a_window_of_least_numbers_at_the_edge_keeps_its_gradient() -> None:
    """What lies outside is no element, not even where all elements are as small as can be."""
    x = tf.fill([1, 2, 1], -np.inf)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.nn.max_pool1d(x, 3, 1, "SAME")
    assert tape.gradient(y, x).numpy().ravel().tolist() == [2.0, 0.0]


def test_pooling_of_integers() -> None:
    x = tf.reshape(tf.range(8), [1, 8, 1])
    assert tf.nn.max_pool1d(x, 3, 3, "SAME").numpy().ravel().tolist() == [2, 5, 7]


@pytest.mark.parametrize("shape", [(2, 3, 5, 5, 2), (2, 0, 5, 5, 2)])
def test_convolution_with_more_batch_axes(shape: tuple[int, ...]) -> None:
    x, k = np.random.default_rng(0).standard_normal(shape), np.ones((2, 2, 2, 3))
    whole = tf.nn.conv2d(x, k, 2, "SAME")
    parts = tf.nn.conv2d(x.reshape(-1, 5, 5, 2), k, 2, "SAME")
    np.testing.assert_array_equal(whole, parts.numpy().reshape(*shape[:2], 3, 3, 3))


def test_second_derivative_of_a_small_network() -> None:
    """The Hessian of a loss in the kernel, against differences of its gradient."""
    rng = np.random.default_rng(1)
    x, start = rng.standard_normal((2, 6, 6, 1)), rng.standard_normal((3, 3, 1, 2))

    def gradient(k: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(k)
            y = tf.nn.avg_pool2d(tf.tanh(tf.nn.conv2d(x, k, 1, "SAME")), 2, 2, "VALID")
            loss = tf.reduce_sum(tf.nn.max_pool2d(y, 2, 1, "SAME") ** 3)
        return tape.gradient(loss, k)

    direction = rng.standard_normal(start.shape)
    k = tf.constant(start)
    with tf.GradientTape() as outer:
        outer.watch(k)
        along = tf.reduce_sum(gradient(k) * direction)
    want = slope(lambda a: gradient(tf.constant(a)).numpy(), start, direction, 1e-5)
    np.testing.assert_allclose(outer.gradient(along, k), want, rtol=1e-6, atol=1e-7)


X, K = tf.ones([1, 4, 4, 3]), tf.ones([2, 2, 3, 6])
INVALID = tf.errors.InvalidArgumentError
WRONG: dict[str, tuple[Any, type[Exception], str]] = {
    "channels": (lambda: tf.nn.conv2d(X, tf.ones([2, 2, 2, 6]), 1, "SAME"), INVALID, "evenly divisible.*3 vs 2"),
    "groups": (lambda: tf.nn.conv2d(X, tf.ones([2, 2, 1, 4]), 1, "SAME"), INVALID, "multiple of 3 filters.*got 4"),
    "dtypes": (lambda: tf.nn.conv2d(X, tf.cast(K, tf.float64), 1, "SAME"), INVALID, "float and a double"),
    "integers": (lambda: tf.nn.conv2d(tf.cast(X, tf.int32), tf.cast(K, tf.int32), 1, "SAME"), INVALID, "floating"),
    "rank": (lambda: tf.nn.conv2d(X[0], K, 1, "SAME"), INVALID, "4 or more dimensions"),
    "rank of filters": (lambda: tf.nn.conv2d(X, K[0], 1, "SAME"), INVALID, "filters with 4 dimensions"),
    "too large": (lambda: tf.nn.conv2d(X, tf.ones([9, 1, 3, 1]), 1, "VALID"), INVALID, "would be negative"),
    "padding": (lambda: tf.nn.conv2d(X, K, 1, "FULL"), ValueError, "'SAME', 'VALID' or a list.*'FULL'"),
    "padded channels": (lambda: tf.nn.conv2d(X, K, 1, [[0, 0], [0, 0], [0, 0], [1, 0]]), INVALID, "0 for batch"),
    "strides": (lambda: tf.nn.conv2d(X, K, [1, 1, 1], "SAME"), ValueError, "1 or 2 or 4 entries"),
    "batch stride": (lambda: tf.nn.conv2d(X, K, [2, 1, 1, 1], "SAME"), INVALID, "1 for batch and channels"),
    "no stride": (lambda: tf.nn.conv2d(X, K, 0, "SAME"), INVALID, "positive"),
    "format": (lambda: tf.nn.conv2d(X, K, 1, "SAME", data_format="CHWN"), ValueError, "'NHWC' or 'NCHW'"),
    "depth": (lambda: tf.nn.depthwise_conv2d(X, tf.ones([2, 2, 2, 1]), 1, "SAME"), INVALID, "same depth: 3 vs 2"),
    "pointwise": (
        lambda: tf.nn.separable_conv2d(X, tf.ones([2, 2, 3, 1]), K, 1, "SAME"),
        INVALID,
        r"shape \(1, 1, channels, results\)",
    ),
    "transposed": (
        lambda: tf.nn.conv2d_transpose(X, tf.ones([2, 2, 1, 3]), [1, 9, 9, 1], 2),
        INVALID,
        r"size \(5, 5\), got \(4, 4\)",
    ),
    "transposed channels": (
        lambda: tf.nn.conv2d_transpose(X, tf.ones([2, 2, 1, 2]), [1, 8, 8, 1], 2),
        INVALID,
        "2 channels",
    ),
    "output_shape": (lambda: tf.nn.conv2d_transpose(X, K, [1, 8, 8], 2), ValueError, "4 entries"),
    "pool rank": (lambda: tf.nn.max_pool2d(X[0], 2, 2, "SAME"), INVALID, "4 dimensions"),
    "pool any rank": (lambda: tf.nn.max_pool(X[0, 0], 2, 2, "SAME"), ValueError, "3, 4 or 5"),
    "pool channels": (lambda: tf.nn.max_pool2d(X, [1, 1, 1, 2], 2, "SAME"), INVALID, "1 for batch and channels"),
    "pool too large": (lambda: tf.nn.avg_pool2d(X, 9, 1, "VALID"), INVALID, "would be negative"),
    "mean of integers": (lambda: tf.nn.avg_pool2d(tf.cast(X, tf.int32), 2, 2, "SAME"), INVALID, "floating"),
    "pooling type": (lambda: tf.nn.pool(X, 2, "MEDIAN"), ValueError, "'MAX' or 'AVG'"),
    "rate": (lambda: tf.nn.dropout(X, 1.0), ValueError, r"\[0, 1\)"),
    "rate below": (lambda: tf.nn.dropout(X, -0.1), ValueError, r"\[0, 1\)"),
    "dropout of integers": (lambda: tf.nn.dropout([1, 2], 0.5), ValueError, "floating"),
    "noise shape": (lambda: tf.nn.dropout(X, 0.5, noise_shape=[2, 4, 4, 3]), INVALID, "does not broadcast"),
    "blocks": (lambda: tf.nn.space_to_depth(X, 3), INVALID, "divisible by block_size 3"),
    "block size": (lambda: tf.nn.depth_to_space(X, 1), INVALID, "2 or more"),
    "depth of blocks": (lambda: tf.nn.depth_to_space(X, 2), INVALID, "depth 3 should be divisible"),
    "patches": (lambda: tf.image.extract_patches(X, [2, 2], [1, 1], [1, 1], "SAME"), ValueError, "4 entries"),
}


@pytest.mark.parametrize("what", WRONG)
def test_errors(what: str) -> None:
    call, kind, words = WRONG[what]
    with pytest.raises(kind, match=words) as caught:
        call()
    assert type(caught.value) is kind


def test_windows_that_just_do_not_fit_give_nothing() -> None:
    """Windows too large by less than two strides give no result; larger ones are an error, as in TensorFlow."""
    assert tf.nn.conv1d(tf.ones([1, 2, 1]), tf.ones([3, 1, 1]), 1, "VALID").shape == (1, 0, 1)
    with pytest.raises(INVALID, match="would be negative"):
        tf.nn.conv1d(tf.ones([1, 1, 1]), tf.ones([3, 1, 1]), 1, "VALID")


# ------------------------------------------------------------------ dropout


def test_dropout_keeps_the_mean_and_passes_gradients_where_it_keeps() -> None:
    x = tf.constant(np.random.default_rng(2).uniform(1, 2, 20_000))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.nn.dropout(x, 0.3, seed=1)
    kept = y.numpy() != 0
    assert abs(kept.mean() - 0.7) < 0.02
    np.testing.assert_allclose(y.numpy()[kept], x.numpy()[kept] / 0.7)
    np.testing.assert_allclose(tape.gradient(y, x), kept / 0.7)


def test_dropout_is_repeatable_and_drops_axes_together() -> None:
    x = tf.ones([50, 8])

    def drawn() -> Any:
        tf.random.set_seed(4)
        return tf.nn.dropout(x, tf.constant(0.5), noise_shape=[None, 1]).numpy()

    a = drawn()
    assert np.array_equal(a, drawn())
    assert set(a[:, 0]) == {0.0, 2.0}
    assert np.array_equal(a, np.repeat(a[:, :1], 8, 1))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_dropout_in_other_dtypes(dtype: str) -> None:
    y = tf.nn.dropout(tf.ones([1000], dtype), 0.5)
    assert y.dtype == dtype and set(np.asarray(y).astype(float)) == {0.0, 2.0}
