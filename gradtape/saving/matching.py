"""Bodies of functions as trees, for some sizes or with formulas: whether one does what another does. Floor: saving."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gradtape.saving import recipes
from gradtape.saving.bodies import Body
from gradtape.saving.damage import Damaged
from gradtape.saving.formulas import NoFormula, Sizes, with_parts, worked_out
from gradtape.saving.graphs import read_graph
from gradtape.saving.trying import has_same_values

ROUNDED = 1e-6  # of a number in float32


class Held:
    """A constant that is the same for all sizes."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor


class Found(NamedTuple):
    """A body with formulas, one choice of sizes that it takes, the truths that Python asked for, and the sizes
    by which it decided something."""

    text: dict[str, Any]
    example: Sizes
    truths: Any
    seen: Any


def decided(a: Sequence[Any], b: Sequence[Any]) -> str:
    """Where Python decides by what differs."""
    place = next((x[1] for x, y in itertools.zip_longest(a, b, fillvalue=[0, ""]) if x != y), "")
    at = f" at {place}" if place else ""
    return f"Python looks at sizes{at}, and what it decides then is in no file: use `tf.shape(x)` and ops"


def tree_of(truth: Body, together: Sequence[Any], number: int) -> dict[str, Any]:
    """A body as a tree, with constants that are alike in all examples as they are."""
    constants = [c[number] for c in together]
    asked = truth.text["asked"] | {"constants": constants[truth.asked_from :]}
    return truth.text | {"constants": constants[: truth.asked_from], "asked": asked}


def constants_of(tensors: Sequence[Any]) -> list[Any]:
    """A constant of several bodies: itself where it is the same in all, else how it is made in each."""
    arrays = [np.asarray(t) for t in tensors]
    if all(_equal(a, arrays[0]) for a in arrays):
        return [Held(tensors[0])] * len(arrays)
    return list(recipes.recipes_of(arrays))


def _equal(a: Any, b: Any) -> bool:
    if a.dtype.hasobject:
        return bool(a.shape == b.shape and a.dtype == b.dtype and a.tolist() == b.tolist())
    return bool(a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes())


def worked(body: Found, sizes: Sizes) -> Any:
    """A body for some sizes; None where it is none for them."""
    try:
        return worked_out(body.text, with_parts(sizes, body.text["parts"]))
    except NoFormula:
        return None


def runs(tree: Any) -> bool:
    """Whether a body without formulas is a graph."""
    try:
        read_graph(tree["graph"])
    except Damaged:
        return False
    return True


def same(tree: Any, truth: Body) -> bool:
    """Whether a body without formulas is what the function does."""
    of, asked, given = truth.text, tree["asked"], truth.asked_from
    if any(tree[k] != of[k] for k in ("state", "assigned", "results")):
        return False
    if any(asked[k] != of["asked"][k] for k in ("graph", "answers")):
        return False
    constants, of_asked = _arrays(tree["constants"]), _arrays(asked["constants"])
    if not _are_equal(of_asked, truth.constants[given:]):
        return False
    if _alike(tree["graph"], of["graph"]) and _are_equal(constants, truth.constants[:given]):
        return True
    return has_same_values(tree["graph"], constants, of["graph"], _arrays(truth.constants[:given]))


def _arrays(constants: Sequence[Any]) -> list[Any]:
    return [
        recipes.made(c) if isinstance(c, dict) else np.asarray(c.tensor if isinstance(c, Held) else c)
        for c in constants
    ]


def _are_equal(arrays: Sequence[Any], tensors: Sequence[Any]) -> bool:
    return len(arrays) == len(tensors) and all(_equal(a, np.asarray(t)) for a, t in zip(arrays, tensors, strict=True))


def _alike(a: Any, b: Any) -> bool:
    """Whether two trees are the same but for the rounding of numbers."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_alike(v, b[k]) for k, v in a.items())
    if isinstance(a, list):
        return len(a) == len(b) and all(map(_alike, a, b))
    return bool(a == b or (type(a) is float and abs(a - b) <= ROUNDED * abs(a)))
