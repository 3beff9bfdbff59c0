"""Numbers that optimizers and losses are given. Floor: keras."""

from __future__ import annotations

from typing import Any

import numpy as np

REAL = int | float | np.integer | np.floating


def part(name: str, value: Any) -> float:
    """An argument from 0 to 1.

    Raises:
      ValueError: anything else.
    """
    if isinstance(value, bool) or not isinstance(value, REAL) or not 0 <= value <= 1:
        raise ValueError(f"`{name}` should be a number from 0 to 1, got {value!r}.")
    return float(value)


def not_negative(name: str, value: Any) -> float:
    """An argument that is a number and not negative.

    Raises:
      ValueError: anything else.
    """
    if isinstance(value, bool) or not isinstance(value, REAL) or not value >= 0:
        raise ValueError(f"`{name}` should be a number that is not negative, got {value!r}.")
    return float(value)


def single(number: float) -> float:
    """A number as float32 has it: as Keras, optimizers take some of their numbers for such, also beside float64."""
    return float(np.float32(float(number)))
