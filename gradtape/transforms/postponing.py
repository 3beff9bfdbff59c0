"""Cheap results are computed again, where they are used, from what is kept anyway: no kernel writes them. Floor:
transforms.

The slope of `relu` is a matter of its result's sign: a forward kernel need not write it for the backward one, which can
read the result, since the next layer's product keeps that."""

from __future__ import annotations

from collections.abc import Sequence

from gradtape.ir.graph import Node, Value
from gradtape.ops.pointwise import Pointwise
from gradtape.transforms.grouping import CHEAP, MOST, Group, Grouping
from gradtape.transforms.views import Place

IN_A_ROW = 4  # operations that are done again at most


def postpone(grouping: Grouping) -> list[Node]:
    """Move cheap operations into the group that uses them, if there is one, users first; those that moved."""
    given, done = set(map(id, grouping.outputs)), []
    for node in reversed(grouping.nodes):
        group = grouping.owner.get(id(node))
        if group is None or not _is_cheap(node) or id(node.outputs[0]) in given:
            continue
        found = _use(grouping, node)
        moved = None if found is None else _from_one_array(grouping, node, group, given)
        if found is not None and moved is not None and len(moved) < len(group.nodes):
            _move(grouping, moved, group, *found)
            done += moved
    return done


def _is_cheap(node: Node) -> bool:
    op = node.step.op
    return isinstance(op, Pointwise) and (op.name in CHEAP or op.result == "bool")


def _use(grouping: Grouping, node: Node) -> tuple[Group, Place] | None:
    """The one other group that uses a result, and the loops by which it runs there."""
    result = node.outputs[0]
    users = grouping.users.get(id(result), [])
    groups = [grouping.owner.get(id(n)) for n in users]
    if not users or any(g is None or g is not groups[0] for g in groups):
        return None
    group = groups[0]
    assert group is not None
    if group is grouping.owner[id(node)] or len(group.nodes) >= MOST:
        return None
    places = {
        tuple(group.wanted(n, k, walk))
        for n in users
        for k, walk in enumerate(grouping.operands[id(n)])
        if walk.base is result
    }
    return (group, places.pop()) if len(places) == 1 else None


def _from_one_array(grouping: Grouping, node: Node, group: Group, given: set[int]) -> list[Node] | None:
    """The node with the cheap ones that are there for it alone, users first, if all they take is one array that is kept
    anyway."""
    found, arrays = [node], set()
    for n in found:
        for base in (w.base for w in grouping.operands[id(n)] if w.base.aval.size > 1):
            if _is_kept(grouping, base, node, group, given):
                arrays.add(id(base))
            elif base.node is not None and _is_there_for(grouping, base.node, group, found):
                found.append(base.node)
            elif base.node not in found:
                return None
    return found if len(arrays) == 1 else None


def _is_there_for(grouping: Grouping, node: Node, group: Group, users: Sequence[Node]) -> bool:
    mine = grouping.owner.get(id(node)) is group and _is_cheap(node) and node not in users and len(users) < IN_A_ROW
    return mine and all(n in users for n in grouping.users[id(node.outputs[0])])


def _is_kept(grouping: Grouping, base: Value, node: Node, group: Group, given: set[int]) -> bool:
    """Whether an array is there until the node's result is used: one of the graph's, one that others need as well and
    that is no larger than the result, or one that is needed later."""
    if base.node is None or id(base) in given:
        return True
    others = [n for n in grouping.users[id(base)] if n is not node and grouping.owner.get(id(n)) is not group]
    if not others:
        return False
    last = max(grouping.at[id(n)] for n in grouping.users[id(node.outputs[0])])
    return max(grouping.at[id(n)] for n in others) >= last or base.aval.nbytes <= node.outputs[0].aval.nbytes


def _move(grouping: Grouping, nodes: Sequence[Node], group: Group, target: Group, place: Place) -> None:
    """Take nodes, users first, to another group; `place`: where the result of the first one runs there."""
    target.place[id(nodes[0].outputs[0])] = place
    inside = {id(n.outputs[0]) for n in nodes}
    for node in nodes:
        group.nodes.remove(node)
        del group.place[id(node.outputs[0])]
        target.nodes.append(node)
        target.first = min(target.first, grouping.at[id(node)])
        grouping.owner[id(node)] = target
        for k, walk in enumerate(grouping.operands[id(node)]):
            if id(walk.base) in inside:
                target.place[id(walk.base)] = tuple(target.wanted(node, k, walk))
