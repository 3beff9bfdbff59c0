"""Where random bits come from, at once or in each call of a traced function. Floor: api."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from gradtape.ir.aval import aval
from gradtape.ir.dtypes import uint64
from gradtape.ops.arithmetic import ADD
from gradtape.runtime.dispatch import binary
from gradtape.runtime.state import new_id
from gradtape.runtime.tensor import Tensor, wrap
from gradtape.runtime.trace import map_tracer, state_tracer
from gradtape.runtime.vectorized import MapTracer


class Source(NamedTuple):
    """Where a draw's bits come from: 64 bits of key and 64 of counter."""

    key: int
    counter: int


STATE_AVAL = aval((2,), uint64)
NEXT = 1 << 40  # blocks between two draws of a call


class Stream:
    """The state of a traced function's draws, or of a slice's in a map, as if it were a variable: each call begins with
    a fresh one, and each draw, in branches and loops too, goes on from the one before."""

    def __init__(self, fresh: Callable[[], Source]) -> None:
        self._id = new_id()
        self._aval = STATE_AVAL
        self.fresh = fresh

    def read(self) -> Tensor:
        tracer = state_tracer()
        return state_of(self.fresh()) if tracer is None else tracer.read(self)

    def assign(self, value: Tensor) -> None:
        tracer = state_tracer()
        if tracer is not None:
            tracer.assign(self, value)

    def in_map(self, tracer: MapTracer) -> Tensor:
        """What a slice of a map draws from first."""
        return tracer.own(self.next)

    def next(self) -> Tensor:
        """The state of the next draw."""
        state = self.read()
        self.assign(binary(ADD.bind(), state, wrap(np.array([0, NEXT], np.uint64), STATE_AVAL)))
        return state


class _Slice:
    """What makes a source that all slices of a map share each slice's own: zeros, of which each slice has some."""

    def __init__(self) -> None:
        self._id = new_id()

    def in_map(self, tracer: MapTracer) -> Tensor:
        return tracer.own(lambda: of_slice(wrap(np.zeros(2, np.uint64), STATE_AVAL)))


SLICE = _Slice()


def of_slice(source: Tensor) -> Tensor:
    """A source that is one for all slices of the maps around here, as the slice's own."""
    tracer = map_tracer()
    if tracer is None:
        return source
    own: Tensor = binary(ADD.bind(), source, tracer.read(SLICE))
    return own


def state_of(source: Source | Tensor) -> Tensor:
    """The key and counter as a tensor; a traced function has them as one."""
    return source if isinstance(source, Tensor) else wrap(np.array(source, np.uint64), STATE_AVAL)
