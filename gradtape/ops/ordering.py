"""Declarations: positions of elements in sorted order, and places of values in sorted rows. Floor: ops.

No gradient flows through positions; what is sorted is gathered by them."""

from __future__ import annotations

from typing import Any

from gradtape.ir.aval import Aval, aval
from gradtape.ir.dtypes import DType, int32, int64
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ops.opaque import Opaque, axes_behind
from gradtape.ops.samples import BadSample, Sample, Spec

FEW = 8  # the first 1/FEW of a row or less is found without sorting the row


def _argsort(xp: Any, x: Any, axis: int, descending: bool, count: int) -> Any:
    rows = xp.moveaxis(x, axis, -1)
    few = descending and 0 < count * FEW <= rows.shape[-1] and not _has_nan(xp, rows)
    order = _largest(xp, rows, count) if few else _sorted(xp, rows, descending)[..., :count]
    return xp.moveaxis(order, -1, axis).astype(xp.int32)


def _has_nan(xp: Any, x: Any) -> bool:
    return x.dtype.kind not in "iu" and bool(xp.isnan(x).any())


def _sorted(xp: Any, rows: Any, descending: bool) -> Any:
    """Stable in both directions: of equal elements the first comes first."""
    if not descending:
        return xp.argsort(rows, axis=-1, kind="stable")
    backwards = xp.argsort(rows[..., ::-1], axis=-1, kind="stable")[..., ::-1]
    return rows.shape[-1] - 1 - backwards


def _largest(xp: Any, rows: Any, count: int) -> Any:
    """The positions of the `count` largest elements of rows without NaN: all above the last of them, and of those
    equal to it the first, so many as there is room for."""
    n = rows.shape[-1]
    last = xp.partition(rows, n - count, axis=-1)[..., n - count, None]
    chosen = rows >= last
    if xp.count_nonzero(chosen) > rows.size // n * count:  # more are equal to the last than there is room for
        above, level = rows > last, rows == last
        room = count - above.sum(axis=-1, keepdims=True)
        chosen = above | (level & (xp.cumsum(level, axis=-1) <= room))
    found = xp.nonzero(chosen)[-1].reshape(*rows.shape[:-1], count)
    order = _sorted(xp, xp.take_along_axis(rows, found, axis=-1), True)
    return xp.take_along_axis(found, order, axis=-1)


def _argsort_infer(x: Aval, axis: int, descending: bool, count: int) -> list[Aval]:
    if x.dtype.kind not in "fiu":
        raise ValueError(f"does not take {x.dtype.cname} tensors: only real numbers have an order.")
    if x.shape is None:
        return [aval(None, int32)]
    n = x.shape[axis]
    if n is not None and count > n:
        raise ValueError(f"wants the first {count} of an axis of size {n}.")
    return [aval((*x.shape[:axis], count, *x.shape[axis + 1 :]), int32)]


def _cut(axis: int, descending: bool, count: int) -> dict[str, Any]:
    return {"axis": axis, "descending": descending, "count": count}


ARGSORT = Opaque(
    "argsort",
    _argsort,
    infer=_argsort_infer,
    vjp=None,
    signature="(n)->(k)",
    shift=axes_behind,
    accumulate=True,
    samples=[
        Sample((Spec((2, 5)),), _cut(1, False, 5)),
        Sample((Spec((4, 2)),), _cut(0, True, 4)),
        Sample((Spec((2, 40)),), _cut(1, True, 3), "few of many"),
        Sample((Spec((30,), (0, 3), "int"),), _cut(0, True, 3), "few of many that are equal"),
        Sample((Spec((9,), (0, 3), "int"),), _cut(0, True, 9), "equal ones in their order"),
        Sample((Spec((2, 0)),), _cut(1, False, 0)),
        Sample((Spec((0, 3)),), _cut(1, True, 2)),
        Sample((Spec((1,)),), _cut(0, False, 1)),
    ],
    errors=[
        BadSample((((2,), "string"),), InvalidArgumentError, "string", _cut(0, False, 2)),
        BadSample((((2,), "float32"),), InvalidArgumentError, "the first 3", _cut(0, True, 3)),
    ],
    doc="The positions of the first elements of sorted order along an axis; of equal ones the first comes first.",
    notes="NaN counts as larger than every number.",
)


def _searchsorted(xp: Any, rows: Any, values: Any, right: bool, dtype: DType) -> Any:
    """Bisection of all values at once: how many elements of its row are below (`right`: or equal to) each."""
    if rows.ndim == 1:
        found = xp.searchsorted(rows, values, side="right" if right else "left")
        return found.astype(dtype.numpy_dtype)
    n = rows.shape[-1]
    low = xp.zeros(values.shape, xp.int64)
    high = xp.full(values.shape, n, xp.int64)
    for _ in range(n.bit_length()):
        middle = (low + high) // 2
        at = xp.take_along_axis(rows, xp.minimum(middle, n - 1), axis=-1)
        after = (low < high) & ((at <= values) if right else (at < values))
        low = xp.where(after, middle + 1, low)
        high = xp.where(after, high, middle)
    return low.astype(dtype.numpy_dtype)


def _searchsorted_infer(rows: Aval, values: Aval, right: bool, dtype: DType) -> list[Aval]:
    if rows.dtype is not values.dtype:
        raise ValueError(
            f"wants operands of one dtype, got a {rows.dtype.cname} and a {values.dtype.cname} tensor. Use `tf.cast`."
        )
    if rows.dtype.kind not in "fiu":
        raise ValueError(f"does not take {rows.dtype.cname} tensors: only real numbers have an order.")
    if rows.is_known and values.is_known and rows.dims[:-1] != values.dims[:-1]:
        raise ValueError(f"wants one row of values per sorted row, got shapes {rows.dims} and {values.dims}.")
    return [aval(values.shape, dtype)]


SEARCHSORTED = Opaque(
    "searchsorted",
    _searchsorted,
    infer=_searchsorted_infer,
    vjp=None,
    signature="(n),(k)->(k)",
    shift=lambda params, count: params,
    accumulate=True,
    samples=[
        Sample((Spec((1,)), Spec((4,))), {"right": False, "dtype": int32}),
        Sample((Spec((3, 1)), Spec((3, 4))), {"right": True, "dtype": int64}),
        Sample((Spec((2, 4), (1, 2), "int"), Spec((2, 3), (0, 3), "int")), {"right": True, "dtype": int32}, "equal"),
        Sample((Spec((2, 4), (1, 2), "int"), Spec((2, 3), (0, 3), "int")), {"right": False, "dtype": int32}, "equal"),
        Sample((Spec((2, 0)), Spec((2, 3))), {"right": False, "dtype": int32}),
        Sample((Spec((0,)), Spec((2,))), {"right": False, "dtype": int32}),
    ],
    errors=[
        BadSample(
            (((2, 3), "float32"), ((3, 3), "float32")),
            InvalidArgumentError,
            "one row",
            {"right": True, "dtype": int32},
        )
    ],
    doc="How many elements of a sorted row come before each value.",
)
