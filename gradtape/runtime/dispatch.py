"""Eager execution: a step runs at once and is shown to every tape that records. Floor: runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradtape.ir.dtypes import string
from gradtape.ir.errors import InvalidArgumentError, ResourceExhaustedError
from gradtape.ops.op import Step
from gradtape.runtime.eager import eager
from gradtape.runtime.state import STATE, new_id, quietly, run_apart
from gradtape.runtime.tensor import EagerTensor, SymbolicTensorError, Tensor, wrap
from gradtape.runtime.trace import traced

_new = EagerTensor.__new__


def execute(step: Step, inputs: Sequence[Tensor]) -> Any:
    """The result of a step, or a tuple of results where it has several."""
    state = STATE
    if state.detour is not None and (made := state.detour(step, inputs)) is not None:
        return made
    avals = tuple([t._aval for t in inputs])
    outs = step.inferred.get(avals) or step.infer(avals)
    kernel = step.lowered.get(state.alone) or eager(step)
    try:
        result = state.run(kernel, *[t._array for t in inputs])
    except SymbolicTensorError:
        return traced(step, inputs)
    except RuntimeError as e:
        result = run_apart(e, kernel, *[t._array for t in inputs])
    except (ValueError, TypeError, IndexError, MemoryError) as e:
        raise explained(step, inputs, e) from e
    if len(outs) == 1 and not isinstance(result, tuple):
        results: tuple[Tensor, ...] = (_wrapped(result, outs[0]),)
    else:
        results = tuple(_wrapped(a, v) for a, v in zip(result, outs, strict=True))
    for recorder in state.recorders:
        recorder.record(step, inputs, results)
    return results[0] if len(results) == 1 else results


def _wrapped(array: Any, aval: Any) -> Tensor:
    return wrap(array[()] if not aval.shape and aval.dtype is not string else array, aval)


def unary(step: Step, x: Tensor) -> Tensor:
    """`execute` for one operand and one result, with nothing in between."""
    state = STATE
    if state.detour is not None and (made := state.detour(step, (x,))) is not None:
        elsewhere: Tensor = made
        return elsewhere
    avals = (x._aval,)
    outs = step.inferred.get(avals) or step.infer(avals)
    kernel = step.lowered.get(state.alone) or eager(step)
    try:
        array = state.run(kernel, x._array)
    except SymbolicTensorError:
        symbol: Tensor = traced(step, (x,))
        return symbol
    except RuntimeError as e:
        array = run_apart(e, kernel, x._array)
    except (ValueError, TypeError, IndexError, MemoryError) as e:
        raise explained(step, (x,), e) from e
    t = _new(EagerTensor)
    aval = t._aval = outs[0]
    t._array = array[()] if not aval.shape and aval.dtype is not string else array
    t._id = new_id()
    if state.recorders:
        for recorder in state.recorders:
            recorder.record(step, (x,), (t,))
    return t


def binary(step: Step, x: Tensor, y: Tensor) -> Tensor:
    """`execute` for two operands and one result."""
    state = STATE
    if state.detour is not None and (made := state.detour(step, (x, y))) is not None:
        elsewhere: Tensor = made
        return elsewhere
    avals = (x._aval, y._aval)
    outs = step.inferred.get(avals) or step.infer(avals)
    kernel = step.lowered.get(state.alone) or eager(step)
    try:
        array = state.run(kernel, x._array, y._array)
    except SymbolicTensorError:
        symbol: Tensor = traced(step, (x, y))
        return symbol
    except RuntimeError as e:
        array = run_apart(e, kernel, x._array, y._array)
    except (ValueError, TypeError, IndexError, MemoryError) as e:
        raise explained(step, (x, y), e) from e
    t = _new(EagerTensor)
    aval = t._aval = outs[0]
    t._array = array[()] if not aval.shape and aval.dtype is not string else array
    t._id = new_id()
    if state.recorders:
        for recorder in state.recorders:
            recorder.record(step, (x, y), (t,))
    return t


def run_alone(step: Step, *arrays: Any) -> Any:
    """The array that a step makes of arrays, which nobody records."""
    return quietly(step.lowered.get(STATE.alone) or eager(step), *arrays)


def explained(step: Step, inputs: Sequence[Tensor], error: Exception) -> Exception:
    """An error of the array library in TensorFlow's terms."""
    operands = ", ".join(repr(t._aval) for t in inputs)
    if isinstance(error, MemoryError):
        of = f" of {operands}" if operands else ""
        return ResourceExhaustedError(f"`{step.name}`{of} ran out of memory: {error}")
    return InvalidArgumentError(f"`{step.name}` does not take {operands}: {error}")
