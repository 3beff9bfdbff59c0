"""The results of a function with a rule of its own, under new names; in a graph, with the rule. Floor: runtime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradtape.ir.bounded import Bounded
from gradtape.ir.errors import UnimplementedError
from gradtape.ir.graph import Graph, Value, structure
from gradtape.ops.call import ruled_step
from gradtape.ops.op import Step
from gradtape.runtime.dispatch import execute
from gradtape.runtime.effects import Apart, apart, effectful_step, part_of_graph
from gradtape.runtime.hosted import ORDER
from gradtape.runtime.later import calls_itself, later_step
from gradtape.runtime.pushing import pushed_by, transposed
from gradtape.runtime.record import Rule
from gradtape.runtime.state import STATE
from gradtape.runtime.tensor import EagerTensor, SymbolicTensor, SymbolicTensorError, Tensor, wrap
from gradtape.runtime.trace import FunctionTracer, Tracer, function_tracer, is_outside
from gradtape.transforms.differentiate import zeros
from gradtape.transforms.linearity import is_linear
from gradtape.transforms.simplify import flattened, rebuild_from

MAX_STEPS = 512

_steps: Bounded[Any, Step] = Bounded(MAX_STEPS)  # one step per structure of its rule, so that graphs can be compared


def handed_out(results: Sequence[Tensor], operands: Sequence[Any], rule: Rule) -> list[Tensor]:
    """Results under new names, which nothing but the rule connects to the operands. While a function is traced whose
    graph may be differentiated, the rule is traced too, and becomes part of the graph."""
    tracer = _innermost(results, operands)
    if tracer is None:
        return [wrap(t._array, t._aval) for t in results]
    if tracer.differentiable:
        return _with_rule(tracer, results, operands, rule)
    return [tracer.symbol(t._value) if isinstance(t, SymbolicTensor) else wrap(t._array, t._aval) for t in results]


def _innermost(results: Sequence[Tensor], operands: Sequence[Any]) -> Tracer | None:
    """The tracer of the graph that the results belong to; that of the function, where its caller may ask for
    derivatives by an operand."""
    involved = [t._tracer for t in results if isinstance(t, SymbolicTensor)]
    found = next((t for t in reversed(STATE.tracers) if t in involved), None)
    asked = found is None and any(is_outside(t) for t in operands if isinstance(t, EagerTensor))
    return function_tracer() if asked else found


def _with_rule(tracer: Tracer, results: Sequence[Tensor], operands: Sequence[Any], rule: Rule) -> list[Tensor]:
    if calls_itself(rule):
        present = list(map(_present, operands))
        return _handed(later_step(rule, results, operands), [*results, *present, *present])
    cotangents = [Value(t._aval) for t in results if t._aval.dtype.is_differentiable]
    function = function_tracer()
    with apart(function, cotangents) as block:
        answers = _unrecorded(_asked, rule, [tracer.symbol(c) for c in cotangents])
        found = [None if a is None else tracer.value_of(a) for a in answers]
    states = block.states(tracer) if tracer is function else []  # what is done for rows has no effects
    _check_blocks(rule, function, [v for v, _, _ in states])
    starts = [v for _, v, _ in states]
    answered = tuple(v is not None for v in found)
    made = [*(v for v in found if v is not None), *(v for _, _, v in states)]
    made = _settled(block, tracer, function, cotangents, made)
    whole, others = part_of_graph(made, [*cotangents, *starts])
    read = [*others, *starts]
    count = sum(answered)
    graph = Graph([*cotangents, *read], whole.outputs[:count])
    forwards = None
    if rule.push is not None:
        found, graph, forwards, read = _with_push(tracer, results, operands, rule, found, (graph, read))
        answered = tuple(v is not None for v in found)
    effectful = None
    if states:
        read = [v for v in read if v not in starts]
        given = [*cotangents, *read]
        new = whole.outputs[count:]
        effectful = effectful_step(Graph([*given, *starts], [*graph.outputs, *new]), [x for x, _, _ in states])
        without = effectful.params["graph"]
        graph = Graph(without.inputs, without.outputs[: len(graph.outputs)])
        forwards = forwards and Graph([v for v in forwards.inputs if v not in starts], forwards.outputs)
    varying = [k < len(cotangents) for k in range(len(graph.inputs))]
    linear = is_linear(graph, varying)

    def step() -> Step:
        return ruled_step(len(results), graph, answered, linear, rule.name, forwards, effectful)

    key = (len(results), structure(graph), answered, rule.name, forwards and structure(forwards))
    bound = step() if states else _steps.find(key, step)
    return _handed(bound, [*results, *map(_present, operands), *map(tracer.symbol, read)])


def _handed(step: Step, operands: Sequence[Tensor]) -> list[Tensor]:
    made = _unrecorded(execute, step, operands)
    return list(made) if isinstance(made, tuple) else [made]


def _settled(
    block: Apart,
    tracer: Tracer,
    function: FunctionTracer | None,
    cotangents: Sequence[Value],
    outputs: list[Value],
) -> list[Value]:
    """What a rule gives and assigns, over the values that the variables have which it only reads."""
    if function is None or not block.variables:
        return outputs
    if tracer is function:
        only_read = [(start, function.read(v)) for k, (v, start) in block.variables.items() if k not in block.assigned]
    else:
        only_read = block.taken_back(tracer, function)
    assigned = [start for k, (_, start) in block.variables.items() if k in block.assigned and tracer is function]
    given = [*cotangents, *assigned]
    graph, others = part_of_graph(outputs, [*given, *(start for start, _ in only_read)])
    return rebuild_from(graph, [*given, *(tracer.value_of(t) for _, t in only_read), *others])


def _check_blocks(rule: Rule, function: FunctionTracer | None, states: Sequence[Any]) -> None:
    """Whether what a rule assigns can be seen where its gradient is taken.

    Raises:
      UnimplementedError: in a branch or loop that a tape of the same function records."""
    variables = [v for v in states if v is not ORDER]
    if variables and function is not None and function.around:
        names = ", ".join(f"`{v.name}`" for v in variables)
        raise UnimplementedError(
            f"The rule of `{rule.name}` assigns {names}, stands in a branch or loop of a traced function, and a tape "
            "of the same function records it: the function would not see the new value. Take the gradient outside of "
            "the function, or call what has the rule outside of the branch or loop."
        )


RuleGraph = tuple[Graph, list[Value]]  # of cotangents and of other values, and these


def _with_push(
    tracer: Tracer,
    results: Sequence[Tensor],
    operands: Sequence[Any],
    rule: Rule,
    found: Sequence[Value | None],
    own: RuleGraph,
) -> tuple[list[Value | None], Graph, Graph, list[Value]]:
    """A rule that came with a JVP: what is answered by either, the graphs of the rule and of the JVP's transpose over
    the same inputs, and the other values among these."""
    avals = [t._aval for t in results]
    tangents = [Value(x._aval) for x in operands if x._aval.dtype.is_differentiable]
    pushed = _unrecorded(pushed_by, rule, [tracer.symbol(t) for t in tangents], avals)
    values = [None if p is None else tracer.value_of(p) for p in pushed]
    between, others = part_of_graph([v for v in values if v is not None], tangents)
    outputs = iter(between.outputs)
    cotangents, turned = transposed(
        rule.name, [None if v is None else next(outputs) for v in values], tangents, others, avals
    )
    given = iter(turned)
    pulled = [next(given) if x._aval.dtype.is_differentiable else None for x in operands]
    graph, read = own
    every = list({id(v): v for v in (*read, *others)}.values())
    own_answers = iter(graph.outputs)
    asked = [(x, None if f is None else next(own_answers), p) for x, f, p in zip(operands, found, pulled, strict=True)]
    live = [(x, f, p) for x, f, p in asked if f is not None or p is not None]
    of_rule = [zeros(x._aval) if f is None else f for x, f, _ in live]
    of_push = [zeros(x._aval) if p is None else p for x, _, p in live]
    own_cotangents = graph.inputs[: len(graph.inputs) - len(read)]
    return (
        [p if f is None else f for _, f, p in asked],
        flattened(Graph([*own_cotangents, *every], of_rule)),
        flattened(Graph([*cotangents, *every], of_push)),
        every,
    )


def _asked(rule: Rule, cotangents: Sequence[Tensor]) -> Sequence[Tensor | None]:
    held, STATE.rules = STATE.rules, (*STATE.rules, rule)
    try:
        return rule(*cotangents)
    except SymbolicTensorError as e:
        raise SymbolicTensorError(
            f"The rule of a custom gradient is traced, because a tape may ask for it, and wants values: {e} Write it "
            "with ops, or go over the rows with `tf.map_fn`."
        ) from None
    finally:
        STATE.rules = held


def _unrecorded(f: Callable[..., Any], *args: Any) -> Any:
    """f(*args) while no tape records."""
    outer, STATE.recorders = STATE.recorders, ()
    try:
        return f(*args)
    finally:
        STATE.recorders = outer


def _present(x: Any) -> Tensor:
    """A tensor, or a variable as it is now."""
    found: Tensor = x if isinstance(x, Tensor) else x.read()
    return found
