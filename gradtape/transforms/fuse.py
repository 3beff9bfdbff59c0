"""Graph to a graph in which pointwise work and reductions run in clusters, a kernel each. Floor: transforms."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence

from gradtape.ir.cluster import Access, Cluster, Loop, Operation, Read, Write, collapsed
from gradtape.ir.graph import Graph, Node, Value, order
from gradtape.ir.index import Index
from gradtape.ir.show import show
from gradtape.ops.fused import fused_step
from gradtape.ops.layout import POSITIONS
from gradtape.ops.op import Constant, Step, apply
from gradtape.ops.pointwise import IDLE
from gradtape.ops.reduction import Reduction
from gradtape.ops.tiles import Tiles, tiles_step
from gradtape.transforms.adding_rows import with_rows_added
from gradtape.transforms.atoms import Spells, in_atoms
from gradtape.transforms.dense_terms import with_dense_terms
from gradtape.transforms.gathering import gathered
from gradtape.transforms.grouping import Group, Grouping
from gradtape.transforms.inner_factors import with_inner_factors
from gradtape.transforms.numbers import gather_numbers
from gradtape.transforms.picking import with_rows_picked
from gradtape.transforms.postponing import postpone
from gradtape.transforms.reordering import reordered
from gradtape.transforms.siblings import adopt_siblings
from gradtape.transforms.simplify import simplify
from gradtape.transforms.turning import with_products_turned
from gradtape.transforms.views import Place, walk_back

ALONE = 2  # operations from which a cluster is worth a kernel

# What a graph goes through before it is fused, what moves nodes from group to group, and what a cluster goes through
# before it is rendered; each gives the same but for roundings.
GraphPasses = tuple[tuple[str, Callable[[Graph], Graph]], ...]
GRAPH_PASSES: GraphPasses = (("reorder contractions", reordered), ("add to rows", with_rows_added))
DENSE_PASSES: GraphPasses = (("add up dense terms", with_dense_terms),)  # a device adds them up while it assembles
GroupPasses = tuple[tuple[str, Callable[[Grouping], list[Node]]], ...]
GROUP_PASSES: GroupPasses = (("compute cheap results where they are used", postpone),)
SIBLING_PASSES: GroupPasses = (
    ("add up beside what reads the same", adopt_siblings),
    ("single numbers beside others", gather_numbers),
)
CLUSTER_PASSES: tuple[tuple[str, Callable[[Cluster], Cluster]], ...] = (("gather numbers", gathered),)

Known = dict[tuple[Cluster, tuple[str, ...]], Cluster]  # what the passes made of the clusters of a graph


def fuse(graph: Graph, spells: Spells, alone: int = ALONE, sinks: bool = True, siblings: bool = False) -> Graph:
    """The same outputs, computed by clusters wherever kernels spell the operations (`spells`).

    Each operation is done once; a value is written only if something outside its cluster needs it. `alone`: from how
    many operations on a cluster is worth a kernel; `sinks`: whether one may reduce over several sets of loops;
    `siblings`: whether reductions join what reads the same operands, as where each launch of a kernel counts; factors
    of sums to one number are moved inside then."""
    for name, pass_ in (*GRAPH_PASSES, *(() if siblings else DENSE_PASSES)):
        before, graph = graph, pass_(graph)
        if graph is not before:
            show("passes", name, functools.partial(repr, graph))
    graph = in_atoms(graph, spells)
    graph = simplify(with_rows_picked(graph, on_host=not siblings))
    if not siblings:
        graph = with_products_turned(graph)
    if siblings:
        graph = with_inner_factors(graph)
    grouping = Grouping(graph, spells, sinks)
    for name, move in (*(SIBLING_PASSES if siblings else ()), *GROUP_PASSES):
        if moved := move(grouping):
            show("passes", name, functools.partial(_moves, grouping, moved))
    groups = [g for g in grouping.groups if _worth(g, alone)]
    del grouping, before  # of a large graph they are as large as all that comes after them
    return _assembled(graph, groups, lambda step: _within(step, spells, siblings))


def _moves(grouping: Grouping, moved: Sequence[Node]) -> str:
    """The nodes that have moved, each with the kernel that it is in now."""
    new = {id(n): [m for m in grouping.owner[id(n)].nodes if m not in moved] for n in moved}
    texts = [f"{n.step!r} {n.outputs[0].aval!r} to {', '.join(m.step.name for m in new[id(n)])}" for n in moved]
    return "\n".join([f"{len(moved)} nodes moved to another kernel", *texts])


def _within(step: Step, spells: Spells, siblings: bool) -> Step:
    """A step that runs a graph piece by piece runs that one fused."""
    if not isinstance(step.op, Tiles):
        return step
    p = step.params
    return tiles_step(fuse(p["graph"], spells, siblings=siblings), p["count"], p["inputs"], p["outputs"])


def _worth(g: Group, alone: int) -> bool:
    return sum(n.step.op.name not in IDLE for n in g.nodes) >= alone


def _assembled(graph: Graph, groups: Sequence[Group], within: Callable[[Step], Step]) -> Graph:
    """The graph with a fused node in place of each group."""
    owner = {id(n): g for g in groups for n in g.nodes}
    users = _users(graph, owner)
    new: dict[int, Value] = {id(v): v for v in graph.inputs}
    done: set[int] = set()
    known: Known = {}

    def value(v: Value) -> Value:
        """Made anew, with all that it needs: without recursion, since graphs are deep."""
        stack = [v]
        while stack:
            top = stack[-1]
            if id(top) in new:
                stack.pop()
                continue
            assert top.node is not None
            group = owner.get(id(top.node))
            inputs = list(top.node.inputs) if group is None else _inputs(group)
            missing = [u for u in inputs if id(u) not in new]
            if missing:
                stack += missing
            elif group is None:
                _again(top.node, within(top.node.step), new)
            elif id(group) not in done:
                done.add(id(group))
                _fused(group, inputs, _results(group, users, graph), new, known)
            else:
                raise AssertionError("a value that only its cluster reads was asked for")
        return new[id(v)]

    return Graph(graph.inputs, [value(v) for v in graph.outputs])


def _again(node: Node, step: Step, new: dict[int, Value]) -> None:
    operands = tuple(new[id(v)] for v in node.inputs)
    same = step is node.step and all(a is b for a, b in zip(operands, node.inputs, strict=True))
    results = node.outputs if same else apply(step, operands)
    new.update((id(v), r) for v, r in zip(node.outputs, results, strict=True))


def _fused(
    group: Group, inputs: Sequence[Value], results: Sequence[Value], new: dict[int, Value], known: Known
) -> None:
    step = fused_step(Graph(inputs, results), _passed(cluster_of(group, inputs, results), known))
    made = apply(step, [new[id(v)] for v in inputs])
    new.update((id(v), r) for v, r in zip(results, made, strict=True))


def _users(graph: Graph, owner: dict[int, Group]) -> dict[int, list[Node]]:
    """By value, the nodes that need it, but for those of the group that makes it."""
    found: dict[int, list[Node]] = {}
    for n in graph.nodes:
        group = owner.get(id(n))
        for v in n.inputs:
            if group is None or v.node is None or owner.get(id(v.node)) is not group:
                found.setdefault(id(v), []).append(n)
    return found


def _inputs(group: Group) -> list[Value]:
    """What a group reads and does not make: no numbers, and of views what they show."""
    inside = {id(n) for n in group.nodes}
    bases = (walk_back(v).base for n in group.nodes for v in n.inputs)
    return list({id(b): b for b in bases if b.node is None or (id(b.node) not in inside and not _is_known(b))}.values())


def _is_known(v: Value) -> bool:
    """Whether a kernel need not read it: a number, or positions that count from 0 on."""
    if v.node is None or v.node.step.op is not POSITIONS:
        return v.node is not None and isinstance(v.node.step.op, Constant)
    value = v.node.step.params["value"]
    return isinstance(value, Index) and value.counts


def _results(group: Group, users: dict[int, list[Node]], graph: Graph) -> list[Value]:
    """What a group makes and others need: other nodes, also through views, and the graph's outputs."""
    inside = {id(n) for n in group.nodes}
    given = set(map(id, graph.outputs))

    def needed(v: Value) -> bool:
        if id(v) in given:
            return True
        for n in users.get(id(v), ()):
            if id(n) in inside:
                continue
            (shown,) = n.outputs if len(n.outputs) == 1 else (None,)
            if shown is None or walk_back(shown).base is not walk_back(v).base or needed(shown):
                return True
        return False

    return [v for n in group.nodes for v in n.outputs if needed(v)]


# ------------------------------------------------------------------ a group as scalar operations


def cluster_of(group: Group, inputs: Sequence[Value], results: Sequence[Value]) -> Cluster:
    """The scalar operations of a group over its loops."""
    position = {id(v): i for i, v in enumerate(inputs)}
    reads: dict[tuple[int, tuple[int, ...]], int] = {}
    numbers: dict[tuple[str, str], int] = {}
    accesses: list[Read] = []
    code: list[Operation] = []
    made: dict[int, int] = {}
    sinks: dict[int, int] = {}

    def operand(node: Node, k: int) -> int:
        walk = walk_back(node.inputs[k])
        base = walk.base
        if id(base) in made:
            return made[id(base)]
        if id(base) not in position:
            assert base.node is not None
            if base.node.step.op is POSITIONS:
                return counted(base, group.wanted(node, k, walk))
            number, dtype = base.node.step.params["value"], base.aval.dtype
            key = (repr(number), dtype.name)
            if key not in numbers:
                numbers[key] = len(code)
                code.append(Operation("number", (), dtype, number))
            return numbers[key]
        strides = strides_of(base.aval.dims, group.wanted(node, k, walk), len(group.loops))
        if (id(base), strides) not in reads:
            reads[id(base), strides] = len(code)
            code.append(Operation("read", (), base.aval.dtype, len(accesses)))
            accesses.append(Read(position[id(base)], Access(base.aval.dtype, strides)))
        return reads[id(base), strides]

    def counted(base: Value, place: Sequence[int | None]) -> int:
        strides = strides_of(base.aval.dims, place, len(group.loops))
        if (id(base), strides) not in reads:
            reads[id(base), strides] = len(code)
            code.append(Operation("position", (), base.aval.dtype, strides))
        return reads[id(base), strides]

    for node in group.nodes:
        (out,) = node.outputs
        args = tuple(operand(node, k) for k in range(len(node.inputs)))
        if id(out) in group.sinks:
            sinks[id(out)] = args[0]
            continue
        made[id(out)] = len(code)
        if isinstance(node.step.op, Reduction):
            code.append(Operation("reduce", args, out.aval.dtype, node.step.op.monoid))
        else:
            code.append(Operation(node.step.op.name, args, out.aval.dtype))
    loops = tuple(Loop(n, k in group.reduced) for k, n in enumerate(group.loops))
    writes = tuple(_write(group, v, made, sinks) for v in results)
    return collapsed(Cluster(loops, tuple(accesses), tuple(code), writes))


def _passed(cluster: Cluster, known: Known) -> Cluster:
    """A cluster behind the passes; the same object for equal ones, of which a loop of Python that is written out has
    many."""
    key = (cluster, tuple(repr(e.leaf) for e in cluster.code if e.op == "number"))  # 0 and -0 are equal
    if key not in known:
        for name, rewrite in CLUSTER_PASSES:
            before, cluster = cluster, rewrite(cluster)
            if cluster is not before:
                show("passes", name, functools.partial(_change, before, cluster))
        known[key] = cluster
    return known[key]


def _change(before: Cluster, after: Cluster) -> str:
    return f"{before.work} operations became {after.work}\n{after!r}"


def _write(group: Group, v: Value, made: dict[int, int], sinks: dict[int, int]) -> Write:
    assert v.node is not None
    place = group.sinks[id(v)][1] if id(v) in sinks else group.place[id(v)]
    access = Access(v.aval.dtype, strides_of(v.aval.dims, place, len(group.loops)))
    if id(v) not in sinks:
        return Write(made[id(v)], access, _over(place, group))
    op = v.node.step.op
    assert isinstance(op, Reduction)
    return Write(sinks[id(v)], access, _over(group.sinks[id(v)][0], group), op.monoid)


def _over(place: Place, group: Group) -> tuple[bool, ...]:
    return tuple(k in place for k in range(len(group.loops)))


def strides_of(dims: Sequence[int], place: Sequence[int | None], count: int) -> tuple[int, ...]:
    """Steps through a C-contiguous array, per loop."""
    found = [0] * count
    step = 1
    for n, loop in zip(reversed(dims), reversed(place), strict=True):
        if loop is not None:
            found[loop] += step
        step *= n
    return tuple(found)


def fused_nodes(graph: Graph) -> Iterable[Node]:
    """The nodes of a graph that run as one kernel each."""
    return (n for n in order(graph.outputs, graph.inputs) if n.step.op.kind == "fused")
