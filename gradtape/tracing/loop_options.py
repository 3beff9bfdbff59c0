"""What a loop of tensors is told of itself in its first lines. Floor: tape."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gradtape.ops.comparison import LOGICAL_AND
from gradtape.runtime.control import LoopVariableError
from gradtape.runtime.convert import convert
from gradtape.runtime.dispatch import binary
from gradtape.runtime.tensor import SymbolicTensorError
from gradtape.tracing.branching import truth


class Limited(Exception):
    """A loop that is being traced is to run at most so many times: its trace begins again, with a counter."""

    def __init__(self, most: Any) -> None:
        super().__init__()
        self.most = most


class Options:
    """Of one loop. `is_limited`: it has a counter already."""

    def __init__(self, is_limited: bool) -> None:
        self.is_limited, self.may_change_shapes = is_limited, False


class Innermost(threading.local):
    """The options of the innermost loop whose body runs now; None: it is one of Python's, or there is none."""

    def __init__(self) -> None:
        self.options: Options | None = None


INNERMOST = Innermost()


@contextlib.contextmanager
def inside(options: Options | None) -> Iterator[None]:
    """A block that is the body of a loop.

    Raises:
      SymbolicTensorError: a shape that may change has changed: it depends on how often the loop runs.
    """
    outer, INNERMOST.options = INNERMOST.options, options
    try:
        yield
    except LoopVariableError as e:
        if options is not None and options.may_change_shapes:
            raise_if_of_shape(e)
        raise
    finally:
        INNERMOST.options = outer


def raise_if_of_shape(e: LoopVariableError) -> None:
    """What makes a function run as Python, for a loop variable whose shape may change and does."""
    if e.of_shape:
        raise SymbolicTensorError(f"{e} Its shape depends on how often the loop runs.") from e


def counted(
    test: Callable[[], Any],
    body: Callable[[], Any],
    get_state: Callable[[], Sequence[Any]],
    set_state: Callable[[Sequence[Any]], None],
    most: Any,
) -> tuple[Callable[[], Any], Callable[[], Any], Callable[[], Sequence[Any]], Callable[[Sequence[Any]], None]]:
    """The functions of a loop that runs at most so many times: how often it has run is one more value."""
    limit = convert(most)
    at: list[Any] = [convert(0, limit._aval.dtype)]

    def more() -> Any:
        goes_on = test()
        left = at[0] < limit
        if isinstance(goes_on, bool):
            return left if goes_on else convert(False)
        return binary(LOGICAL_AND.bind(), left, truth(goes_on, "while"))

    def step() -> None:
        body()
        at[0] = at[0] + 1

    def get() -> Sequence[Any]:
        return (*get_state(), at[0])

    def put(values: Sequence[Any]) -> None:
        set_state(tuple(values[:-1]))
        at[0] = values[-1]

    return more, step, get, put


def set_loop_options(
    parallel_iterations: Any = None,
    swap_memory: Any = None,
    maximum_iterations: Any = None,
    shape_invariants: Any = None,
) -> None:
    """In the first lines of a loop: what holds for it if it is a loop of tensors. Python's loops do not heed it.

    Args:
      parallel_iterations, swap_memory: accepted for compatibility.
      maximum_iterations: after so many rounds the loop ends; computed before the loop.
      shape_invariants: that it is given allows names to change their shapes; a function whose loop does so runs as
        Python.

    >>> import gradtape as tf
    >>> @tf.function
    ... def f(n):
    ...     total = 0
    ...     for i in tf.range(n):
    ...         tf.autograph.experimental.set_loop_options(maximum_iterations=3)
    ...         total += i
    ...     return total
    >>> int(f(tf.constant(10)))
    3

    Source: `tf.autograph.experimental.set_loop_options` of TensorFlow 2.
    """
    options = INNERMOST.options
    if options is None:
        return
    if shape_invariants is not None:
        options.may_change_shapes = True
    if maximum_iterations is not None and not options.is_limited:
        raise Limited(maximum_iterations)
