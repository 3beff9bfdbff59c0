"""Declarations: where the bits of a draw come from: the state of a generator, and seeds. Floor: ops."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.ir.aval import Aval, aval
from gradtape.ir.dtypes import int64, uint64
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.shapes import broadcast
from gradtape.ops.opaque import Opaque, Seeding
from gradtape.ops.random_bits import MASK, mixed
from gradtape.ops.samples import BadSample, Sample, Spec

COUNTERS = (1 << 128) - 1


def _words(*numbers: int) -> list[int]:
    return [n & MASK for n in numbers]


# ------------------------------------------------------------------ generators


def _next(xp: Any, state: Any, by: int) -> tuple[Any, Any]:
    """The state is a counter of 128 bits, its low half first, and a key."""
    after, sources = [], []
    for row in xp.asarray(state).reshape(-1, 3).tolist():
        low, high, key = _words(*row)
        count = (low | high << 64) + by & COUNTERS
        after.append(_words(count, count >> 64, key))
        sources.append([mixed(key, high), low])
    loops = state.shape[:-1]
    states = xp.array(after, xp.uint64).astype(xp.int64).reshape(*loops, 3)
    return states, xp.array(sources, xp.uint64).reshape(*loops, 2)


def _next_infer(state: Aval, by: int) -> list[Aval]:
    if state.dtype is not int64 or (state.is_known and state.dims[-1:] != (3,)):
        raise ValueError(f"wants a generator's state, three numbers of int64, got {state!r}.")
    loops = None if state.shape is None else state.shape[:-1]
    return [state, aval(None if loops is None else (*loops, 2), uint64)]


RANDOM_NEXT = Opaque(
    "random_next",
    _next,
    infer=_next_infer,
    vjp=None,
    signature="(s)->(s),(k)",
    samples=[
        Sample((Spec((3,), (0, 1000), "int"),), {"by": 1}),
        Sample((Spec((2, 3), (-3, 0), "int"),), {"by": 5}, "counters that carry"),
        Sample((Spec((3,), (0, 9), "int"),), {"by": -(1 << 70)}),
        Sample((Spec((0, 3), (0, 9), "int"),), {"by": 1}),
    ],
    errors=[BadSample((((2,), "int64"),), InvalidArgumentError, "three numbers", {"by": 1})],
    doc="The state of a generator some draws later, and the key and counter of the draw at this state.",
)

# ------------------------------------------------------------------ seeds


def _source(xp: Any, seed: Any, *data: Any, purpose: int) -> Any:
    loops = np.broadcast_shapes(seed.shape[:-1], *(d.shape for d in data))
    pairs = xp.broadcast_to(seed, (*loops, 2)).reshape(-1, 2).tolist()
    numbers = [xp.broadcast_to(d, loops).reshape(-1).tolist() for d in data]
    made = [[mixed(*pair, purpose, *more), 0] for pair, *more in zip(pairs, *numbers, strict=True)]
    return xp.array(made, xp.uint64).reshape(*loops, 2)


def _source_infer(seed: Aval, *data: Aval, purpose: int) -> list[Aval]:
    if seed.dtype is not int64 or (seed.is_known and seed.dims[-1:] != (2,)):
        raise ValueError(f"wants `seed` as two integers of int64, got {seed!r}.")
    if any(d.dtype is not int64 for d in data):
        raise ValueError(f"wants data of int64, got {[d.dtype.name for d in data]}.")
    loops = None if seed.shape is None else seed.shape[:-1]
    for d in data:
        loops = broadcast(loops, d.shape)
    return [aval(None if loops is None else (*loops, 2), uint64)]


RANDOM_SOURCE = Seeding(
    "random_source",
    _source,
    infer=_source_infer,
    vjp=None,
    signature="(s),()*->(k)",
    samples=[
        Sample((Spec((2,), (-9, 9), "int"),), {"purpose": 3}),
        Sample((Spec((2,), (0, 9), "int"), Spec((), (0, 9), "int")), {"purpose": 7}),
        Sample((Spec((3, 2), (0, 9), "int"), Spec((3,), (0, 9), "int"), Spec((1,), (0, 9), "int")), {"purpose": 7}),
        Sample((Spec((0, 2), (0, 9), "int"),), {"purpose": 0}),
    ],
    errors=[
        BadSample((((3,), "int64"),), InvalidArgumentError, "two integers", {"purpose": 1}),
        BadSample((((2,), "int64"), ((), "int32")), InvalidArgumentError, "int32", {"purpose": 1}),
    ],
    doc="The key and counter of a draw for a seed of two numbers, a purpose and further numbers.",
)
