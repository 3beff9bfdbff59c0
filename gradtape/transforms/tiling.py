"""Graph to a graph in which neighbouring steps run together, piece by piece along an axis that they share: what they
hand to each other stays in the cache. Floor: transforms.

Which axes of a program's values run together is followed through its steps; each such set of axes is a *letter*. A
region is the steps that a letter runs through, where they are large and products of matrices are among them. No number
is computed otherwise than before, apart from the order in which a product of matrices adds up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gradtape.ir.aval import Aval, aval
from gradtape.ir.graph import Graph, Node, Value
from gradtape.ir.shapes import size_of
from gradtape.ops import moves as m
from gradtape.ops.contraction import Contraction, parts
from gradtape.ops.op import apply, emit
from gradtape.ops.pointwise import Pointwise
from gradtape.ops.reduction import Reduction
from gradtape.ops.structural import Structural
from gradtape.ops.tiles import tiles_step
from gradtape.transforms.peak import peak_bytes

LARGE = 1 << 18  # bytes of a value from which a step begins a region
PAYS = 1 << 22  # bytes that a region need not send through memory
CACHE = 1 << 20  # bytes that a piece may hold at a time
PIECE = 1 << 17  # bytes that a piece makes at least: below that its steps cost more than they save
MATRIX = 64  # rows and columns that a matrix keeps, where it has more

Place = tuple[int, int]  # a value by id, and an axis


def tiled(graph: Graph) -> Graph:
    """The same outputs; regions that pay, the best one first, are one node each."""
    while (region := _best(graph)) is not None:
        graph = _replaced(graph, region)
    return graph


# ------------------------------------------------------------------ which axes run together


def _links(node: Node) -> dict[int, tuple[int | None, ...]]:
    """For the axes of a step's result along which it can run in pieces: each operand's axis that is cut with it, None
    where all of the operand is read."""
    if len(node.outputs) != 1 or any(not v.aval.is_known for v in (*node.inputs, *node.outputs)):
        return {}
    op, (out,) = node.step.op, node.outputs
    match op:
        case Pointwise():
            return {k: tuple(_aligned(v, out, k) for v in node.inputs) for k in range(len(out.aval.dims))}
        case Contraction():
            left, right, result = parts(node.step.params["subscripts"])
            return {k: (_at(left, c), _at(right, c)) for k, c in enumerate(result)}
        case Reduction():
            axes = node.step.params["axes"]
            kept = [k for k in range(len(node.inputs[0].aval.dims)) if k not in axes]
            at = kept if node.step.params["keepdims"] else range(len(kept))
            return {k: (j,) for k, j in zip(at, kept, strict=True)}
        case Structural():
            move = _move(node)
            return _through(move, node.inputs[0].aval.dims, out.aval.dims) if move else {}
    return {}


def _at(letters: str, c: str) -> int | None:
    return letters.index(c) if c in letters else None


def _aligned(v: Value, out: Value, axis: int) -> int | None:
    """The axis of a pointwise operand that runs along an axis of the result."""
    k = axis - (len(out.aval.dims) - len(v.aval.dims))
    return k if k >= 0 and v.aval.dims[k] == out.aval.dims[axis] else None


def _move(node: Node) -> m.Reshape | m.Transpose | m.Broadcast | None:
    """What a layout step does to its only operand, if it is one thing."""
    op = node.step.op
    if not isinstance(op, Structural) or op.moves is None or len(node.inputs) != 1:
        return None
    (way,) = op.moves(node)
    move = way[0] if len(way) == 1 else None
    return move if isinstance(move, m.Reshape | m.Transpose | m.Broadcast) else None


def _through(
    move: m.Reshape | m.Transpose | m.Broadcast, old: Sequence[int], new: Sequence[int]
) -> dict[int, tuple[int | None, ...]]:
    match move:
        case m.Transpose(perm):
            return {k: (j,) for k, j in enumerate(perm)}
        case m.Broadcast():
            lead = len(new) - len(old)
            return {lead + j: (j,) for j, n in enumerate(old) if n == new[lead + j]}
    before = {(size_of(old[:j]), n): j for j, n in enumerate(old) if n > 1}
    return {k: (before[at, n],) for k, n in enumerate(new) if (at := size_of(new[:k]), n) in before}


class Letters:
    """Sets of axes that run together."""

    def __init__(self, nodes: Sequence[Node], links: Sequence[dict[int, tuple[int | None, ...]]]) -> None:
        self.parent: dict[Place, Place] = {}
        self.places: dict[int, dict[Place, list[int]]] = {}  # by value: the axes of each letter
        for node, ways in zip(nodes, links, strict=True):
            for axis, operands in ways.items():
                for v, k in zip(node.inputs, operands, strict=True):
                    if k is not None:
                        self._join((id(v), k), (id(node.outputs[0]), axis))
        for v in {id(v): v for n in nodes for v in (*n.inputs, *n.outputs) if v.aval.is_known}.values():
            own = self.places[id(v)] = {}
            for k, n in enumerate(v.aval.dims):
                if n > 1:
                    own.setdefault(self.find((id(v), k)), []).append(k)

    def find(self, p: Place) -> Place:
        while p in self.parent:
            p = self.parent[p]
        return p

    def _join(self, p: Place, q: Place) -> None:
        p, q = self.find(p), self.find(q)
        if p != q:
            self.parent[p] = q

    def axes(self, v: Value, letter: Place) -> list[int]:
        """The axes of a value that have a letter."""
        return self.places.get(id(v), {}).get(letter, [])


# ------------------------------------------------------------------ regions


@dataclass
class Region:
    """Steps that run together along a letter, and in how many pieces."""

    nodes: list[Node]
    inputs: list[Value]
    outputs: list[Value]
    cut: list[int | None]  # by input
    axes: dict[int, int]  # of what the region makes, by value: which one is cut
    extent: int
    saved: int
    graph: Graph | None = None
    count: int = 0


def _best(graph: Graph) -> Region | None:
    """The region that spares most bytes, of those that pay."""
    nodes = graph.nodes
    large = [n for n in nodes if _is_large(n)]
    if not _multiplies(large):
        return None
    links = [_links(n) for n in nodes]
    letters = Letters(nodes, links)
    tried = list(dict.fromkeys(c for n in large for v in n.outputs for c in letters.places.get(id(v), ())))
    found = [r for c in tried if (r := _region(graph, nodes, links, letters, c)) is not None]
    for r in sorted(found, key=lambda r: -r.saved):
        if _in_pieces(r):
            return r
    return None


def _multiplies(nodes: Sequence[Node]) -> bool:
    """Whether products of matrices are among the steps: others by themselves run in pieces in one kernel."""
    return any(isinstance(n.step.op, Contraction) for n in nodes)


def _is_large(node: Node) -> bool:
    return all(v.aval.is_known for v in node.outputs) and sum(v.aval.nbytes for v in node.outputs) >= LARGE


def _region(
    graph: Graph, nodes: Sequence[Node], links: Sequence[dict[int, tuple[int | None, ...]]], letters: Letters, c: Place
) -> Region | None:
    """The steps along a letter: from large ones on, and no step behind one that is not among them."""
    inside: dict[int, Node] = {}
    made: dict[int, int] = {}  # values that the region makes, and the axis of each that is cut
    behind: set[int] = set()
    for node, ways in zip(nodes, links, strict=True):
        needs = any(id(v) in made for v in node.inputs)
        axis = _cut(node, ways, letters, c)
        if axis is not None and not any(id(v) in behind for v in node.inputs) and (needs or _is_large(node)):
            inside[id(node)] = node
            made[id(node.outputs[0])] = axis
        elif needs or any(id(v) in behind for v in node.inputs):
            behind.update(id(v) for v in node.outputs)
    _without_last_views(inside, made)
    return _bounded(graph, nodes, list(inside.values()), made, letters, c)


def _without_last_views(inside: dict[int, Node], made: dict[int, int]) -> None:
    """Results are views as well as pieces are: those lie best in the order in which they are made."""
    used: set[int] = set()
    for node in reversed(list(inside.values())):
        if _is_view(node) and id(node.outputs[0]) not in used:
            del inside[id(node)], made[id(node.outputs[0])]
        else:
            used.update(id(v) for v in node.inputs)


def _cut(node: Node, ways: dict[int, tuple[int | None, ...]], letters: Letters, c: Place) -> int | None:
    """The axis of a step's result that has the letter, if the step runs along it."""
    if len(node.outputs) != 1:
        return None
    axes = letters.axes(node.outputs[0], c)
    if len(axes) != 1 or axes[0] not in ways:
        return None
    for v, k in zip(node.inputs, ways[axes[0]], strict=True):
        if letters.axes(v, c) != ([] if k is None else [k]):
            return None
    return axes[0]


def _bounded(
    graph: Graph, nodes: Sequence[Node], inside: list[Node], made: dict[int, int], letters: Letters, c: Place
) -> Region | None:
    """The region with what goes in and out; None where it spares too little."""
    if not _multiplies(inside):
        return None
    own = set(map(id, inside))
    seen = {id(v) for n in nodes if id(n) not in own for v in n.inputs} | set(map(id, graph.outputs))
    inputs = list({id(v): v for n in inside for v in n.inputs if id(v) not in made}.values())
    outputs = [n.outputs[0] for n in inside if id(n.outputs[0]) in seen]
    written = _written(inside)
    saved = sum(v.aval.nbytes for v in written if id(v) not in seen)
    if saved < PAYS:
        return None
    cut = [next(iter(letters.axes(v, c)), None) for v in inputs]
    first = inside[0].outputs[0]
    return Region(inside, inputs, outputs, cut, made, first.aval.dims[made[id(first)]], saved)


def _written(inside: Sequence[Node]) -> list[Value]:
    """What the steps hand to each other in memory: into products and out of them. Steps between those run in one
    kernel, whether in pieces or not."""
    found: list[Value] = []
    read: set[int] = set()  # by products, perhaps through views
    for node in reversed(inside):
        (out,) = node.outputs
        multiplies = isinstance(node.step.op, Contraction)
        if not _is_view(node) and (multiplies or id(out) in read):
            found.append(out)
        if multiplies or (_is_view(node) and id(out) in read):
            read.update(id(v) for v in node.inputs)
    return found


def _is_view(node: Node) -> bool:
    return isinstance(node.step.op, Structural) and node.step.op.view


# ------------------------------------------------------------------ pieces


def _in_pieces(r: Region) -> bool:
    """Find the largest pieces that fit into the cache; whether they leave enough to do, and matrices as fast."""
    made = sum(n.outputs[0].aval.nbytes for n in r.nodes if not _is_view(n))
    for count in (k for k in range(2, r.extent + 1) if r.extent % k == 0):
        if made < PIECE * count:
            return False
        results = _Piece(r, r.extent // count)
        r.graph, r.count = Graph(results.inputs, [results.made[id(v)] for v in r.outputs]), count
        if peak_bytes(r.graph) <= CACHE:
            return all(_is_fast(n, results.made[id(n.outputs[0])]) for n in r.nodes)
    return False


class _Piece:
    """The steps of a region on pieces of its operands."""

    def __init__(self, r: Region, size: int) -> None:
        self.made: dict[int, Value] = {}
        for v, axis in zip(r.inputs, r.cut, strict=True):
            self.made[id(v)] = Value(v.aval if axis is None else _shorter(v.aval, axis, size))
        self.inputs = [self.made[id(v)] for v in r.inputs]
        for n in r.nodes:
            (out,) = n.outputs
            operands = [self.made[id(v)] for v in n.inputs]
            self.made[id(out)] = _again(n, operands, _shorter(out.aval, r.axes[id(out)], size).dims)


def _shorter(a: Aval, axis: int, size: int) -> Aval:
    dims = a.dims
    return aval((*dims[:axis], size, *dims[axis + 1 :]), a.dtype)


def _again(node: Node, operands: Sequence[Value], shape: tuple[int, ...]) -> Value:
    """A step on pieces, for a result of this shape."""
    move = _move(node)
    match move:
        case m.Reshape():
            return emit("reshape", operands[0], shape=shape)
        case m.Broadcast():
            return emit("broadcast_to", operands[0], shape=shape)
    return apply(node.step, operands)[0]


def _is_fast(whole: Node, piece: Value) -> bool:
    """Whether the matrices of a product keep enough rows and columns in a piece."""
    if not isinstance(whole.step.op, Contraction):
        return True
    assert piece.node is not None
    return all(after >= min(MATRIX, before) for before, after in zip(_matrix(whole), _matrix(piece.node), strict=True))


def _matrix(node: Node) -> tuple[int, int]:
    """The rows and columns of a product of matrices."""
    left, right, _ = parts(node.step.params["subscripts"])
    rows = size_of(n for c, n in zip(left, node.inputs[0].aval.dims, strict=True) if c not in right)
    return rows, size_of(n for c, n in zip(right, node.inputs[1].aval.dims, strict=True) if c not in left)


def _replaced(graph: Graph, r: Region) -> Graph:
    """The graph with one node in place of a region."""
    assert r.graph is not None
    own = set(map(id, r.nodes))
    step = tiles_step(r.graph, r.count, tuple(r.cut), tuple(r.axes[id(v)] for v in r.outputs))
    new: dict[int, Value] = {id(v): v for v in graph.inputs}
    stack = list(reversed(graph.outputs))
    while stack:
        node = stack[-1].node
        if id(stack[-1]) in new or node is None:
            stack.pop()
            continue
        inputs = r.inputs if id(node) in own else node.inputs
        missing = [v for v in inputs if id(v) not in new]
        stack += missing
        if not missing:
            operands = [new[id(v)] for v in inputs]
            if id(node) in own:
                new.update((id(v), made) for v, made in zip(r.outputs, apply(step, operands), strict=True))
            else:
                new.update((id(v), made) for v, made in zip(node.outputs, _rebuilt(node, operands), strict=True))
    return Graph(graph.inputs, [new[id(v)] for v in graph.outputs])


def _rebuilt(node: Node, operands: Sequence[Value]) -> Sequence[Value]:
    same = all(a is b for a, b in zip(operands, node.inputs, strict=True))
    return node.outputs if same else apply(node.step, operands)
