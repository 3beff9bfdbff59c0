"""Constant arrays that follow sizes: few whole numbers, a number repeated, a row of equal steps, a band.
Floor: saving."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradtape.ir.aval import Aval, aval
from gradtape.ir.dtypes import of_numpy
from gradtape.saving import values
from gradtape.saving.damage import Damaged
from gradtape.saving.formulas import NoFormula

MAX_ELEMENTS = 1 << 31
FEW = 8  # whole numbers that are listed one by one, such as a shape


def recipes_of(arrays: Sequence[Any]) -> list[dict[str, Any]]:
    """How arrays are made that one constant is for different sizes, all in one way.

    Raises:
      NoFormula: there is none.
    """
    if any(a.dtype.kind in "OSU" for a in arrays):
        raise NoFormula("strings depend on sizes")
    for kind in RECIPES:
        if kind == "numbers" and len({a.shape for a in arrays}) > 1:
            continue
        found = [_recipe(kind, a) for a in arrays]
        if all(found):
            return found
    raise NoFormula(
        "an array that the function makes depends on sizes, and is neither few numbers, one number, steps nor a band"
    )


def _recipe(kind: str, array: Any) -> Any:
    """How an array is made in one of the ways; None where it is not."""
    parts_of, made = RECIPES[kind]
    parts = parts_of(array)
    if parts is None or not np.array_equal(made(array.shape, array.dtype, *parts), array):
        return None
    shape = values.aval_text(aval(array.shape, of_numpy(array.dtype)))
    return {kind: [shape, *(values.write(p.item()) for p in parts)]}


def _parts(recipe: Any) -> tuple[str, Aval, list[Any]]:
    """The kind of a recipe, the shape and dtype that it makes, and its numbers."""
    if not isinstance(recipe, dict) or len(recipe) != 1 or next(iter(recipe)) not in RECIPES:
        raise Damaged(f"{str(recipe)[:80]} is no recipe of an array")
    ((kind, inner),) = recipe.items()
    if not isinstance(inner, list) or not inner:
        raise Damaged(f"{str(recipe)[:80]} is no recipe of an array")
    of = values.aval_of(inner[0])
    if len(inner) != COUNTS.get(kind, of.size) + 1:
        raise Damaged(f"{str(recipe)[:80]} is no recipe of an array")
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


def _few(array: Any) -> Any:
    return array.reshape(-1) if array.dtype.kind in "iu" and 0 < array.size <= FEW else None


def _listed(shape: Any, dtype: Any, *numbers: Any) -> Any:
    return np.array(numbers, dtype).reshape(shape)


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
    "numbers": (_few, _listed),
    "filled": (_one, _filled),
    "steps": (_first_steps, _stepped),
    "band": (_sides, _band),
}
COUNTS = {"filled": 1, "steps": 2, "band": 3}
RANKS = {"steps": 1, "band": 2}
