"""What a tape records and which derivatives may be asked of it: the part that all questions share. Floor: tape."""

from __future__ import annotations

import contextlib
import enum
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self

import optree

from gradtape.ir.errors import InvalidArgumentError
from gradtape.runtime.convert import converters
from gradtape.runtime.ledger import Ledger, begin, end, present_ledger
from gradtape.runtime.record import Recorder
from gradtape.runtime.state import STATE, new_id
from gradtape.runtime.tensor import SymbolicTensorError, Tensor
from gradtape.runtime.variable import Variable


class UnconnectedGradients(enum.Enum):
    """What the gradient is where source and target are not connected: `NONE` (None) or `ZERO` (zeros)."""

    NONE = "none"
    ZERO = "zero"


def _noting() -> Any:
    """The tracer that notes what is done, to do it again for other shapes."""
    tracer = STATE.tracers[-1] if STATE.tracers else None
    return tracer if tracer is not None and tracer.is_open else None


class Recording:
    """Records operations while it is active; `GradientTape` is the recording with its questions."""

    def __init__(self, persistent: bool = False, watch_accessed_variables: bool = True, *, debug: bool = False) -> None:
        self._persistent = bool(persistent)
        self._debug = debug
        self._ledger: Ledger | None = None
        self._past: list[Recorder] = []  # what was recorded before `reset`, and by a tape that was used: no tensors
        self._stops = 0
        self._watch_accessed = bool(watch_accessed_variables)
        self._recorder: Recorder | None = None
        self._recording = False
        self._owns_ledger = False
        self._seen: list[Variable] = []  # watched variables that survive the end of the recording

    def __enter__(self) -> Self:
        if (tracer := _noting()) is not None:
            tracer.perform(self.__enter__, (), {})
            return self
        if self._recording:
            raise ValueError("Tape is still recording: it cannot be entered again before its block ends.")
        if self._debug or STATE.overrides is not None:
            self._keep_ledger()
        self._push()
        return self

    def _keep_ledger(self) -> None:
        """Have it noted where ops are called: by the ledger that is kept already, or by one for this block."""
        self._ledger = self._ledger or present_ledger()
        if self._debug and present_ledger() is None:
            self._ledger = self._ledger or Ledger()
            begin(self._ledger)
            self._owns_ledger = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if (tracer := _noting()) is not None:
            tracer.perform(self.__exit__, (None, None, None), {})
        elif self._recording:
            self._pop()
        if self._owns_ledger and self._ledger is not None:
            end(self._ledger)
            self._owns_ledger = False

    def options(self) -> tuple[bool, bool]:
        """What it was made with."""
        return self._persistent, self._watch_accessed

    def _push(self) -> None:
        if self._recorder is None:
            self._recorder = Recorder(self._watch_accessed)
            self._recorder.ledger = self._ledger
            self._past, self._stops = [], 0
        self._recorder.ended = 0
        STATE.recorders = (*STATE.recorders, self._recorder)
        STATE.reads.clear()
        self._recording = True

    def _pop(self) -> None:
        if not self._recording:
            raise ValueError("Tape is not recording.")
        STATE.recorders = tuple(r for r in STATE.recorders if r is not self._recorder)
        if self._recorder is not None:
            self._recorder.ended = new_id()
        STATE.reads.clear()
        self._recording = False

    def watch(self, tensor: Any) -> None:
        """Trace a tensor or variable, or every one in a structure of them.

        Raises:
          ValueError: when something is neither.
          AttributeError: a tape that has not been entered, or that has given its derivatives.

        >>> import gradtape as tf
        >>> with tf.GradientTape() as tape:
        ...     tape.watch(2.0)
        Traceback (most recent call last):
        ValueError: Passed in object 2.0 of type 'float', not a tf.Tensor or tf.Variable. Use `tf.constant`.
        """
        recorder = self._recorder
        if recorder is None:
            raise AttributeError("`watch` wants a tape that is in use: enter it first, with `with tape:`.")
        for t in leaves_of(tensor):
            if isinstance(t, Variable):
                recorder.watch_variable(t)
                STATE.reads.pop(t._id, None)  # what was read so far stays a constant
            elif isinstance(t, Tensor):
                recorder.watch(t)
            else:
                raise ValueError(
                    f"Passed in object {t!r} of type {type(t).__name__!r}, not a tf.Tensor or tf.Variable. "
                    "Use `tf.constant`."
                )

    @contextlib.contextmanager
    def stop_recording(self) -> Iterator[None]:
        """A block in which this tape records nothing.

        Raises:
          RuntimeError: when the tape has recorded nothing yet, or was used up.
          ValueError: when the tape is not recording at the moment.
        """
        if self._recorder is None:
            raise RuntimeError("Trying to stop recording a tape which is not recording.")
        if _noting() is not None:
            raise SymbolicTensorError("`stop_recording` is not part of traces for unknown dimensions.")
        self._pop()
        self._stops += 1
        try:
            yield
        finally:
            self._push()

    def reset(self) -> None:
        """Forget everything recorded and watched so far, as if the block began here.

        Raises:
          ValueError: when the tape is not recording.
        """
        if not self._recording:
            raise ValueError("Tape is not recording: `reset` belongs inside its `with` block.")
        self._pop()
        assert self._recorder is not None
        before = [*self._past, self._recorder.emptied()]
        self._recorder = None
        self._seen = []
        self._push()
        self._past = before

    def watched_variables(self) -> tuple[Variable, ...]:
        """The variables that this tape watches, in order of their construction."""
        if self._recorder is not None:
            self._seen = list({id(v): v for v in self._recorder.variables.values()}.values())
        return tuple(sorted(self._seen, key=lambda v: v._id))

    def _usable(self) -> None:
        """Whether derivatives may be asked for."""
        if self._recorder is None and self._persistent:
            raise RuntimeError("The tape has recorded nothing: enter it with `with tape:` before asking for gradients.")
        if self._recorder is None:
            raise RuntimeError(
                "A non-persistent GradientTape can only be used to compute one set of gradients (or jacobians). "
                "Make it with `tf.GradientTape(persistent=True)`, or ask for all sources in one call."
            )

    def _finish(self) -> None:
        """Free what a tape that is not persistent has kept."""
        self.watched_variables()
        if self._recorder is not None:
            self._past.append(self._recorder.emptied())
        self._recorder = None


def sources_of(sources: Any) -> tuple[list[Any], Any]:
    """The sources as a list, all of them tensors or variables, and what rebuilds their structure."""
    wanted, structure = flatten(sources)
    for s in wanted:
        if not isinstance(s, Tensor | Variable):
            raise TypeError(
                "Argument `sources` should be a tensor, a variable or a structure of them, got an element of "
                f"type {type(s).__name__!r}. Make it one with `tf.constant` and `tape.watch` it."
            )
    return wanted, structure


def target_of(t: Any) -> Any:
    for kind, _ in converters:
        if isinstance(t, kind):
            return t
    if not isinstance(t, Tensor):
        raise TypeError(
            "Argument `target` should be a list or nested structure of Tensors or Variables, got an element of "
            f"type {type(t).__name__!r}."
        )
    return t


def unconnected_of(value: Any) -> UnconnectedGradients:
    try:
        return UnconnectedGradients(value)
    except ValueError:
        raise ValueError(
            f"Unknown value for unconnected_gradients: {value!r}. Use tf.UnconnectedGradients.NONE or .ZERO."
        ) from None


def flatten(structure: Any) -> tuple[list[Any], Any]:
    """The leaves of a structure and what rebuilds it; None for a single leaf."""
    if isinstance(structure, Tensor | Variable):
        return [structure], None
    leaves, spec = optree.tree_flatten(structure, none_is_leaf=True)
    return leaves, None if spec.is_leaf() else spec


def leaves_beside(given: Any, structure: Any, name: str, like: str) -> list[Any]:
    """The leaves of what is given for a structure, in the order of the structure's own. What stands in a dict is given
    by its key; other leaves may be given as one list. `name` and `like` name the two in errors.

    Raises:
      ValueError: other keys than the structure's, or no dict where it has one.
    """
    return leaves_of(_beside(given, structure, name, like))


def _beside(given: Any, structure: Any, name: str, like: str) -> Any:
    if isinstance(structure, Mapping):
        if not isinstance(given, Mapping) or set(given) != set(structure):
            got = f"the keys {list(given)}" if isinstance(given, Mapping) else f"a {type(given).__name__}"
            raise ValueError(f"`{name}` should have the keys {list(structure)} that {like} has, got {got}.")
        parts = {k: _beside(given[k], v, name, like) for k, v in structure.items()}
        return OrderedDict(parts) if isinstance(structure, OrderedDict) else parts
    if isinstance(given, Mapping):
        raise ValueError(f"`{name}` has the keys {list(given)} where {like} has none.")
    if isinstance(structure, list | tuple) and isinstance(given, list | tuple):
        if len(structure) == len(given):
            return [_beside(g, s, name, like) for g, s in zip(given, structure, strict=True)]
        if any(_has_keys(s) for s in structure):
            raise ValueError(f"`{name}` should have {len(structure)} parts where {like} has, got {len(given)}.")
    return given


def _has_keys(structure: Any) -> bool:
    """Whether there is a dict in it."""
    if isinstance(structure, list | tuple):
        return any(map(_has_keys, structure))
    return isinstance(structure, Mapping)


def leaves_of(structure: Any) -> list[Any]:
    return flatten(structure)[0]


def slot_of(slots: dict[int, int], source: Any) -> int:
    """Where a tape has a source; 0: nowhere.

    Raises:
      InvalidArgumentError: a variable whose values had several shapes in the tape's block.
    """
    if any(slots.get(k, 0) > 0 for k in getattr(source, "former", ())):
        raise of_several_shapes(source)
    return slots.get(source._id, 0)


def of_several_shapes(source: Any) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"The tape has read values of several shapes of the variable `{source.name}`, whose derivatives do not add up. "
        "Use a tape for each."
    )
