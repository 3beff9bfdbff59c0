"""Graph to an equal, smaller graph. The passes are listed in `PASSES`; each is exact. Floor: transforms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradtape.ir.graph import Graph, Node, Value
from gradtape.ops.call import Call, Effectful
from gradtape.ops.control import Cond, Region
from gradtape.ops.op import Constant, Op, Step, apply, constant, emit
from gradtape.ops.pointwise import Pointwise
from gradtape.ops.reduction import Reduction
from gradtape.ops.structural import Structural
from gradtape.transforms.liveness import without_unread

EXACT = 1 << 24  # whole numbers up to here are exact in float32, and so are their sums

# A rewrite is given a step and its (rewritten) operands; it answers with a value that may stand for the result.
Rewrite = Callable[[Step, Sequence[Value]], Value | None]


def rebuild(graph: Graph, rewrite: Rewrite | None = None, kind: type = Op) -> Graph:
    """The graph made anew, operands first: equal nodes become one, and `rewrite` may replace a node of ops of a `kind`.
    Inputs that another graph makes get stand-ins, so that no rewrite looks behind them. It is the same graph if nothing
    changes."""
    new: dict[Value, Value] = {v: v if v.node is None else Value(v.aval) for v in graph.inputs}
    known: dict[Any, tuple[Value, ...]] = {}
    changed = any(v.node is not None for v in graph.inputs)
    for node in graph.nodes:
        outputs = node.outputs
        asked = rewrite if isinstance(node.step.op, kind) else None
        results = _node(node, [new[v] for v in node.inputs], asked, known)
        if results is outputs and len(outputs) == 1:
            new[outputs[0]] = outputs[0]
            continue
        changed = changed or results is not outputs
        new.update(zip(outputs, results, strict=True))
    return Graph([new[v] for v in graph.inputs], [new[v] for v in graph.outputs]) if changed else graph


def rebuild_from(graph: Graph, operands: Sequence[Value]) -> list[Value]:
    """The outputs of a graph made anew over other operands."""
    new = {id(v): o for v, o in zip(graph.inputs, operands, strict=True)}
    known: dict[Any, tuple[Value, ...]] = {}
    for node in graph.nodes:
        results = _node(node, [new[id(v)] for v in node.inputs], None, known)
        new.update((id(v), r) for v, r in zip(node.outputs, results, strict=True))
    return [new[id(v)] for v in graph.outputs]


def flattened(graph: Graph) -> Graph:
    """The graph with the nodes of the graphs that it calls in their place: what they compute twice is seen then, and
    each value can be kept for a derivative."""
    if not any(_is_opened(n) for n in graph.nodes):
        return graph
    new: dict[int, Value] = {id(v): v for v in graph.inputs}
    for node in graph.nodes:
        operands = [new[id(v)] for v in node.inputs]
        if _is_opened(node):
            results: Sequence[Value] = rebuild_from(flattened(node.step.params["graph"]), operands)
        else:
            results = _node(node, operands, None, {})
        new.update((id(v), r) for v, r in zip(node.outputs, results, strict=True))
    return Graph(graph.inputs, [new[id(v)] for v in graph.outputs])


def _is_opened(node: Node) -> bool:
    return isinstance(node.step.op, Call) and not isinstance(node.step.op, Effectful)


def _node(
    node: Node, operands: list[Value], rewrite: Rewrite | None, known: dict[Any, tuple[Value, ...]]
) -> tuple[Value, ...]:
    if rewrite is not None and len(node.outputs) == 1:
        replaced = rewrite(node.step, operands)
        if replaced is not None:
            return (replaced,)
    key = (node.step, *operands)
    found = known.get(key)
    if found is None:
        same = key[1:] == node.inputs
        found = known[key] = node.outputs if same else apply(node.step, operands)
    return found


def _scalar(v: Value) -> Any:
    """The number that fills a value, where it is known."""
    if v.node is not None and isinstance(v.node.step.op, Constant):
        return v.node.step.params["value"]
    if v.node is not None and isinstance(v.node.step.op, Structural) and v.node.step.op.repeats:
        return _scalar(v.node.inputs[0])
    return None


def without_repeats(step: Step, operands: Sequence[Value]) -> Value | None:
    """A pointwise op broadcasts by itself: it takes what was broadcast, as long as the result keeps its shape."""
    if not isinstance(step.op, Pointwise):
        return None
    smaller = list(operands)
    shape = step.infer(tuple(v.aval for v in operands))[0].shape
    for i, v in enumerate(operands):
        source = _unrepeated(v)
        if source is None:
            continue
        trial = [*smaller[:i], source, *smaller[i + 1 :]]
        if step.infer(tuple(t.aval for t in trial))[0].shape == shape:
            smaller = trial
    if all(a is b for a, b in zip(smaller, operands, strict=True)):
        return None
    return apply(step, smaller)[0]


def with_repeats_later(step: Step, operands: Sequence[Value]) -> Value | None:
    """A pointwise op whose operands all repeat something along an axis works on what they repeat; its result is
    repeated. So what comes from one number stays one number."""
    if not isinstance(step.op, Pointwise):
        return None
    smaller = [v if (source := _unrepeated(v)) is None else source for v in operands]
    if all(a is b for a, b in zip(smaller, operands, strict=True)):
        return None
    shape = step.infer(tuple(v.aval for v in operands))[0].shape
    few = step.infer(tuple(v.aval for v in smaller))[0]
    if shape is None or not few.is_known or few.shape == shape or None in shape:
        return None
    return emit("broadcast_to", apply(step, smaller)[0], shape=shape)


def _unrepeated(v: Value) -> Value | None:
    if v.node is None:
        return None
    op = v.node.step.op
    if isinstance(op, Structural) and op.repeats:
        return v.node.inputs[0]
    if isinstance(op, Constant) and v.aval.shape != ():
        return constant(v.node.step.params["value"], v.aval.dtype)
    return None


def without_neutral(step: Step, operands: Sequence[Value]) -> Value | None:
    """x * 1, x - 0, x / 1: x itself, bit for bit; so not x - (-0), nor complex products, which make +0 of -0."""
    if not isinstance(step.op, Pointwise) or not step.op.neutral:
        return None
    result = step.infer(tuple(v.aval for v in operands))[0]
    if result.dtype.is_complex:
        return None
    for i, number in step.op.neutral.items():
        other = operands[1 - i]
        value = _scalar(operands[i])
        if other.aval is result and value == number and str(value) != "-0.0":
            return other
    return None


def with_known_sums(step: Step, operands: Sequence[Value]) -> Value | None:
    """The sum of one whole number over and over is a number, as long as every order of adding gives it exactly."""
    if step.op.name != "reduce_sum" or not operands[0].aval.is_known or not operands[0].aval.size:
        return None
    (x,) = operands
    value, (result,) = _scalar(x), step.infer((x.aval,))
    if x.aval.dtype.kind not in "fi" or value is None or not abs(value) <= EXACT or value != int(value):
        return None
    if str(value) == "-0.0":
        return None
    total = int(value) * (x.aval.size // result.size)
    return constant(total, result.dtype, result.dims) if abs(total) <= EXACT else None


def without_single(step: Step, operands: Sequence[Value]) -> Value | None:
    """What a reduction makes of one element is that element."""
    if not isinstance(step.op, Reduction) or step.op.monoid is None or not operands[0].aval.is_known:
        return None
    (x,), (result,) = operands, step.infer((operands[0].aval,))
    if any(x.aval.dims[k] != 1 for k in step.params["axes"]) or result.dtype is not x.aval.dtype:
        return None
    return x if result is x.aval else emit("reshape", x, shape=result.dims)


def without_idle(step: Step, operands: Sequence[Value]) -> Value | None:
    """Structural steps that change nothing: a reshape to the same shape, a transpose in the same order. Two of one op
    are one."""
    op = step.op
    if not isinstance(op, Structural) or op.idle is None:
        return None
    x = operands[0]
    before = x.node
    if op.both is not None and before is not None and before.step.op is op:
        x, step = before.inputs[0], op.bind(**op.both(before.step.params, step.params))
    if op.idle(x.aval, **step.params):
        return x
    return apply(step, [x])[0] if x is not operands[0] else None


PASSES: tuple[tuple[str, Rewrite | None], ...] = (
    ("drop reductions of one element", without_single),
    ("drop idle layout steps", without_idle),
    ("drop neutral operands", without_neutral),
    ("repeat later", with_repeats_later),
    ("let pointwise ops broadcast", without_repeats),
    ("add known numbers", with_known_sums),
    ("drop neutral operands", without_neutral),
    ("merge equal nodes", None),
)

ABOUT: dict[Rewrite | None, type] = {  # the only kind of op that a pass replaces
    without_neutral: Pointwise,
    with_repeats_later: Pointwise,
    without_repeats: Pointwise,
    without_single: Reduction,
    without_idle: Structural,
    with_known_sums: Reduction,
}


def with_simple_regions(graph: Graph) -> Graph:
    """The graph with simple graphs in its branches and loops; a branch that is known is put in its place."""
    if not any(isinstance(n.step.op, Region) for n in graph.nodes):
        return graph
    new: dict[int, Value] = {id(v): v for v in graph.inputs}
    for node in graph.nodes:
        operands = [new[id(v)] for v in node.inputs]
        new.update((id(v), r) for v, r in zip(node.outputs, _with_simple_graphs(node, operands), strict=True))
    return Graph(graph.inputs, [new[id(v)] for v in graph.outputs])


def _with_simple_graphs(node: Node, operands: list[Value]) -> Sequence[Value]:
    step, op = node.step, node.step.op
    if not isinstance(op, Region):
        return _node(node, operands, None, {})
    if isinstance(op, Cond) and (known := _scalar(operands[0])) is not None:
        return rebuild_from(simplify(flattened(step.params["true" if known else "false"])), operands[1:])
    if "simple" not in step.cache:
        step.cache["simple"] = op.remade(step, lambda g: simplify(flattened(g)))
    return apply(step.cache["simple"], operands)


def simplify(graph: Graph, after: Callable[[str, Graph], None] | None = None) -> Graph:
    """All passes in order; `after` sees the graph behind each (tests check its spec there). What nothing
    uses falls away because a graph is walked from its outputs."""
    graph = without_unread(with_simple_regions(graph))
    for name, rewrite in PASSES:
        kind = ABOUT.get(rewrite, Op)
        if kind is Op or any(isinstance(n.step.op, kind) for n in graph.nodes):
            graph = rebuild(graph, rewrite, kind)
        if after is not None:
            after(name, graph)
    return graph
