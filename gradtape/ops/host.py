"""Python functions of arrays as ops: what a graph leaves to its host. Floor: ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradtape.ir.aval import Aval
from gradtape.ir.graph import Node, Value
from gradtape.ops.op import Op, Step

Rule = Callable[[Node, list[Value | None], list[bool]], Sequence[Value | None]]


class Host(Op):
    """A function of arrays to a tuple of arrays (to one where there is one result), which runs each time.

    Parameters: `function`, `results` (their avals), `rule` (None: no gradient flows), `ordered` (it has effects: its
    first operand, which it gives back as its first result, comes from the effect before), `ours` (the function is no
    user's: it waits for nobody)."""

    kind = "host"

    def infer(self, avals: tuple[Aval, ...], **params: Any) -> tuple[Aval, ...]:
        results: tuple[Aval, ...] = params["results"]
        return results

    def vjp(self, node: Node, cotangents: list[Value | None], wanted: list[bool]) -> list[Value | None]:
        rule: Rule | None = node.step.params["rule"]
        if rule is None or all(g is None for g in cotangents):
            return [None] * len(node.inputs)
        return list(rule(node, cotangents, wanted))


HOST = Host("host", doc="A Python function of arrays.")


class EachRow:
    """A function of arrays for each of the first indices of those that vary: the results are stacked.

    Args:
      function: as the parameter of `Host`.
      varying: which operands have rows.
      rows: the sizes of the axes of rows.
      ordered: the first operand and result are one for all rows.
      results: the avals of the results for one row."""

    def __init__(
        self,
        function: Callable[..., Any],
        varying: Sequence[bool],
        rows: tuple[int, ...],
        ordered: bool,
        results: Sequence[Aval],
    ) -> None:
        self.function, self.varying, self.rows = function, varying, rows
        self.lead, self.results = int(ordered), results

    def __call__(self, *arrays: Any) -> Any:
        found: list[Any] = [np.empty((*self.rows, *a.dims), a.dtype.numpy_dtype) for a in self.results[self.lead :]]
        for at in np.ndindex(*self.rows):
            answer = self.function(*(a[at] if v else a for a, v in zip(arrays, self.varying, strict=True)))
            made = answer if isinstance(answer, tuple) else (answer,)
            for out, one in zip(found, made[self.lead :], strict=True):
                out[at] = one.get() if hasattr(one, "get") else one  # an array of a device
        every = (*arrays[: self.lead], *found)
        return every[0] if len(every) == 1 else every


def host_step(
    function: Callable[..., Any],
    results: Sequence[Aval],
    rule: Rule | None = None,
    ordered: bool = False,
    ours: bool = False,
) -> Step:
    """A step that calls a function; make it once per function, since structural keys compare steps by identity."""
    params = {"function": function, "results": tuple(results), "rule": rule, "ordered": ordered, "ours": ours}
    return Step(HOST, params)
