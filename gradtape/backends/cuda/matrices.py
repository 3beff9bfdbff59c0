"""What graphs for linear algebra on a device share: matrices that have no answer, signs of vectors. Floor: backends.

A matrix that has no answer, or that holds NaN or infinities, answers NaN. Where no matrix of a stack has one the host
raises an error; here nobody waits to find that out, so that all are NaN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from gradtape.ir.aval import Aval
from gradtape.ir.dtypes import DType, float32
from gradtape.ir.graph import Graph, Value
from gradtape.ops import matrix_algebra as m
from gradtape.ops.contraction import conjugate
from gradtape.ops.gauge import NEARLY
from gradtape.ops.op import apply, constant, emit

Expand = Callable[..., Graph]


def expansion(build: Callable[..., Any]) -> Expand:
    """(avals, **params) to the graph of what `build` makes of graph values; halves are computed in float32."""

    def expand(avals: tuple[Aval, ...], **params: Any) -> Graph:
        inputs = tuple(map(Value, avals))
        half = next((a.dtype for a in avals if a.dtype.is_half), None)
        found = build(*[m.cast(v, float32) if v.aval.dtype.is_half else v for v in inputs], **params)
        results = found if isinstance(found, tuple) else (found,)
        return Graph(inputs, [m.cast(v, half) if half and v.aval.dtype is float32 else v for v in results])

    return expand


def called(op: Any, *operands: Value, **params: Any) -> Any:
    """The results of a call of the library."""
    results = apply(op.bind(**params), operands)
    return results if len(results) > 1 else results[0]


def precision(dtype: DType) -> float:
    """The distance of 1 to the next number."""
    return float(ml_dtypes.finfo(dtype.real_dtype.numpy_dtype).eps)


# ------------------------------------------------------------------ elements


def axes_of(v: Value, count: int) -> tuple[int, ...]:
    """The last axes of a value."""
    rank = len(v.aval.dims)
    return tuple(range(rank - count, rank))


def over(op: str, v: Value, *axes: int) -> Value:
    """A reduction over axes, counted from the end, that stay as axes of size 1."""
    rank = len(v.aval.dims)
    return emit(op, v, axes=tuple(sorted(rank + k for k in axes)), keepdims=True)


def size_of(v: Value) -> Value:
    """|v|"""
    return emit("complex_abs" if v.aval.dtype.is_complex else "abs", v)


def squared_size(v: Value) -> Value:
    """|v|²"""
    if not v.aval.dtype.is_complex:
        return emit("square", v)
    return emit("add", emit("square", emit("real", v)), emit("square", emit("imag", v)))


def real_part(v: Value) -> Value:
    return emit("real", v) if v.aval.dtype.is_complex else v


def finite(v: Value) -> Value:
    """Which elements are finite."""
    if not v.aval.dtype.is_complex:
        return emit("is_finite", v)
    return emit("logical_and", *(emit("is_finite", emit(part, v)) for part in ("real", "imag")))


def on_the_diagonal(rows: int, columns: int) -> Value:
    """(rows, columns): which elements are those of the main diagonal."""
    return emit("equal", m.as_column(m.positions(rows)), m.as_row(m.positions(columns)))


def identity(dims: tuple[int, ...], dtype: DType) -> Value:
    """Unit matrices."""
    one, none = constant(1, dtype), constant(0, dtype)
    unit = emit("select", on_the_diagonal(*dims[-2:]), one, none)
    return unit if len(dims) == 2 else emit("broadcast_to", unit, shape=dims)


def not_a_number(dtype: DType) -> Value:
    return constant(complex("nan") if dtype.is_complex else float("nan"), dtype)


def common_loops(*values: Value) -> tuple[int, ...]:
    """The loop axes of matrices, broadcast."""
    return np.broadcast_shapes(*(v.aval.dims[:-2] for v in values))


def in_loops(v: Value, loops: tuple[int, ...]) -> Value:
    """Matrices repeated along loop axes."""
    dims = (*loops, *v.aval.dims[-2:])
    return v if v.aval.dims == dims else emit("broadcast_to", v, shape=dims)


# ------------------------------------------------------------------ matrices that have no answer


def sound(a: Value) -> tuple[Value, Value]:
    """Which matrices are finite, (..., 1, 1), and the stack with unit matrices in place of the others."""
    ok = over("reduce_all", finite(a), -2, -1)
    return ok, emit("select", ok, a, identity(a.aval.dims, a.aval.dtype))


def marked(result: Value, ok: Value, core: int) -> Value:
    """NaN where a matrix has no answer; results have `core` axes behind the loops, `ok` has two."""
    loops = ok.aval.dims[:-2]
    if core != 2:
        ok = emit("reshape", ok, shape=(*loops, *(1,) * core))
    return emit("select", ok, result, not_a_number(result.aval.dtype))


def turning(vectors: Value) -> Value:
    """(..., m, n) to (..., 1, n): what `ops.gauge.turning` gives, the signs that columns are to be multiplied by."""
    dtype, rows = vectors.aval.dtype, vectors.aval.dims[-2]
    size = size_of(vectors)
    near = emit("greater_equal", size, m.times(over("reduce_max", size, -2), NEARLY))
    place = m.as_column(m.positions(rows))
    first = over("reduce_min", emit("select", near, place, constant(rows, place.aval.dtype)), -2)
    anchor = over("reduce_sum", emit("select", emit("equal", place, first), vectors, constant(0, dtype)), -2)
    length = size_of(anchor)
    some = emit("greater", length, constant(0, length.aval.dtype))
    divisor = emit("select", some, length, constant(1, length.aval.dtype))
    unit = emit("divide", conjugate(anchor), m.cast(divisor, dtype))
    return emit("select", some, unit, constant(1, dtype))


def turned(vectors: Value) -> Value:
    """Vectors of the sign that the host gives them."""
    return emit("multiply", vectors, turning(vectors)) if vectors.aval.size else vectors
