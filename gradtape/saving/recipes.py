"""Constant arrays whose size is not known when a function is saved: a number repeated, a row of equal steps, a band.
Floor: saving."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradtape.ir.aval import Aval, aval
from gradtape.ir.dtypes import of_numpy
from gradtape.saving import values
from gradtape.saving.damage import Damaged
from gradtape.saving.formulas import NoFormula

MAX_ELEMENTS = 1 << 31


def recipe_of(array: Any) -> dict[str, Any]:
    """How an array is made.

    Raises:
      NoFormula: it is none of these.
    """
    if array.dtype.kind in "OSU":
        raise NoFormula("strings depend on sizes")
    shape = values.aval_text(aval(array.shape, of_numpy(array.dtype)))
    for kind, (parts_of, made) in RECIPES.items():
        parts = parts_of(array)
        if parts is not None and np.array_equal(made(array.shape, array.dtype, *parts), array):
            return {kind: [shape, *(values.write(p.item()) for p in parts)]}
    raise NoFormula("an array that the function makes depends on sizes, and is neither one number, steps nor a band")


def _parts(recipe: Any) -> tuple[str, Aval, list[Any]]:
    """The kind of a recipe, the shape and dtype that it makes, and its numbers."""
    if not isinstance(recipe, dict) or len(recipe) != 1 or next(iter(recipe)) not in RECIPES:
        raise Damaged(f"{str(recipe)[:80]} is no recipe of an array")
    ((kind, inner),) = recipe.items()
    if not isinstance(inner, list) or len(inner) != COUNTS[kind] + 1:
        raise Damaged(f"{str(recipe)[:80]} is no recipe of an array")
    of = values.aval_of(inner[0])
    if of.size > MAX_ELEMENTS or of.ndim != RANKS.get(kind, of.ndim):
        raise Damaged(f"{str(recipe)[:80]} is no recipe of an array")
    return kind, of, [values.read(p) for p in inner[1:]]


def aval_made(recipe: Any) -> Aval:
    """The shape and dtype that a recipe makes.

    Raises:
      Damaged: what is no recipe.
    """
    return _parts(recipe)[1]


def made(recipe: Any) -> Any:
    """The array of a recipe.

    Raises:
      Damaged: what is none.
    """
    kind, of, numbers = _parts(recipe)
    dtype = of.dtype.numpy_dtype
    return RECIPES[kind][1](of.dims, dtype, *(np.asarray(n).astype(dtype)[()] for n in numbers))


def _one(array: Any) -> Any:
    return [array.reshape(-1)[0]] if array.size else None


def _filled(shape: Any, dtype: Any, value: Any) -> Any:
    return np.full(shape, value, dtype)


def _first_steps(array: Any) -> Any:
    return [array[0], array[1] - array[0]] if array.ndim == 1 and array.size > 1 and array.dtype.kind in "iuf" else None


def _stepped(shape: Any, dtype: Any, start: Any, step: Any) -> Any:
    return (start + step * np.arange(shape[0]).astype(dtype)).astype(dtype)


def _sides(array: Any) -> Any:
    if array.ndim != 2 or min(array.shape) < 2:
        return None
    return [array[1, 0], array[0, 0], array[0, 1]]


def _band(shape: Any, dtype: Any, below: Any, on: Any, above: Any) -> Any:
    rows, columns = np.arange(shape[0])[:, None], np.arange(shape[1])
    return np.where(rows > columns, below, np.where(rows == columns, on, above)).astype(dtype)


RECIPES: dict[str, tuple[Callable[[Any], Any], Callable[..., Any]]] = {
    "filled": (_one, _filled),
    "steps": (_first_steps, _stepped),
    "band": (_sides, _band),
}
COUNTS = {"filled": 1, "steps": 2, "band": 3}
RANKS = {"steps": 1, "band": 2}
