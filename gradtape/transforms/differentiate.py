"""Reverse mode, graph to graph, and forward mode as the transpose of its transpose. Floor: transforms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from gradtape.ir.aval import Aval
from gradtape.ir.graph import Graph, Node, Value, order
from gradtape.ops.call import Call
from gradtape.ops.op import CONSTANT, Constant, Cotangent, Step, apply, emit

COUNTS: Counter[str] = Counter()  # how often graphs were differentiated; tests read that caches spare it


def pull_back(
    nodes: Sequence[Node], targets: Sequence[Value], cotangents: Sequence[Value], sources: Sequence[Value]
) -> list[Value | None]:
    """The cotangents of `sources`, given those of `targets`, through `nodes` (operands first).

    Results are graph values over the cotangents and over values of the given nodes: their residuals.
    None: no target depends on that source through differentiable values."""
    COUNTS["pull_back"] += 1
    pulled = _pull_back(nodes, [(t, Cotangent(c)) for t, c in zip(targets, cotangents, strict=True)], sources)
    return [None if c is None else c.value for c in pulled]


def _pull_back(
    nodes: Sequence[Node], given: Iterable[tuple[Value, Cotangent]], sources: Sequence[Value]
) -> list[Cotangent | None]:
    active = dependent(nodes, sources)
    held: dict[int, list[Cotangent]] = {}
    for v, c in given:
        held.setdefault(id(v), []).append(c)
    for node in reversed(nodes):
        cotangents = [_total(held, v) for v in node.outputs]
        wanted = [id(v) in active for v in node.inputs]
        if not any(wanted) or all(c is None for c in cotangents):
            continue
        for v, p, w in zip(node.inputs, _pull(node, cotangents, wanted), wanted, strict=True):
            if w and p is not None:
                held.setdefault(id(v), []).append(p)
    return [_total(held, s) if id(s) in active else None for s in sources]


def _total(held: dict[int, list[Cotangent]], v: Value) -> Cotangent | None:
    """The sum of the cotangents that arrived at a value; it can be other than 0 where any of them can."""
    parts = held.get(id(v))
    if not parts:
        return None
    while len(parts) > 1:
        a, b = parts[:2]
        mask = None if a.mask is None or b.mask is None else emit("logical_or", a.mask, b.mask)
        parts[:2] = [Cotangent(emit("add", a.value, b.value), mask)]
    return parts[0]


def _pull(node: Node, cotangents: list[Cotangent | None], wanted: list[bool]) -> list[Cotangent | None]:
    """The rule of a node: its op's, or for a call the one made from its graph."""
    rule = _pull_call if isinstance(node.step.op, Call) else node.step.op.pull
    return rule(node, cotangents, wanted)


def _pull_call(node: Node, cotangents: list[Cotangent | None], wanted: list[bool]) -> list[Cotangent | None]:
    """Through the nodes of the graph, whose values are the call's operands and results; those that are
    neither (nothing mentions them) have stand-ins."""
    graph: Graph = node.step.params["graph"]
    outer = {id(v): o for v, o in zip(graph.outputs, node.outputs, strict=True)}
    outer |= {id(v): o for v, o in zip(graph.inputs, node.inputs, strict=True)}
    shadows = []
    for inner in graph.nodes:
        if isinstance(inner.step.op, Constant):
            (outer[id(inner.outputs[0])],) = apply(inner.step, ())
            continue
        shadow = Node(inner.step, tuple(outer[id(v)] for v in inner.inputs), ())
        shadow.outputs = tuple(outer.setdefault(id(v), Value(v.aval)) for v in inner.outputs)
        shadows.append(shadow)
    given = [(outer[id(v)], c) for v, c in zip(graph.outputs, cotangents, strict=True) if c is not None]
    sources = list({id(v): v for v, w in zip(node.inputs, wanted, strict=True) if w}.values())
    pulled: dict[int, Cotangent | None] = dict(zip(map(id, sources), _pull_back(shadows, given, sources), strict=True))
    # An operand that stands at several places has one cotangent, for all of them.
    return [pulled.pop(id(v), None) if w else None for v, w in zip(node.inputs, wanted, strict=True)]


def augmented(graph: Graph, active: Sequence[bool]) -> Graph:
    """The graph that also returns what its VJP with respect to the active inputs mentions."""
    nodes = graph.nodes
    flowing = dependent(nodes, [v for v, a in zip(graph.inputs, active, strict=True) if a])
    extra: dict[int, Value] = {}
    for node in nodes:
        marks = tuple(id(v) in flowing for v in node.inputs)
        if any(marks):
            ins, outs = residuals(node.step, tuple(v.aval for v in node.inputs), marks) or ((), ())
            for v in (*(node.inputs[i] for i in ins), *(node.outputs[j] for j in outs)):
                if v.node is not None and not isinstance(v.node.step.op, Constant):
                    extra[id(v)] = v
    for v in (*graph.inputs, *graph.outputs):
        extra.pop(id(v), None)
    return Graph(graph.inputs, (*graph.outputs, *extra.values()))


def dependent(nodes: Iterable[Node], sources: Iterable[Value]) -> set[int]:
    """The ids of the values that gradients can flow back from: differentiable ones that depend on a source."""
    active = {id(s) for s in sources if s.aval.dtype.is_differentiable}
    for node in nodes:
        if any(id(v) in active for v in node.inputs):
            active.update(id(v) for v in node.outputs if v.aval.dtype.is_differentiable)
    return active


def leaves(outputs: Iterable[Value], among: Iterable[Value]) -> list[Value]:
    """The values of `among` that `outputs` refer to, in the order of `among`."""
    candidates = list(among)
    ids = set(map(id, candidates))
    wanted = list(outputs)
    used = {id(v) for v in wanted}
    used.update(id(v) for node in order(wanted, candidates) for v in node.inputs)
    return [v for v in candidates if id(v) in used & ids]


Residuals = tuple[tuple[int, ...], tuple[int, ...]]


def residuals(step: Step, avals: tuple[Aval, ...], active: tuple[bool, ...]) -> Residuals | None:
    """Which operands and which results of a step its VJP mentions, when the operands marked active are
    differentiated: the rule is traced, and what its result refers to must be kept. None: no gradient flows."""
    key = ("residuals", avals, active)
    if key not in step.cache:
        step.cache[key] = _traced(step, avals, active)
    found: Residuals | None = step.cache[key]
    return found


def _traced(step: Step, avals: tuple[Aval, ...], active: tuple[bool, ...]) -> Residuals | None:
    node = Node(step, tuple(Value(a) for a in avals), step.infer(avals))
    seeds = [Cotangent(Value(v.aval)) if v.aval.dtype.is_differentiable else None for v in node.outputs]
    if all(s is None for s in seeds):
        return None
    pulled = [c.value for c in _pull(node, seeds, list(active)) if c is not None]
    if not pulled:
        return None
    used = set(map(id, leaves(pulled, [*node.inputs, *node.outputs])))
    return (
        tuple(i for i, v in enumerate(node.inputs) if id(v) in used),
        tuple(i for i, v in enumerate(node.outputs) if id(v) in used),
    )


def vjp(graph: Graph) -> Graph:
    """The graph of cotangents: (inputs of `graph`, a cotangent per output) to a cotangent per input; zeros
    where nothing is connected."""
    cotangents = [Value(v.aval) for v in graph.outputs]
    pulled = pull_back(graph.nodes, graph.outputs, cotangents, graph.inputs)
    outputs = [zeros(v.aval) if p is None else p for p, v in zip(pulled, graph.inputs, strict=True)]
    return Graph((*graph.inputs, *cotangents), outputs)


def jvp(graph: Graph) -> Graph:
    """The graph of tangents: (inputs of `graph`, a tangent per input) to a tangent per output. Forward mode
    has no rules of its own: the VJP is linear in its cotangent, so its own VJP with respect to that
    cotangent is the Jacobian again."""
    cotangents = [Value(v.aval) for v in graph.outputs]
    pulled = pull_back(graph.nodes, graph.outputs, cotangents, graph.inputs)
    tangents = [Value(v.aval) for v in graph.inputs]
    pairs = [(p, t) for p, t in zip(pulled, tangents, strict=True) if p is not None]
    backward = order([p for p, _ in pairs], [*graph.inputs, *cotangents])
    pushed = pull_back(backward, [p for p, _ in pairs], [t for _, t in pairs], cotangents)
    outputs = [zeros(v.aval) if p is None else p for p, v in zip(pushed, graph.outputs, strict=True)]
    return Graph((*graph.inputs, *tangents), outputs)


def zeros(of: Aval) -> Value:
    """Zeros of a known shape and dtype."""
    return apply(filled_step(of, 0), ())[0]


def filled_step(of: Aval, value: float) -> Step:
    """The step that makes an array of a known shape and dtype, full of a number."""
    return CONSTANT.bind(value=value, dtype=of.dtype, shape=of.dims)
