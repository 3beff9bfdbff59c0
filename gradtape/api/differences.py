"""Jacobians as matrices of real numbers: by differences, by reverse mode row by row, by forward mode column by column.
Floor: api.

A complex number is a pair of real ones, its real part first. Under the pairing Re⟨a, b⟩ the cotangents 1 and i of a
result give the rows of its real and of its imaginary part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradtape.forward import ForwardAccumulator
from gradtape.recording import UnconnectedGradients, leaves_of
from gradtape.runtime.convert import convert
from gradtape.runtime.tensor import Tensor
from gradtape.tape import GradientTape

Array = np.ndarray[Any, Any]
Function = Callable[[list[Tensor]], list[Tensor]]
ZERO = UnconnectedGradients.ZERO


def reals(values: Sequence[Any]) -> Array:
    """All numbers of tensors or arrays as one real vector."""
    parts = [_pairs(np.asarray(v)) for v in values]
    return np.concatenate(parts) if parts else np.zeros(0)


def _pairs(array: Array) -> Array:
    flat = array.reshape(-1)
    return flat.view(flat.real.dtype) if flat.dtype.kind == "c" else flat


def count(t: Tensor) -> int:
    """How many real numbers a tensor is."""
    return t._aval.size * (2 if t.dtype.is_complex else 1)


def results_of(f: Function, xs: Sequence[Tensor]) -> list[Tensor]:
    """The results of a function that have derivatives."""
    return [t for t in f(list(xs)) if t.dtype.is_differentiable]


def numeric(f: Function, xs: Sequence[Tensor], k: int, delta: float | Array) -> Array:
    """The Jacobian of all results by argument k, by central differences; `delta`: how far each number is moved."""
    numbers = _pairs(np.asarray(xs[k]).copy()).astype(_wide(xs[k]))
    steps = np.broadcast_to(np.asarray(delta, numbers.dtype), numbers.shape)
    columns = []
    for j in range(len(numbers)):
        ends, places = [], []
        for sign in (1.0, -1.0):
            moved = numbers.copy()
            moved[j] += sign * steps[j]
            arg = _unpaired(moved, xs[k])
            places.append(float(_pairs(np.asarray(arg)).astype(numbers.dtype)[j]))  # where it is, after rounding
            ends.append(reals(results_of(f, [*xs[:k], arg, *xs[k + 1 :]])).astype(numbers.dtype))
        with np.errstate(invalid="ignore", divide="ignore"):  # a number may be too large to be moved at all
            columns.append((ends[0] - ends[1]) / (places[0] - places[1]))
    rows = sum(map(count, results_of(f, xs)))
    return np.stack(columns, axis=1) if columns else np.zeros((rows, 0), numbers.dtype)


def _wide(t: Tensor) -> Any:
    real = t.dtype.real_dtype.numpy_dtype
    return np.float64 if real == np.float64 else np.float32


def _unpaired(numbers: Array, like: Tensor) -> Tensor:
    real = numbers.astype(like.dtype.real_dtype.numpy_dtype)
    return convert(real.view(like.dtype.numpy_dtype).reshape(like._aval.dims))


def reverse(f: Function, xs: Sequence[Tensor]) -> list[Array]:
    """The Jacobians of all results by each argument, one gradient for each row."""
    with GradientTape(persistent=True) as tape:
        tape.watch(list(xs))
        ys = results_of(f, xs)
    rows: list[list[Array]] = [[] for _ in xs]
    for y, unit in [(t, u) for t in ys for u in _units(t)]:
        found = tape.gradient(y, list(xs), unit, ZERO)
        for row, g in zip(rows, found, strict=True):
            row.append(_pairs(np.asarray(convert(g))))
    return [
        np.stack(r) if r else np.zeros((0, count(x)), x.dtype.real_dtype.numpy_dtype)
        for r, x in zip(rows, xs, strict=True)
    ]


def forward(f: Function, xs: Sequence[Tensor]) -> list[Array]:
    """The same, one tangent for each column."""
    found = []
    for k, x in enumerate(xs):
        columns = []
        for unit in _units(x):
            tangents = [unit if j == k else convert(np.zeros_like(np.asarray(o))) for j, o in enumerate(xs)]
            with ForwardAccumulator(list(xs), tangents) as accumulator:
                ys = results_of(f, xs)
            columns.append(reals(leaves_of(accumulator.jvp(ys, ZERO)) if ys else []))
        rows = sum(map(count, results_of(f, xs)))
        found.append(np.stack(columns, axis=1) if columns else np.zeros((rows, 0), x.dtype.real_dtype.numpy_dtype))
    return found


def _units(t: Tensor) -> list[Tensor]:
    """Of a tensor's shape and dtype, 1 (and i) at one place each."""
    made = []
    for j in range(t._aval.size):
        for value in (1, 1j) if t.dtype.is_complex else (1,):
            flat = np.zeros(t._aval.size, t.dtype.numpy_dtype)
            flat[j] = value
            made.append(convert(flat.reshape(t._aval.dims)))
    return made
