"""Control flow by tensors: `cond`, `case`, `switch_case`, `while_loop`. Floor: api."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from gradtape.ir.errors import InvalidArgumentError
from gradtape.runtime.control import LoopVariableError, is_symbolic
from gradtape.runtime.convert import convert
from gradtape.runtime.hosted import effect
from gradtape.runtime.tensor import Tensor
from gradtape.tracing import branching
from gradtape.tracing.loop_options import raise_if_of_shape


def cond(
    pred: Any,
    true_fn: Callable[[], Any] | None = None,
    false_fn: Callable[[], Any] | None = None,
    name: str | None = None,
) -> Any:
    """The result of `true_fn` where the condition holds, else of `false_fn`; only one of them runs.

    While a function is traced, both are traced, and become one op that runs one of them.

    Args:
      pred: a scalar bool.
      true_fn, false_fn: functions of nothing.
      name: accepted for compatibility.

    Raises:
      TypeError: a branch that cannot be called; while tracing, results of another structure or other dtypes.
      InvalidArgumentError: a condition of more than one element.

    >>> import gradtape as tf
    >>> float(tf.cond(tf.constant(2.0) > 1.0, lambda: tf.constant(3.0), lambda: tf.constant(4.0)))
    3.0
    """
    for branch, which in ((true_fn, "true_fn"), (false_fn, "false_fn")):
        if not callable(branch):
            raise TypeError(f"`{which}` should be a function of no arguments, got {branch!r}.")
    assert true_fn is not None and false_fn is not None
    return branching.cond(pred, true_fn, false_fn)


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
      TypeError: something else than pairs.
      InvalidArgumentError: no condition holds and there is no default, or several do and `exclusive` is set.

    >>> import gradtape as tf
    >>> float(tf.case([(tf.constant(False), lambda: tf.constant(1.0))], default=lambda: tf.constant(2.0)))
    2.0
    """
    pairs = [(branching.truth(pred, "case"), fn) for pred, fn in map(_pair, pred_fn_pairs)]
    if any(is_symbolic(pred) for pred, _ in pairs):
        if exclusive or default is None:
            effect(functools.partial(_check_count, exclusive, default is None), [pred for pred, _ in pairs])
        return _case_by_case(pairs, default)
    holding = [fn for pred, fn in pairs if pred]
    _check_count(exclusive, default is None, *holding)
    return holding[0]() if holding or default is None else default()


def _pair(given: Any) -> tuple[Any, Callable[[], Any]]:
    if not isinstance(given, list | tuple) or len(given) != 2 or not callable(given[1]):
        raise TypeError(f"`case` wants pairs of a condition and a function of no arguments, got {given!r}.")
    return given[0], given[1]


def _check_count(exclusive: bool, needed: bool, *holding: Any) -> tuple[()]:
    count = sum(map(bool, holding))
    if exclusive and count > 1:
        raise InvalidArgumentError(f"{count} conditions of `case` hold, and `exclusive` allows one.")
    if needed and not count:
        raise InvalidArgumentError("No condition of `case` holds. Give a `default`.")
    return ()


def _case_by_case(pairs: Sequence[tuple[Tensor, Callable[[], Any]]], default: Callable[[], Any] | None) -> Any:
    """One condition inside the other; without a default the last function needs no condition."""
    (pred, fn), *others = pairs
    if not others:
        return fn() if default is None else branching.cond(pred, fn, default, "case")
    return branching.cond(pred, fn, lambda: _case_by_case(others, default), "case")


def switch_case(
    branch_index: Any, branch_fns: Any, default: Callable[[], Any] | None = None, name: str = "switch_case"
) -> Any:
    """The result of the function at an index; of the default, or else of the last one, for other indices.

    Args:
      branch_index: a scalar integer.
      branch_fns: a list of functions of nothing, or pairs (or a dict) of index and function.
      default: what runs for other indices.
      name: accepted for compatibility.

    Raises:
      TypeError: an index that is no scalar integer.
      ValueError: no functions.

    >>> import gradtape as tf
    >>> float(tf.switch_case(tf.constant(1), [lambda: tf.constant(1.0), lambda: tf.constant(2.0)]))
    2.0
    """
    if not branch_fns:
        raise ValueError("`switch_case` wants at least one function in `branch_fns`, got none.")
    if isinstance(branch_fns, dict) or isinstance(branch_fns[0], tuple):
        table = dict(branch_fns)
    else:
        table = dict(enumerate(branch_fns))
    other: Any = default if default is not None else table[max(table)]
    index = convert(branch_index)
    if not index.dtype.is_integer or index.shape.rank not in (0, None):
        raise TypeError(
            f"`switch_case` wants a scalar integer as `branch_index`, got shape {index.shape} and dtype "
            f"{index.dtype.name}. Use `tf.cast(branch_index, tf.int32)`, or `tf.case` to choose by conditions."
        )
    if is_symbolic(index):
        return _case_by_case([(index == k, fn) for k, fn in table.items()], other)
    return table.get(int(index), other)()


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

    While a function is traced, `cond` and `body` are traced once, and become one op; loop variables keep their shapes
    and dtypes.

    Args:
      cond: a function of the loop variables to a scalar bool.
      body: a function of the loop variables to new ones, in the same structure.
      loop_vars: a list or tuple (or another structure) of tensors.
      shape_invariants: that they are given allows loop variables to change their shapes; a function that is traced and
        whose loop does so runs as Python.
      parallel_iterations, back_prop, swap_memory, name: accepted for compatibility.
      maximum_iterations: stop after so many rounds.

    Returns:
      The last loop variables, in the structure of `loop_vars`.

    Raises:
      ValueError: `body` returns another structure; while tracing, tensors of other shapes.
      TypeError: while tracing, `body` returns tensors of other dtypes.

    >>> import gradtape as tf
    >>> i, x = tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2.0), [tf.constant(0), tf.constant(1.0)])
    >>> int(i), float(x)
    (3, 8.0)
    """
    for what, f in (("cond", cond), ("body", body)):
        if not callable(f):
            raise TypeError(f"`while_loop` wants a function of the loop variables as `{what}`, got {f!r}.")
    try:
        return branching.while_loop(cond, body, loop_vars, maximum_iterations)
    except LoopVariableError as e:
        if shape_invariants is not None:
            raise_if_of_shape(e)
        raise
