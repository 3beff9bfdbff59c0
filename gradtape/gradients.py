"""Filters of gradients: functions that compute one thing and have the gradient of another. Floor: tape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradtape.custom_rules import custom_gradient


def grad_pass_through(f: Callable[..., Any]) -> Callable[..., Any]:
    """A function that computes f and has the gradient of the identity.

    >>> import gradtape as tf
    >>> x = tf.constant(1.3)
    >>> with tf.GradientTape() as tape:
    ...     tape.watch(x)
    ...     y = tf.grad_pass_through(tf.round)(x)
    >>> float(y), float(tape.gradient(y, x))
    (1.0, 1.0)
    """

    @custom_gradient
    def identity_backwards(*args: Any, **kwargs: Any) -> Any:
        def rule(*ups: Any, **options: Any) -> Any:
            variables = options.get("variables")
            gradients = ups[0] if len(ups) == 1 else list(ups)
            return gradients if variables is None else (gradients, [None] * len(variables))

        return f(*args, **kwargs), rule

    return identity_backwards
