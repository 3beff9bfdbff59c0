"""Variables whose values are written over: nobody reads them meanwhile. Floor: runtime.

A value that is taken is gone from its variable until it is given back. A thread that reads the variable then finds no
attribute, and waits; one that read it before holds the value, which therefore is not taken. Readers pay nothing."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from gradtape.kernels.memory import UNSHARED, is_sole
from gradtape.runtime.state import new_id

_GIVEN = threading.Condition()
_TAKEN: dict[int, list[Any]] = {}  # by id of the variable: who has its value, and the value


@contextmanager
def taken(variables: Sequence[Any]) -> Iterator[list[Any] | None]:
    """The values of variables, to be written over; None where somebody else holds one of them, or has taken it.
    Afterwards they are other values to tapes than before."""
    values: list[Any] = []
    try:
        if _take(variables, values):
            yield values
            for value in values:
                value._id = new_id()
        else:
            _give_back(variables, values)
            yield None
    finally:
        _give_back(variables, values)


def _take(variables: Sequence[Any], values: list[Any]) -> bool:
    """Move values into a list, up to the first one that is not free; whether all are."""
    for v in variables:
        mine = [threading.get_ident(), None]
        if _TAKEN.setdefault(v._id, mine) is not mine:
            return False
        values.extend(map(v.__dict__.pop, ("_snapshot",)))  # in one step: no interrupt comes between
        mine[1] = value = values[-1]
        if not _is_sole(value):
            return False
    return True


def _is_sole(value: Any) -> bool:
    """Whether nobody but who took a value holds it, and nothing else its array."""
    array = value._array
    # the value: a name here, one of the caller, the list of values, the note of who has it; the array: it, and a name
    if sys.getrefcount(value) > UNSHARED + 2 or sys.getrefcount(array) > UNSHARED:
        return False
    return isinstance(array, np.ndarray) and is_sole(array)


def _give_back(variables: Sequence[Any], values: list[Any]) -> None:
    if not values:
        return
    for v, value in zip(variables, values, strict=False):
        v._snapshot = value
    with _GIVEN:
        for v, _ in zip(variables, values, strict=False):
            _TAKEN.pop(v._id, None)
        _GIVEN.notify_all()
    values.clear()


def awaited(v: Any) -> Any:
    """The value of a variable that has none at the moment, as soon as it is given back. Who has taken it sees it.

    Raises:
      AttributeError: nobody has taken it: the variable is not made yet."""
    with _GIVEN:
        while (value := v.__dict__.get("_snapshot")) is None:
            who, value = _TAKEN.get(v.__dict__.get("_id", 0), (0, None))
            if who == threading.get_ident() and value is not None:
                return value
            if not who:
                if "_snapshot" in v.__dict__:
                    continue
                raise AttributeError("a variable that is not made yet has no value", name="_snapshot", obj=v)
            _GIVEN.wait()
    return value
