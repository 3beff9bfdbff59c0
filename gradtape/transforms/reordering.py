"""Chains of contractions in the order that takes the fewest multiply-adds: (A B) v as A (B v). Floor: transforms.

Products of products are one sum over all their letters, whatever the order. Where another order saves most of the
multiply-adds, and holds no larger arrays in between, it is taken; roundings are others then."""

from __future__ import annotations

import itertools
import string
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import opt_einsum

from gradtape.ir.graph import Graph, Node, Value
from gradtape.ir.shapes import size_of
from gradtape.ops.contraction import Contraction, parts
from gradtape.ops.op import apply, emit

SAVED = 2  # so many times fewer multiply-adds, or the order stays
MOST = 12  # factors of a chain

Letters = tuple[int, ...]


@dataclass
class Chain:
    """Contractions of contractions that nothing else uses: factors with their letters, and what they cost so far."""

    factors: list[tuple[Value, Letters]]
    sizes: dict[int, int]
    cost: int = 0
    largest: int = 0  # elements of a result in between


def reordered(graph: Graph) -> Graph:
    """The graph with its chains of contractions in better orders; the graph itself if they are well as they are."""
    uses = Counter(id(v) for n in graph.nodes for v in n.inputs)
    uses.update(id(v) for v in graph.outputs)
    inner = {
        id(v.node)
        for n in graph.nodes
        if _is_plain(n)
        for v in n.inputs
        if v.node is not None and _is_plain(v.node) and uses[id(v)] == 1
    }
    better: dict[int, tuple[Chain, Letters, list[Any]]] = {}
    for node in graph.nodes:
        if _is_plain(node) and id(node) not in inner:
            chain, out = _chain(node, inner)
            path = _better(chain, out)
            if path is not None:
                better[id(node)] = (chain, out, path)
    return _rebuilt(graph, better) if better else graph


def _is_plain(node: Node) -> bool:
    return isinstance(node.step.op, Contraction) and all(v.aval.is_known for v in node.inputs)


# ------------------------------------------------------------------ one chain


def _chain(root: Node, inner: set[int]) -> tuple[Chain, Letters]:
    """All factors of a contraction, and the letters of its result."""
    chain = Chain([], {})
    fresh = itertools.count()
    _, _, out = parts(root.step.params["subscripts"])
    letters = tuple(next(fresh) for _ in out)
    stack: list[tuple[Node, Letters]] = [(root, letters)]
    while stack:
        node, given = stack.pop()
        chain.largest = max(chain.largest, 0 if node is root else node.outputs[0].aval.size)
        for v, own in _renamed(node, given, fresh, chain):
            if v.node is not None and id(v.node) in inner and len(chain.factors) + len(stack) < MOST:
                stack.append((v.node, own))
            else:
                chain.factors.append((v, own))
    return chain, letters


def _renamed(node: Node, given: Letters, fresh: Iterator[int], chain: Chain) -> list[tuple[Value, Letters]]:
    """The operands of one contraction in the chain's letters, given those of its result."""
    left, right, out = parts(node.step.params["subscripts"])
    names = dict(zip(out, given, strict=True))
    found = []
    for v, own in zip(node.inputs, (left, right), strict=True):
        for c, n in zip(own, v.aval.dims, strict=True):
            if c not in names:
                names[c] = next(fresh)
            chain.sizes[names[c]] = n
        found.append((v, tuple(names[c] for c in own)))
    chain.cost += size_of(chain.sizes[k] for k in names.values())
    return found


def _better(chain: Chain, out: Letters) -> list[Any] | None:
    """An order in which a chain costs far less, as pairs of places (opt_einsum's), if there is one."""
    if len(chain.factors) < 3:
        return None
    shapes = [v.aval.dims for v, _ in chain.factors]
    names = [opt_einsum.get_symbol(k) for k in range(1 + max(chain.sizes, default=0))]
    text = ",".join("".join(names[k] for k in own) for _, own in chain.factors) + "->" + "".join(names[k] for k in out)
    path = list(opt_einsum.contract_path(text, *shapes, shapes=True, optimize="auto")[0])
    cost, largest = 0, 0
    for _, _, kept, summed in _steps([own for _, own in chain.factors], out, path):
        cost += size_of(chain.sizes[k] for k in (*kept, *summed))
        largest = max(largest, size_of(chain.sizes[k] for k in kept) if kept != out else 0)
    return path if cost * SAVED < chain.cost and largest <= chain.largest else None


def _steps(
    factors: Sequence[Letters], out: Letters, path: Sequence[Any]
) -> Iterator[tuple[int, int, Letters, Letters]]:
    """The pairs of a path: both places (the later one first), the letters of the result and those that are summed."""
    have = list(factors)
    for pair in path:
        i, j = sorted(pair, reverse=True)
        a, b = have.pop(i), have.pop(j)
        needed = {k for own in have for k in own} | set(out)
        both = dict.fromkeys((*b, *a))
        kept = tuple(k for k in both if k in needed) if have else out
        yield i, j, kept, tuple(k for k in both if k not in needed)
        have.append(kept)


# ------------------------------------------------------------------ the graph


def _rebuilt(graph: Graph, better: dict[int, tuple[Chain, Letters, list[Any]]]) -> Graph:
    new: dict[int, Value] = {id(v): v for v in graph.inputs}
    for node in graph.nodes:
        operands = [new[id(v)] for v in node.inputs]
        made: Sequence[Value]
        if id(node) in better:
            chain, out, path = better[id(node)]
            made = [_contracted([(new[id(v)], own) for v, own in chain.factors], out, path)]
        else:
            same = all(a is b for a, b in zip(operands, node.inputs, strict=True))
            made = node.outputs if same else apply(node.step, operands)
        new.update((id(v), r) for v, r in zip(node.outputs, made, strict=True))
    return Graph(graph.inputs, [new[id(v)] for v in graph.outputs])


def _contracted(factors: Sequence[tuple[Value, Letters]], out: Letters, path: Sequence[Any]) -> Value:
    have = list(factors)
    for i, j, kept, _ in _steps([own for _, own in factors], out, path):
        (a, left), (b, right) = have.pop(i), have.pop(j)
        names = dict(zip(dict.fromkeys((*right, *left)), string.ascii_letters, strict=False))
        text = [",".join("".join(names[k] for k in own) for own in (right, left)), "".join(names[k] for k in kept)]
        have.append((emit("contract", b, a, subscripts="->".join(text)), kept))
    return have[0][0]
