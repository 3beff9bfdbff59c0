"""Which of many equal answers: signs and phases of eigenvectors and singular vectors. Floor: ops.

A vector times a number of size 1 serves as well. Here its first component that is nearly its largest is positive
(real and positive where numbers are complex), on every backend. So a decomposition is a function of its matrix, and
its derivative one of it alone; rules derive first the answer that turns least, then add what this choice turns."""

from __future__ import annotations

from typing import Any

import ml_dtypes

from gradtape.ir.dtypes import int64
from gradtape.ir.graph import Value
from gradtape.ops import matrix_algebra as m
from gradtape.ops.contraction import conjugate
from gradtape.ops.op import constant, emit

NEARLY = 0.9  # of the largest size: ties within rounding must not decide


def turning(xp: Any, vectors: Any) -> Any:
    """(..., m, n) to (..., 1, n): the numbers that columns are to be multiplied by."""
    if vectors.shape[-2] == 0:
        return xp.ones((*vectors.shape[:-2], 1, vectors.shape[-1]), vectors.dtype)
    size = xp.abs(vectors)
    first = xp.argmax(size >= NEARLY * size.max(axis=-2, keepdims=True), axis=-2)
    anchor = xp.take_along_axis(vectors, first[..., None, :], axis=-2)
    length = xp.abs(anchor)
    sound = length > 0
    turn = xp.conj(anchor) / xp.where(sound, length, xp.ones_like(length))
    return xp.where(sound, turn, xp.ones_like(turn))


def released(vectors: Value, cotangent: Value, total: Value) -> Value:
    """The cotangent of the vectors before they were turned.

    Turning by dθ keeps the anchor real: dθ = -Im(dv at the anchor) / anchor. The cotangent along all that turns
    with the vector is Im(total), a number per column (..., n); it goes to the anchor's imaginary part."""
    rows, axis = vectors.aval.dims[-2], len(vectors.aval.dims) - 2
    if not cotangent.aval.dtype.is_complex or rows == 0:
        return cotangent
    size = emit("complex_abs", vectors)
    largest = m.times(emit("reduce_max", size, axes=(axis,), keepdims=True), NEARLY)
    near = m.cast(emit("greater_equal", size, largest), size.aval.dtype)
    first = m.as_row(emit("argmax", near, axis=axis, dtype=int64))
    at = emit("equal", m.as_column(m.positions(rows)), first)
    none = constant(0, size.aval.dtype)
    anchor = emit("reduce_sum", emit("select", at, emit("real", vectors), none), axes=(axis,), keepdims=True)
    push = emit("divide", m.as_row(emit("imag", total)), anchor)
    return m.minus(cotangent, emit("complex", none, emit("select", at, push, none)))


def along_columns(vectors: Value, cotangent: Value) -> Value:
    """Σ conj(v) · g of every column."""
    axis = len(vectors.aval.dims) - 2
    return emit("reduce_sum", emit("multiply", conjugate(vectors), cotangent), axes=(axis,), keepdims=False)


def differences(values: Value) -> Value:
    """(..., n) to (..., n, n): 1 / (values_j - values_i), and 0 where they are equal as far as rounding can tell."""
    return _reciprocal(values, m.minus(m.as_row(values), m.as_column(values)))


def sums(values: Value) -> Value:
    """(..., n) to (..., n, n): 1 / (values_j + values_i), and 0 where both are 0 as far as rounding can tell."""
    return _reciprocal(values, emit("add", m.as_row(values), m.as_column(values)))


def inverses(values: Value) -> Value:
    """(..., n): 1 / values, and 0 where they are 0 as far as rounding can tell."""
    return emit("reshape", _reciprocal(values, m.as_row(values)), shape=values.aval.dims)


def _reciprocal(values: Value, x: Value) -> Value:
    """1 / x, and 0 where x is less than the error of the values."""
    dtype, n = values.aval.dtype, values.aval.dims[-1]
    largest = emit("reduce_max", emit("abs", values), axes=(len(values.aval.dims) - 1,), keepdims=False)
    error = m.times(m.per_matrix(largest), 10 * n * float(ml_dtypes.finfo(dtype.numpy_dtype).eps))
    sound = emit("greater", emit("abs", x), error)
    safe = emit("select", sound, x, constant(1, dtype))
    return emit("select", sound, emit("reciprocal", safe), constant(0, dtype))
