"""Branches and loops over structures of tensors, run at once or as part of a function that is traced. Floor: tape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradtape.ir.dtypes import bool_
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.shapes import shape_text
from gradtape.ops.comparison import NOT_EQUAL
from gradtape.ops.layout import RESHAPE
from gradtape.ops.op import Step
from gradtape.recording import flatten
from gradtape.runtime import control
from gradtape.runtime.convert import convert
from gradtape.runtime.dispatch import binary, unary
from gradtape.runtime.places import place_of, user_frame
from gradtape.runtime.tensor import Tensor
from gradtape.tracing.carried import Outgrown, check_size, expanded, widened
from gradtape.tracing.tensor_array import TensorArray

_NOT_EQUAL: Step = NOT_EQUAL.bind()
_SCALAR: Step = RESHAPE.bind(shape=())


class Packed:
    """The tensors of a structure and what rebuilds it; None stays None. `is_whole`: arrays are among its tensors, else
    they are leaves themselves."""

    def __init__(self, structure: Any, is_whole: bool = True) -> None:
        self.is_whole = is_whole
        leaves, self.spec = flatten(expanded(structure) if is_whole else structure)
        self.held = [x is not None for x in leaves]
        self.whole = all(self.held)
        self.tensors: list[Any] = [x if isinstance(x, TensorArray) else convert(x) for x in leaves if x is not None]

    def with_tensors(self, tensors: Sequence[Any]) -> Any:
        """The structure with other tensors."""
        given = iter(tensors)
        leaves = tensors if self.whole else [next(given) if h else None for h in self.held]
        return leaves[0] if self.spec is None else self.spec.unflatten(leaves)

    def is_like(self, other: Packed) -> bool:
        return (self.spec, self.held) == (other.spec, other.held)


def truth(value: Any, who: str) -> Tensor:
    """A condition as a bool scalar.

    Raises:
      InvalidArgumentError: it has more than one element.
    """
    t = convert(value)
    if t._aval.size != 1:
        raise InvalidArgumentError(
            f"`{who}` wants a scalar condition, got shape {shape_text(t._aval.shape)}. Use `tf.where` elementwise, or "
            "`tf.reduce_all` or `tf.reduce_any`."
        )
    if t._aval.shape != ():
        t = unary(_SCALAR, t)
    return t if t._aval.dtype is bool_ else binary(_NOT_EQUAL, t, convert(0, t._aval.dtype))


def cond(
    pred: Any, true_fn: Callable[[], Any], false_fn: Callable[[], Any], who: str = "cond", both: bool = False
) -> Any:
    """The result of one of two functions; of a graph of both where the condition has no value yet. `both`: there, both
    run, and what they give and assign is chosen, so that the host need not know the condition.

    Raises:
      TypeError: there, results of another structure or other dtypes.
    """
    holds = truth(pred, who)
    if not control.is_symbolic(holds):
        return true_fn() if holds else false_fn()
    packed: list[Packed] = []

    def block(f: Callable[[], Any]) -> control.Block:
        def run(_: list[Tensor]) -> list[Tensor]:
            packed.append(Packed(f()))
            if len(packed) == 2 and not packed[0].is_like(packed[1]):
                raise TypeError(
                    f"{place_of(user_frame())}: `true_fn` and `false_fn` of `{who}` must have the same number, type, "
                    f"and overall structure of return values, got {packed[0].spec or 'a tensor'} and "
                    f"{packed[1].spec or 'a tensor'}."
                )
            return packed[-1].tensors

        return run

    made = control.cond(holds, block(true_fn), block(false_fn), both)
    return packed[0].with_tensors(made)


def while_loop(
    test: Callable[..., Any], body: Callable[..., Any], start: Any, limit: Any = None, who: str = "while_loop"
) -> Any:
    """The last of what `body` makes of the loop variables, as long as `test` holds, at most `limit` times.

    Raises:
      ValueError: `body` returns another structure; while tracing, another shape.
    """
    first = Packed(start, is_whole=False)
    state = list(first.tensors)
    rounds = None if limit is None else convert(limit)
    done = 0
    staged = control.is_staged()
    while not staged:
        if rounds is not None and control.is_symbolic(rounds):
            break
        if rounds is not None and done >= int(rounds):
            return first.with_tensors(state)
        holds = truth(test(*_arguments(first, state)), who)
        if control.is_symbolic(holds):
            break
        if not holds:
            return first.with_tensors(state)
        state = _after(body, first, state)
        done += 1
    while True:
        now = Packed(first.with_tensors(state))
        try:
            return now.with_tensors(_staged(test, body, now, list(now.tensors), rounds, done, who))
        except Outgrown as e:
            state = list(widened(state, [x for x in flatten(e.after)[0] if x is not None]))


def _staged(
    test: Callable[..., Any],
    body: Callable[..., Any],
    first: Packed,
    state: list[Tensor],
    rounds: Tensor | None,
    done: int,
    who: str,
) -> list[Tensor]:
    """The loop as one op, which counts where there is a limit."""
    if rounds is None:
        return control.while_loop(
            lambda now: [truth(test(*_arguments(first, now)), who)], lambda now: _after(body, first, now), state
        )
    left = rounds - done
    zero = convert(0, left._aval.dtype)

    def more(now: list[Tensor]) -> list[Tensor]:
        return control.cond(
            now[0] > zero, lambda _: [truth(test(*_arguments(first, now[1:])), who)], lambda _: [convert(False)]
        )

    return control.while_loop(more, lambda now: [now[0] - 1, *_after(body, first, now[1:])], [left, *state])[1:]


def _arguments(first: Packed, state: Sequence[Tensor]) -> tuple[Any, ...]:
    if first.spec is None:
        return (state[0],)
    whole = first.with_tensors(state)
    return tuple(whole) if isinstance(whole, list | tuple) else (whole,)


def _after(body: Callable[..., Any], first: Packed, state: Sequence[Any]) -> list[Any]:
    """The loop variables after one round."""
    now = _arguments(first, state)
    result = body(*now)
    if not isinstance(result, list | tuple) or (len(now) == 1 and not _matches(result, now)):
        result = (result,)
    result = tuple(result)
    if first.is_whole:
        check_size(_arguments(first, state), result)  # anew: a write has told the arrays of `now` their shape
        result = expanded(result)
    new = [x for x in flatten(result)[0] if x is not None]
    if len(new) != len(state):
        raise ValueError(f"`body` should return {len(state)} loop variables, got {len(new)}.")
    return [x if isinstance(x, Tensor | TensorArray) else convert(x, s.dtype) for x, s in zip(new, state, strict=True)]


def _matches(result: Any, now: tuple[Any, ...]) -> bool:
    """Whether what the body returned is a list of the one loop variable, and not that variable itself."""
    return len(result) == 1 and not isinstance(now[0], list | tuple)
