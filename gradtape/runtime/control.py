"""Branches and loops while a function is traced: blocks of the function that become graphs of one op. Floor: runtime.

A block is traced like a function: what it reads from outside is captured, variables are read when it begins and have
their new values when it ends. Captured tensors and variables are operands of the op, assigned variables results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradtape.ir.aval import Aval, aval
from gradtape.ir.dtypes import bool_
from gradtape.ir.graph import Graph, Value
from gradtape.ir.shapes import shape_text
from gradtape.ops.call import call_step
from gradtape.ops.comparison import SELECT
from gradtape.ops.control import COND, WHILE
from gradtape.ops.op import Step
from gradtape.runtime.dispatch import execute
from gradtape.runtime.places import place_of, user_frame
from gradtape.runtime.state import STATE
from gradtape.runtime.tensor import SymbolicTensor, SymbolicTensorError, Tensor, from_array
from gradtape.runtime.trace import FunctionTracer, function_tracer
from gradtape.transforms.differentiate import kept_step
from gradtape.transforms.simplify import flattened

Block = Callable[[list[Tensor]], list[Tensor]]


def is_symbolic(x: Any) -> bool:
    """Whether something is a tensor without a value."""
    return isinstance(x, SymbolicTensor)


def is_staged() -> bool:
    """Whether a function is being traced, so that loops become one op whatever they run over."""
    return function_tracer() is not None


class Traced:
    """A block that was traced. `examples`: its inputs, where it runs exactly once."""

    def __init__(self, block: Block, inputs: Sequence[Aval], examples: Sequence[Tensor] | None = None) -> None:
        self.tracer = FunctionTracer(inputs)
        self.tracer.is_block = examples is None
        self.tracer.examples = self.tracer.symbols if examples is None else examples
        outer, STATE.recorders = STATE.recorders, ()
        self.tracer.within(function_tracer(), outer)
        try:
            self.results: list[Tensor] = self.tracer.run(block, list(self.tracer.symbols))
        finally:
            STATE.recorders = outer

    def convert(self, convert: Callable[[], list[Tensor]]) -> None:
        """Give the block other results, made of what its own results were."""
        self.results = self.tracer.run(convert)

    def start_of(self, variable: Any) -> Value:
        self.tracer.read(variable)
        return self.tracer.variables[variable._id][1]

    def end_of(self, variable: Any) -> Value:
        return self.tracer.value_of(self.tracer.read(variable))

    def capture(self, t: Tensor) -> Value:
        return self.tracer.value_of(t)


@dataclass
class Needs:
    """What blocks use from outside: variables, those first that one of them assigns, and tensors."""

    variables: list[Any]
    captured: list[Tensor]

    def operands(self) -> list[Tensor]:
        """The variables' present values, and the tensors."""
        return [*(v.read() for v in self.variables), *self.captured]

    def inputs(self, b: Traced) -> list[Value]:
        """The same in a block."""
        return [*map(b.start_of, self.variables), *map(b.capture, self.captured)]


def _assigned(blocks: Sequence[Traced]) -> list[Any]:
    return list({k: v for b in blocks for k, v in b.tracer.assigned.items()}.values())


def _needs(blocks: Sequence[Traced], assigned: Sequence[Any]) -> Needs:
    """Asked when all results have been captured."""
    variables = {v._id: v for v in assigned}
    for b in blocks:
        for k, (v, _) in b.tracer.variables.items():
            variables.setdefault(k, v)
    captured = {k: t for b in blocks for k, (t, _) in b.tracer.captured.items()}
    return Needs(list(variables.values()), list(captured.values()))


def of_one(block: Traced) -> tuple[Needs, list[Any], list[Value]]:
    """What a block alone needs, the variables that it assigns, and its outputs: results, then these."""
    assigned = _assigned([block])
    outputs = [*map(block.capture, block.results), *map(block.end_of, assigned)]
    return _needs([block], assigned), assigned, outputs


def run(step: Step, inputs: Sequence[Tensor]) -> list[Tensor]:
    """The results of a branch or loop; under a tape it keeps what pulling back will read."""
    recorders = STATE.recorders
    marks = tuple(any(r.is_watching(t) for r in recorders) for t in inputs) if recorders else ()
    places = list(range(len(step.infer(tuple(t._aval for t in inputs)))))
    if any(marks):
        step, places = kept_step(step, marks)
    made = execute(step, inputs)
    listed = made if isinstance(made, tuple) else (made,)
    return [listed[k] for k in places]


# ------------------------------------------------------------------ branches


def cond(pred: Tensor, true: Block, false: Block, both: bool = False) -> list[Tensor]:
    """What the branch gives that a scalar without a value chooses; `both`: both run, and nobody waits for the scalar.

    Raises:
      TypeError: branches that give another number of tensors, or other dtypes.
    """
    return join(pred, [Traced(true, []), Traced(false, [])], both)


def join(pred: Tensor, branches: Sequence[Traced], both: bool = False) -> list[Tensor]:
    """The same of branches that were traced."""
    _check_equal(*(b.results for b in branches))
    assigned = _assigned(branches)
    outputs = [[*map(b.capture, b.results), *map(b.end_of, assigned)] for b in branches]
    needs = _needs(branches, assigned)
    graphs = [flattened(Graph(needs.inputs(b), o)) for b, o in zip(branches, outputs, strict=True)]
    if both:
        made = _chosen(pred, graphs, needs.operands())
    else:
        made = run(COND.bind(true=graphs[0], false=graphs[1]), [pred, *needs.operands()])
    count = len(branches[0].results)
    for v, new in zip(assigned, made[count:], strict=True):
        v.assign(new)
    return made[:count]


def _chosen(pred: Tensor, graphs: Sequence[Graph], operands: Sequence[Tensor]) -> list[Tensor]:
    """The results of one of two graphs, of which both run."""
    made = [execute(call_step(g), operands) for g in graphs]
    true, false = ([m] if isinstance(m, Tensor) else list(m) for m in made)
    return [execute(SELECT.bind(), (pred, x, y)) for x, y in zip(true, false, strict=True)]


def _check_equal(true: Sequence[Tensor], false: Sequence[Tensor]) -> None:
    where = place_of(user_frame())
    if len(true) != len(false):
        raise TypeError(
            f"{where}: both branches of a condition must have the same number, type and structure of results, got "
            f"{len(true)} and {len(false)} tensors."
        )
    for x, y in zip(true, false, strict=True):
        if x._aval.dtype is not y._aval.dtype:
            raise TypeError(
                f"{where}: both branches of a condition must have the same number, type and structure of results, got "
                f"{x._aval!r} and {y._aval!r}. Use `tf.cast` in one of them."
            )
        if x._aval is not y._aval:
            raise SymbolicTensorError(
                f"{where}: the branches of a condition have results of shapes {shape_text(x._aval.shape)} and "
                f"{shape_text(y._aval.shape)}, so that the shape depends on a value that is not known while tracing."
            )


# ------------------------------------------------------------------ loops


def while_loop(
    test: Block, body: Block, start: Sequence[Tensor], names: Sequence[str] = (), fresh: bool = False
) -> list[Tensor]:
    """The last of the tensors that `body` makes of those before, as long as `test` (to one scalar) holds. `names`: of
    the tensors, for errors. `fresh`: the body may give more tensors than it is given, which begin as zeros.

    Raises:
      LoopVariableError: an iteration that changes a dtype or a shape.
    """
    avals = [t._aval for t in start]
    step = Traced(body, avals)
    if fresh:
        more = step.results[len(start) :]
        start = [*start, *(zeros_of(t) for t in more)]
        avals = [t._aval for t in start]
        step.tracer.inputs += [Value(t._aval) for t in more]
    tested = Traced(test, avals)
    _check_scalar(tested.results[0])
    _check_invariant(start, step.results, names)
    if tested.tracer.assigned:
        return _with_test_in_body(test, body, start, len(start) - len(more) if fresh else len(start))
    assigned = _assigned([step])
    outputs = [*map(step.capture, step.results), *map(step.end_of, assigned)]
    holds = [tested.capture(tested.results[0])]
    needs = _needs([step, tested], assigned)
    n, k = len(start), len(assigned)
    loop = WHILE.bind(
        test=flattened(Graph([*tested.tracer.inputs, *needs.inputs(tested)], holds)),
        body=flattened(Graph([*step.tracer.inputs, *needs.inputs(step)], outputs)),
        carried=n + k,
    )
    made = run(loop, [*start, *needs.operands()])
    for v, new in zip(assigned, made[n : n + k], strict=True):
        v.assign(new)
    return made[:n]


def zeros_of(t: Tensor) -> Tensor:
    """What stands for a tensor that is not there yet."""
    return zeros_of_aval(t._aval)


def zeros_of_aval(a: Aval) -> Tensor:
    """Zeros of a shape and dtype."""
    array = np.zeros(a.dims, a.dtype.numpy_dtype)
    return from_array(array)


class LoopVariableError(TypeError, ValueError):
    """An iteration gives a loop variable another dtype, or (`of_shape`) another shape. `at`: which one; `to`: what it
    becomes."""

    def __init__(self, text: str, at: int, to: Aval, of_shape: bool = False) -> None:
        super().__init__(text)
        self.at, self.to, self.of_shape = at, to, of_shape


def _with_test_in_body(test: Block, body: Block, start: Sequence[Tensor], given: int) -> list[Tensor]:
    """A test that assigns variables (draws random numbers, prints) runs before the loop and at the end of its body;
    what it said is carried. The body is given the first of the tensors."""

    def again(now: list[Tensor]) -> list[Tensor]:
        new = body(now[:given])
        return [*new, *test(new)]

    first = test(list(start))
    made = while_loop(lambda now: now[-1:], again, [*start, *first])
    return made[:-1]


def _check_scalar(t: Tensor) -> None:
    if t._aval is not aval((), bool_):
        raise TypeError(
            f"{place_of(user_frame())}: the condition of a loop should be a bool scalar, got {t._aval!r}. Use "
            "`tf.reduce_all` or `tf.reduce_any`."
        )


def _check_invariant(start: Sequence[Tensor], new: Sequence[Tensor], names: Sequence[str]) -> None:
    where = place_of(user_frame())
    if len(start) != len(new):
        raise ValueError(f"{where}: the body of a loop should give {len(start)} loop variables, got {len(new)}.")
    for k, (x, y) in enumerate(zip(start, new, strict=True)):
        name = f"'{names[k]}'" if names else f"loop variable {k}"
        if x._aval.dtype is not y._aval.dtype:
            raise LoopVariableError(
                f"{where}: {name} has dtype {x._aval.dtype.name} before the loop, but dtype {y._aval.dtype.name} after "
                "one iteration. Use `tf.cast`.",
                k,
                y._aval,
            )
        if x._aval is not y._aval:
            raise LoopVariableError(
                f"{where}: {name} has shape {shape_text(x._aval.shape)} before the loop, but shape "
                f"{shape_text(y._aval.shape)} after one iteration: what a loop carries keeps its shape while it is "
                "traced. Begin with the shape that it will have.",
                k,
                y._aval,
                of_shape=True,
            )
