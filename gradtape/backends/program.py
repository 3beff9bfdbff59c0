"""A graph as one straight-line Python function over arrays. Floor: backends.

Large intermediates are written over operands that nothing needs any more, and dropped after their last use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gradtape.backends.clusters import FusedKernel
from gradtape.backends.gemm import contraction_of
from gradtape.ir.graph import Graph, Node, Value
from gradtape.ops.assembling import is_begun
from gradtape.ops.call import Call
from gradtape.ops.contraction import Contraction
from gradtape.ops.fused import Fused, Together
from gradtape.ops.op import Constant
from gradtape.ops.placement import Assemble
from gradtape.ops.pointwise import Pointwise
from gradtape.ops.reduction import Reduction
from gradtape.ops.structural import Structural

LARGE = 32768  # bytes from which reusing a buffer pays
OVER = 1 << 18  # bytes from which a kernel writes a result over an operand
BENT = 8  # times that an operand is read, from which its elements are put in order first
MANY = 1024  # elements of a result from which that is asked
SURE = (Fused, Contraction, Structural, Constant, Pointwise, Reduction)  # what fails for want of memory at most

Program = Callable[..., tuple[Any, ...]]

INFIX = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
    "equal": "==",
    "not_equal": "!=",
}


def compile_graph(
    graph: Graph,
    lower: Callable[[Any], Callable[..., Any]],
    host: bool = True,
    over: Mapping[int, int] | None = None,
) -> Program:
    """The function (*arrays) -> tuple of arrays of a graph; `lower` gives the function of a step. `host`: arrays are
    NumPy's, whose functions may stand for steps and write over operands. `over`: by number, which result may be
    written over which of the graph's inputs, as `overs` has found them."""
    source, env = render(graph, lower, host, over)
    exec(compile(source, "<gradtape program>", "exec"), env)
    program: Program = env["program"]
    return program


def overs(graph: Graph, over: Mapping[int, int]) -> dict[int, int]:
    """Which results a program writes over inputs, of pairs that it may: in kernels, of large arrays. None where a step
    may fail after the first of them, which would leave some inputs written and others not."""
    memory = Memory(graph, graph.nodes, over)
    written = [at for at, n in enumerate(graph.nodes) if isinstance(n.step.op, Fused) and memory.own_pairs(at)]
    if not written or not all(isinstance(n.step.op, SURE) for n in graph.nodes[written[0] :]):
        return {}
    inside = {id(graph.nodes[at].inputs[k]) for at in written for _, k in memory.own_pairs(at)}
    return {j: k for j, k in over.items() if id(graph.inputs[k]) in inside}


def render(
    graph: Graph,
    lower: Callable[[Any], Callable[..., Any]],
    host: bool = True,
    over: Mapping[int, int] | None = None,
) -> tuple[str, dict[str, Any]]:
    """The source of the function, and what its names stand for."""
    names = {id(v): f"x{i}" for i, v in enumerate(graph.inputs)}
    nodes = graph.nodes
    memory = Memory(graph, nodes, over or {})
    env: dict[str, Any] = {}
    lines = []
    for at, node in enumerate(nodes):
        if isinstance(node.step.op, Constant) and node.outputs[0].aval.shape == ():
            name = names[id(node.outputs[0])] = f"c{at}"
            env[name] = lower(node.step)()
            continue
        for j, v in enumerate(node.outputs):
            names[id(v)] = f"t{at}" if len(node.outputs) == 1 else f"t{at}_{j}"
        left = ", ".join(names[id(v)] for v in node.outputs)
        if isinstance(node.step.op, Call | Fused) and len(node.outputs) == 1:  # a program's results are always a tuple
            left += ","
        arguments = [names[id(v)] for v in node.inputs]
        if isinstance(node.step.op, Fused | Together):
            right = _fused_call(node, arguments, memory.pairs(at) if host else memory.own_pairs(at, 0), env, lower)
        elif host:
            right = _call(node, arguments, memory.target(at), names, env, lower)
        else:
            right = _named(node, arguments, env, lower)
        lines.append(f"    {left} = {right}")
        dropped = [names[id(v)] for v in memory.dropped(at)]
        if dropped:
            lines.append(f"    {' = '.join(dropped)} = None")
    head = f"def program({', '.join(names[id(v)] for v in graph.inputs)}):"
    results = "".join(names[id(v)] + ", " for v in graph.outputs)
    return "\n".join([head, *lines, f"    return ({results})"]), env


def _call(
    node: Node,
    args: Sequence[str],
    target: Value | None,
    names: dict[int, str],
    env: dict[str, Any],
    lower: Callable[[Any], Callable[..., Any]],
) -> str:
    """One node as an expression."""
    op = node.step.op
    ufunc = _ufunc(op)
    if ufunc is not None:
        env["in_line"] = np.ascontiguousarray
        args = [f"in_line({a})" if _may_bend(v, node.outputs[0]) else a for a, v in zip(args, node.inputs, strict=True)]
    if ufunc is not None and target is not None:
        name = f"np_{op.ufunc}"
        env[name] = ufunc
        return f"{name}({', '.join(args)}, out={names[id(target)]})"
    if ufunc is not None and op.ufunc in INFIX:
        return f"{args[0]} {INFIX[op.ufunc]} {args[1]}"
    if isinstance(op, Assemble) and target is not None:
        args = [*args, "over=True"]
    if isinstance(op, Contraction):
        name = f"f{len(env)}_{node.step.name}"
        env[name] = contraction_of(node.step.params["subscripts"], [v.aval for v in node.inputs])
        return f"{name}({', '.join(args)})"
    return _named(node, args, env, lower)


def _named(node: Node, args: Sequence[str], env: dict[str, Any], lower: Callable[[Any], Callable[..., Any]]) -> str:
    """One node as a call of its function."""
    name = f"f{len(env)}_{node.step.name}"
    env[name] = lower(node.step)
    return f"{name}({', '.join(args)})"


def _fused_call(
    node: Node, args: Sequence[str], pairs: Sequence[tuple[int, int]], env: dict[str, Any], lower: Callable[[Any], Any]
) -> str:
    """A kernel as an expression; it may write results over operands, by pairs of both."""
    name = f"f{len(env)}_{node.step.name}"
    run = lower(node.step)
    run = run.writing_over(pairs) if pairs else run
    if isinstance(run, FusedKernel):
        run.called_as(name, env)
    else:
        env[name] = run
    return f"{name}({', '.join(args)})"


def _may_bend(v: Value, result: Value) -> bool:
    """Whether an operand may have its axes in another order than its memory, and is so much smaller than the result
    that putting it in order pays."""
    if not (v.aval.is_known and result.aval.is_known) or result.aval.size < MANY:
        return False
    return sum(n > 1 for n in v.aval.dims) > 1 and BENT * v.aval.size <= result.aval.size


def _ufunc(op: Any) -> np.ufunc | None:
    found = getattr(np, op.ufunc, None) if isinstance(op, Pointwise) and op.ufunc else None
    return found if isinstance(found, np.ufunc) and op.array is None else None


class Memory:
    """Which buffers are owned by the program, where they are needed last, and what may be written over."""

    def __init__(self, graph: Graph, nodes: Sequence[Node], over: Mapping[int, int]) -> None:
        self.nodes = nodes
        self.over = {id(graph.outputs[j]): graph.inputs[k] for j, k in over.items()}  # inputs that results may be over
        self.root: dict[int, int] = {id(v): id(v) for v in graph.inputs}  # value -> the value that owns its memory
        self.foreign = {id(v) for v in graph.inputs}
        self.shared: set[int] = set()  # results of one node that may share memory with each other
        self.last: dict[int, int] = {}  # owner -> the node that needs its memory last
        self.read = {id(v): at for at, node in enumerate(nodes) for v in node.inputs}  # the node that reads it last
        self.read.update((id(v), len(nodes)) for v in (*graph.inputs, *graph.outputs))
        for at, node in enumerate(nodes):
            self._own(node)
            for v in (*node.inputs, *node.outputs):
                self.last[self.root[id(v)]] = at
        for v in graph.outputs:
            self.last[self.root[id(v)]] = len(nodes)

    def _own(self, node: Node) -> None:
        borrowed = _lenders(node) if may_alias(node.step.op, node) else []
        for v in node.outputs:
            owner = self.root[id(borrowed[0])] if borrowed else id(v)
            self.root[id(v)] = owner
            if len(borrowed) > 1:  # one of several: all of them must outlive the result
                self.foreign.update(self.root[id(b)] for b in borrowed)
        if isinstance(node.step.op, Assemble):  # its block remembers what of it is zero
            self.foreign.update(map(id, node.outputs))
        if len(node.outputs) > 1 and may_alias(node.step.op, node):  # perhaps with each other
            self.shared.update(map(id, node.outputs))

    def target(self, at: int) -> Value | None:
        """An operand whose buffer the node writes its result to."""
        node = self.nodes[at]
        result = node.outputs[0]
        if not isinstance(node.step.op, Assemble) and _ufunc(node.step.op) is None:
            return None
        if result.aval.nbytes < LARGE:
            return None
        if isinstance(node.step.op, Assemble):
            return node.inputs[0] if self._is_begun(at) else None
        for v in node.inputs:
            owner = self.root[id(v)]
            mine = owner == id(v) and owner not in self.foreign and owner not in self.shared
            if mine and self.last[owner] == at and v.aval is result.aval:
                return v
        return None

    def _is_begun(self, at: int) -> bool:
        """Whether what is assembled may be added to the first operand."""
        node = self.nodes[at]
        p = node.step.params
        if not node.inputs or node.inputs[0].aval is not node.outputs[0].aval:
            return False
        first, owners = node.inputs[0], self._owners(node)
        return (
            self._is_own(first)
            and self.last[owners[0]] == at
            and owners.count(owners[0]) == 1
            and is_begun(p["terms"], p["shape"])
        )

    def pairs(self, at: int) -> list[tuple[int, int]]:
        """Results of a kernel and operands in whose memory they may be: those that nothing else needs, by the numbers
        of both."""
        node = self.nodes[at]
        owners = self._owners(node)
        free = [
            k
            for k, v in enumerate(node.inputs)
            if v.aval.nbytes >= OVER and self._is_own(v) and self.last[owners[k]] == at and owners.count(owners[k]) == 1
        ]
        others = [(j, k) for j, r in enumerate(node.outputs) for k in free if node.inputs[k].aval is r.aval]
        return [*self.own_pairs(at), *others]

    def own_pairs(self, at: int, least: int = OVER) -> list[tuple[int, int]]:
        """The same of results, of so many bytes at least, and inputs of the graph that they may be over."""
        node = self.nodes[at]
        owners, found = self._owners(node), []
        for j, r in enumerate(node.outputs):
            given = self.over.get(id(r))
            if given is None or r.aval.nbytes < least or given.aval is not r.aval or self.last[id(given)] != at:
                continue
            found += [(j, k) for k, v in enumerate(node.inputs) if v is given and owners.count(id(given)) == 1]
        return found

    def _owners(self, node: Node) -> list[int]:
        return [self.root[id(v)] for v in node.inputs]

    def _is_own(self, v: Value) -> bool:
        """Whether the memory of a value is its own, and was made for it by a product or a kernel."""
        owner = self.root[id(v)]
        if owner != id(v) or owner in self.foreign or owner in self.shared or v.node is None:
            return False
        step = v.node.step
        if not isinstance(step.op, Fused):
            return isinstance(step.op, Contraction)
        inner = step.params["graph"].outputs[v.index].node  # as it runs before there is a kernel
        return inner is not None and not may_alias(inner.step.op, inner)

    def dropped(self, at: int) -> list[Value]:
        """Large values that no node after this one reads. Who shows their memory keeps it."""
        return [v for v in dict.fromkeys(self.nodes[at].inputs) if v.aval.nbytes >= LARGE and self.read[id(v)] == at]


def _lenders(node: Node) -> list[Value]:
    """The operands whose memory a result may be. Scalars count where elements only move: a repeated scalar is
    one element, however large the result looks."""
    op = node.step.op
    if isinstance(op, Structural):
        return list(node.inputs[: len(node.inputs) - op.indices])
    return [v for v in node.inputs if v.aval.shape != ()]


def may_alias(op: Any, node: Node) -> bool:
    """Whether a result may share memory with an operand: all but what certainly writes a fresh array."""
    if isinstance(op, Pointwise):
        return _ufunc(op) is None and op.formula is None
    if isinstance(op, Structural):
        return op.view
    if isinstance(op, Reduction):
        return not node.step.params["axes"]
    return op.kind not in ("contraction", "constant", "composite", "fused", "together", "tiles", "assemble")
