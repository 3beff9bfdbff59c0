"""The results of a function with a rule of its own, under new names; in a graph, with the rule. Floor: runtime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradtape.ir.bounded import Bounded
from gradtape.ir.graph import Graph, Value, order, structure
from gradtape.ops.call import ruled_step
from gradtape.ops.op import Step
from gradtape.runtime.dispatch import execute
from gradtape.runtime.state import STATE
from gradtape.runtime.tensor import SymbolicTensor, SymbolicTensorError, Tensor, wrap
from gradtape.runtime.trace import Tracer
from gradtape.transforms.linearity import is_linear
from gradtape.transforms.simplify import flattened

HostRule = Callable[..., Sequence[Tensor | None]]
MAX_STEPS = 512

_steps: Bounded[Any, Step] = Bounded(MAX_STEPS)  # one step per structure of its rule, so that graphs can be compared


def handed_out(results: Sequence[Tensor], operands: Sequence[Any], rule: HostRule) -> list[Tensor]:
    """Results under new names, which nothing but the rule connects to the operands. While a function is traced whose
    graph may be differentiated, the rule is traced too, and becomes part of the graph."""
    tracer = _innermost(results)
    if tracer is None:
        return [wrap(t._array, t._aval) for t in results]
    if tracer.differentiable:
        return _with_rule(tracer, results, operands, rule)
    return [tracer.symbol(t._value) if isinstance(t, SymbolicTensor) else wrap(t._array, t._aval) for t in results]


def _innermost(results: Sequence[Tensor]) -> Tracer | None:
    involved = [t._tracer for t in results if isinstance(t, SymbolicTensor)]
    return next((t for t in reversed(STATE.tracers) if t in involved), None)


def _with_rule(tracer: Tracer, results: Sequence[Tensor], operands: Sequence[Any], rule: HostRule) -> list[Tensor]:
    cotangents = [Value(t._aval) for t in results if t._aval.dtype.is_differentiable]
    answers = _unrecorded(_asked, rule, [tracer.symbol(c) for c in cotangents])
    graph, read = _rule_graph([tracer.value_of(a) for a in answers if a is not None], cotangents)
    varying = [k < len(cotangents) for k in range(len(graph.inputs))]
    key = (len(results), structure(graph), tuple(a is not None for a in answers))
    step = _steps.find(key, lambda: ruled_step(len(results), graph, key[2], is_linear(graph, varying)))
    made = _unrecorded(execute, step, [*results, *map(_present, operands), *map(tracer.symbol, read)])
    return list(made) if isinstance(made, tuple) else [made]


def _asked(rule: HostRule, cotangents: Sequence[Tensor]) -> Sequence[Tensor | None]:
    try:
        return rule(*cotangents)
    except SymbolicTensorError as e:
        raise SymbolicTensorError(
            f"The rule of a custom gradient is traced, because a tape may ask for it, and wants values: {e} Write it "
            "with ops, or go over the rows with `tf.map_fn`."
        ) from None


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


def _rule_graph(outputs: Sequence[Value], cotangents: Sequence[Value]) -> tuple[Graph, list[Value]]:
    """What a rule does to its cotangents, and what else it reads: values that do not depend on them."""
    varying = set(map(id, cotangents))
    read: dict[int, Value] = {id(v): v for v in outputs}
    for node in order(outputs):
        if any(id(v) in varying for v in node.inputs):
            varying.update(map(id, node.outputs))
            read.update((id(v), v) for v in node.inputs)
    others = [v for v in read.values() if id(v) not in varying]
    return flattened(Graph([*cotangents, *others], outputs)), others
