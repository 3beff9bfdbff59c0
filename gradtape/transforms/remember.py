"""What a graph keeps for its gradient within a budget of bytes, and what is computed again. Floor: transforms.

Kept is, one after the other, the value that spares most work per byte: the work to make again what is not kept, from
the operands, the results and what is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gradtape.ir.graph import Graph, Node, Value, order
from gradtape.ops.call import Effectful
from gradtape.ops.control import Region
from gradtape.ops.host import Host
from gradtape.transforms.cost import cost_of

MAX_CANDIDATES = 48  # of which the best is sought each time


def chosen(graph: Graph, results: int, budget: int) -> Graph:
    """The graph with those of its residuals (the outputs behind the results) that fit into the budget. What Python
    gave is kept in any case: it may not run again."""
    outputs, residuals = graph.outputs[:results], list(graph.outputs[results:])
    kept = [v for n in graph.nodes if runs_once(n) for v in n.outputs]
    left = [v for v in residuals if not any(v is k for k in kept)]
    room = budget - sum(v.aval.nbytes for v in kept)
    there = [*graph.inputs, *outputs]
    while left:
        fitting = [v for v in left if v.aval.nbytes <= room]
        best = _best(fitting, residuals, [*there, *kept])
        if best is None:
            break
        kept.append(best)
        left = [v for v in left if v is not best]
        room -= best.aval.nbytes
    return Graph(graph.inputs, [*outputs, *(v for v in kept if not any(v is o for o in outputs))])


def _best(candidates: Sequence[Value], residuals: Sequence[Value], there: Sequence[Value]) -> Value | None:
    """The value that spares most per byte; None: there is nothing to spare."""
    now = again(residuals, there)
    largest = sorted(candidates, key=lambda v: -cost_of([v.node] if v.node else []) / max(1, v.aval.nbytes))
    best, most = None, 0.0
    for v in largest[:MAX_CANDIDATES]:
        spared = (now - again(residuals, [*there, v])) / max(1, v.aval.nbytes)
        if spared > most:
            best, most = v, spared
    return best


def again(residuals: Sequence[Value], there: Sequence[Value]) -> float:
    """An estimate of the work, in nanoseconds, to make values from those that are there."""
    return cost_of(order(residuals, there))


def runs_once(node: Node) -> bool:
    """Whether a step, or one inside of it, calls Python or has an effect: it is not to run a second time."""
    return any(isinstance(n.step.op, Host | Effectful) for n in _steps(node))


def may_wait(node: Node) -> bool:
    """Whether a step, or one inside of it, calls a user's Python, which may wait for another thread."""
    return any(runs_once(n) and not n.step.params.get("ours") for n in _steps(node))


def _steps(node: Node) -> Iterator[Node]:
    """A step itself, or those that are inside of it."""
    op = node.step.op
    if isinstance(op, Region):
        for graph in op.graphs(node.step):
            for n in graph.nodes:
                yield from _steps(n)
    else:
        yield node
