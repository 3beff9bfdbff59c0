"""Reductions beside what reads the same values: they join its group, so that no operand is read twice. Floor:
transforms.

A gradient by a bias is the sum of the cotangents that the rest of a backward kernel reads anyway."""

from __future__ import annotations

from collections.abc import Iterator

from gradtape.ir.graph import Node, Value
from gradtape.ops.reduction import Reduction
from gradtape.transforms.grouping import MOST, Group, Grouping, is_once_a_round, place_left, reduced_loops
from gradtape.transforms.views import Place, through


def adopt_siblings(grouping: Grouping) -> list[Node]:
    """Put reductions that are alone into groups that read their operands; those that moved."""
    done = []
    for node in grouping.nodes:
        alone = grouping.owner.get(id(node))
        if alone is None or len(alone.nodes) > 1 or not isinstance(node.step.op, Reduction):
            continue
        walk = grouping.operands[id(node)][0]
        for group, base in _readers(grouping, walk.base, alone):
            place = through(walk, base, node.inputs[0].aval.dims)
            if place is not None and _adopt(grouping, node, place, alone, group):
                done.append(node)
                break
    return done


def _readers(grouping: Grouping, value: Value, alone: Group) -> Iterator[tuple[Group, Place]]:
    """The groups that read a value, each with the loops that its axes run by there."""
    for node in grouping.users.get(id(value), ()):
        group = grouping.owner.get(id(node))
        if group is None or group is alone or id(value) in group.place or id(value) in group.sinks:
            continue
        for k, walk in enumerate(grouping.operands[id(node)]):
            if walk.base is value:
                yield group, tuple(group.wanted(node, k, walk))


def _adopt(grouping: Grouping, node: Node, place: Place, alone: Group, group: Group) -> bool:
    loops = [k for k in place if k is not None]
    axes = reduced_loops(node, place)
    if axes is None or len(set(loops)) < len(loops) or len(group.nodes) >= MOST or grouping.leaves(group, alone):
        return False
    result = id(node.outputs[0])
    if axes == group.reduced:
        group.place[result], group.swept[result] = place_left(node, place), place
        group.late.add(result)
    elif grouping.sinks and is_once_a_round(place, len(group.loops), group.reduced):
        group.sinks[result] = (place, place_left(node, place))
    else:
        return False
    group.nodes.append(node)
    group.first, group.last = min(group.first, alone.first), max(group.last, alone.last)
    grouping.owner[id(node)] = group
    return True
