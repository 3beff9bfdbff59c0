"""Declarations: integers and floats as rows of bits. Floor: ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradtape.ir.aval import Aval, aval
from gradtape.ir.dtypes import DType, complex128, float32, float64, int16, int32, int64
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.shapes import shape_text
from gradtape.ops.opaque import Opaque
from gradtape.ops.pointwise import Pointwise
from gradtape.ops.samples import BadSample, Sample, Spec

ANY, COUNT = (-9.0, 9.0), (0.0, 5.0)
SHAPES = [((2, 3), (2, 3)), ((), ()), ((0, 2), (0, 2)), ((1,), (1,)), ((2, 1, 3), (4, 1))]


def _whole(*domains: tuple[float, float]) -> list[Sample]:
    """Integers of the dtype under test, and of int64, which are there in tests of other dtypes too."""
    return [
        Sample(tuple(Spec(shape, domain, dtype) for shape, domain in zip(shapes, domains, strict=False)))
        for dtype in ("float", "int")
        for shapes in SHAPES
    ]


def _bitwise(name: str, ufunc: str, doc: str, second: tuple[float, float] = ANY) -> Pointwise:
    return Pointwise(
        name,
        ufunc,
        [None, None],
        operands="x y",
        accepts="iu",
        samples=_whole(ANY, second),
        errors=[
            BadSample((((2,), "float32"), ((2,), "float32")), InvalidArgumentError, "does not take float"),
            BadSample((((2,), "int32"), ((2,), "int64")), InvalidArgumentError, "int64"),
        ],
        doc=doc,
    )


BITWISE_AND = _bitwise("bitwise_and", "bitwise_and", "The bits that are set in both of two integers.")
BITWISE_OR = _bitwise("bitwise_or", "bitwise_or", "The bits that are set in any of two integers.")
BITWISE_XOR = _bitwise("bitwise_xor", "bitwise_xor", "The bits that are set in exactly one of two integers.")
LEFT_SHIFT = _bitwise("left_shift", "left_shift", "The bits of x moved y places up; 0 from the width on.", COUNT)
RIGHT_SHIFT = _bitwise(
    "right_shift", "right_shift", "The bits of x moved y places down, its sign staying what it is.", COUNT
)
INVERT = Pointwise(
    "invert",
    "invert",
    [None],
    accepts="iu",
    samples=_whole(ANY),
    errors=[BadSample((((2,), "float32"),), InvalidArgumentError, "does not take float")],
    doc="Every bit of an integer flipped.",
)

# ------------------------------------------------------------------ the same bytes in another dtype


class Bitcast(Pointwise):
    """The bytes of each element as an element of another dtype of the same size."""

    def result_dtype(self, source: DType, /, **params: Any) -> DType:
        target: DType = params["dtype"]
        if source.size != target.size or target.kind in "bs":
            raise self.invalid(
                f"cannot read the {source.size} bytes of a {source.cname} as one {target.cname}: give a number type "
                "of the same size."
            )
        return target


def _bitcast(xp: Any, x: Any, dtype: DType) -> Any:
    return x.view(dtype.numpy_dtype)


BITCAST = Bitcast(
    "bitcast",
    None,
    [None],
    array=_bitcast,
    accepts="fciu",
    samples=[
        Sample((Spec((2, 3)),), {"dtype": int64}),
        Sample((Spec(()),), {"dtype": int64}),
        Sample((Spec((0,)),), {"dtype": int64}),
        Sample((Spec((3,), (0, 9), "int"),), {"dtype": float64}),
    ],
    errors=[
        BadSample((((2,), "float32"),), InvalidArgumentError, "same size", {"dtype": float64}),
        BadSample((((2,), "bool"),), InvalidArgumentError, "does not take bool", {"dtype": int32}),
    ],
    doc="The bytes of each element, read as another dtype of the same size.",
)


def _infer_split(x: Aval, *, dtype: DType) -> Sequence[Aval]:
    if x.dtype.size <= dtype.size or dtype.kind in "bs" or x.dtype.kind in "bs":
        raise ValueError(f"wants a number type that is smaller than that of {x!r}, got {dtype.cname}.")
    shape = None if x.shape is None else (*x.shape, x.dtype.size // dtype.size)
    return (aval(shape, dtype),)


def _split(xp: Any, x: Any, dtype: DType) -> Any:
    return xp.ascontiguousarray(x)[..., None].view(dtype.numpy_dtype).reshape(*x.shape, x.dtype.itemsize // dtype.size)


BITCAST_SPLIT = Opaque(
    "bitcast_split",
    _split,
    infer=_infer_split,
    vjp=None,
    signature="()->(n)",
    samples=[
        Sample((Spec((2, 3), dtype="int"),), {"dtype": int32}),
        Sample((Spec((), dtype="int"),), {"dtype": int16}),
        Sample((Spec((0, 2), dtype="int"),), {"dtype": float32}),
    ],
    errors=[BadSample((((2,), "int32"),), InvalidArgumentError, "smaller", {"dtype": int64})],
    doc="The bytes of each element, read as a row of a smaller dtype.",
)


def _infer_join(x: Aval, *, dtype: DType) -> Sequence[Aval]:
    if x.dtype.size >= dtype.size or dtype.kind in "bs" or x.dtype.kind in "bs":
        raise ValueError(f"wants a number type that is larger than that of {x!r}, got {dtype.cname}.")
    if x.shape is None:
        return (aval(None, dtype),)
    count = dtype.size // x.dtype.size
    if not x.shape or x.shape[-1] not in (count, None):
        raise ValueError(
            f"reads {count} elements of {x.dtype.cname} as one {dtype.cname}, so the last axis must have size {count}; "
            f"got shape {shape_text(x.shape)}."
        )
    return (aval(x.shape[:-1], dtype),)


def _join(xp: Any, x: Any, dtype: DType) -> Any:
    return xp.ascontiguousarray(x).view(dtype.numpy_dtype).reshape(x.shape[:-1])


BITCAST_JOIN = Opaque(
    "bitcast_join",
    _join,
    infer=_infer_join,
    vjp=None,
    signature="(n)->()",
    samples=[
        Sample((Spec((3, 2), dtype="int"),), {"dtype": complex128}),
        Sample((Spec((2,), dtype="int"),), {"dtype": complex128}),
        Sample((Spec((0, 2), dtype="int"),), {"dtype": complex128}),
    ],
    errors=[BadSample((((2, 3), "int32"),), InvalidArgumentError, "size 2", {"dtype": int64})],
    doc="The bytes of each row, read as one element of a larger dtype.",
)

# ------------------------------------------------------------------ neighbours


NEXTAFTER = Pointwise(
    "nextafter",
    "nextafter",
    [1, None],
    operands="x y",
    domain=((-2.0, -1.0), (1.0, 2.0)),
    doc="The next number after x on the way to y.",
)
