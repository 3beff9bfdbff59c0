"""A graph without compositions: what runs on a device has no functions of the host for them. Floor: transforms."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping
from typing import Any

from gradtape.ir.aval import Aval
from gradtape.ir.graph import Graph, Node, Value
from gradtape.ops.composite import Composite
from gradtape.ops.contraction import Contraction
from gradtape.ops.op import apply, constant, emit
from gradtape.ops.pointwise import Pointwise
from gradtape.ops.reduction import Reduction
from gradtape.ops.structural import Structural
from gradtape.transforms.atoms import products_added
from gradtape.transforms.simplify import rebuild_from

Expansions = Mapping[str, Callable[..., Graph]]
NEUTRAL = {"sum": 0, "prod": 1, "all": True, "any": False}  # of monoids, what a reduction of nothing is
IsProduct = Callable[[str, Any], bool]


def opened(graph: Graph, is_product: IsProduct, expansions: Expansions, own: Container[str]) -> Graph:
    """The same outputs, with the graphs that stand for nodes in their place.

    `is_product`: (subscripts, dtype); whether a library multiplies these matrices: others become products of elements
    that are added. `expansions`: of ops by name, (avals, **params) to the graph that does their work. `own`: the names
    of ops that stay, since they have kernels of their own."""
    new: dict[int, Value] = {id(v): v for v in graph.inputs}
    changed = False
    for node in graph.nodes:
        operands = [new[id(v)] for v in node.inputs]
        number = _number_of(node)
        stays = number is not None or (node.step.name in own and all(v.aval.size for v in node.inputs))
        inside = None if stays else _graph_of(node, is_product, expansions)
        if number is not None:
            changed = True
            results: tuple[Value, ...] = tuple(constant(number, v.aval.dtype, v.aval.dims) for v in node.outputs)
        elif inside is None:
            same = all(a is b for a, b in zip(operands, node.inputs, strict=True))
            results = node.outputs if same else apply(node.step, operands)
        else:
            changed = True
            results = tuple(rebuild_from(opened(inside, is_product, expansions, own), operands))
        new.update((id(v), r) for v, r in zip(node.outputs, results, strict=True))
    return Graph(graph.inputs, [new[id(v)] for v in graph.outputs]) if changed else graph


def _number_of(node: Node) -> Any:
    """The number that fills the results of a node, where it has nothing to compute them from; None elsewhere."""
    op = node.step.op
    if not isinstance(op, Pointwise | Reduction | Contraction | Composite | Structural):
        return None
    if not all(v.aval.is_known and v.aval.dtype.kind in "fciub" for v in (*node.inputs, *node.outputs)):
        return None
    if all(v.aval.size == 0 for v in node.outputs):
        return 0
    if not isinstance(op, Reduction) or op.body is not None or node.inputs[0].aval.size:
        return None
    if op.identity is not None:
        return op.identity
    dtype = node.inputs[0].aval.dtype
    if op.monoid in ("max", "min"):
        sign = -1 if op.monoid == "max" else 1
        return (dtype.min if sign < 0 else dtype.max) if dtype.is_integer else sign * math.inf
    return math.nan if op.monoid is None else NEUTRAL[op.monoid]


def _graph_of(node: Node, is_product: IsProduct, expansions: Expansions) -> Graph | None:
    op, params = node.step.op, node.step.params
    avals: tuple[Aval, ...] = tuple(v.aval for v in node.inputs)
    if op.name in expansions:
        return expansions[op.name](avals, **params)
    if isinstance(op, Reduction) and op.monoid is not None and not params["axes"]:
        return _itself(avals)
    if isinstance(op, Composite) or (isinstance(op, Reduction) and op.body is not None):
        return op.expand(avals, **params)
    if isinstance(op, Contraction) and not is_product(params["subscripts"], avals[0].dtype.numpy_dtype):
        return products_added(params["subscripts"], avals)
    return None


def _itself(avals: tuple[Aval, ...]) -> Graph:
    """What a reduction over no axes is."""
    inputs = tuple(map(Value, avals))
    return Graph(inputs, [emit("identity", *inputs)])
