"""Whether a graph is linear in some of its inputs, by kinds of ops. Floor: transforms.

A rule that is may be transposed, as forward mode does. One of which nothing is known is taken for one that is not."""

from __future__ import annotations

from collections.abc import Iterable

from gradtape.ir.graph import Graph, Node, Value
from gradtape.ops.call import Bent, Call
from gradtape.ops.composite import Composite
from gradtape.ops.contraction import Contraction
from gradtape.ops.opaque import Opaque
from gradtape.ops.pointwise import Pointwise
from gradtape.ops.reduction import Reduction
from gradtape.ops.structural import Structural
from gradtape.transforms.dependence import dependent
from gradtape.transforms.rows.builder import is_zero
from gradtape.transforms.rows.loops import is_linear as opaque_is_linear


def is_bent(backward: Iterable[Node], cotangent: Value) -> bool:
    """Whether a backward pass gives its cotangent to a rule that may not be linear in it."""
    nodes = list(backward)
    reached = dependent(nodes, [cotangent])
    return any(isinstance(n.step.op, Bent) and id(n.outputs[0]) in reached for n in nodes)


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
