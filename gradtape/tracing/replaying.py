"""Traces that a device does in one launch: each is captured into a graph when it has run a few times. Floor: tape.

A graph has addresses, and no numbers that could change: operands are copied to arrays that stay where they are,
variables have a place of their own and are written over there, and results are copied out, since the next launch writes
over them too. Whatever stands against that lets the trace run step by step, as it does without a graph."""

from __future__ import annotations

import os
import sys
import threading
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gradtape.backends.cuda.blas import MATH
from gradtape.backends.cuda.capture import Captured, Uncapturable
from gradtape.backends.cuda.device import Cuda
from gradtape.ir.aval import Aval
from gradtape.kernels.memory import UNSHARED
from gradtape.ops.indexing import checked
from gradtape.runtime.devices import DEVICES, Placed, is_on_device
from gradtape.runtime.fixed import fixed
from gradtape.runtime.state import STATE, quietly
from gradtape.runtime.tensor import Tensor, wrap
from gradtape.runtime.variable import Variable

if TYPE_CHECKING:
    from gradtape.tracing.concrete import Trace

AFTER = 2  # calls with operands that lie alike
MOST_COPIED = 64 << 20  # bytes a launch; where more is copied, launches one by one cost less
MOST_BYTES = 1 << 30  # that a graph holds between its launches
MOST_CAPTURES = 4  # of one trace, whose places were held by others
MOST_GRAPHS = 16  # of one function: each holds memory
MOST_HELD = 8  # calls in which one was held
KEPT = 2  # copies of a result that wait for the next launch
ALIGNED = 16  # bytes

LOCK = threading.RLock()  # operands are copied and the graph is launched in one go
FAILURES = (Uncapturable, MemoryError, RuntimeError, NotImplementedError)


class Policy:
    """Whether traces are captured: "auto", or "never". The environment variable `GRADTAPE_CUDA_GRAPHS` says how a
    process begins."""

    WAYS = ("auto", "never")

    def __init__(self) -> None:
        self.capture = os.environ.get("GRADTAPE_CUDA_GRAPHS", "auto")
        if self.capture not in self.WAYS:
            raise ValueError(f"GRADTAPE_CUDA_GRAPHS should be one of {', '.join(self.WAYS)}, got {self.capture!r}.")


POLICY = Policy()


class Capturing:
    """What all traces of a function have in common.

    Args:
      name: of the function.
      wanted: True: its traces are captured after the first call, however much is copied; None: after a few calls, if
        it pays; False: never.
    """

    def __init__(self, name: str, wanted: bool | None) -> None:
        self.name, self.wanted = name, wanted
        self.has_warned = False
        self.live: weakref.WeakSet[Replay] = weakref.WeakSet()  # the graphs of all traces

    @property
    def after(self) -> int | None:
        """How many calls come before; None: it is not captured."""
        if self.wanted is False or POLICY.capture == "never":
            return None
        return 1 if self.wanted else AFTER

    def warn(self, why: str, frames: int) -> None:
        """Say, once, why a function is not done by one launch; `frames`: between here and the trace."""
        if not self.has_warned:
            self.has_warned = True
            warnings.warn(
                f"`{self.name}` is not captured into a CUDA graph, and its steps are launched one by one: {why}. With "
                "`jit_compile=False`, or GRADTAPE_CUDA_GRAPHS=never, nobody tries.",
                RuntimeWarning,
                stacklevel=4 + frames,
            )


class Replays:
    """The graphs of one trace: one for each choice of which tensors are on the device."""

    def __init__(self) -> None:
        self.graphs: dict[tuple[bool, ...], Replay] = {}
        self.calls: Counter[tuple[bool, ...]] = Counter()
        self.is_refused = False
        self.captures = self.held = 0

    def run(self, trace: Trace, tensors: Sequence[Tensor], capturing: Capturing) -> list[Tensor] | None:
        """The results by one launch; None where the call runs step by step."""
        if not self.graphs or not _runs_alone():
            return None
        lie = _lie(tensors)
        replay = self.graphs.get(lie)
        if replay is None:
            return None
        with LOCK:
            held = None
            if replay.is_valid():
                held = replay.settle()
                if held is None:
                    return replay.launch(tensors)
            if held is None or replay.is_left(held):
                self.graphs.pop(lie, None)
                self.calls[lie] = (capturing.after or 0) - 1  # captured again after this call
            else:  # somebody's old value stays his, and the new one is made elsewhere
                self.held += 1
                if self.held == MOST_HELD:
                    capturing.warn(f"somebody holds a value of `{held.name}` in most calls; `.numpy()` gives copies", 1)
        return None

    def note(self, trace: Trace, tensors: Sequence[Tensor], capturing: Capturing) -> None:
        """A call ran step by step; perhaps the next one will be one launch."""
        after = capturing.after
        if after is None or self.is_refused or not _runs_alone():
            return
        lie = _lie(tensors)
        with LOCK:
            if lie in self.graphs:
                return
            self.calls[lie] += 1
            if self.calls[lie] == after and _goes_to_device(trace, tensors):
                self._capture(lie, trace, tensors, capturing)

    def _capture(self, lie: tuple[bool, ...], trace: Trace, tensors: Sequence[Tensor], capturing: Capturing) -> None:
        self.is_refused = True
        if not (capturing.wanted or _pays(trace, tensors)):
            return
        if self.captures == MOST_CAPTURES:
            capturing.warn(
                f"it was, {MOST_CAPTURES} times, and had to be again: somebody holds values of its variables, or the "
                "stream or the precision of products changes",
                2,
            )
        elif len(capturing.live) == MOST_GRAPHS:
            capturing.warn(f"it is, for {MOST_GRAPHS} choices of shapes, but not for more", 2)
        else:
            self.captures += 1
            try:
                self.graphs[lie] = quietly(Replay, trace, tensors)
            except FAILURES as e:
                capturing.warn((str(e) or repr(e)).splitlines()[0], 2)
            else:
                self.is_refused = False
                capturing.live.add(self.graphs[lie])


def _runs_alone() -> bool:
    """Whether nothing stands between the call and its program."""
    return not STATE.recorders and STATE.detour is None and STATE.place != "CPU"


def _lie(tensors: Sequence[Tensor]) -> tuple[bool, ...]:
    """Which tensors are on the device."""
    return tuple([is_on_device(t._array) for t in tensors])


def _goes_to_device(trace: Trace, tensors: Sequence[Tensor]) -> bool:
    kernel = trace.compiled.kernel
    states = [v.array for v in trace.variables if isinstance(v, Variable)]
    arrays = [*(t._array for t in tensors), *states, *(t._array for t in trace.captured)]
    return isinstance(kernel, Placed) and kernel.goes_to_device(arrays)


def _pays(trace: Trace, tensors: Sequence[Tensor]) -> bool:
    """Whether little enough would be copied at each launch (operands and results; most new values of variables are
    not), and held."""
    copied = [*(t._aval for t in tensors), *_results(trace)]
    return sum(v.nbytes for v in copied) <= MOST_COPIED and trace.compiled.peak_bytes() <= MOST_BYTES


class Replay:
    """One graph, and what is around its launch.

    Args:
      trace: what it does; it has run on the device just now.
      tensors: its operands in that call.
    """

    def __init__(self, trace: Trace, tensors: Sequence[Tensor]) -> None:
        for v in trace.variables:
            if isinstance(v, Variable) and not is_on_device(v.array):
                raise Uncapturable(f"the value of the variable `{v.name}` is on the host")
        assert DEVICES.device is not None
        self.cuda = cuda = DEVICES.device.cuda
        self.stream, self.tf32 = cuda.blas.stream(), MATH.tf32
        self.states = [s for s in trace.variables if not isinstance(s, Variable)]  # read anew for each call
        self.count = len(tensors)
        self.inputs = Inputs(cuda, [*(t._array for t in tensors), *(_zeros(s) for s in self.states)])
        self.places = {v._id: (v, fixed(cuda, v)) for v in trace.variables if isinstance(v, Variable)}
        self.written = [self.places[v._id] for v in trace.assigned if v._id in self.places]
        self.avals = _results(trace)
        self.constants = list(trace.captured)
        captured = self._captured(trace)
        self.launched = captured.launch
        self.checks = self._checks(captured.noting.bounds)
        self.results = [self._result(a) for a in captured.results]

    def _operands(self, trace: Trace) -> list[Any]:
        given = iter(self.inputs.arrays)
        operands = [next(given) for _ in range(self.count)]
        operands += [self.places[v._id][1].array if v._id in self.places else next(given) for v in trace.variables]
        return [*operands, *(t._array for t in self.constants)]

    def _captured(self, trace: Trace) -> Captured:
        """The trace as one launch. New values of variables are written over the old ones where a kernel can, and go to
        their places in the end where none can."""
        assert DEVICES.device is not None and isinstance(trace.compiled.kernel, Placed)
        cuda, operands, count = self.cuda, self._operands(trace), len(self.avals)
        plain = trace.compiled.kernel.on_device()
        numbers = {v._id: k for k, v in enumerate(trace.variables, self.count)}
        over = {count + j: numbers[v._id] for j, v in enumerate(trace.assigned) if v._id in self.places}
        program = DEVICES.device.lowering.program(trace.compiled.graph, over)
        targets = [operands[over[k]] if k in over else None for k in range(len(trace.compiled.avals))]
        written = {id(a) for a in targets if a is not None}

        def apart(a: Any, target: Any) -> Any:
            """A result that does not lie where values of variables are written; its own place is the place for one."""
            root = a if not cuda.owns(a) or a.base is None else a.base
            return a.copy() if id(root) in written and a is not target else a

        def work() -> list[Any]:
            made = [apart(a, target) for a, target in zip(program(*operands), targets, strict=True)]
            for a, target in zip(made, targets, strict=True):
                if target is not None and a is not target:
                    target[...] = cuda.array(a)
            return made[:count]

        return Captured(cuda, lambda: plain(*operands), work)

    def _checks(self, bounds: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Operands of the host that are positions, and how many positions there are."""
        numbers = {id(a): k for k, a in enumerate(self.inputs.arrays) if k in self.inputs.places}
        return list(dict.fromkeys((numbers[a], size) for a, size in bounds if a in numbers))

    def _result(self, a: Any) -> Callable[[Sequence[Any]], Any]:
        """What hands out a result: from the arrays that the call was given to an array."""
        for k, given in enumerate(self.inputs.arrays[: self.count]):
            if a is given:
                return lambda arrays: arrays[k]
        if not self.cuda.owns(a):
            return lambda arrays: a
        copies = Copies(self.cuda, a)
        return lambda arrays: copies.one()

    # ------------------------------------------------------------------ calls

    def is_valid(self) -> bool:
        """Whether the graph still does what the trace does, with what the process says now."""
        device = DEVICES.device
        is_here = device is not None and device.cuda is self.cuda and self.stream == self.cuda.blas.stream()
        return is_here and self.tf32 == MATH.tf32

    def settle(self) -> Variable | None:
        """Bring the variables' values to their places; the first variable for which that cannot be, since somebody else
        holds what is there."""
        for v, place in self.places.values():
            if not place.settle(v):
                return v
        return next((v for v, place in self.written if not place.is_free(v)), None)

    def is_left(self, v: Variable) -> bool:
        """Whether a variable's value is not at its place any more."""
        return self.places[v._id][1].array is not v.array

    def launch(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The results for these tensors."""
        arrays = [t._array for t in tensors]
        for k, size in self.checks:
            checked(np.asarray(arrays[k]), size)
        self.inputs.fill([*arrays, *(s.read()._array for s in self.states)])
        self.launched()
        for v, place in self.written:
            v.overwrite(place.array)
        return [wrap(result(arrays), a) for result, a in zip(self.results, self.avals, strict=True)]


def _results(trace: Trace) -> Sequence[Aval]:
    """Those of the function, without the new values of variables."""
    return trace.compiled.avals[: len(trace.compiled.avals) - len(trace.assigned)]


def _zeros(state: Any) -> Any:
    return np.zeros(state._aval.dims, state._aval.dtype.numpy_dtype)


class Inputs:
    """Arrays that stay where they are, to which each call's operands are copied: those of the host in one piece."""

    def __init__(self, cuda: Cuda, examples: Sequence[Any]) -> None:
        self.cuda = cuda
        self.places: dict[int, slice] = {}  # by number of an operand of the host: where it is in the piece
        size = 0
        for k, a in enumerate(examples):
            if not cuda.owns(a):
                self.places[k] = slice(size, size + a.nbytes)
                size += -(-a.nbytes // ALIGNED) * ALIGNED
        self.bytes = np.zeros(size, np.uint8)
        self.piece = cuda.empty((size,), self.bytes.dtype)
        self.arrays = [self._array(k, a) for k, a in enumerate(examples)]
        self.fill(examples)

    def _array(self, k: int, a: Any) -> Any:
        if k not in self.places or not a.size:
            return self.cuda.empty(a.shape, a.dtype)
        return self.piece[self.places[k]].view(a.dtype).reshape(a.shape)

    def fill(self, arrays: Sequence[Any]) -> None:
        """Copy the operands of a call; it may go on with them as it likes."""
        for k, a in enumerate(arrays):
            place = self.places.get(k)
            if place is not None:
                self.bytes[place] = np.frombuffer(a.tobytes(), np.uint8)
            elif a.size:
                self.arrays[k][...] = a
        if len(self.bytes):
            self.piece.set(self.bytes)


class Copies:
    """Copies of a result, which are their holders'. Memory that nobody holds any more is used for the next one."""

    def __init__(self, cuda: Cuda, result: Any) -> None:
        self.cuda, self.result = cuda, result
        self.known = [self._made() for _ in range(KEPT)]

    def one(self) -> Any:
        """A copy of what the result is now."""
        made = self._free()
        if made is None:
            made = self._made()
        made[...] = self.result
        return made

    def _made(self) -> Any:
        return self.cuda.empty(self.result.shape, self.result.dtype)

    def _free(self) -> Any:
        for a in self.known:
            if sys.getrefcount(a) <= UNSHARED:  # the list and a local name
                return a
        return None
