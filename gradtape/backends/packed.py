"""Graphs of clusters, branches and loops laid out in workspaces, as one table of lines (`kernels.programs`). Floor:
backends.

A value of a graph lies at one place. Branches write their results to the places of the `cond`; a loop has two places
for each value that it carries, and a row of its stacks for each that it pushes, and the clusters of its body write
there at once, where they can."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gradtape.backends.packed_moves import copying, is_moved, lines_of
from gradtape.backends.rows_in_place import Chains, chains_of
from gradtape.ir.aval import Aval
from gradtape.ir.dtypes import DType, element_of, int64
from gradtape.ir.graph import Graph, Node, Value
from gradtape.kernels.jumps import ENDLESS, NONE_USED, ONE, REGISTERS
from gradtape.kernels.programs import Place, Program
from gradtape.kernels.spelling import DTYPES
from gradtape.ops.control import Cond, EmptyStack, Scan, While, is_stack, unstacked
from gradtape.ops.fused import Fused
from gradtape.ops.op import Step
from gradtape.ops.structural import Structural

WIDTH = 16  # elements to which places in a workspace are aligned

# The graphs that a step runs, in clusters: both branches; the test and a body that ends with what the test says of what
# it made; the body of a scan.
Inside = Callable[[Step], Sequence[Graph]]


class Packed:
    """The lines of a graph, and where everything lies. `rooms`: for each loop that pushes, the register that says how
    many rows there may be, and its stacks: the register of their first row, their dtype and the size of a row."""

    def __init__(self, graph: Graph, bases: Sequence[Value], inside: Inside) -> None:
        self.program = Program()
        self.inside = inside
        self.sizes: dict[DType, int] = {}
        self.registers = list(REGISTERS)
        self.constants: list[tuple[Value, Place]] = []
        self.rooms: list[tuple[int, list[tuple[int, DType, int]]]] = []
        places = [self.place(v.aval) for v in graph.inputs]
        block = _Block(self, graph, places)
        block.lines([None] * len(graph.outputs))
        given = {id(v): k for k, v in enumerate(graph.inputs)}
        self.inputs = [(v.aval.dims, v.aval.size, p) for v, p in zip(graph.inputs, places, strict=True)]
        self.outputs = [(v.aval.dims, v.aval.size, block.at(v)) for v in bases if id(v) not in given]
        self.passed = [given.get(id(v)) for v in bases]  # inputs that are results themselves

    def register(self, number: int = 0) -> int:
        self.registers.append(number)
        return len(self.registers) - 1

    def room(self, aval: Aval) -> int:
        """Where an array can lie; 0 for a stack, which lies where a loop puts it."""
        if is_stack(aval.dtype):
            return 0
        at = self.sizes.get(aval.dtype, 0)
        self.sizes[aval.dtype] = at + -(-aval.size // WIDTH) * WIDTH
        return at

    def place(self, aval: Aval) -> Place:
        return aval.dtype, self.register(self.room(aval))

    def constant(self, v: Value) -> Place:
        place = self.place(v.aval)
        self.constants.append((v, place))
        return place


class _Block:
    """A graph in the making of its lines, given the places of its inputs. `held`: registers of rows used by the loops
    in it whose stacks may be in its results."""

    def __init__(self, packed: Packed, graph: Graph, given: Sequence[Place], chains: Chains | None = None) -> None:
        self.packed, self.graph, self.program = packed, graph, packed.program
        self.nodes = graph.nodes if chains is None else chains.nodes
        self.over = set() if chains is None else {id(n) for chain in chains.written.values() for n in chain}
        self.changing = {id(v) for n in self.nodes if id(n) in self.over for v in (n.inputs[0], *n.outputs)}
        self.places = {id(v): p for v, p in zip(graph.inputs, given, strict=True)}
        self.used: list[int] = []

    def lines(self, targets: Sequence[Place | None]) -> None:
        """The lines of the graph; its outputs go to these places."""
        made = {id(v) for n in self.graph.nodes if isinstance(n.step.op, Fused | Cond) for v in n.outputs}
        wanted = [(v, t) for v, t in zip(self.graph.outputs, targets, strict=True) if t is not None]
        for v, target in wanted:
            if id(v) in made:
                self.places.setdefault(id(v), target)
        for node in self.nodes:
            rule = _rule(node)
            if rule is not None:
                rule(self, node)
        for v, target in wanted:
            self.bring(v, target)

    @property
    def keeps_stacks(self) -> bool:
        """Whether rows that were written inside may be read outside."""
        return any(is_stack(v.aval.dtype) for v in self.graph.outputs)

    def at(self, v: Value) -> Place:
        if id(v) not in self.places:  # a constant
            self.places[id(v)] = self.packed.constant(v)
        return self.places[id(v)]

    def made(self, v: Value) -> Place:
        """Where a result goes."""
        if id(v) not in self.places:
            self.places[id(v)] = self.packed.place(v.aval)
        return self.places[id(v)]

    def bring(self, v: Value, target: Place) -> None:
        """Have a value at a place."""
        source = self.at(v)
        if source == target:
            return
        if is_stack(v.aval.dtype):
            self.program.jump("point", target[1], source[1])
        else:
            self.program.add(copying(v.aval), [target], [source])

    def inner(
        self,
        graph: Graph,
        given: Sequence[Place],
        targets: Sequence[Place | None],
        repeats: bool,
        chains: Chains | None = None,
    ) -> None:
        """The lines of a graph in a branch, or in a loop, where rows that nobody outside reads are free again after
        each round."""
        block = _Block(self.packed, graph, given, chains)
        block.lines(targets)
        if not repeats or block.keeps_stacks:
            self.used += block.used
            return
        for register in block.used:
            self.program.jump("clear", register)

    # ------------------------------------------------------------------ nodes

    def fused(self, node: Node) -> None:
        cluster = node.step.params["cluster"]
        reads = [self.at(node.inputs[r.operand]) for r in cluster.reads]
        self.program.add(cluster, [self.made(v) for v in node.outputs], reads)

    def register(self) -> int:
        return self.packed.register()

    def empty(self, node: Node) -> None:
        self.made(node.outputs[0])

    def cond(self, node: Node) -> None:
        program = self.program
        true, false = self.packed.inside(node.step)
        pred, *given = map(self.at, node.inputs)
        targets = [self.made(v) for v in node.outputs]
        branch = program.jump("unless", pred[1], 0)
        self.inner(true, given, targets, repeats=False)
        end = program.jump("go", 0)
        program.aim(branch)
        self.inner(false, given, targets, repeats=False)
        program.aim(end)

    def while_loop(self, node: Node) -> None:
        program = self.program
        test, body = self.packed.inside(node.step)
        chains = chains_of(body, node.step.params["carried"])
        loop = _Rounds(self, node, node.inputs, len(node.outputs) - 1, chains)
        says = self.packed.place(test.outputs[0].aval)
        given = [*loop.now, *map(self.at, node.inputs[loop.carried :])]
        self.inner(test, given, [says], repeats=False)
        program.jump("clear", loop.counter)
        loop.begin_stacks()
        end = program.jump("unless", says[1], 0)
        if loop.stacks:
            program.jump("room", ONE, loop.used, loop.room)
        loop.begin_rows()
        again = len(program.lines)
        self.inner(body, given, [*loop.targets, *loop.rows, says], repeats=True, chains=chains)
        loop.store()
        program.jump("while", loop.counter, *loop.swaps, *loop.walks, loop.used, loop.room, says[1], again)
        program.aim(end)
        loop.end()
        program.jump("tell", self.made(node.outputs[-1])[1], loop.counter)

    def scan(self, node: Node) -> None:
        program, params = self.program, node.step.params
        (body,) = self.packed.inside(node.step)
        trips, *given = node.inputs
        first = params["carried"] + params["constants"]
        chains = chains_of(body, params["carried"])
        loop = _Rounds(self, node, given, len(node.outputs), chains, given[first:])
        program.jump("count", loop.counter, self.at(trips)[1])
        loop.begin_stacks()
        end = program.jump("skip", loop.counter, 0)
        if loop.stacks:
            program.jump("room", loop.counter, loop.used, loop.room)
            program.jump("use", loop.counter, loop.used)
        loop.begin_rows()
        again = len(program.lines)
        elements = loop.fetch()
        constants = map(self.at, given[loop.carried : first])
        self.inner(body, [*loop.now, *constants, *elements], [*loop.targets, *loop.rows], repeats=True, chains=chains)
        loop.store()
        program.jump("next", loop.counter, *loop.swaps, *loop.walks, again)
        program.aim(end)
        loop.end()


_RULES: dict[type, Callable[[_Block, Node], None]] = {
    Fused: _Block.fused,
    EmptyStack: _Block.empty,
    Cond: _Block.cond,
    While: _Block.while_loop,
    Scan: _Block.scan,
}


def _rule(node: Node) -> Callable[[_Block, Node], None] | None:
    return lines_of if is_moved(node) else _RULES.get(type(node.step.op))


class _Rounds:
    """The registers of a loop: its counter, what it carries now and next, the rows that it reads and writes. What is
    changed in place, or not at all, is next where it is now."""

    def __init__(
        self,
        block: _Block,
        node: Node,
        given: Sequence[Value],
        results: int,
        chains: Chains,
        read: Sequence[Value] = (),
    ) -> None:
        self.block, self.packed, self.program = block, block.packed, block.program
        params = node.step.params
        self.backwards: bool = params.get("reverse", False)
        self.carried = n = params["carried"]
        self.counter = self.packed.register()
        self.stays = set(chains.written)
        self._carry(given[:n])
        self.results = node.outputs[:n]
        elements, pushed = [unstacked(v.aval) for v in read], [unstacked(v.aval) for v in node.outputs[n:results]]
        start = len(self.packed.registers)
        rows = [self._row(a) for a in (*elements, *pushed)]
        self.walks = start, len(self.packed.registers)
        self.elements = [_Row(r, a, self.packed) for r, a in zip(rows, elements, strict=False)]
        self.pushed = [_Row(r, a, self.packed) for r, a in zip(rows[len(read) :], pushed, strict=True)]
        self.sources = [block.at(v)[1] for v in read]
        self.used, self.room = NONE_USED, ENDLESS
        self.stacks: list[tuple[int, int]] = []  # registers: of its first row, of the first row of all
        if pushed:
            self._stacks(node.outputs[n:results])

    def _carry(self, starts: Sequence[Value]) -> None:
        packed = self.packed
        rooms: list[int] = []
        for j, v in enumerate(starts):
            rooms.append(packed.room(v.aval))
            rooms.append(rooms[-1] if j in self.stays else packed.room(v.aval))
        start = len(packed.registers)
        registers = [packed.register(r) for r in rooms]
        self.swaps = start, len(packed.registers)
        self.now = [(v.aval.dtype, r) for v, r in zip(starts, registers[::2], strict=True)]
        self.next = [(v.aval.dtype, r) for v, r in zip(starts, registers[1::2], strict=True)]
        self.targets = [None if j in self.stays else place for j, place in enumerate(self.next)]
        for v, place in zip(starts, self.now, strict=True):
            self.block.bring(v, place)

    def _row(self, element: Aval) -> int:
        """The register of a row, before that of the step to the next one."""
        row, size = self.packed.register(), _row_size(element)
        self.packed.register(-size if self.backwards else size)
        return row

    def _stacks(self, results: Sequence[Value]) -> None:
        packed = self.packed
        self.used, self.room = packed.register(), packed.register()
        self.block.used.append(self.used)
        self.stacks = [(self.block.made(v)[1], packed.register()) for v in results]
        rows = [(first, r.dtype, r.size) for (_, first), r in zip(self.stacks, self.pushed, strict=True)]
        packed.rooms.append((self.room, rows))

    @property
    def rows(self) -> list[Place]:
        """Where what a round pushes goes."""
        return [row.place for row in self.pushed]

    def begin_stacks(self) -> None:
        for (stack, first), row in zip(self.stacks, self.pushed, strict=True):
            self.program.jump("begin", stack, first, self.used, row.size)

    def begin_rows(self) -> None:
        """The first round's rows."""
        stacks = [*self.sources, *(s for s, _ in self.stacks)]
        for row, stack in zip((*self.elements, *self.pushed), stacks, strict=True):
            self.program.jump("row", row.register, stack, self.counter, row.size if self.backwards else 0)

    def fetch(self) -> list[Place]:
        """The elements of a round."""
        for row in self.elements:
            if row.stack is not None:
                self.program.jump("fetch", row.stack, row.register)
        return [row.place for row in self.elements]

    def store(self) -> None:
        """What a round pushed, where that is not in its row yet."""
        for row in self.pushed:
            if row.stack is not None:
                self.program.jump("store", row.register, row.stack)

    def end(self) -> None:
        """What the loop carried last are its results."""
        for v, place in zip(self.results, self.now, strict=True):
            self.block.places[id(v)] = place


def _row_size(element: Aval) -> int:
    return 1 if is_stack(element.dtype) else element.size


class _Row:
    """A row of a stack: an array, or (in a stack of stacks) where the first row of a stack is."""

    def __init__(self, register: int, element: Aval, packed: Packed) -> None:
        self.register, self.size = register, _row_size(element)
        self.stack = packed.register() if is_stack(element.dtype) else None
        self.dtype = int64 if self.stack is not None else element.dtype
        self.place: Place = (element.dtype, register if self.stack is None else self.stack)


def is_view(node: Node) -> bool:
    """Whether a node shows its operand in another way, of which a program knows nothing."""
    op = node.step.op
    return isinstance(op, Structural) and op.view and not op.indices


def is_packable(graph: Graph, inside: Inside, whole: bool = True) -> bool:
    """Whether a graph in clusters has nothing else but numbers, branches, loops, and (the `whole` of it) views of what
    these make that nothing reads."""

    def is_known(v: Value) -> bool:
        return v.node is None or v.node.step.op.kind in ("constant", "fused") or _rule(v.node) is not None

    def fits(node: Node) -> bool:
        op = node.step.op
        if op.kind == "constant" or isinstance(op, EmptyStack):
            return True
        if is_moved(node):
            return all(map(is_known, node.inputs)) and all(map(_is_spelled, (*node.inputs, *node.outputs)))
        if type(op) in _RULES:
            inner = () if isinstance(op, Fused) else inside(node.step)
            return all(map(is_known, node.inputs)) and all(is_packable(g, inside, whole=False) for g in inner)
        return whole and is_view(node)

    outputs_fit = not any(is_stack(v.aval.dtype) for v in graph.outputs) if whole else all(map(is_known, graph.outputs))
    return outputs_fit and all(map(fits, graph.nodes)) and (whole or all(map(_is_spelled, graph.inputs)))


def _is_spelled(v: Value) -> bool:
    """Whether kernels copy arrays of this dtype, or a stack is one of such arrays."""
    dtype = v.aval.dtype
    while is_stack(dtype):
        dtype = element_of(dtype)
    return dtype in DTYPES
