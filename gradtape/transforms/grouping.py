"""Which nodes of a graph run as one kernel: groups that grow from operands to what uses them. Floor: transforms.

A group has loops; each of its values says by which loop every one of its axes runs (`place`). A node joins the groups
of its operands where one set of loops, with one set of reduced loops among them, does for all, and where no value
would leave the group and come back."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from gradtape.ir.graph import Graph, Node
from gradtape.ops.reduction import Reduction
from gradtape.transforms.atoms import Spells, is_atom
from gradtape.transforms.views import Place, Walk, through, walk_back

SINGLE_ROW = 1 << 16  # elements of a reduction over everything from which a second sweep stays a kernel of its own
CHEAP = frozenset({"add", "subtract", "multiply", "negative", "cast", "select", "step", "maximum", "minimum", "square"})
FREE = 3  # cheap operations that may be done once for every element of a loop they do not depend on
MOST = 400  # nodes of a group: compilers take more time than in proportion
FAR = 300  # nodes that are looked at to see whether something leaves a group and comes back


@dataclass(eq=False)
class Group:
    """Nodes that run as one kernel. `sinks` are results of reductions over other loops than `reduced`, with the places
    of operand and result: they are complete when the kernel is, so that nothing in it can use them."""

    loops: list[int]  # extents
    reduced: frozenset[int]
    place: dict[int, Place]  # by value: the loop of each axis, None where the axis has size 1
    swept: dict[int, Place] = field(default_factory=dict)  # by the result of a reduction: the place of its operand
    sinks: dict[int, tuple[Place, Place]] = field(default_factory=dict)
    late: set[int] = field(default_factory=set)  # values that need a reduction of the group
    nodes: list[Node] = field(default_factory=list)
    first: int = 0  # where its nodes are among all
    last: int = 0

    def wanted(self, node: Node, k: int, walk: Walk) -> list[int | None]:
        """The loops by which the axes of the base of a node's operand k have to run."""
        (out,), dims = node.outputs, node.inputs[k].aval.dims
        if id(out) in self.sinks:
            mine: Place = self.sinks[id(out)][0]
        elif id(out) in self.swept:
            mine = self.swept[id(out)]
        else:
            place = self.place[id(out)]
            lead = len(place) - len(dims)
            mine = tuple(None if n == 1 else place[lead + j] for j, n in enumerate(dims))
        return [None if a is None else mine[a] for a in walk.axes]

    @property
    def size(self) -> int:
        n = 1
        for extent in self.loops:
            n *= extent
        return n


class Grouping:
    """The groups of a graph."""

    def __init__(self, graph: Graph, spells: Spells, sinks: bool = True) -> None:
        self.sinks = sinks
        self.nodes, self.outputs = graph.nodes, graph.outputs
        self.at = {id(n): i for i, n in enumerate(self.nodes)}
        self.owner: dict[int, Group] = {}  # by node
        self.operands = {id(n): tuple(map(walk_back, n.inputs)) for n in self.nodes}
        self.users: dict[int, list[Node]] = {}  # by value, also through views
        for node in self.nodes:
            for base in {id(w.base) for w in self.operands[id(node)]}:
                self.users.setdefault(base, []).append(node)
        for node in self.nodes:
            if _fits(node, spells):
                self._put(node)

    @property
    def groups(self) -> list[Group]:
        """In the order of their first nodes, each with its nodes in order."""
        found = list(dict.fromkeys(self.owner[id(n)] for n in self.nodes if id(n) in self.owner))
        for g in found:
            g.nodes.sort(key=lambda n: self.at[id(n)])
        return found

    def _put(self, node: Node) -> None:
        walks, at = self.operands[id(node)], self.at[id(node)]
        near = dict.fromkeys(self.owner[id(w.base.node)] for w in walks if id(w.base.node) in self.owner)
        ranked = sorted(near, key=lambda g: -g.size)
        home = next((g for g in ranked if self._join(node, g)), None)
        if home is None:
            home = _alone(node)
            home.first = at
        home.nodes.append(node)
        home.last = at
        self.owner[id(node)] = home
        for other in ranked:
            if other is not home and len(home.nodes) + len(other.nodes) <= MOST and node is not home.nodes[0]:
                self._merge(node, home, other)
        if isinstance(node.step.op, Reduction) or any(id(w.base) in home.late for w in walks):
            home.late.add(id(node.outputs[0]))

    # ------------------------------------------------------------------ one node into one group

    def _join(self, node: Node, g: Group) -> bool:
        """Give the node's result a place among the group's loops, if it has one there."""
        walks = self.operands[id(node)]
        if isinstance(node.step.op, Reduction):
            ours = through(walks[0], g.place.get(id(walks[0].base)), node.inputs[0].aval.dims)
            place, loops = ours, list(g.loops)
        else:
            place, loops = _pointwise_place(node, walks, g)
        if place is None or len(g.nodes) >= MOST or any(id(w.base) in g.sinks for w in walks):
            return False
        if self._comes_back([w.base.node for w in walks if w.base.node is not None], g):
            return False
        if not isinstance(node.step.op, Reduction):
            if self._second_sweep(node, place, g) or self._repeats(node, place, g):
                return False
            if len(loops) > len(g.loops) and (g.sinks or not set(range(len(g.loops))) <= set(place)):
                return False  # new loops run inside all others: what does not depend on those would be done anew
            if self._strands(node, place, g):
                return False
            g.loops = loops
            g.place[id(node.outputs[0])] = place
            return True
        axes = reduced_loops(node, place)
        if axes is None:
            return False
        if (g.reduced and g.reduced != axes) or (self.sinks and len(axes) == len(g.loops) and g.size >= SINGLE_ROW):
            if not self.sinks or not is_once_a_round(place, len(g.loops), g.reduced):
                return False
            g.sinks[id(node.outputs[0])] = (place, place_left(node, place))
            return True
        g.reduced = axes
        g.place[id(node.outputs[0])] = place_left(node, place)
        g.swept[id(node.outputs[0])] = place
        return True

    def _second_sweep(self, node: Node, place: Place, g: Group) -> bool:
        """Whether the node goes over all elements again when one long reduction over everything is done."""
        if g.size < SINGLE_ROW or len(g.reduced) < len(g.loops) or not any(k is not None for k in place):
            return False
        return any(id(w.base) in g.late for w in self.operands[id(node)])

    def _repeats(self, node: Node, place: Place, g: Group) -> bool:
        """Whether the node would be done again in every round of a loop that neither it nor what uses it depends on."""
        mine = [k for k in place if k is not None]
        if not mine or not any(
            k not in mine and n > 1 and k not in g.reduced for k, n in enumerate(g.loops[: max(mine)])
        ):
            return False
        size = node.outputs[0].aval.size
        return all(n.outputs[0].aval.size <= size for n in self.users.get(id(node.outputs[0]), ()))

    def _strands(self, node: Node, place: Place, g: Group) -> bool:
        """Whether the node is there only to be reduced, over other loops than the group can reduce: it would be written
        in full, and read again."""
        users = self.users.get(id(node.outputs[0]), [])
        if not g.reduced or not users or not all(isinstance(n.step.op, Reduction) for n in users):
            return False
        if self.sinks and is_once_a_round(place, len(g.loops), g.reduced):
            return False
        return any(reduced_loops(n, place) != g.reduced for n in users)

    # ------------------------------------------------------------------ a group into another

    def _merge(self, node: Node, g: Group, h: Group) -> bool:
        """Take the whole of h into g, where the node (which has its place in g) uses both."""
        found: dict[int, int] = {}
        for k, w in enumerate(self.operands[id(node)]):
            if id(w.base) in h.sinks:
                return False
            theirs = h.place.get(id(w.base))
            if theirs is not None and not unify(found, theirs, g.wanted(node, k, w)):
                return False
        return self.absorb(g, h, found)

    def absorb(self, g: Group, h: Group, found: dict[int, int]) -> bool:
        """Take h into g, given for some loops of h which ones of g they are."""
        if not _complete(found, g, h):
            return False
        image = frozenset(found[k] for k in h.reduced)
        if image and g.reduced and image != g.reduced:
            return False
        reduced = image or g.reduced
        if any(h.loops[k] != g.loops[j] for k, j in found.items()) or not self._pays(g, h, found, reduced):
            return False
        moved = {v: (_moved(a, found), _moved(b, found)) for v, (a, b) in h.sinks.items()}
        sinks = moved if reduced == g.reduced else g.sinks | moved
        if not all(is_once_a_round(place, len(g.loops), reduced) for place, _ in sinks.values()):
            return False
        if not self._agree(g, h, found) or self.leaves(g, h):
            return False
        g.reduced = reduced
        g.sinks |= moved
        for mine, theirs in ((g.place, h.place), (g.swept, h.swept)):
            mine.update((v, _moved(p, found)) for v, p in theirs.items())
        g.late |= h.late
        g.nodes += h.nodes
        g.first, g.last = min(g.first, h.first), max(g.last, h.last)
        self.owner.update((id(n), g) for n in h.nodes)
        return True

    def _agree(self, g: Group, h: Group, found: dict[int, int]) -> bool:
        """Whether each of two groups finds the other's values where it wants them, once h's loops are those of g; what
        is complete only in the end, neither can use."""
        for n in h.nodes:
            for k, w in enumerate(self.operands[id(n)]):
                have = g.place.get(id(w.base))
                if id(w.base) in g.sinks or (have is not None and _moved(h.wanted(n, k, w), found) != have):
                    return False
        for value in (*h.place, *h.sinks):
            for n in self.users.get(value, ()):
                if self.owner.get(id(n)) is not g:
                    continue
                if value in h.sinks:
                    return False
                have = _moved(h.place[value], found)
                walks = enumerate(self.operands[id(n)])
                if any(id(w.base) == value and tuple(g.wanted(n, k, w)) != have for k, w in walks):
                    return False
        return True

    def _pays(self, g: Group, h: Group, found: dict[int, int], reduced: frozenset[int]) -> bool:
        """What h computes must not be done again and again: the loops that it lacks run inside its own, or it is
        next to nothing."""
        mine = set(found.values())
        lacking = [k for k in range(len(g.loops)) if k not in mine and g.loops[k] > 1]
        if not lacking or not mine:
            return True
        order = sorted(range(len(g.loops)), key=lambda k: (k in reduced, k))
        if min(map(order.index, lacking)) > max(map(order.index, mine)):
            return True
        return len(h.nodes) <= FREE and all(n.step.op.name in CHEAP for n in h.nodes)

    # ------------------------------------------------------------------ nothing leaves a group and comes back

    def _comes_back(self, needed: Iterable[Node], g: Group, h: Group | None = None) -> bool:
        """Whether one of the nodes needed, if it is in none of the groups, needs a value of g. Where that is too far
        away to see, the answer is yes."""
        stack = list(needed)
        seen = {id(g), id(h)}
        count = 0
        while stack and count <= FAR:
            node = stack.pop()
            unit = self.owner.get(id(node))
            if id(unit or node) in seen or (self.at[id(node)] if unit is None else unit.last) < g.first:
                continue
            seen.add(id(unit or node))
            for n in (node,) if unit is None else unit.nodes:
                count += 1
                needs = [w.base.node for w in self.operands[id(n)] if w.base.node is not None]
                if any(self.owner.get(id(m)) is g for m in needs):
                    return True
                stack += needs
        return bool(stack)

    def leaves(self, g: Group, h: Group) -> bool:
        """Whether a value of one of the groups is needed outside for what the other needs."""
        needs = [w.base.node for n in h.nodes for w in self.operands[id(n)] if w.base.node is not None]
        if self._comes_back(needs, g, h):
            return True
        ahead = deque(n for v in (*h.place, *h.sinks) for n in self.users.get(v, ()))
        seen = {id(g), id(h)}
        count = 0
        while ahead and count <= FAR:
            node = ahead.popleft()
            unit = self.owner.get(id(node))
            if id(unit or node) in seen or (self.at[id(node)] if unit is None else unit.first) > g.last:
                continue
            seen.add(id(unit or node))
            for n in (node,) if unit is None else unit.nodes:
                count += 1
                users = [m for v in n.outputs for m in self.users.get(id(v), ())]
                if any(self.owner.get(id(m)) is g for m in users):
                    return True
                ahead += users
        return bool(ahead)


def _fits(node: Node, spells: Spells) -> bool:
    values = (*node.inputs, *node.outputs)
    if not all(v.aval.is_known and v.aval.size for v in values) or not is_atom(node, spells):
        return False
    if isinstance(node.step.op, Reduction):
        return any(node.inputs[0].aval.dims[k] > 1 for k in node.step.params["axes"])
    return True


def _alone(node: Node) -> Group:
    """A group of this node, with a loop for each axis that has one."""
    dims = (node.inputs[0] if isinstance(node.step.op, Reduction) else node.outputs[0]).aval.dims
    loops = [n for n in dims if n > 1]
    count = iter(range(len(loops)))
    place = tuple(next(count) if n > 1 else None for n in dims)
    if isinstance(node.step.op, Reduction):
        axes = reduced_loops(node, place)
        assert axes is not None
        return Group(loops, axes, {id(node.outputs[0]): place_left(node, place)}, {id(node.outputs[0]): place})
    return Group(loops, frozenset(), {id(node.outputs[0]): place})


def _pointwise_place(node: Node, walks: Sequence[Walk], g: Group) -> tuple[Place | None, list[int]]:
    """The place of a pointwise result among the loops of a group that has some of its operands: axes along which all
    of these are repeated take a loop that is free, or a new one inside all others."""
    dims = node.outputs[0].aval.dims
    place: list[int | None] = [None] * len(dims)
    for w, v in zip(walks, node.inputs, strict=True):
        base = g.place.get(id(w.base))
        if base is None:
            continue
        for k, axis in enumerate(through(w, base, v.aval.dims, partial=True) or ()):
            out = k + len(dims) - len(v.aval.dims)
            if axis is None or dims[out] == 1:
                continue
            if place[out] not in (None, axis):
                return None, g.loops
            place[out] = axis
    loops, known = list(g.loops), list(place)
    for k, n in enumerate(dims):
        if n == 1 or place[k] is not None:
            continue
        taken = {p for p in place if p is not None}
        free = [j for j, m in enumerate(loops) if m == n and j not in taken]
        if not free and (g.reduced or any(p is not None for p in place[k + 1 :])):
            return None, g.loops
        place[k] = free[0] if free else len(loops)
        if not free:
            loops.append(n)
    used = [p for p in place if p is not None]
    if len(set(used)) < len(used) or (place != known and used != sorted(used)):
        return None, g.loops  # elements that lie side by side would be far apart in the order of the loops
    return tuple(place), loops


def unify(found: dict[int, int], theirs: Place, wanted: Sequence[int | None]) -> bool:
    """Note which loops the ones of a place are where they run along the same axes; False where that cannot be."""
    for k, j in zip(theirs, wanted, strict=True):
        if (k is None) is not (j is None):
            return False
        if k is not None and j is not None and found.setdefault(k, j) != j:
            return False
    return len(set(found.values())) == len(found)


def is_once_a_round(place: Place, loops: int, reduced: frozenset[int]) -> bool:
    """Whether a value at this place is made once in each round of all loops, or once in each round of the kept ones."""
    lacking = set(range(loops)) - {k for k in place if k is not None}
    return not lacking or lacking == reduced


def _moved(place: Sequence[int | None], found: dict[int, int]) -> Place:
    return tuple(None if k is None else found[k] for k in place)


def _complete(found: dict[int, int], g: Group, h: Group) -> bool:
    """Loops of h that no shared value runs by: reduced ones, which need free loops of g of the same extents."""
    for k, n in enumerate(h.loops):
        if k in found:
            continue
        pool = sorted(g.reduced) if g.reduced and k in h.reduced else range(len(g.loops))
        free = [j for j in pool if g.loops[j] == n and j not in found.values()]
        if not free:
            return False
        found[k] = free[0]
    return True


def reduced_loops(node: Node, place: Place) -> frozenset[int] | None:
    """The loops that a reduction runs over; None where an axis that it sums has no loop."""
    found = set()
    for k in node.step.params["axes"]:
        loop = place[k]
        if node.inputs[0].aval.dims[k] > 1:
            if loop is None:
                return None
            found.add(loop)
    return frozenset(found)


def place_left(node: Node, place: Place) -> Place:
    axes, keepdims = node.step.params["axes"], node.step.params["keepdims"]
    if keepdims:
        return tuple(None if k in axes else p for k, p in enumerate(place))
    return tuple(p for k, p in enumerate(place) if k not in axes)
