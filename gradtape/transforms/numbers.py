"""Single numbers that kernels work out: those that many kernels need are made by one that makes nothing else, together
with others. Floor: transforms.

An optimizer counts its steps, and works out by how much variables decay: were that done beside the first variable, its
kernel would be unlike those of the others, which could not run together then."""

from __future__ import annotations

from gradtape.ir.graph import Node, Value
from gradtape.ops.pointwise import Pointwise
from gradtape.transforms.grouping import MOST, Group, Grouping

MANY = 3  # kernels that need a number, from which it is worth one of its own


def gather_numbers(grouping: Grouping) -> list[Node]:
    """Take numbers out of groups with loops, where many groups need one of them, and put groups of numbers into one
    another; the nodes that moved."""
    moved = []
    for group in grouping.groups:
        nodes = _of_numbers(grouping, group) if group.loops else []
        if any(_users(grouping, n) >= MANY for n in nodes):
            _take_out(grouping, nodes, group)
            moved += nodes
    groups = [g for g in grouping.groups if not g.loops]
    for k, g in enumerate(groups):
        for h in groups[k + 1 :]:
            joining = list(h.nodes)
            apart = all(grouping.owner[id(x.nodes[0])] is x for x in (g, h))
            if apart and len(g.nodes) + len(joining) <= MOST and grouping.absorb(g, h, {}):
                moved += joining
    return moved


def _of_numbers(grouping: Grouping, group: Group) -> list[Node]:
    """The nodes of a group that make numbers of numbers, and need nothing else of the group."""
    found: list[Node] = []
    inside = set(map(id, group.nodes))
    for n in group.nodes:
        needs = [w.base.node for w in grouping.operands[id(n)] if id(w.base.node) in inside]
        of_numbers = isinstance(n.step.op, Pointwise) and all(map(_is_number, (*n.inputs, *n.outputs)))
        if of_numbers and all(m in found for m in needs):
            found.append(n)
    return found


def _is_number(v: Value) -> bool:
    return v.aval.size == 1


def _users(grouping: Grouping, node: Node) -> int:
    """How many groups, and nodes in none, need a result."""
    users = grouping.users.get(id(node.outputs[0]), ())
    return len({id(grouping.owner.get(id(n), n)) for n in users})


def _take_out(grouping: Grouping, nodes: list[Node], group: Group) -> None:
    """Nodes of a group into one of their own."""
    places = [grouping.at[id(n)] for n in nodes]
    own = Group([], frozenset(), {id(n.outputs[0]): group.place.pop(id(n.outputs[0])) for n in nodes})
    own.nodes, own.first, own.last = list(nodes), min(places), max(places)
    for n in nodes:
        group.nodes.remove(n)
        grouping.owner[id(n)] = own
