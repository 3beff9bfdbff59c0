"""Control flow by tensors: `cond`, `case`, `switch_case`, `while_loop`. Floor: api."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import optree

from gradtape.ir.errors import InvalidArgumentError
from gradtape.recording import flatten
from gradtape.runtime.convert import convert
from gradtape.runtime.tensor import Tensor


def _truth(value: Any, who: str) -> bool:
    t = convert(value)
    if t._aval.size != 1:
        raise InvalidArgumentError(
            f"`{who}` wants a scalar condition, got shape {t.shape}. Use `tf.where` elementwise."
        )
    return bool(t)


def cond(
    pred: Any,
    true_fn: Callable[[], Any] | None = None,
    false_fn: Callable[[], Any] | None = None,
    name: str | None = None,
) -> Any:
    """The result of `true_fn` where the condition holds, else of `false_fn`; only one of them runs.

    Args:
      pred: a scalar bool.
      true_fn, false_fn: functions of nothing.
      name: accepted for compatibility.

    Raises:
      TypeError: a branch that cannot be called.

    >>> import gradtape as tf
    >>> float(tf.cond(tf.constant(2.0) > 1.0, lambda: tf.constant(3.0), lambda: tf.constant(4.0)))
    3.0
    """
    for branch, which in ((true_fn, "true_fn"), (false_fn, "false_fn")):
        if not callable(branch):
            raise TypeError(f"`{which}` should be a function of no arguments, got {branch!r}.")
    assert true_fn is not None and false_fn is not None
    return true_fn() if _truth(pred, "cond") else false_fn()


def case(
    pred_fn_pairs: Any,
    default: Callable[[], Any] | None = None,
    exclusive: bool = False,
    strict: bool = False,
    name: str = "case",
) -> Any:
    """The result of the function behind the first condition that holds.

    Args:
      pred_fn_pairs: pairs of a scalar bool and a function of nothing.
      default: what runs where none holds.
      exclusive: check that at most one holds.
      strict, name: accepted for compatibility.

    Raises:
      InvalidArgumentError: no condition holds and there is no default, or several do and `exclusive` is set.

    >>> import gradtape as tf
    >>> float(tf.case([(tf.constant(False), lambda: tf.constant(1.0))], default=lambda: tf.constant(2.0)))
    2.0
    """
    pairs = list(pred_fn_pairs)
    holding = [fn for pred, fn in pairs if _truth(pred, "case")]
    if exclusive and len(holding) > 1:
        raise InvalidArgumentError(f"{len(holding)} conditions of `case` hold, and `exclusive` allows one.")
    if holding:
        return holding[0]()
    if default is None:
        raise InvalidArgumentError("No condition of `case` holds. Give a `default`.")
    return default()


def switch_case(
    branch_index: Any, branch_fns: Any, default: Callable[[], Any] | None = None, name: str = "switch_case"
) -> Any:
    """The result of the function at an index; of the default, or else of the last one, for other indices.

    Args:
      branch_index: a scalar integer.
      branch_fns: a list of functions of nothing, or pairs (or a dict) of index and function.
      default: what runs for other indices.
      name: accepted for compatibility.

    >>> import gradtape as tf
    >>> float(tf.switch_case(tf.constant(1), [lambda: tf.constant(1.0), lambda: tf.constant(2.0)]))
    2.0
    """
    if isinstance(branch_fns, dict) or (branch_fns and isinstance(branch_fns[0], tuple)):
        table = dict(branch_fns)
    else:
        table = dict(enumerate(branch_fns))
    chosen = table.get(int(convert(branch_index)))
    if chosen is None:
        chosen = default if default is not None else table[max(table)]
    return chosen()


def while_loop(
    cond: Callable[..., Any],
    body: Callable[..., Any],
    loop_vars: Sequence[Any],
    shape_invariants: Any = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    maximum_iterations: Any = None,
    name: str | None = None,
) -> Any:
    """Apply `body` to the loop variables as long as `cond` holds.

    Args:
      cond: a function of the loop variables to a scalar bool.
      body: a function of the loop variables to new ones, in the same structure.
      loop_vars: a list or tuple (or another structure) of tensors.
      shape_invariants, parallel_iterations, back_prop, swap_memory, name: accepted for compatibility.
      maximum_iterations: stop after so many rounds.

    Returns:
      The last loop variables, in the structure of `loop_vars`.

    Raises:
      ValueError: `body` returns another structure.

    >>> import gradtape as tf
    >>> i, x = tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2.0), [tf.constant(0), tf.constant(1.0)])
    >>> int(i), float(x)
    (3, 8.0)
    """
    leaves, spec = flatten(loop_vars)
    state = [convert(x) for x in leaves]
    rounds = None if maximum_iterations is None else int(convert(maximum_iterations))
    done = 0
    while rounds is None or done < rounds:
        now = _arguments(state, spec)
        if not _truth(cond(*now), "while_loop"):
            break
        result = body(*now)
        if not isinstance(result, list | tuple) or (len(now) == 1 and not _matches(result, now)):
            result = (result,)
        new, _ = flatten(tuple(result))
        if len(new) != len(state):
            raise ValueError(f"`body` should return {len(state)} loop variables, got {len(new)}.")
        state = [convert(x, s.dtype) if not isinstance(x, Tensor) else x for x, s in zip(new, state, strict=True)]
        done += 1
    return state[0] if spec is None else optree.tree_unflatten(spec, state)


def _arguments(state: list[Tensor], spec: Any) -> tuple[Any, ...]:
    if spec is None:
        return (state[0],)
    whole = optree.tree_unflatten(spec, state)
    return tuple(whole) if isinstance(whole, list | tuple) else (whole,)


def _matches(result: Any, now: tuple[Any, ...]) -> bool:
    """Whether what the body returned is a list of the one loop variable, and not that variable itself."""
    return len(result) == 1 and not isinstance(now[0], list | tuple)
