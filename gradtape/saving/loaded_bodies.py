"""What a function from a file does for some shapes: read, checked, and as a program to trace. Floor: saving."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradtape.ir.aval import Aval
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.graph import Graph
from gradtape.runtime.tensor import Tensor, from_array
from gradtape.saving import recipes, rules, values
from gradtape.saving.damage import Damaged, fields, listed, numbered
from gradtape.saving.formulas import NoFormula, Sizes, with_parts, worked_out
from gradtape.saving.general import MAX_SIZES
from gradtape.saving.graphs import read_graph
from gradtape.saving.replay import replayed
from gradtape.saving.structures import read_structure
from gradtape.saving.tables import Tables

Given = Tensor | dict[str, Any]  # a constant, or the recipe of one


class LoadedBody:
    """One body of a function: for which shapes it is, and what it does there."""

    def __init__(self, text: Any, state: Callable[[Any], Any], constants: Sequence[Tensor]) -> None:
        self.text = rules.with_rules(_present(text))
        shapes, ranges, example, body = fields(self.text, "tensors", "ranges", "example", "body")
        self.shapes: list[list[Any]] = [listed(s) for s in listed(shapes)]
        self.example: Sizes = tuple(n or 0 for n in values.dims_of(example))
        if len(self.example) > MAX_SIZES * MAX_SIZES:
            raise Damaged(f"a function of {len(self.example)} unknown sizes is none of ours")
        self.ranges = [_range(r) for r in listed(ranges)]
        if len(self.ranges) != len(self.example):
            raise Damaged(f"a function of {len(self.example)} unknown sizes has {len(self.ranges)} ranges of them")
        self.graph, states, assigned, self.results, given, asked, self.parts = fields(
            body, "graph", "state", "assigned", "results", "constants", "asked", "parts"
        )
        self.asked, self.answers, asked_of = fields(asked, "graph", "answers", "constants")
        self.state = [state(s) for s in listed(states)]
        self.assigned = [numbered(k, self.state, "state") for k in listed(assigned)]
        self.given: list[Given] = [numbered(k, constants, "constant") if type(k) is int else k for k in listed(given)]
        self.asked_of: list[Given] = [
            numbered(k, constants, "constant") if type(k) is int else k for k in listed(asked_of)
        ]

    # ------------------------------------------------------------------ shapes

    def sizes_at(self, avals: Sequence[Aval]) -> Sizes | None:
        """The unknown sizes of these shapes; None where the body is not for them."""
        sizes: dict[int, int] = {}
        if len(avals) != len(self.shapes):
            return None
        for a, (dtype, *dims) in zip(avals, self.shapes, strict=True):
            if values.dtype_of(dtype) is not a.dtype or len(dims) != a.ndim:
                return None
            for n, size in zip(a.dims, dims, strict=True):
                if n != (sizes.setdefault(size["size"], n) if isinstance(size, dict) else size):
                    return None
        found = tuple(sizes[k] for k in range(len(self.example)))
        inside = (a <= n and (b is None or n <= b) for n, (a, b) in zip(found, self.ranges, strict=True))
        return found if all(inside) and self._answers_at(found) else None

    def _answers_at(self, sizes: Sizes) -> bool:
        """Whether what Python asked, when the function was traced, has the answers that it had then."""
        if not self.answers:
            return True
        try:
            seen = self._worked_out(self.answers, sizes)
            made = replayed(self._asked_at(sizes), self._constants(self.asked_of, sizes))
        except NoFormula:
            return False
        except Damaged as e:
            raise InvalidArgumentError(f"A function from a file does not take sizes of {list(sizes)}: {e}") from e
        return [[int(n) for n in np.asarray(t).reshape(-1)] for t in made] == seen

    def _asked_at(self, sizes: Sizes) -> Graph:
        return read_graph(self._worked_out(self.asked, sizes))

    def _worked_out(self, tree: Any, sizes: Sizes) -> Any:
        return worked_out(tree, with_parts(sizes, self.parts))

    def _constants(self, given: Sequence[Given], sizes: Sizes) -> list[Tensor]:
        return [from_array(recipes.made(self._worked_out(g, sizes))) if isinstance(g, dict) else g for g in given]

    def described(self) -> str:
        """The shapes that it is for, in a message."""
        shown = [
            f"{dtype}({', '.join(_letter(n['size']) if isinstance(n, dict) else str(n) for n in dims)})"
            for dtype, *dims in self.shapes
        ]
        limits = [_limits(_letter(k), a, b) for k, (a, b) in enumerate(self.ranges) if (a, b) != (0, None)]
        asked = ["conditions of sizes have the truths of the sizes that were tried"] if self.answers else []
        return ", ".join(shown) + "".join(f", where {' and '.join(limits + asked)}" for _ in (limits + asked)[:1])

    def avals_at(self, sizes: Sizes) -> tuple[Aval, ...]:
        """The shapes for some sizes.

        Raises:
          Damaged: what are no shapes.
        """
        return tuple(
            values.aval_of([*s[:1], *(numbered(n["size"], sizes, "size") if isinstance(n, dict) else n for n in s[1:])])
            for s in self.shapes
        )

    # ------------------------------------------------------------------ what it does

    def graph_at(self, sizes: Sizes) -> Graph:
        """The graph for some sizes."""
        return read_graph(self._worked_out(self.graph, sizes))

    def program(self, sizes: Sizes) -> Callable[[list[Tensor]], Any]:
        """What is traced for some sizes.

        Raises:
          InvalidArgumentError: the function does not take these.
        """
        try:
            graph = self.graph_at(sizes)
            constants = self._constants(self.given, sizes)
        except (Damaged, NoFormula) as e:
            raise InvalidArgumentError(
                f"A function from a file does not take tensors {list(self.avals_at(sizes))}: {e}"
            ) from e

        def run(tensors: list[Tensor]) -> Any:
            made = replayed(graph, [*tensors, *(s.read() for s in self.state), *constants])
            count = len(made) - len(self.assigned)
            for s, new in zip(self.assigned, made[count:], strict=True):
                s.assign(new)
            return read_structure(self.results, lambda k: None if k is None else made[k])

        return run

    def check(self, specs: Sequence[Aval]) -> None:
        """Read all of it for the sizes of its example.

        Raises:
          Damaged: it cannot be read, or does not fit its function.
        """
        avals = self.avals_at(self.example)
        if self.sizes_at(avals) != self.example or not _are_of(avals, specs):
            raise Damaged(f"a body for {self.shapes} is none of a function of {list(specs)}")
        graph = self.graph_at(self.example)
        constants = [self._aval_at(g) for g in self.given]
        if [v.aval for v in graph.inputs] != [*avals, *(s._aval for s in self.state), *constants]:
            raise Damaged("a graph has other inputs than its function gives it")
        count = len(graph.outputs) - len(self.assigned)
        if count < 0 or [v.aval for v in graph.outputs[count:]] != [s._aval for s in self.assigned]:
            raise Damaged("a graph assigns other things than its function says")
        asked = self._asked_at(self.example)
        if [v.aval for v in asked.inputs] != [self._aval_at(g) for g in self.asked_of]:
            raise Damaged("what is asked of sizes has other inputs than its function gives it")
        results = range(count)
        read_structure(self.results, lambda k: None if k is None else numbered(k, results, "result"))

    def _aval_at(self, g: Given) -> Aval:
        """The shape and dtype of a constant, for the sizes of the example."""
        return recipes.aval_made(self._worked_out(g, self.example)) if isinstance(g, dict) else g._aval

    def result_avals(self) -> list[Aval]:
        """The shapes and dtypes of its results, None where a size depends on unknown ones."""
        made = [*self.graph["inputs"], *(a for n in self.graph["nodes"] for a in n["outputs"])]
        outputs = self.graph["outputs"][: len(self.graph["outputs"]) - len(self.assigned)]
        known = ([None if isinstance(n, dict) and "rank" not in n else n for n in made[k]] for k in outputs)
        return [values.aval_of(text) for text in known]

    def example_avals(self) -> tuple[Aval, ...]:
        """Shapes that it is for."""
        return self.avals_at(self.example)

    def written(self, tables: Tables) -> dict[str, Any]:
        """The body for another file, which has tables of its own."""
        body = self.text["body"] | {
            "state": [tables.state(s) for s in self.state],
            "constants": [g if isinstance(g, dict) else tables.constant(g) for g in self.given],
            "asked": {
                "graph": self.asked,
                "answers": self.answers,
                "constants": [g if isinstance(g, dict) else tables.constant(g) for g in self.asked_of],
            },
        }
        return self.text | {"body": body}


def _present(text: Any) -> Any:
    """A body as it is written now; in version 1 none had ranges, parts of sizes, or questions."""
    if not isinstance(text, dict) or "ranges" in text or not isinstance(text.get("body"), dict):
        return text
    asked = {"graph": {"inputs": [], "nodes": [], "outputs": []}, "answers": [], "constants": []}
    ranges = [[0, None] for _ in listed(text.get("example"))]
    return text | {"ranges": ranges, "body": text["body"] | {"asked": asked, "parts": []}}


def _range(text: Any) -> tuple[int, int | None]:
    if (
        not isinstance(text, list)
        or len(text) != 2
        or type(text[0]) is not int
        or type(text[1]) not in (int, type(None))
    ):
        raise Damaged(f"{str(text)[:80]} is no range of sizes")
    return text[0], text[1]


def _letter(k: int) -> str:
    return "nmklpqrs"[k] if k < MAX_SIZES else f"n{k}"


def _limits(letter: str, first: int, last: int | None) -> str:
    return f"{letter} >= {first}" if last is None else f"{first} <= {letter} <= {last}"


def _are_of(avals: Sequence[Aval], specs: Sequence[Aval]) -> bool:
    """Whether shapes are of specs, some of whose sizes are unknown."""
    if len(avals) != len(specs):
        return False
    for a, s in zip(avals, specs, strict=True):
        if a.dtype is not s.dtype:
            return False
        if s.shape is not None and (
            len(s.shape) != a.ndim or any(m not in (None, n) for m, n in zip(s.shape, a.dims, strict=True))
        ):
            return False
    return True
