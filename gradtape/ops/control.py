"""Branches and loops: graphs as ops that a value chooses between or repeats. Floor: ops.

A loop that is differentiated keeps what each of its iterations computed in *stacks*: a stack is as many arrays of one
shape and dtype as there were iterations, and its aval is that of an element, with the dtype `stack_of(dtype)`. How
these ops are differentiated stands in `transforms.control`: a loop that ran pulls cotangents back by a `scan` over
its stacks, in the other direction, so that both are closed under differentiation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradtape.ir.aval import Aval, aval
from gradtape.ir.dtypes import DType, bool_, element_of, int32, stack_of
from gradtape.ir.graph import Graph, Node, Value, structure
from gradtape.ir.interned import Interned
from gradtape.ir.shapes import broadcast
from gradtape.ops.op import Op, Step, constant, emit


class Region(Op):
    """An op whose parameters `regions` are graphs. Steps of equal graphs are one object, so that structural keys
    recognise them."""

    regions: tuple[str, ...] = ()

    def __init__(self, name: str, **declared: Any) -> None:
        self.made: Interned[Any, Step] = Interned()
        super().__init__(name, **declared)

    def bind(self, **params: Any) -> Step:
        key = tuple((k, structure(v) if isinstance(v, Graph) else v) for k, v in params.items())
        return self.made.find(key, lambda: Step(self, params))

    def graphs(self, step: Step) -> list[Graph]:
        """The graphs of a step."""
        return [step.params[k] for k in self.regions]

    def remade(self, step: Step, change: Callable[[Graph], Graph]) -> Step:
        """The step with other graphs in the place of its own."""
        return self.bind(**step.params | {k: change(step.params[k]) for k in self.regions})


def _fits(op: Op, what: str, given: Sequence[Aval], wanted: Sequence[Aval]) -> None:
    if list(given) != list(wanted):
        raise op.invalid(f"got operands {list(given)} where its {what} wants {list(wanted)}.")


class Cond(Region):
    """One of two graphs: operands are a scalar bool and what both graphs are given."""

    kind = "cond"
    regions = ("true", "false")

    def infer(self, avals: tuple[Aval, ...], **params: Any) -> tuple[Aval, ...]:
        true, false = params["true"], params["false"]
        _fits(self, "condition", avals[:1], [aval((), bool_)])
        for branch in (true, false):
            _fits(self, "branch", avals[1:], [v.aval for v in branch.inputs])
        results, others = (tuple(v.aval for v in branch.outputs) for branch in (true, false))
        _fits(self, "other branch", results, others)
        return results


class While(Region):
    """A graph repeated as long as another one says so.

    Operands: the carry, then constants; `body` and `test` are given both. `body` answers with the next carry, then
    with what is pushed on stacks. Results: the carry, the stacks, and how often the body ran."""

    kind = "while"
    regions = ("test", "body")

    def infer(self, avals: tuple[Aval, ...], **params: Any) -> tuple[Aval, ...]:
        test, body, n = params["test"], params["body"], params["carried"]
        for graph in (test, body):
            _fits(self, "body", avals, [v.aval for v in graph.inputs])
        results = [v.aval for v in body.outputs]
        _fits(self, "next iteration", results[:n], avals[:n])
        _fits(self, "test", [v.aval for v in test.outputs], [aval((), bool_)])
        return (*results[:n], *map(stacked, results[n:]), aval((), int32))


class Scan(Region):
    """A graph repeated for each element of stacks, from the first on or (`reverse`) from the last.

    Operands: how many elements there are, the carry, constants, stacks; `body` is given the carry, the constants and
    an element of each stack. Results: the carry, then stacks: what an iteration pushes stands where its elements do."""

    kind = "scan"
    regions = ("body",)

    def infer(self, avals: tuple[Aval, ...], **params: Any) -> tuple[Aval, ...]:
        body, n, k = params["body"], params["carried"], params["constants"]
        _fits(self, "number of iterations", avals[:1], [aval((), int32)])
        given = [*avals[1 : 1 + n + k], *map(unstacked, avals[1 + n + k :])]
        _fits(self, "body", given, [v.aval for v in body.inputs])
        results = [v.aval for v in body.outputs]
        _fits(self, "next iteration", results[:n], avals[1 : 1 + n])
        return (*results[:n], *map(stacked, results[n:]))


class Checkpoint(Region):
    """A graph that keeps few of its values for its gradient, at most `budget` bytes of them; the others are computed
    again. Results: the graph's first `results` outputs, then what it keeps."""

    kind = "checkpoint"
    regions = ("graph",)

    def infer(self, avals: tuple[Aval, ...], **params: Any) -> tuple[Aval, ...]:
        _fits(self, "graph", avals, [v.aval for v in params["graph"].inputs])
        return tuple(v.aval for v in params["graph"].outputs)


COND = Cond("cond", doc="One of two graphs, chosen by a scalar.")
WHILE = While("while", doc="A graph repeated as long as another one says so.")
CHECKPOINT = Checkpoint("checkpoint", doc="A graph whose gradient computes again what it does not keep.")
SCAN = Scan("scan", doc="A graph repeated for each element of stacks.")


def stacked(element: Aval) -> Aval:
    """The aval of stacks of such elements."""
    return aval(element.shape, stack_of(element.dtype))


def unstacked(stack: Aval) -> Aval:
    """The aval of the elements of a stack."""
    return aval(stack.shape, element_of(stack.dtype))


class StackSum(Op):
    """Element by element: the cotangents of a stack that was used twice."""

    kind = "stack"

    def infer(self, avals: tuple[Aval, ...], **params: Any) -> tuple[Aval, ...]:
        x, y = avals
        return (aval(broadcast(x.shape, y.shape), x.dtype),)

    def vjp(self, node: Node, cotangents: list[Value | None], wanted: list[bool]) -> list[Value | None]:
        _fits(self, "cotangent", [v.aval for v in node.inputs], [node.outputs[0].aval] * 2)
        return [g if w else None for g, w in zip([*cotangents] * 2, wanted, strict=True)]


class EmptyStack(Op):
    """What a branch that was not taken has in place of a stack."""

    kind = "stack"

    def infer(self, avals: tuple[Aval, ...], **params: Any) -> tuple[Aval, ...]:
        return (aval(params["shape"], params["dtype"]),)

    def vjp(self, node: Node, cotangents: list[Value | None], wanted: list[bool]) -> list[Value | None]:
        return []


ADD_STACKS = StackSum("add_stacks", doc="Stacks added element by element.")
EMPTY_STACK = EmptyStack("empty_stack", doc="A stack without elements.")


def is_stack(dtype: DType) -> bool:
    """Whether values of this dtype are stacks."""
    return dtype.kind.isupper()


def nothing(of: Aval) -> Value:
    """Zeros, or an empty stack: what stands for a value that is not there."""
    if is_stack(of.dtype):
        return emit("empty_stack", shape=of.dims, dtype=of.dtype)
    return constant("" if of.dtype.kind == "s" else 0, of.dtype, of.dims)


def total(a: Value, b: Value) -> Value:
    """The sum of two cotangents."""
    return emit("add_stacks" if is_stack(a.aval.dtype) else "add", a, b)
