"""`tf.Assert`. Floor: api."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradtape.api.printing import text
from gradtape.runtime.convert import convert
from gradtape.runtime.tensor import Tensor
from gradtape.tracing.assertions import must_hold


def Assert(condition: Any, data: Any, summarize: int | None = None, name: str | None = None) -> None:
    """Checks that a condition holds; while a function is traced, in each of its calls.

    Args:
      condition: a bool scalar.
      data: a list of tensors, whose values the error shows.
      summarize: how many elements of each axis it shows, at either end; 3 by default.
      name: accepted for compatibility.

    Raises:
      InvalidArgumentError: the condition does not hold, or is no scalar.

    >>> import gradtape as tf
    >>> x = tf.constant([1.0, 2.0])
    >>> tf.Assert(tf.reduce_all(x > 0), [x])

    Source: `tf.Assert` of TensorFlow 2.
    """
    few = 3 if summarize is None else summarize

    def says(values: Sequence[Tensor]) -> str:
        return f"assertion failed: {' '.join(f'[{text(v, few)}]' for v in values)}"

    must_hold(condition, [convert(x) for x in data], says, "Assert")
