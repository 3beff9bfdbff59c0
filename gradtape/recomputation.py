"""`recompute_grad`: what its gradient needs is computed again. Floor: tape."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from gradtape.checkpoints import Checkpointed
from gradtape.custom_rules import custom_gradient
from gradtape.recording import leaves_of
from gradtape.runtime.control import is_staged
from gradtape.runtime.state import STATE
from gradtape.runtime.tensor import Tensor
from gradtape.runtime.variable import Variable
from gradtape.tape import GradientTape


def recompute_grad(f: Callable[..., Any]) -> Callable[..., Any]:
    """A function that keeps nothing for its gradient but its arguments, and runs again when the gradient is asked for.

    >>> import gradtape as tf
    >>> x = tf.constant(0.5)
    >>> with tf.GradientTape() as tape:
    ...     tape.watch(x)
    ...     y = tf.recompute_grad(lambda v: tf.sin(v) * tf.exp(v))(x)
    >>> round(float(tape.gradient(y, x)), 4)
    2.2373
    """

    traced = Checkpointed(f, 0)

    @functools.wraps(f)
    def forgetful(*args: Any, **kwargs: Any) -> Any:
        return traced(*args, **kwargs) if is_staged() else once(*args, **kwargs)

    @custom_gradient
    def once(*args: Any, **kwargs: Any) -> Any:
        outer, STATE.recorders = STATE.recorders, ()
        try:
            result = f(*args, **kwargs)
        finally:
            STATE.recorders = outer

        def rule(*ups: Any, variables: Any = None) -> Any:
            tape = GradientTape()
            with tape:
                tape.watch([a for a in leaves_of(list(args)) if isinstance(a, Tensor | Variable)])
                again = f(*args, **kwargs)
            sources = [a for a in leaves_of(list(args)) if isinstance(a, Tensor | Variable)]
            found = tape.gradient(leaves_of(again), [*sources, *(variables or [])], list(ups))
            given = iter(found)
            of_arguments = [next(given) if isinstance(a, Tensor | Variable) else None for a in leaves_of(list(args))]
            return of_arguments if variables is None else (of_arguments, list(given))

        return result, rule

    return forgetful
