"""Independent float64 references."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]


def gradient(function: Callable[[Any], Any], x: Any, step: float = 1e-5) -> Array:
    """Central differences of the sum of a function's results, in float64: right to about 1e-10 relative."""
    point = np.array(x, np.float64)
    found = np.empty(point.shape)
    for at in np.ndindex(point.shape):
        middle = point[at]
        point[at] = middle + step
        above = np.sum(function(point))
        point[at] = middle - step
        below = np.sum(function(point))
        point[at] = middle
        found[at] = (above - below) / (2 * step)
    return found
