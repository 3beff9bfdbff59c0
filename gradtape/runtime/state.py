"""What each thread keeps: who records, who watches variables, and a context for NumPy. Floor: runtime."""

from __future__ import annotations

import contextvars
import functools
import itertools
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from gradtape.ops.op import Step
    from gradtape.runtime.record import Recorder, Rule
    from gradtape.runtime.tensor import Tensor
    from gradtape.runtime.trace import Tracer
    from gradtape.runtime.variable import Variable

new_id = itertools.count(1).__next__  # ids of tensors and variables: never used twice


def _quiet_numpy() -> Callable[..., Any]:
    """`run(f, *args)`: f in a context where NumPy reports no overflow or division, as TensorFlow does not.
    The user's own error state stays untouched, and entering costs 0.1 µs where `numpy.errstate` costs 0.8."""
    context = contextvars.Context()
    context.run(np.seterr, all="ignore")
    return context.run


def run_apart(refused: RuntimeError, f: Callable[..., Any], *args: Any) -> Any:
    """`run` for a call that came while another one was running: from a signal handler or a finalizer.

    Raises:
      RuntimeError: the one that was given, where it says anything else.
    """
    if "already entered" not in str(refused):
        raise refused
    return _quiet_numpy()(f, *args)


class Overriding(Protocol):
    """What stands between an op and its execution: other gradients for built-in ops, or debugging.

    Attributes:
      scope: what traces of functions depend on: the other gradients, or None.
      op_by_op: whether traced functions run as Python instead."""

    @property
    def scope(self) -> Any: ...

    @property
    def op_by_op(self) -> bool: ...

    def run(self, step: Step, inputs: Sequence[Tensor]) -> Any:
        """The results of a step that it takes over; None where it does not."""


class Default:
    """What threads begin with."""

    def __init__(self) -> None:
        self.overrides: Overriding | None = None
        self.watchers: tuple[Callable[[Variable], None], ...] = ()


DEFAULT = Default()


Detour = Callable[["Step", "Sequence[Tensor]"], Any]


class State(threading.local):
    """Thread-local: a thread records only what it runs itself."""

    alone = "cpu, alone"  # the key in `Step.lowered` of what runs a step that is not part of a program

    def __init__(self) -> None:
        self.run = _quiet_numpy()
        self.place: str | None = None  # where `tf.device` sends what runs: "CPU", "GPU"
        self.names = ""  # of the scope around, with "/" at its end
        self.recorders: tuple[Recorder, ...] = ()
        self.tracers: tuple[Tracer, ...] = ()
        self.watchers: tuple[Callable[[Variable], None], ...] = DEFAULT.watchers
        self.rules: tuple[Rule, ...] = ()  # of custom gradients, that are being traced, within each other
        self.overrides: Overriding | None = DEFAULT.overrides  # what stands between ops and their execution
        self.detour: Detour | None = None  # the two together: what a step is shown to before it runs
        self.seeing: Callable[[Any, bool], Any] | None = None  # what a shape or a length is to Python
        self.reads: dict[int, Tensor] = {}  # what variables were read as since the recorders changed, by their id
        self._redirect()

    def enter(self, tracers: tuple[Tracer, ...], recorders: tuple[Recorder, ...]) -> None:
        """Let these be the tracers, the innermost one last, and these record."""
        self.tracers, self.recorders = tracers, recorders
        self._redirect()

    def override(self, overrides: Overriding | None) -> None:
        """Let these be the gradients in the place of built-in ones."""
        self.overrides = overrides
        self._redirect()

    def _redirect(self) -> None:
        overriding = None if self.overrides is None else self.overrides.run
        tracing = self.tracers[-1].take if self.tracers else None
        if overriding is None or tracing is None:
            self.detour = overriding or tracing
        else:
            self.detour = functools.partial(_first_of, overriding, tracing)


def _first_of(one: Detour, other: Detour, step: Step, inputs: Sequence[Tensor]) -> Any:
    made = one(step, inputs)
    return other(step, inputs) if made is None else made


STATE = State()


def replaced_gradients() -> Any:
    """The other gradients for built-in ops that are in force, or None."""
    return None if STATE.overrides is None else STATE.overrides.scope


def quietly(f: Callable[..., Any], *args: Any) -> Any:
    """f(*args) without NumPy's reports, wherever it is called from."""
    try:
        return STATE.run(f, *args)
    except RuntimeError as e:
        return run_apart(e, f, *args)
