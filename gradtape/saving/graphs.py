"""Graphs as JSON and back. What is read is checked: ops, operands, and every shape and dtype. Floor: saving.

Values are numbers: the inputs first, then the results of each node. Operands stand before what uses them, so that a
file cannot hold a cycle."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from gradtape.ir.aval import Aval
from gradtape.ir.graph import Graph, Node, Value
from gradtape.ops.call import BENT, CALL, RULED, Ruled, call_step, ruled_step, unknown_rule
from gradtape.ops.formulas import ScalarFunction
from gradtape.ops.kernels import KernelStep
from gradtape.ops.op import Op, Step, apply, lookup
from gradtape.saving import rules, values
from gradtape.saving.damage import Damaged, fields, listed, numbered
from gradtape.transforms.linearity import is_linear

# The kinds of ops that a file may name: all but those that hold Python functions, and those that lowering makes.
KINDS = frozenset(
    [
        "pointwise",
        "reduction",
        "contraction",
        "structural",
        "opaque",
        "composite",
        "assemble",
        "constant",
        "stack",
        "call",
        "ruled",
        "cond",
        "while",
        "scan",
        "checkpoint",
    ]
)


def _is_saved(op: Op) -> bool:
    """Whether a file may name an op. What marks the answers of rules is never left in a graph that is kept."""
    return op.kind in KINDS and op is not BENT


class Unsaved(ValueError):
    """A step that no file can hold; the message says which and why."""


# ------------------------------------------------------------------ to JSON


def write_graph(graph: Graph) -> dict[str, Any]:
    """A graph.

    Raises:
      Unsaved: naming the op that is Python.
    """
    place = {id(v): i for i, v in enumerate(graph.inputs)}
    nodes = []
    for node in itertools.chain.from_iterable(map(_listed, graph.nodes)):
        nodes.append(_node(node, [place[id(v)] for v in node.inputs]))
        for v in node.outputs:
            place[id(v)] = len(place)
    return {
        "inputs": [values.aval_text(v.aval) for v in graph.inputs],
        "nodes": nodes,
        "outputs": [place[id(v)] for v in graph.outputs],
    }


def _listed(node: Node) -> Sequence[Node]:
    """A node as such that files name: a formula of a program's own is written out."""
    op = node.step.op
    return op.opened(node) if isinstance(op, ScalarFunction) else [node]


def _node(node: Node, inputs: list[int]) -> dict[str, Any]:
    op: Op = node.step.op
    if isinstance(op, KernelStep):
        raise Unsaved(
            f"it runs the kernel op `{op.kernel.name}`, which is code, and a model holds none: save the function "
            "around it, and call the kernel op on what that gives"
        )
    if not _is_saved(op):
        raise Unsaved(
            f"it has a step that is a Python function (`{op.name}`), which no file holds: `tf.print`, an assertion, "
            "`tf.py_function`, `tf.numpy_function`, or rows assigned to a variable"
        )
    known = dict(node.step.params)
    if isinstance(op, Ruled):
        if "rule" not in known:
            raise Unsaved(
                f"the rule of the custom gradient `{known['name']}` calls `{known['name']}` again, whose rule does "
                "too, and a file would hold all of them. Write the rule with what the function computes"
            )
        del known["linear"]  # read from the rule itself
        if known.pop("effectful") is not None:
            raise Unsaved(
                f"the rule of the custom gradient `{known['name']}` has effects, which no file holds: it prints, "
                "asserts, assigns variables or calls Python. Save a function whose rule only answers"
            )
    params = {k: _param(op, k, v) for k, v in known.items()}
    outputs = [values.aval_text(v.aval) for v in node.outputs]
    return {"op": op.name, "params": params, "inputs": inputs, "outputs": outputs}


def _param(op: Op, name: str, value: Any) -> Any:
    if isinstance(value, Graph):
        return {"graph": write_graph(value)}
    try:
        return values.write(value)
    except TypeError as e:
        raise Unsaved(f"the parameter `{name}` of its op `{op.name}` is {value!r}, and {e}") from None


# ------------------------------------------------------------------ from JSON


def read_graph(text: Any) -> Graph:
    """A graph, whose every shape and dtype is what its op infers.

    Raises:
      Damaged: it is none.
    """
    inputs, nodes, outputs = fields(text, "inputs", "nodes", "outputs")
    made = [Value(values.aval_of(a)) for a in listed(inputs)]
    given = tuple(made)
    for node in listed(nodes):
        made += _read_node(node, made)
    return Graph(given, [numbered(k, made, "value") for k in listed(outputs)])


def _read_node(text: Any, made: Sequence[Value]) -> Sequence[Value]:
    name, params, inputs, outputs = fields(text, "op", "params", "inputs", "outputs")
    op = _op(name)
    operands = [numbered(k, made, "value") for k in listed(inputs)]
    if not isinstance(params, dict):
        raise Damaged(f"the parameters of `{op.name}` are no object")
    wanted = [values.aval_of(a) for a in listed(outputs)]
    step = MAKERS.get(op, _bound)(op, params, operands, wanted)
    results = _applied(step, operands)
    if [v.aval for v in results] != wanted:
        raise Damaged(f"`{op.name}` gives {[v.aval for v in results]}, the file says {wanted}")
    return results


def _applied(step: Step, operands: Sequence[Value]) -> tuple[Value, ...]:
    try:
        return apply(step, operands)
    except Exception as e:
        raise Damaged(f"`{step.name}` does not take {[v.aval for v in operands]} with {str(step)[:120]}: {e}") from e


def _op(name: Any) -> Op:
    try:
        op = lookup(name)
    except LookupError as e:
        raise Damaged(f"{e} It may come from a later version") from None
    if not _is_saved(op):
        raise Damaged(f"`{name}` is no op that a file may name")
    return op


def read_params(params: dict[str, Any]) -> dict[str, Any]:
    """Parameters, graphs among them."""
    return {k: read_graph(v["graph"]) if _is_graph(v) else values.read(v) for k, v in params.items()}


def _is_graph(text: Any) -> bool:
    return isinstance(text, dict) and set(text) == {"graph"}


def _bound(op: Op, params: dict[str, Any], operands: Sequence[Value], wanted: Sequence[Any]) -> Step:
    known = {k for s in op.samples for k in s.params}
    if op.samples and not known >= set(params):
        raise Damaged(f"`{op.name}` has no parameters {sorted(set(params) - known)}")
    return op.bind(**read_params(params))


def _called(op: Op, params: dict[str, Any], operands: Sequence[Value], wanted: Sequence[Any]) -> Step:
    inner = _inner(*fields(params, "graph"))
    _fits(op, inner.inputs, [v.aval for v in operands])
    return call_step(inner)


def _ruled(op: Op, params: dict[str, Any], operands: Sequence[Value], wanted: Sequence[Any]) -> Step:
    """A step with a rule, whose shapes must be those of the cotangents it is given and of the operands it answers
    for."""
    count, rule, marks, name, forwards = fields(params, "results", "rule", "answers", "name", "forwards")
    answers = tuple(listed(marks))
    if type(count) is not int or not 0 < count <= len(operands) - len(answers) or not isinstance(name, str):
        raise Damaged("a custom gradient has other operands than it says")
    if not all(type(a) is bool for a in answers):
        raise Damaged("a custom gradient does not say which operands it answers for")
    cotangents = [v.aval for v in operands[:count] if v.aval.dtype.is_differentiable]
    given = [*cotangents, *(v.aval for v in operands[count + len(answers) :])]
    due = [v.aval for v, a in zip(operands[count:], answers, strict=False) if a]
    if isinstance(rule, dict) and rules.NAMED in rule:
        graph, turned = unknown_rule(str(*fields(rule, rules.NAMED)), given, due), None
    else:
        graph, turned = _inner(rule), None if forwards is None else _inner(forwards)
    for g in (graph, turned):
        if g is not None:
            _fits(op, g.inputs, given)
            _fits(op, g.outputs, due)
    linear = is_linear(graph, [k < len(cotangents) for k in range(len(given))])
    return ruled_step(count, graph, answers, linear, name, turned)


def _inner(text: Any) -> Graph:
    return read_graph(*fields(text, "graph"))


def _fits(op: Op, found: Sequence[Value], wanted: Sequence[Aval]) -> None:
    avals = [v.aval for v in found]
    if avals != list(wanted):
        raise Damaged(f"the graph of `{op.name}` is one for {avals}, it is given {list(wanted)}")


Maker = Callable[[Op, dict[str, Any], Sequence[Value], Sequence[Any]], Step]
MAKERS: dict[Op, Maker] = {CALL: _called, RULED: _ruled}
