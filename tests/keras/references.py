"""What layers, losses and optimizers should compute, written in NumPy in float64 straight from the formulas."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

EPSILON = 1e-7


def wide(x: Any) -> Array:
    return np.asarray(x, np.float64)


# ------------------------------------------------------------------ losses: one value per example


def squared(y: Array, p: Array) -> Array:
    return ((y - p) ** 2).mean(-1)


def absolute(y: Array, p: Array) -> Array:
    return np.abs(y - p).mean(-1)


def huber(y: Array, p: Array, delta: float) -> Array:
    e = np.abs(y - p)
    return np.where(e <= delta, e**2 / 2, delta * (e - delta / 2)).mean(-1)


def binary(y: Array, p: Array, smoothing: float = 0.0) -> Array:
    y, p = y * (1 - smoothing) + smoothing / 2, np.clip(p, EPSILON, 1 - EPSILON)
    return -(y * np.log(p) + (1 - y) * np.log1p(-p)).mean(-1)


def categorical(y: Array, p: Array, smoothing: float = 0.0) -> Array:
    p = np.clip(p / p.sum(-1, keepdims=True), EPSILON, 1 - EPSILON)
    return -((y * (1 - smoothing) + smoothing / y.shape[-1]) * np.log(p)).sum(-1)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def weighted(values: Array, weights: Any, reduction: str | None) -> Any:
    if weights is not None:
        weights = wide(weights)
        values = values.reshape(weights.shape) * weights
    if reduction in (None, "none"):
        return values
    if reduction == "sum":
        return values.sum()
    count = weights.sum() if reduction == "mean_with_sample_weight" and weights is not None else values.size
    return values.sum() / count


# --------------------------------------------------------------- optimizers: generators of values, fed with gradients


def single(number: float) -> np.float64:
    """What Keras takes for float32 beside variables of every dtype."""
    return np.float64(np.float32(number))


def sgd(x: Array, rates: Sequence[float], momentum: float = 0.0, nesterov: bool = False) -> Iterator[Any]:
    velocity = np.zeros_like(x)
    for rate in rates:
        g = yield x
        velocity = single(momentum) * velocity - rate * g
        x = x + (single(momentum) * velocity - rate * g if nesterov else velocity)
    yield x


def adam(
    x: Array,
    rates: Sequence[float],
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-7,
    amsgrad: bool = False,
) -> Iterator[Any]:
    m, v, largest = np.zeros_like(x), np.zeros_like(x), np.zeros_like(x)
    for t, rate in enumerate(rates, 1):
        g = yield x
        m = beta_1 * m + (1 - beta_1) * g
        v = beta_2 * v + (1 - beta_2) * g**2
        largest = np.maximum(largest, v)
        alpha = rate * np.sqrt(1 - single(beta_2) ** t) / (1 - single(beta_1) ** t)
        x = x - alpha * m / (np.sqrt(largest if amsgrad else v) + epsilon)
    yield x


def rmsprop(
    x: Array,
    rates: Sequence[float],
    rho: float = 0.9,
    momentum: float = 0.0,
    epsilon: float = 1e-7,
    centered: bool = False,
) -> Iterator[Any]:
    mean, square, moved = np.zeros_like(x), np.zeros_like(x), np.zeros_like(x)
    for rate in rates:
        g = yield x
        mean = rho * mean + (1 - rho) * g
        square = rho * square + (1 - rho) * g**2
        moved = momentum * moved + rate * g / np.sqrt(square - centered * mean**2 + epsilon)
        x = x - moved
    yield x


def decayed(
    x: Array, rates: Sequence[float], weight_decay: float, rule: Callable[..., Iterator[Any]], **options: Any
) -> Iterator[Any]:
    """Another rule, with the variable made smaller before each step."""
    steps = rule(np.zeros_like(x), rates, **options)
    moved = next(steps)
    for rate in rates:
        g = yield x
        after = steps.send(g)
        x, moved = x * (1 - weight_decay * rate) + (after - moved), after
    yield x


# ------------------------------------------------------------------ derivatives


def numeric_gradient(f: Callable[[Array], float], x: Array, step: float = 1e-3) -> Array:
    """The gradient of f at x by differences of four points: the error is about step⁴."""
    found = np.zeros_like(x)
    for at in np.ndindex(*x.shape):
        values = []
        for k in (-2, -1, 1, 2):
            moved = x.copy()
            moved[at] += k * step
            values.append(f(moved))
        found[at] = (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * step)
    return found


# ------------------------------------------------------------------ images


def windows(x: Array, size: Sequence[int], strides: Sequence[int], dilations: Sequence[int], same: bool) -> Array:
    """(batch, rows, columns, height, width, channels): the windows of images with channels last; NaN outside."""
    reach = [(k - 1) * d + 1 for k, d in zip(size, dilations, strict=True)]
    before = [0, 0]
    counts = [(n - r) // s + 1 for n, r, s in zip(x.shape[1:3], reach, strides, strict=True)]
    if same:
        counts = [-(-n // s) for n, s in zip(x.shape[1:3], strides, strict=True)]
        missing = [(c - 1) * s + r - n for c, s, r, n in zip(counts, strides, reach, x.shape[1:3], strict=True)]
        before = [max(0, m) // 2 for m in missing]
    found = np.full((len(x), *counts, *size, x.shape[-1]), np.nan)
    for at in np.ndindex(*counts, *size):
        i, j = (c * s + k * d - b for c, k, s, d, b in zip(at[:2], at[2:], strides, dilations, before, strict=True))
        if 0 <= i < x.shape[1] and 0 <= j < x.shape[2]:
            found[(slice(None), *at)] = x[:, i, j]
    return found


def convolved(
    x: Array, kernel: Array, strides: Sequence[int], dilations: Sequence[int], same: bool, groups: int
) -> Array:
    """Images under a kernel (height, width, channels / groups, filters), group by group."""
    parts = np.nan_to_num(windows(x, kernel.shape[:2], strides, dilations, same))
    pairs = zip(np.split(parts, groups, -1), np.split(kernel, groups, -1), strict=True)
    return np.concatenate([np.einsum("nijhwc,hwcf->nijf", part, k) for part, k in pairs], -1)


def normalized(x: Array, axes: tuple[int, ...], gamma: Array, beta: Array, epsilon: float) -> Array:
    """Layer normalization, with gamma and beta in the order of the axes."""
    along = [n if k in axes else 1 for k, n in enumerate(x.shape)]
    centred = x - x.mean(axes, keepdims=True)
    root = np.sqrt((centred**2).mean(axes, keepdims=True) + epsilon)
    return centred / root * gamma.reshape(along) + beta.reshape(along)
