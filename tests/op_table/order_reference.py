"""Opaque ops about order, positions and running results, as Python loops over single elements; a part of the table in
`opaque_reference.py`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.op_table.scalar_reference import INF, MP

Places = tuple[int, ...]


def _filled(shape: Places, value: Callable[[Places], Any]) -> Any:
    out = np.empty(shape, object)
    for at in np.ndindex(*shape):
        out[at] = value(at)
    return out


def _row(x: Any, at: Places, axis: int) -> list[Any]:
    """The elements along an axis that lie on a line with the place."""
    return [x[(*at[:axis], k, *at[axis + 1 :])] for k in range(x.shape[axis])]


def _running(combine: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def scan(operands: Sequence[Any], shape: Places, axis: int, reverse: bool) -> Any:
        def value(at: Places) -> Any:
            row = _row(operands[0], at, axis)
            return functools.reduce(combine, row[at[axis] :] if reverse else row[: at[axis] + 1])

        return _filled(shape, value)

    return scan


def _argsort(operands: Sequence[Any], shape: Places, axis: int, descending: bool, count: int) -> Any:
    def value(at: Places) -> Any:
        row = _row(operands[0], (*at[:axis], 0, *at[axis + 1 :]), axis)
        places = sorted(range(len(row)), key=lambda k: (-row[k] if descending else row[k], k))
        return places[at[axis]]

    return _filled(shape, value)


def _searchsorted(operands: Sequence[Any], shape: Places, right: bool, dtype: Any) -> Any:
    rows, values = operands
    return _filled(
        shape,
        lambda at: sum(1 for v in rows[at[:-1]] if v < values[at] or (right and v == values[at])),
    )


def _running_weights(pull: bool) -> Callable[..., Any]:
    """Sums of weights exp(x[i]) / Σ exp(x[j]) over the j that the running sum k holds: over k, or over i."""

    def sums(operands: Sequence[Any], shape: Places, axis: int, reverse: bool) -> Any:
        def value(at: Places) -> Any:
            x, c = (_row(v, at, axis) for v in operands)
            held = [range(k, len(x)) if reverse else range(k + 1) for k in range(len(x))]
            total = [sum(MP.exp(x[j]) for j in held[k]) for k in range(len(x))]
            here = at[axis]
            if pull:
                return sum(c[k] * MP.exp(x[here]) / total[k] for k in range(len(x)) if here in held[k])
            return sum(c[i] * MP.exp(x[i]) for i in held[here]) / total[here]

        return _filled(shape, value)

    return sums


def _extreme(sign: int) -> Callable[..., Any]:
    def scatter(operands: Sequence[Any], result: Places, size: int, axis: int, batch_dims: int) -> Any:
        x, indices = operands
        met: dict[Places, list[Any]] = {at: [] for at in np.ndindex(*result)}
        middle = indices.ndim - batch_dims
        for at in np.ndindex(*x.shape):
            index = indices[at[:batch_dims] + at[axis : axis + middle]]
            met[(*at[:axis], index, *at[axis + middle :])].append(x[at])
        return _filled(result, lambda at: max(met[at], key=lambda v: sign * v) if met[at] else -sign * INF)

    return scatter


ORDER: dict[str, Callable[..., Any]] = {
    "argsort": _argsort,
    "cumprod": _running(lambda a, b: a * b),
    "cumulative_logsumexp": _running(lambda a, b: MP.log(MP.exp(a) + MP.exp(b))),
    "logsumexps_pull": _running_weights(True),
    "logsumexps_push": _running_weights(False),
    "scatter_max": _extreme(1),
    "scatter_min": _extreme(-1),
    "searchsorted": _searchsorted,
}
