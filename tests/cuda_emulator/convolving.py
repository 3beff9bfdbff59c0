"""Convolution and its gradients on the host, one place of the window after the other: what the stand-in for cuDNN
computes.

Images (n, *space, channels), filters (results, *window, channels of a group), results (n, *windows, results)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

__all__ = ["dgrad", "fprop", "wgrad"]

Array = np.ndarray[Any, Any]
Sizes = Sequence[int]
Order = np.random.Generator | None  # in which places are added; None: the same one always


def fprop(
    x: Array, w: Array, shape: Sizes, low: Sizes, high: Sizes, strides: Sizes, dilations: Sizes, order: Order
) -> Array:
    y = np.zeros(shape, np.float32)
    wide, apart = _padded(x, low, high), _groups(x, w)
    for at, cut in _places(w.shape[1:-1], shape[1:-1], strides, dilations, order):
        images = wide[cut].reshape(-1, apart, w.shape[-1])
        y += np.einsum("tgc,gkc->tgk", images, _at(w, at, apart)).reshape(shape)
    return y


def dgrad(
    y: Array, w: Array, shape: Sizes, low: Sizes, high: Sizes, strides: Sizes, dilations: Sizes, order: Order
) -> Array:
    wide = _padded(np.zeros(shape, np.float32), low, high)
    apart = _groups(wide, w)
    results = y.reshape(-1, apart, w.shape[0] // apart)
    for at, cut in _places(w.shape[1:-1], y.shape[1:-1], strides, dilations, order):
        images = np.einsum("tgk,gkc->tgc", results, _at(w, at, apart))
        wide[cut] += images.reshape(wide[cut].shape)
    inside = tuple(slice(a, a + n) for a, n in zip(low, shape[1:-1], strict=True))
    return wide[(slice(None), *inside)]


def wgrad(
    x: Array, y: Array, shape: Sizes, low: Sizes, high: Sizes, strides: Sizes, dilations: Sizes, order: Order
) -> Array:
    w = np.zeros(shape, np.float32)
    wide, apart = _padded(x, low, high), _groups(x, w)
    results = y.reshape(-1, apart, shape[0] // apart)
    rows = np.arange(len(results)) if order is None else order.permutation(len(results))
    for at, cut in _places(shape[1:-1], y.shape[1:-1], strides, dilations, None):
        images = wide[cut].reshape(-1, apart, shape[-1])
        found = np.einsum("tgk,tgc->gkc", results[rows], images[rows])
        w[(slice(None), *at)] = found.reshape(shape[0], shape[-1])
    return w


def _padded(x: Array, low: Sizes, high: Sizes) -> Array:
    return np.pad(x, [(0, 0), *zip(low, high, strict=True), (0, 0)])


def _groups(x: Array, w: Array) -> int:
    return int(x.shape[-1] // w.shape[-1])


def _at(w: Array, at: tuple[int, ...], groups: int) -> Array:
    """The filters' elements at one place of the window, by group."""
    return w[(slice(None), *at)].reshape(groups, -1, w.shape[-1])


def _places(
    window: Sizes, counts: Sizes, strides: Sizes, dilations: Sizes, order: Order
) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """Each place of a window, and what all windows have there, of padded images."""
    places = list(itertools.product(*map(range, window)))
    if order is not None:
        order.shuffle(places)
    for at in places:
        steps = zip(at, counts, strides, dilations, strict=True)
        cut = tuple(slice(k * d, k * d + (n - 1) * s + 1, s) for k, n, s, d in steps)
        yield at, (slice(None), *cut)
