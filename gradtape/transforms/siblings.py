"""Reductions beside what reads the same values: they join its group, so that no operand is read twice. Floor:
transforms.

A gradient by a bias is the sum of the cotangents that the rest of a backward kernel reads anyway, that by a gain the
sum of their products with what was normalized."""

from __future__ import annotations

from collections.abc import Iterator

from gradtape.ir.graph import Node
from gradtape.ops.reduction import Reduction
from gradtape.transforms.grouping import MOST, Group, Grouping, unify

FEW = 8  # nodes of a group that joins another one


def adopt_siblings(grouping: Grouping) -> list[Node]:
    """Put small groups that end in reductions into groups that read their operands; the reductions that moved."""
    done = []
    for h in grouping.groups:
        if h.swept and len(h.nodes) <= FEW and grouping.owner[id(h.nodes[0])] is h and _ends(grouping, h):
            moving = [n for n in h.nodes if isinstance(n.step.op, Reduction)]
            for g, found in _readers(grouping, h):
                if len(g.nodes) + len(h.nodes) <= MOST and _adopt(grouping, g, h, found):
                    done += moving
                    break
    return done


def _ends(grouping: Grouping, h: Group) -> bool:
    """Whether nothing in a group uses what it reduces to."""
    return not any(grouping.owner.get(id(n)) is h for v in h.swept for n in grouping.users.get(v, ()))


def _readers(grouping: Grouping, h: Group) -> Iterator[tuple[Group, dict[int, int]]]:
    """The groups that read what h reads, and which of their loops those of h are then."""
    for mine in h.nodes:
        for j, own in enumerate(grouping.operands[id(mine)]):
            base = id(own.base)
            for node in grouping.users.get(base, ()):
                g = grouping.owner.get(id(node))
                if g is None or g is h or base in g.place or base in g.sinks or base in h.place:
                    continue
                for k, walk in enumerate(grouping.operands[id(node)]):
                    found: dict[int, int] = {}
                    if walk.base is own.base and unify(found, tuple(h.wanted(mine, j, own)), g.wanted(node, k, walk)):
                        yield g, found


def _adopt(grouping: Grouping, g: Group, h: Group, found: dict[int, int]) -> bool:
    """Take h into g: its reductions are g's where they go over the same loops; else they are complete in the end."""
    if frozenset(found.get(k) for k in h.reduced) == g.reduced:
        return grouping.absorb(g, h, found)
    if not grouping.sinks:
        return False
    before = h.reduced, h.place, h.swept, h.sinks, h.late
    h.sinks = h.sinks | {v: (place, h.place[v]) for v, place in h.swept.items()}
    h.place = {v: place for v, place in h.place.items() if v not in h.swept}
    h.reduced, h.swept, h.late = frozenset(), {}, set()
    if grouping.absorb(g, h, found):
        return True
    h.reduced, h.place, h.swept, h.sinks, h.late = before
    return False
