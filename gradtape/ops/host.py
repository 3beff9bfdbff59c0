"""Python functions of arrays as ops: what a graph leaves to its host. Floor: ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradtape.ir.aval import Aval
from gradtape.ir.graph import Node, Value
from gradtape.ops.op import Op, Step

Rule = Callable[[Node, list[Value | None], list[bool]], Sequence[Value | None]]


class Host(Op):
    """A function of arrays to a tuple of arrays (to one where there is one result), which runs each time.

    Parameters: `function`, `results` (their avals), `rule` (None: no gradient flows)."""

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


def host_step(function: Callable[..., Any], results: Sequence[Aval], rule: Rule | None = None) -> Step:
    """A step that calls a function; make it once per function, since structural keys compare steps by identity."""
    return Step(HOST, {"function": function, "results": tuple(results), "rule": rule})
