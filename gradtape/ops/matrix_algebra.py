"""The algebra of matrices in graphs: what the rules of linear algebra are written with. Floor: ops.

A matrix is the last two axes of a value; axes before them are loops."""

from __future__ import annotations

import functools
import string
from collections.abc import Callable, Sequence

from gradtape.ir.aval import Aval, aval
from gradtape.ir.dtypes import DType
from gradtape.ir.graph import Value
from gradtape.ir.shapes import Shape, broadcast, broadcast_axes, shape_text
from gradtape.ops.contraction import conjugate
from gradtape.ops.op import constant, emit

Dims = tuple[int, ...]
LETTERS = string.ascii_letters

# ------------------------------------------------------------------ what operands must be


def number(x: Aval) -> None:
    """Floating and complex tensors only."""
    if not x.dtype.is_differentiable:
        raise ValueError(f"wants a floating or complex tensor, got a {x.dtype.cname} tensor. Use `tf.cast`.")


def matrix(x: Aval) -> None:
    """Numbers in two axes or more."""
    number(x)
    if x.shape is not None and len(x.shape) < 2:
        raise ValueError(f"wants matrices (..., m, n), got shape {shape_text(x.shape)}. Use `tf.reshape`.")


def square(x: Aval) -> None:
    """Matrices with as many rows as columns."""
    matrix(x)
    if x.shape is not None and None not in x.shape[-2:] and x.shape[-2] != x.shape[-1]:
        raise ValueError(f"wants square matrices (..., n, n), got shape {shape_text(x.shape)}.")


def one_dtype(a: Aval, b: Aval) -> None:
    if a.dtype is not b.dtype:
        raise ValueError(
            f"wants operands of one dtype, got a {a.dtype.cname} and a {b.dtype.cname} tensor. Use `tf.cast`."
        )


def common_loops(a: Shape, b: Shape) -> Shape:
    """The loop axes of two shapes, broadcast."""
    try:
        return broadcast(a, b)
    except ValueError:
        raise ValueError(f"got loop axes that do not broadcast: {shape_text(a)} and {shape_text(b)}.") from None


def alike(a: Aval, *others: Aval) -> list[Aval]:
    """Square matrices of one size and dtype, whose loops broadcast."""
    shape = a.shape
    square(a)
    for x in others:
        square(x)
        one_dtype(a, x)
        if shape is None or x.shape is None:
            shape = None
            continue
        core = {n for n in (*shape[-2:], *x.shape[-2:]) if n is not None}
        if len(core) > 1:
            raise ValueError(f"wants matrices of one shape, got {shape_text(a.shape)} and {shape_text(x.shape)}.")
        n = next(iter(core), None)
        shape = (*(common_loops(shape[:-2], x.shape[:-2]) or ()), n, n)
    return [aval(shape, a.dtype)]


# ------------------------------------------------------------------ derivatives of any order


def along_adjoints(
    name: str, inputs: Sequence[Value], at: Sequence[Value], g: Value, after: Callable[[Value], Value]
) -> list[Value | None]:
    """The VJP of an op D^k f(A)[X₁ … X_k] that is symmetric in its directions, where the adjoint of one more
    derivative is the op itself: in A with the cotangent as one more direction, in X_i with the cotangent in its
    place. `at`: the operands as the adjoint wants them; `after`: what is done to its results."""
    a, *along = at
    pulled = [after(emit(name, a, *along, g))]
    pulled += [after(emit(name, a, *along[:k], g, *along[k + 1 :])) for k in range(len(along))]
    return [summed_to(v, x.aval.dims) for v, x in zip(pulled, inputs, strict=True)]


# ------------------------------------------------------------------ products and transposes


def transposed(v: Value) -> Value:
    """The last two axes exchanged."""
    n = len(v.aval.dims)
    return emit("transpose", v, perm=(*range(n - 2), n - 1, n - 2))


def adjoint(v: Value) -> Value:
    """The conjugate transpose."""
    return conjugate(transposed(v))


def product(*factors: Value) -> Value:
    """The matrix product, from the left; all have the same loop axes."""
    return functools.reduce(_product, factors)


def _product(a: Value, b: Value) -> Value:
    lead = LETTERS[3 : 1 + len(a.aval.dims)]
    return emit("contract", a, b, subscripts=f"{lead}ab,{lead}bc->{lead}ac")


def summed_to(v: Value, dims: Dims) -> Value:
    """The transpose of broadcasting `dims` up to the shape of `v`."""
    axes = broadcast_axes(dims, v.aval.dims)
    total = emit("reduce_sum", v, axes=axes, keepdims=False) if axes else v
    return total if total.aval.dims == dims else emit("reshape", total, shape=dims)


# ------------------------------------------------------------------ sums and scales


def plus(a: Value | None, b: Value) -> Value:
    return b if a is None else emit("add", a, b)


def minus(a: Value, b: Value) -> Value:
    return emit("subtract", a, b)


def times(v: Value, factor: float) -> Value:
    return emit("multiply", v, constant(factor, v.aval.dtype))


def hermitian(v: Value) -> Value:
    """(v + v*) / 2"""
    return times(emit("add", v, adjoint(v)), 0.5)


def skew(v: Value) -> Value:
    """(v - v*) / 2"""
    return times(minus(v, adjoint(v)), 0.5)


def cast(v: Value, dtype: DType) -> Value:
    return v if v.aval.dtype is dtype else emit("cast", v, dtype=dtype)


def zeros(of: Value) -> Value:
    return constant(0, of.aval.dtype, of.aval.dims)


def as_row(d: Value) -> Value:
    """(..., n) as (..., 1, n): one number per column."""
    return emit("reshape", d, shape=(*d.aval.dims[:-1], 1, d.aval.dims[-1]))


def as_column(d: Value) -> Value:
    """(..., n) as (..., n, 1): one number per row."""
    return emit("reshape", d, shape=(*d.aval.dims, 1))


def scaled_columns(v: Value, d: Value) -> Value:
    """v · diag(d)"""
    return emit("multiply", v, as_row(cast(d, v.aval.dtype)))


def per_matrix(d: Value) -> Value:
    """(...) as (..., 1, 1): one number per matrix."""
    return emit("reshape", d, shape=(*d.aval.dims, 1, 1))


# ------------------------------------------------------------------ parts of matrices


def positions(n: int) -> Value:
    return emit("positions", value=tuple(range(n)))


def lower(v: Value, offset: int = 0) -> Value:
    """What lies on and below a diagonal, zeros above it: offset 0 for the main one, -1 for the one below it."""
    m, n = v.aval.dims[-2:]
    row = emit("add", as_column(positions(m)), constant(offset, positions(m).aval.dtype))
    return emit("select", emit("less_equal", as_row(positions(n)), row), v, constant(0, v.aval.dtype))


def upper(v: Value) -> Value:
    """What lies on and above the main diagonal."""
    m, n = v.aval.dims[-2:]
    inside = emit("greater_equal", as_row(positions(n)), as_column(positions(m)))
    return emit("select", inside, v, constant(0, v.aval.dtype))


def on_diagonal(d: Value, dtype: DType) -> Value:
    """diag(d)"""
    return emit("undiagonal", cast(d, dtype))


def real_diagonal(v: Value) -> Value:
    """The diagonal of v, its real part only, in a matrix of zeros."""
    d = emit("diagonal", v)
    return on_diagonal(emit("real", d) if d.aval.dtype.is_complex else d, v.aval.dtype)


def columns(v: Value, start: int, stop: int) -> Value:
    """The columns from `start` to `stop`."""
    begin = emit("positions", value=(start,))
    return emit("slice", v, begin, axes=(len(v.aval.dims) - 1,), sizes=(stop - start,), strides=(1,))


def rows(v: Value, start: int, stop: int) -> Value:
    """The rows from `start` to `stop`."""
    begin = emit("positions", value=(start,))
    return emit("slice", v, begin, axes=(len(v.aval.dims) - 2,), sizes=(stop - start,), strides=(1,))


def beside(*parts: Value) -> Value:
    """Matrices next to each other."""
    return emit("concat", *parts, axis=len(parts[0].aval.dims) - 1)


def stacked(*parts: Value) -> Value:
    """Matrices on top of each other."""
    return emit("concat", *parts, axis=len(parts[0].aval.dims) - 2)
