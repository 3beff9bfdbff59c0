"""Rules that call their own function: traced when a derivative asks for them, an order at a time. Floor: runtime.

Tracing such a rule with its function's own rule, and that one's, would not end. Where a function is met again while its
rule is being traced, its step gets the rule's graph when somebody reads it: the function is then called anew on the
operands of the step, and what it reads besides are values of the process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gradtape.ir.graph import Graph, Value
from gradtape.ops.call import GONE, RULED, Ruled
from gradtape.ops.op import Step, apply
from gradtape.runtime.effects import reader_step
from gradtape.runtime.record import Rule
from gradtape.runtime.state import STATE
from gradtape.runtime.tensor import SymbolicTensor, Tensor
from gradtape.runtime.trace import FunctionTracer, OutOfScope, outside
from gradtape.transforms.simplify import rebuild_from

DEEPEST = 8  # rules of functions with one text, within each other


def calls_itself(rule: Rule) -> bool:
    """Whether the rule of a function is met while it is being traced itself; or too many of one text within each other,
    as those of functions that are made anew in each call."""
    around = [r for r in STATE.rules if r.again is not None]
    code = getattr(rule.function, "__code__", None)
    same = [r for r in around if code is not None and getattr(r.function, "__code__", None) is code]
    return any(r.function is rule.function for r in around) or len(same) >= DEEPEST


class Later(dict[str, Any]):
    """Parameters of a step that are made when one of them is asked for."""

    def __init__(self, known: dict[str, Any], make: Callable[[], dict[str, Any]]) -> None:
        super().__init__(known)
        self.make = make

    def __missing__(self, key: str) -> Any:
        self.update(self.make())
        return self[key]


def later_step(rule: Rule, results: Sequence[Tensor], operands: Sequence[Any]) -> Step:
    """The step of a function whose rule is traced when it is asked for; behind its operands it has them again, as what
    the rule reads."""
    avals = [x._aval for x in operands]
    cotangents = [t._aval for t in results if t._aval.dtype.is_differentiable]

    def make() -> dict[str, Any]:
        graph, answers = _traced(rule, cotangents, [x for x in operands if not isinstance(x, Tensor)], avals)
        return {"rule": graph, "answers": answers, "linear": True, "forwards": None, "effectful": None}

    return Step(RULED, Later({"results": len(results), "name": rule.name}, make))


def _traced(rule: Rule, results: Sequence[Any], variables: Sequence[Any], avals: Sequence[Any]) -> tuple[Graph, Any]:
    """The graph of a rule, over cotangents of the results, tensors and variables; and which of these it answers for."""
    count = len(avals) - len(variables)
    tracer = FunctionTracer(avals[:count])
    assert rule.again is not None
    held, STATE.rules = STATE.rules, ()
    try:
        with outside():
            made = tracer.run(rule.again, tracer.symbols)
    except OutOfScope:
        given = [Value(a) for a in (*results, *avals)]
        step = GONE.bind(name=rule.name, results=tuple(avals))
        return Graph(given, apply(step, given)), (True,) * len(avals)
    finally:
        STATE.rules = held
    cotangents = [Value(a) for a in results]
    given = [*tracer.inputs, *(Value(a) for a in avals[count:])]
    node = next((t._value.node for t in made if isinstance(t, SymbolicTensor)), None)
    if node is None or not isinstance(node.step.op, Ruled):
        return Graph([*cotangents, *given], []), (False,) * len(avals)
    ups: list[Value | None] = list(_spread(cotangents, node.outputs))
    pulled = node.step.op.vjp(node, ups, [True] * len(node.inputs))[len(made) :][: len(avals)]
    outputs = [v for v in pulled if v is not None]
    return Graph([*cotangents, *given], _present(tracer, outputs, cotangents, variables, given)), tuple(
        v is not None for v in pulled
    )


def _spread(cotangents: Sequence[Value], results: Sequence[Value]) -> Iterator[Value | None]:
    """One cotangent for each result, None for one that has none."""
    given = iter(cotangents)
    for v in results:
        yield next(given) if v.aval.dtype.is_differentiable else None


def _present(
    tracer: FunctionTracer,
    outputs: Sequence[Value],
    cotangents: Sequence[Value],
    variables: Sequence[Any],
    given: Sequence[Value],
) -> list[Value]:
    """Values of a trace over given ones; other variables and tensors that it reads are read when it runs."""
    own = dict(zip([v._id for v in variables], given[len(tracer.inputs) :], strict=True))
    states = [(s, v, own.get(k)) for k, (s, v) in tracer.variables.items()]
    inputs = [*cotangents, *tracer.inputs, *(v for _, v, _ in states), *(v for _, v in tracer.captured.values())]
    graph = Graph(inputs, outputs)
    read = [apply(reader_step(s), ())[0] if o is None else o for s, _, o in states]
    read += [apply(reader_step(t), ())[0] for t, _ in tracer.captured.values()]
    return rebuild_from(graph, [*cotangents, *tracer.inputs, *read])
