"""What opaque ops are, as Python loops over single elements. Nothing but its text says what such an op does, so each
has a reference of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mpmath
import numpy as np

from tests.op_table.bytes_reference import BYTES
from tests.op_table.draw_reference import DRAWS
from tests.op_table.matrix_reference import MATRICES
from tests.op_table.order_reference import ORDER
from tests.op_table.window_reference import fold

Places = tuple[int, ...]


def _zeros(shape: Places) -> Any:
    out = np.empty(shape, object)
    out.fill(0)
    return out


def _gather(operands: Sequence[Any], shape: Places, axis: int, batch_dims: int) -> Any:
    x, indices = operands
    out = _zeros(shape)
    for at in np.ndindex(*shape):
        middle = indices.ndim - batch_dims
        index = indices[at[:batch_dims] + at[axis : axis + middle]]
        out[at] = x[(*at[:axis], index, *at[axis + middle :])]
    return out


def _scatter_add(operands: Sequence[Any], result: Places, shape: Places, axis: int, batch_dims: int) -> Any:
    g, indices = operands
    out = _zeros(result)
    middle = indices.ndim - batch_dims
    for at in np.ndindex(*g.shape):
        index = indices[at[:batch_dims] + at[axis : axis + middle]]
        place = (*at[:axis], index, *at[axis + middle :])
        out[place] = out[place] + g[at]
    return out


def _set_row(operands: Sequence[Any], shape: Places, over: bool) -> Any:
    x, row, position = operands
    out = _zeros(shape)
    for at in np.ndindex(*shape):
        out[at] = row[at[1:]] if at[0] == position else x[at]
    return out


def _first(better: Callable[[Any, Any], bool]) -> Callable[..., Any]:
    def position(operands: Sequence[Any], shape: Places, axis: int, dtype: Any) -> Any:
        (x,) = operands
        out = _zeros(shape)
        for at in np.ndindex(*shape):
            row = list(x[(*at[:axis], slice(None), *at[axis:])])
            out[at] = next(k for k, v in enumerate(row) if not any(better(w, v) for w in row))
        return out

    return position


def _cumsum(operands: Sequence[Any], shape: Places, axis: int, exclusive: bool, reverse: bool) -> Any:
    (x,) = operands
    out = _zeros(shape)
    for at in np.ndindex(*shape):
        for k in range(shape[axis]):
            before = k > at[axis] if reverse else k < at[axis]
            if before or (k == at[axis] and not exclusive):
                out[at] = out[at] + x[(*at[:axis], k, *at[axis + 1 :])]
    return out


def _gamma_moment(operands: Sequence[Any], shape: Places, order: int) -> Any:
    out = _zeros(shape)
    for at in np.ndindex(*shape):
        a, x = operands[0][at], operands[1][at]
        s = 1 if x > a else -1

        def integrand(u: Any, a: Any = a, x: Any = x, s: int = s) -> Any:
            return u**order * mpmath.exp(a * s * u - x * mpmath.expm1(s * u))

        out[at] = mpmath.quad(integrand, [0, 1, 4, 16, 64, 256])
    return out


OPAQUE: dict[str, Callable[..., Any]] = (
    {
        "argmax": _first(lambda a, b: a > b),
        "argmin": _first(lambda a, b: a < b),
        "check_numerics": lambda operands, shape, message: operands[0],
        "cumsum": _cumsum,
        "fold": fold,
        "gamma_drawn": lambda operands, shape: operands[1],
        "gamma_moment": _gamma_moment,
        "gather": _gather,
        "gather_rows": _gather,
        "scatter_add": _scatter_add,
        "scatter_rows": _scatter_add,
        "set_row": _set_row,
    }
    | BYTES
    | DRAWS
    | MATRICES
    | ORDER
)
