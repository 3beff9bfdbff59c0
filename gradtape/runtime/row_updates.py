"""A variable's value with rows combined into it at their positions: "add", "subtract", "multiply", "divide", "maximum"
or "minimum", or "assign", of which the last row for a position counts. Floor: runtime."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.shapes import shape_text
from gradtape.ops.arithmetic import ADD, DIVIDE, MAXIMUM, MINIMUM, MULTIPLY, SUBTRACT
from gradtape.ops.comparison import SELECT
from gradtape.ops.indexing import GATHER
from gradtape.ops.op import Op
from gradtape.runtime.devices import on_host
from gradtape.runtime.dispatch import run_alone
from gradtape.runtime.indexed_slices import IndexedSlices
from gradtape.runtime.state import quietly

INTO = {
    "add": ADD,
    "subtract": SUBTRACT,
    "multiply": MULTIPLY,
    "divide": DIVIDE,
    "maximum": MAXIMUM,
    "minimum": MINIMUM,
}
# How rows that meet at one position become one. Those that are added or subtracted have been summed up before.
MEETING = {"multiply": MULTIPLY, "divide": MULTIPLY, "maximum": MAXIMUM, "minimum": MINIMUM}


def scatter_into(array: Any, how: str, slices: Any) -> None:
    """Combine rows into an array of the host.

    Raises:
      TypeError: what is no `IndexedSlices`, or is of another dtype.
      InvalidArgumentError: positions that do not exist, or rows of another shape.
    """
    at, rows = _checked(array, how, slices)
    rows = on_host(rows)
    if how == "assign":
        array[at] = rows
    elif how in ("add", "subtract"):
        array[at] = quietly(getattr(np, how), array[at], rows)
    else:
        quietly(getattr(np, how).at, array, at, rows)


def scattered(array: Any, how: str, slices: Any) -> Any:
    """A new array on the device where the old one is. Errors as of `scatter_into`."""
    at, rows = _checked(array, how, slices)
    if not at.size:
        return array
    at, rows = _last(at, rows) if how == "assign" else _met(MEETING.get(how), at, rows)
    source = np.full(len(array), -1)
    source[at] = np.arange(at.size)
    found = _taken(rows, np.maximum(source, 0))
    if how != "assign":
        found = run_alone(INTO[how].bind(), array, found)
    return _selected(source >= 0, found, array)


def _checked(array: Any, how: str, slices: Any) -> tuple[Any, Any]:
    """The positions, on the host, and the rows, which are what fits an array; rows that are added are summed up."""
    if not isinstance(slices, IndexedSlices):
        raise TypeError(
            f"`Variable.scatter_*` wants `tf.IndexedSlices`, got {type(slices).__name__}. Use `assign` for tensors."
        )
    if slices.values._aval.dtype.numpy_dtype != array.dtype:
        raise TypeError(
            f"`Variable.scatter_*` wants rows of dtype {array.dtype.name}, got {slices.dtype.name}. Use `tf.cast`."
        )
    given = slices.summed() if how in ("add", "subtract") else slices
    at, rows = np.asarray(given.indices).astype(np.int64), given.values._array
    if rows.shape != at.shape + array.shape[1:] or at.ndim != 1:
        raise InvalidArgumentError(
            f"`Variable.scatter_*` wants {at.size} rows of shape {shape_text(array.shape[1:])}, got shape "
            f"{shape_text(rows.shape)}."
        )
    if at.size and (at.min() < 0 or at.max() >= len(array)):
        bad = at[(at < 0) | (at >= len(array))]
        raise InvalidArgumentError(f"`Variable.scatter_*`: position {int(bad[0])} is not in [0, {len(array)}).")
    return at, rows


def _last(at: Any, rows: Any) -> tuple[Any, Any]:
    """The last row of each position."""
    places, behind = np.unique(at[::-1], return_index=True)
    return places, _taken(rows, at.size - 1 - behind)


def _met(op: Op | None, at: Any, rows: Any) -> tuple[Any, Any]:
    """One row for each position: neighbours become one, again and again."""
    while op is not None:
        order = np.argsort(at, kind="stable")
        begins = np.append(True, np.diff(at[order]) != 0)
        if begins.all():
            break
        number = np.arange(at.size)
        odd = (number - np.maximum.accumulate(np.where(begins, number, 0))) % 2 == 1
        first, second = order[~odd], np.append(order[1:], 0)[~odd]
        kept = _taken(rows, first)
        rows = _selected(np.append(odd[1:], False)[~odd], run_alone(op.bind(), kept, _taken(rows, second)), kept)
        at = at[first]
    return at, rows


def _taken(rows: Any, at: Any) -> Any:
    return run_alone(GATHER.bind(axis=0, batch_dims=0), rows, at)


def _selected(here: Any, rows: Any, others: Any) -> Any:
    """Rows where a truth value of each says so, others elsewhere."""
    return run_alone(SELECT.bind(), here.reshape(-1, *(1,) * (others.ndim - 1)), rows, others)
