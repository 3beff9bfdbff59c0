"""What rules ask of their operands, be these one for all rows or rows. Floor: transforms."""

from __future__ import annotations

from collections.abc import Sequence

from gradtape.ir.dtypes import DType
from gradtape.transforms.rows.terms import Item, Rows


def common_rows(operands: Sequence[Item]) -> tuple[int, ...]:
    """The row axes of those that are rows; all have the same."""
    return next(x.rows for x in operands if isinstance(x, Rows))


def shape_of(x: Item) -> tuple[int, ...]:
    """The own axes."""
    return x.shape if isinstance(x, Rows) else x.aval.dims


def dtype_of(x: Item) -> DType:
    return x.dtype if isinstance(x, Rows) else x.aval.dtype
