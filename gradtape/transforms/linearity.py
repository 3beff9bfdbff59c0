"""Whether a graph is linear in some of its inputs, by kinds of ops; and what forward mode takes in the place of a rule
of which that is not known. Floor: transforms.

A rule that is may be transposed, as forward mode does. One of which nothing is known is taken for one that is not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gradtape.ir.graph import Graph, Node, Value
from gradtape.ops.call import Bent, Call
from gradtape.ops.composite import Composite
from gradtape.ops.contraction import Contraction
from gradtape.ops.kernels import KernelStep
from gradtape.ops.op import Step, apply
from gradtape.ops.opaque import Opaque
from gradtape.ops.pointwise import Pointwise
from gradtape.ops.reduction import Reduction
from gradtape.ops.structural import Structural
from gradtape.transforms.dependence import dependent
from gradtape.transforms.rows.builder import is_zero
from gradtape.transforms.rows.loops import is_linear as opaque_is_linear
from gradtape.transforms.simplify import rebuild_from


def bent_rule(backward: Iterable[Node], cotangent: Value) -> str | None:
    """The name of a rule that a backward pass gives its cotangent to and that may not be linear in it; None where there
    is no such rule."""
    nodes = list(backward)
    reached = dependent(nodes, [cotangent])
    for n in nodes:
        hit = [k for k, v in enumerate(n.inputs) if id(v) in reached]
        if any(id(v) in reached for v in n.outputs) and (names := list(_bent_in(n.step, hit))):
            return names[0]
    return None


def _bent_in(step: Step, hit: Sequence[int]) -> Iterable[str]:
    """The names of rules in a step, some of whose operands depend on the cotangent, that may not be linear."""
    if isinstance(step.op, Bent):
        return [] if step.params["linear"] else [step.params["rule"]]
    if isinstance(step.op, KernelStep):
        is_pushed = step.op.is_transposable and step.op.is_linear(hit, step.params["static"])
        return [] if is_pushed else [step.op.kernel.name]
    graphs = [g for g in step.params.values() if isinstance(g, Graph)]
    return [name for g in graphs for n in g.nodes for name in _bent_in(n.step, range(len(n.inputs)))]


def forwards(outputs: Sequence[Value], given: Sequence[Value]) -> list[Value]:
    """A backward pass in which the JVPs that rules came with stand, transposed, in the place of the rules."""
    graph = Graph(given, outputs)
    if not any(_has_forwards(n.step) for n in graph.nodes):
        return list(outputs)
    new = {id(v): v for v in given}
    for node in graph.nodes:
        operands = [new[id(v)] for v in node.inputs]
        if isinstance(node.step.op, Bent) and node.step.params["forwards"] is not None:
            results = rebuild_from(node.step.params["forwards"], operands[1:])
        else:
            results = list(apply(_forwards_inside(node.step), operands))
        new.update((id(v), r) for v, r in zip(node.outputs, results, strict=True))
    return [new[id(v)] for v in outputs]


def _has_forwards(step: Step) -> bool:
    if isinstance(step.op, Bent):
        return step.params["forwards"] is not None
    return any(_has_forwards(n.step) for g in step.params.values() if isinstance(g, Graph) for n in g.nodes)


def _forwards_inside(step: Step) -> Step:
    """A branch or a loop with the same done in its graphs."""
    if isinstance(step.op, Bent) or not _has_forwards(step):
        return step
    inside = {
        k: Graph(g.inputs, forwards(g.outputs, g.inputs)) if isinstance(g, Graph) else g for k, g in step.params.items()
    }
    return Step(step.op, inside)


def is_linear(graph: Graph, varying: Iterable[bool]) -> bool:
    """Whether all outputs are linear in the inputs marked as varying, together."""
    reached = {id(v) for v, m in zip(graph.inputs, varying, strict=True) if m}
    nothing: set[int] = set()  # zeros, whatever the inputs
    for node in graph.nodes:
        hit, zeros = ([id(v) in among for v in node.inputs] for among in (reached, nothing))
        if is_zero(node.step, zeros):
            nothing.update(map(id, node.outputs))
        elif any(hit):
            if not _is_linear_in(node, hit, zeros):
                return False
            reached.update(map(id, node.outputs))
    return all(id(v) in reached or id(v) in nothing for v in graph.outputs)


def _is_linear_in(node: Node, hit: list[bool], zeros: list[bool]) -> bool:
    """Whether a node is linear in the operands that are hit. A sum with a constant is not, unless that is zero."""
    op = node.step.op
    which = {i for i, h in enumerate(hit) if h}
    off = {i for i, z in enumerate(zeros) if z}
    match op:
        case Pointwise():
            return any(which <= set(group) <= which | off for group in op.linear)
        case Reduction():
            return op.coefficient(1) is not None
        case Contraction():
            return len(which) == 1
        case Structural():
            moved = set(range(len(hit) - op.indices))
            return which <= moved <= which | off
        case Composite():
            return is_linear(op.expand(tuple(v.aval for v in node.inputs), **node.step.params), hit)
        case Call():
            return is_linear(node.step.params["graph"], hit)
        case Opaque():
            return len(which) == 1 and opaque_is_linear(node, which.pop())
    return False
