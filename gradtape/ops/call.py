"""Calls: a graph as one op; and the two halves of a custom rule, which runs as Python. Floor: ops.

How a call is differentiated stands in `transforms.differentiate`: graph to graph, from its own nodes."""

from __future__ import annotations

from typing import Any

from gradtape.ir.aval import Aval
from gradtape.ir.graph import Graph, Node, Value
from gradtape.ops.op import Op, Step, apply, constant


class Call(Op):
    """A graph applied to values. Its results are the graph's outputs, residuals for its VJP among them."""

    kind = "call"

    def infer(self, avals: tuple[Aval, ...], **params: Any) -> tuple[Aval, ...]:
        return tuple(v.aval for v in params["graph"].outputs)


CALL = Call("call", doc="A graph as an op.")


def call_step(graph: Graph) -> Step:
    """A step that runs a graph; make it once per graph, since structural keys compare steps by identity."""
    return Step(CALL, {"graph": graph})


class CustomCall(Op):
    """A function with a rule of its own, as the tape recorded it; pulling back asks the rule (a host step)."""

    kind = "custom"

    def infer(self, avals: tuple[Aval, ...], **params: Any) -> tuple[Aval, ...]:
        results: tuple[Aval, ...] = params["results"]
        return results

    def vjp(self, node: Node, cotangents: list[Value | None], wanted: list[bool]) -> list[Value | None]:
        given = [
            constant(0, v.aval.dtype, v.aval.dims) if g is None else g
            for v, g in zip(node.outputs, cotangents, strict=True)
            if v.aval.dtype.is_differentiable
        ]
        ordinal, absent = node.step.params["ordinal"], node.step.params["absent"]
        step = HOST_RULE.bind(ordinal=ordinal, results=tuple(v.aval for v in node.inputs))
        pulled = apply(step, given)
        node.step.params.get("reached", []).append(pulled[0])
        return [None if i in absent else v for i, v in enumerate(pulled)]


CUSTOM_CALL = CustomCall("custom_call", doc="A function whose gradient is a Python rule.")


def expecting(step: Step, absent: tuple[int, ...], reached: list[Value]) -> Step:
    """The step of a custom call for one backward pass: its rule is expected to answer None for the operands
    `absent`. `reached` collects a result of each rule that the pass comes to: what it answers is only known
    when it has run, so that it must run even where nothing is expected of it."""
    return Step(CUSTOM_CALL, step.params | {"absent": absent, "reached": reached})


class HostRule(Op):
    """A Python rule that sees concrete values: it runs between the compiled segments of a backward pass."""

    kind = "host"

    def infer(self, avals: tuple[Aval, ...], **params: Any) -> tuple[Aval, ...]:
        results: tuple[Aval, ...] = params["results"]
        return results


HOST_RULE = HostRule("host_rule", doc="The Python rule of a custom call, applied to its cotangents.")
