"""Reverse mode, graph to graph, and forward mode as the transpose of its transpose. Floor: transforms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from gradtape.ir.aval import Aval
from gradtape.ir.graph import Graph, Node, Value, order
from gradtape.ops.call import Call
from gradtape.ops.control import Region, While, total
from gradtape.ops.formulas import ScalarFunction
from gradtape.ops.op import CONSTANT, Constant, Cotangent, Step, apply, emit
from gradtape.transforms.control import REGIONS, keeping
from gradtape.transforms.dependence import dependent as dependent
from gradtape.transforms.dependence import leaves as leaves

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
        for v, p, w in zip(node.inputs, pull(node, cotangents, wanted), wanted, strict=True):
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
        parts[:2] = [Cotangent(total(a.value, b.value), mask)]
    return parts[0]


def pull(node: Node, cotangents: list[Cotangent | None], wanted: list[bool]) -> list[Cotangent | None]:
    """The rule of a node: its op's, or the one made from the graphs of a call, a branch, a loop or a formula."""
    region = REGIONS.get(type(node.step.op))
    if region is not None:
        return region(node, cotangents, wanted, _pull_back)
    op = node.step.op
    if isinstance(op, ScalarFunction) and not op.partials:
        return _pull_formula(node, op.opened(node), cotangents, wanted)
    rule = _pull_call if isinstance(op, Call) else op.pull
    return rule(node, cotangents, wanted)


def _pull_formula(
    node: Node, inside: Sequence[Node], cotangents: list[Cotangent | None], wanted: list[bool]
) -> list[Cotangent | None]:
    """Through the nodes of a formula; what they compute of the operands is computed again."""
    given = [(v, c) for v, c in zip(node.outputs, cotangents, strict=True) if c is not None]
    return _of_operands(node, wanted, lambda sources: _pull_back(inside, given, sources))


def _of_operands(
    node: Node, wanted: list[bool], pulled: Callable[[Sequence[Value]], list[Cotangent | None]]
) -> list[Cotangent | None]:
    """The cotangents of a node's operands; one that stands at several places has one, for all of them."""
    sources = list({id(v): v for v, w in zip(node.inputs, wanted, strict=True) if w}.values())
    found = dict(zip(map(id, sources), pulled(sources), strict=True))
    return [found.pop(id(v), None) if w else None for v, w in zip(node.inputs, wanted, strict=True)]


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
    return _of_operands(node, wanted, lambda sources: _pull_back(shadows, given, sources))


def augmented(graph: Graph, active: Sequence[bool]) -> Graph:
    """The graph that also returns what its VJP with respect to the active inputs mentions."""
    graph = with_kept(graph, active)
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


def with_kept(graph: Graph, active: Sequence[bool]) -> Graph:
    """The graph with branches and loops that keep what pulling back to the active inputs will read of them."""
    nodes = graph.nodes
    if not any(isinstance(n.step.op, Region) for n in nodes):
        return graph
    flowing = dependent(nodes, [v for v, a in zip(graph.inputs, active, strict=True) if a])
    new = {id(v): v for v in graph.inputs}
    for node in nodes:
        operands = [new[id(v)] for v in node.inputs]
        marks = tuple(id(v) in flowing for v in node.inputs)
        if isinstance(node.step.op, Region) and any(marks):
            made = _apply_keeping(node, marks, operands)
        else:
            same = all(a is b for a, b in zip(operands, node.inputs, strict=True))
            made = node.outputs if same else apply(node.step, operands)
        new.update((id(v), m) for v, m in zip(node.outputs, made, strict=True))
    return Graph(graph.inputs, [new[id(v)] for v in graph.outputs])


def _apply_keeping(node: Node, marks: tuple[bool, ...], operands: Sequence[Value]) -> Sequence[Value]:
    step, places = kept_step(node.step, marks)
    made = apply(step, operands)
    return [made[k] for k in places]


def kept_step(step: Step, marks: tuple[bool, ...]) -> tuple[Step, list[int]]:
    """A branch or loop that keeps what pulling back will read, and where the results of the bare one are."""
    key = ("keeping", marks)
    if key not in step.cache:
        kept = keeping(step, marks, _pull_back, augmented)
        count = len(step.op.graphs(step)[-1].outputs) if isinstance(step.op, Region) else 0
        trips = [len(kept.params["body"].outputs)] if isinstance(step.op, While) else []
        step.cache[key] = (kept, [*range(count), *trips])
    found: tuple[Step, list[int]] = step.cache[key]
    return found


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
    pulled = [c.value for c in pull(node, seeds, list(active)) if c is not None]
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
