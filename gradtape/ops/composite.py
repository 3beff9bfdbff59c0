"""Composite ops: a small graph of other ops under one name, recorded as one step. Floor: ops.

For functions whose composed derivative would lose accuracy (softmax, cross-entropy): the VJP is declared
in terms of operands and results. Passes that look inside replace the node by its graph (`expand`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gradtape.ir.aval import Aval
from gradtape.ir.graph import Graph, Node, Value
from gradtape.ops.op import MAX_CACHED, Op
from gradtape.ops.samples import BadSample, Sample

Names = tuple[str | None, ...]  # the letters of an operand's axes; None where there is none


class Composite(Op):
    """An op whose value is a graph.

    Args:
      body: (*graph values, **params) to the result, or a tuple of results, written with other ops.
      vjp: (node, *cotangents) to the cotangents of the operands.
      check: (*avals, **params); raises ValueError for operands that do not fit.
      host: the same function of NumPy arrays, (*arrays, **params), where that beats the graph on the CPU; what
        looks inside sees the graph.
      pays: (*avals, **params); whether `host` is worth it for these operands.
      scratch: (*avals, **params); the bytes of each block that `host` holds besides its results while it runs.
      axes: which axes of operands and result stand for each other, `"n*c,*co->n*o"`: a letter for each, a star for
        all others. What lies at each position of a letter that the result has is computed by itself, and no parameter
        says how many there are: rows can lie there side by side, so that `host` runs for all of them at once.
    """

    kind = "composite"

    def __init__(
        self,
        name: str,
        body: Callable[..., Any],
        *,
        vjp: Callable[..., Sequence[Value | None]],
        check: Callable[..., None],
        host: Callable[..., Any] | None = None,
        pays: Callable[..., bool] = lambda *avals, **params: True,
        scratch: Callable[..., list[int]] = lambda *avals, **params: [],
        axes: str | None = None,
        samples: Iterable[Sample],
        errors: Iterable[BadSample] = (),
        doc: str = "",
        notes: str = "",
    ) -> None:
        self.body, self.rule, self.check = body, vjp, check
        self.host, self.pays, self.scratch, self.axes = host, pays, scratch, axes
        self.graphs: dict[Any, Graph] = {}
        super().__init__(name, doc=doc, samples=samples, errors=errors, notes=notes)

    def expand(self, avals: tuple[Aval, ...], **params: Any) -> Graph:
        """The graph that this op stands for."""
        key = (avals, tuple(params.items()))
        found = self.graphs.get(key)
        if found is None:
            inputs = tuple(Value(a) for a in avals)
            result = self.body(*inputs, **params)
            found = Graph(inputs, result if isinstance(result, tuple) else (result,))
            if len(self.graphs) >= MAX_CACHED:
                self.graphs.clear()
            self.graphs[key] = found
        return found

    def has_host(self, avals: Sequence[Aval], params: Mapping[str, Any]) -> bool:
        """Whether `host` runs for these operands."""
        return self.host is not None and self.pays(*avals, **params)

    def names(self, ranks: Sequence[int]) -> tuple[list[Names], Names]:
        """The letters of `axes` for operands and a result with so many axes."""
        sides = (self.axes or "").replace("->", ",").split(",")
        found = []
        for text, rank in zip(sides, ranks, strict=True):
            before, star, behind = text.partition("*")
            others = (None,) * (rank - len(before) - len(behind)) if star else ()
            found.append((*before, *others, *behind))
        return found[:-1], found[-1]

    def infer(self, avals: tuple[Aval, ...], **params: Any) -> tuple[Aval, ...]:
        try:
            self.check(*avals, **params)
        except ValueError as e:
            raise self.invalid(str(e)) from None
        return tuple(v.aval for v in self.expand(avals, **params).outputs)

    def vjp(self, node: Node, cotangents: list[Value | None], wanted: list[bool]) -> list[Value | None]:
        if all(g is None for g in cotangents):
            return [None] * len(node.inputs)
        pulled = self.rule(node, *cotangents)
        return [v if w else None for v, w in zip(pulled, wanted, strict=True)]
