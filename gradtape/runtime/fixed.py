"""Variables whose values stay at one place in a device's memory, as graphs of the device need it. Floor: runtime.

A graph writes the new value over the old one. So it may only be launched where nobody but the variable holds the old
one: a tensor that was read from the variable keeps its value."""

from __future__ import annotations

import sys
import weakref
from typing import Any

from gradtape.kernels.memory import UNSHARED
from gradtape.runtime.devices import is_on_device
from gradtape.runtime.variable import Variable


class Fixed:
    """The place of a variable's value: one for each variable, as long as some graph has it."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def settle(self, v: Variable) -> bool:
        """Bring a value that was assigned in the meantime to its place. False: somebody holds what is there, the value
        is on the host, or graphs that were captured since have another place for it."""
        array, place = v.array, self.array
        if array is place:
            return True
        if _FIXED.get(v._id) is not self or not is_on_device(array) or sys.getrefcount(place) > UNSHARED:
            return False
        place[...] = array
        v.overwrite(place)
        return True

    def is_free(self, v: Variable) -> bool:
        """Whether nobody but the variable, whose value is here, holds it."""
        return v.is_alone(others=1)


_FIXED: weakref.WeakValueDictionary[int, Fixed] = weakref.WeakValueDictionary()  # by id of the variable


def fixed(cuda: Any, v: Variable) -> Fixed:
    """The place of a variable, with its value there. Where there is none yet, or somebody holds what is there, it is
    made now: others may know the memory that the value had so far."""
    found = _FIXED.get(v._id)
    if found is None or not found.settle(v):
        v.overwrite(cuda.copy(v.array))
        found = _FIXED[v._id] = Fixed(v.array)
    return found
