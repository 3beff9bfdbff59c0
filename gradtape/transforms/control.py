"""Reverse mode through branches and loops, graph to graph. Floor: transforms.

A branch pulls back the branch that ran. A loop is pulled back iteration by iteration, in the other direction:

    c_{t+1}, y_t = f(c_t, k, x_t)         c̄_t, x̄_t, k̄ += f̄(c̄_{t+1}, ȳ_t; what f computed in iteration t)

so that the loop of cotangents carries c̄ and the sums k̄, is given stacks of what it needs to know of each iteration,
and pushes x̄. Stacks that the loop did not keep are made by running it again, for those alone; whoever records a loop
runs it `keeping` them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gradtape.ir.aval import Aval
from gradtape.ir.dtypes import bool_
from gradtape.ir.graph import Graph, Node, Value, order
from gradtape.ops.control import COND, SCAN, Checkpoint, Cond, Scan, While, is_stack, nothing, total
from gradtape.ops.op import Constant, Cotangent, Step, apply, constant, emit
from gradtape.transforms.dependence import dependent, leaves
from gradtape.transforms.remember import chosen

# How nodes are pulled back: (nodes, (value, its cotangent) ..., sources) to the sources' cotangents.
Pull = Callable[[Sequence[Node], Iterable[tuple[Value, Cotangent]], Sequence[Value]], list[Cotangent | None]]
Given = Sequence[Cotangent | None]

# ------------------------------------------------------------------ branches


@dataclass
class _Branch:
    """A branch pulled back: what its cotangents may read, and they themselves."""

    inputs: list[Value]
    results: list[Cotangent | None]


def pull_cond(node: Node, given: Given, wanted: Sequence[bool], pull: Pull) -> list[Cotangent | None]:
    """The cotangents of a branch's operands. Where only one of the two branches uses an operand, its cotangent is zero
    by a choice unless that one ran: the mask says so."""
    graphs = node.step.op.graphs(node.step)
    branches = [_pulled_branch(g, given, wanted[1:], pull) for g in graphs]
    read = [*node.inputs[1:], *node.outputs]
    read += [v for c in given if c is not None for v in (c.value, c.mask) if v is not None]
    outputs: list[list[Value]] = [[], []]
    places: list[tuple[int, bool] | None] = []
    for i, v in enumerate(node.inputs[1:]):
        pair = [b.results[i] for b in branches]
        if all(c is None for c in pair):
            places.append(None)
            continue
        masked = any(c is None or c.mask is not None for c in pair)
        places.append((len(outputs[0]), masked))
        for made, c in zip(outputs, pair, strict=True):
            made.append(nothing(v.aval) if c is None else c.value)
            if masked:
                made.append(_mask(c, v.aval))
    if not outputs[0]:
        return [None] * len(node.inputs)
    mentioned = [set(map(id, leaves(o, b.inputs))) for o, b in zip(outputs, branches, strict=True)]
    used = [k for k in range(len(read)) if any(id(b.inputs[k]) in m for b, m in zip(branches, mentioned, strict=True))]
    true, false = (Graph([b.inputs[k] for k in used], o) for b, o in zip(branches, outputs, strict=True))
    found = apply(COND.bind(true=true, false=false), [node.inputs[0], *(read[k] for k in used)])
    return [None, *(None if p is None else Cotangent(found[p[0]], found[p[0] + 1] if p[1] else None) for p in places)]


def _pulled_branch(graph: Graph, given: Given, wanted: Sequence[bool], pull: Pull) -> _Branch:
    seeds = [c and Cotangent(Value(c.value.aval), c.mask and Value(c.mask.aval)) for c in given]
    inputs = [*graph.inputs, *_readable(graph)]
    inputs += [v for c in seeds if c is not None for v in (c.value, c.mask) if v is not None]
    asked = [v for v, w in zip(graph.inputs, wanted, strict=True) if w]
    pairs = [(v, c) for v, c in zip(graph.outputs, seeds, strict=True) if c is not None]
    found = iter(pull(graph.nodes, pairs, asked))
    return _Branch(inputs, [next(found) if w else None for w in wanted])


def _readable(graph: Graph) -> list[Value]:
    """The results of a graph as something to read, each once; numbers are known, and inputs are read as such."""
    seen = set(map(id, graph.inputs))
    found = []
    for v in graph.outputs:
        is_number = v.node is None or isinstance(v.node.step.op, Constant)
        found.append(Value(v.aval) if is_number or id(v) in seen else v)
        seen.add(id(v))
    return found


def _mask(c: Cotangent | None, of: Aval) -> Value:
    """Where a cotangent can be other than zero, over the whole operand."""
    dims = () if is_stack(of.dtype) else of.dims
    if c is None or c.mask is None:
        return constant(c is not None, bool_, dims)
    return c.mask if c.mask.aval.dims == dims else emit("broadcast_to", c.mask, shape=dims)


def pull_checkpoint(node: Node, given: Given, wanted: Sequence[bool], pull: Pull) -> list[Cotangent | None]:
    """The cotangents of a graph's operands: what they read and was not kept is made again from what was."""
    (graph,) = node.step.op.graphs(node.step)
    branch = _pulled_branch(graph, given, wanted, pull)
    read = [*node.inputs, *node.outputs]
    read += [v for c in given if c is not None for v in (c.value, c.mask) if v is not None]
    parts = [v for c in branch.results if c is not None for v in (c.value, c.mask) if v is not None]
    new = {id(v): outer for v, outer in zip(branch.inputs, read, strict=True)}
    for inner in order(parts, branch.inputs):
        made = apply(inner.step, [new[id(v)] for v in inner.inputs])
        new.update((id(v), m) for v, m in zip(inner.outputs, made, strict=True))
    return [c and Cotangent(new[id(c.value)], c.mask and new[id(c.mask)]) for c in branch.results]


# ------------------------------------------------------------------ loops


class Loop:
    """One view of `while` and `scan`: a body, how many of its operands are carried, constant, elements of stacks."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.body: Graph = step.params["body"]
        self.carried: int = step.params["carried"]
        self.is_scan = isinstance(step.op, Scan)
        self.constants: int = step.params.get("constants", len(self.body.inputs) - self.carried)
        self.lead = int(self.is_scan)  # operands before the carry

    @property
    def carry(self) -> tuple[Value, ...]:
        return self.body.inputs[: self.carried]

    @property
    def pushed(self) -> tuple[Value, ...]:
        return self.body.outputs[self.carried :]

    def with_body(self, body: Graph) -> Step:
        """The step that runs another body with the same operands."""
        return self.step.op.bind(**self.step.params | {"body": body})

    def trips(self, node: Node) -> Value:
        """How often the body of a node ran."""
        return node.inputs[0] if self.is_scan else node.outputs[-1]

    def flowing(self, wanted: Sequence[bool]) -> tuple[list[int], list[Value]]:
        """Which carried values depend on wanted operands, and the body's inputs that gradients flow to."""
        inputs = self.body.inputs
        asked = [v for v, w in zip(inputs, wanted, strict=True) if w and v.aval.dtype.is_differentiable]
        active = {i for i in range(self.carried) if wanted[i] and inputs[i].aval.dtype.is_differentiable}
        while True:
            reached = dependent(self.body.nodes, [*asked, *(inputs[i] for i in active)])
            more = active | {j for j in range(self.carried) if id(self.body.outputs[j]) in reached}
            if more == active:
                break
            active = more
        carry = sorted(active)
        rest = [v for v in asked if not any(v is c for c in self.carry)]
        return carry, [*(inputs[i] for i in carry), *rest]

    def pulled(
        self, carry: Sequence[int], sources: Sequence[Value], given: Given, pull: Pull
    ) -> tuple[dict[int, Value], dict[int, Value], dict[int, Value]]:
        """One iteration: cotangents of the next carry (by position: those that can be other than zero), of what was
        pushed, and the cotangents of the sources (by id) that follow."""
        pushed = {
            j: Value(v.aval)
            for j, v in enumerate(self.body.outputs)
            if j >= self.carried and given[j] is not None and v.aval.dtype.is_differentiable
        }
        live = {j for j in carry if given[j] is not None}
        while True:
            seeds = {j: Value(self.body.outputs[j].aval) for j in sorted(live)}
            pairs = [(self.body.outputs[j], Cotangent(g)) for j, g in (*seeds.items(), *pushed.items())]
            found = dict(zip(map(id, sources), pull(self.body.nodes, pairs, sources), strict=True))
            more = live | {j for j in carry if found[id(self.body.inputs[j])] is not None}
            if more == live:
                break
            live = more
        return seeds, pushed, {k: c.value for k, c in found.items() if c is not None}


def pull_loop(node: Node, given: Given, wanted: Sequence[bool], pull: Pull) -> list[Cotangent | None]:
    """The cotangents of a loop's operands, by a scan over its iterations in the other direction."""
    loop = Loop(node.step)
    lead, n, body = loop.lead, loop.carried, loop.body
    carry, sources = loop.flowing(wanted[lead:])
    seeds, pushed, found = loop.pulled(carry, sources, given, pull)
    rest = [v for v in sources[len(carry) :] if id(v) in found]
    first = n + loop.constants
    elements = [v for v in rest if any(v is x for x in body.inputs[first:])]
    sums = [v for v in rest if not any(v is x for x in elements)]
    if not seeds and not rest:
        return [None] * len(node.inputs)
    so_far = [Value(v.aval) for v in sums]
    outputs = [
        *(found[id(body.inputs[j])] if id(body.inputs[j]) in found else nothing(body.inputs[j].aval) for j in seeds),
        *(total(s, found[id(v)]) for s, v in zip(so_far, sums, strict=True)),
        *(found[id(v)] for v in elements),
    ]
    known = _known(loop, node, outputs)
    stacks = [*known.stacks, *((pushed[j], c.value) for j, c in enumerate(given) if j in pushed and c is not None)]
    step = SCAN.bind(
        body=Graph([*seeds.values(), *so_far, *(v for v, _ in known.constants), *(v for v, _ in stacks)], outputs),
        carried=len(seeds) + len(sums),
        constants=len(known.constants),
        reverse=not node.step.params.get("reverse", False),
    )
    starts = [nothing(g.aval) if (c := given[j]) is None else c.value for j, g in seeds.items()]
    operands = [loop.trips(node), *starts, *(nothing(v.aval) for v in sums)]
    made = apply(step, [*operands, *(o for _, o in known.constants), *(o for _, o in stacks)])
    at = {id(body.inputs[j]): v for j, v in zip(seeds, made, strict=False)}
    at |= {id(v): m for v, m in zip([*sums, *elements], made[len(seeds) :], strict=True)}
    pulled = [Cotangent(at[id(v)]) if w and id(v) in at else None for v, w in zip(body.inputs, wanted[lead:])]
    return [*[None] * lead, *pulled]


@dataclass
class _Known:
    """What an iteration's cotangents read: inner values with the operands that hold them."""

    constants: list[tuple[Value, Value]]
    stacks: list[tuple[Value, Value]]


def _known(loop: Loop, node: Node, outputs: Sequence[Value]) -> _Known:
    """What an iteration's cotangents read of the iteration: constants and stacks that are there, and what is missing
    from stacks that the loop makes when it runs again."""
    body, lead, n = loop.body, loop.lead, loop.carried
    first = n + loop.constants
    constants = list(zip(body.inputs[n:first], node.inputs[lead + n : lead + first], strict=True))
    stacks = list(zip(body.inputs[first:], node.inputs[lead + first :], strict=True))
    pushes = len(loop.pushed)
    taken = {id(v) for v in body.inputs}
    for v, held in zip(loop.pushed, node.outputs[n : n + pushes], strict=True):
        if id(v) not in taken or any(v is c for c in loop.carry):
            stacks.append((v, held))
            taken.add(id(v))
    there = [v for v, _ in (*constants, *stacks)]
    if _reaches(outputs, there, loop.carry):
        missing = [v for v in to_keep(loop, outputs) if not any(v is t for t in there)]
        again = Graph(body.inputs, [*body.outputs[:n], *missing])
        made = apply(loop.with_body(again), node.inputs)
        stacks += zip(missing, made[n : n + len(missing)], strict=True)
    read = set(map(id, leaves(outputs, [v for v, _ in (*constants, *stacks)])))
    return _Known([c for c in constants if id(c[0]) in read], [s for s in stacks if id(s[0]) in read])


def _reaches(outputs: Sequence[Value], stop: Sequence[Value], carry: Sequence[Value]) -> bool:
    """Whether values depend on the carry other than through those in `stop`."""
    aim = set(map(id, carry)) - set(map(id, stop))
    return bool(aim & {id(v) for n in order(outputs, stop) for v in n.inputs} | aim & set(map(id, outputs)))


def to_keep(loop: Loop, outputs: Sequence[Value]) -> list[Value]:
    """The values of an iteration that its cotangents mention: carried ones and what was made of them. What follows
    from constants alone is cheaper made again, and elements of stacks are there already."""
    body = loop.body
    varying = set(map(id, (*loop.carry, *body.inputs[loop.carried + loop.constants :])))
    for inner in body.nodes:
        if any(id(v) in varying for v in inner.inputs):
            varying.update(map(id, inner.outputs))
    elements = set(map(id, body.inputs[loop.carried + loop.constants :]))
    values = [*loop.carry, *(v for inner in body.nodes for v in inner.outputs)]
    constants = body.inputs[loop.carried : loop.carried + loop.constants]
    among = [*values, *constants, *body.inputs[loop.carried + loop.constants :]]
    return [v for v in leaves(outputs, among) if id(v) in varying and id(v) not in elements]


# ------------------------------------------------------------------ keeping what the cotangents will read


def keeping(step: Step, wanted: Sequence[bool], pull: Pull, augment: Callable[..., Graph]) -> Step:
    """The step that has, after its results, also what pulling back to the operands marked as wanted will read.

    `augment` does the same for the graphs inside: (graph, marks of its inputs) to a graph."""
    if isinstance(step.op, Cond):
        true, false = (augment(g, wanted[1:]) for g in step.op.graphs(step))
        count = len(step.params["true"].outputs)
        more, other = true.outputs[count:], false.outputs[count:]
        return COND.bind(
            true=Graph(true.inputs, [*true.outputs, *(nothing(v.aval) for v in other)]),
            false=Graph(false.inputs, [*false.outputs[:count], *(nothing(v.aval) for v in more), *other]),
        )
    if isinstance(step.op, Checkpoint):
        whole = augment(step.params["graph"], wanted)
        few = chosen(whole, len(step.params["graph"].outputs), step.params["budget"])
        return step.op.bind(**step.params | {"graph": few})
    loop = Loop(step)
    carry, _ = loop.flowing(wanted[loop.lead :])
    marks = [i in carry if i < loop.carried else w for i, w in enumerate(wanted[loop.lead :])]
    inner = augment(loop.body, marks)
    loop = Loop(loop.with_body(Graph(inner.inputs, inner.outputs[: len(loop.body.outputs)])))
    carry, sources = loop.flowing(wanted[loop.lead :])
    every: list[Any] = [Cotangent(Value(v.aval)) if v.aval.dtype.is_differentiable else None for v in loop.body.outputs]
    _, _, found = loop.pulled(carry, sources, every, pull)
    there = set(map(id, loop.pushed))
    kept = [v for v in to_keep(loop, list(found.values())) if id(v) not in there]
    return loop.with_body(Graph(loop.body.inputs, [*loop.body.outputs, *kept]))


REGIONS: dict[type, Callable[[Node, Given, Sequence[bool], Pull], list[Cotangent | None]]] = {
    Checkpoint: pull_checkpoint,
    Cond: pull_cond,
    While: pull_loop,
    Scan: pull_loop,
}
