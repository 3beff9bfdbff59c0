"""How far the results of pointwise ops may be from the exact ones. Floor: ops.

In double precision four units in the last place or less is the rule, in single precision six; what does not keep it
says why."""

from __future__ import annotations

from typing import NamedTuple


class Bound(NamedTuple):
    """The largest error, in units in the last place, in single and in double precision.

    Args:
      single: the bound for float32.
      double: the bound for float64.
      floor: where the exact result is smaller than this, the units are those of this number.
      reason: why a bound is above the rule, or why there is a floor.
    """

    single: float = 6.0
    double: float = 4.0
    floor: float = 0.0
    reason: str = ""


_NEGATIVE_ZEROS = "its zeros on the negative axis lie between numbers, and the two parts of the reflection cancel there"

BOUNDS: dict[str, Bound] = {
    "digamma": Bound(40, 40, floor=1, reason=_NEGATIVE_ZEROS),
    "gelu_tanh": Bound(256, 1024, reason="its left tail is exp(2u), in which the rounding of u counts 2u times"),
    "lgamma": Bound(8, 6, floor=1, reason=_NEGATIVE_ZEROS),
    "trigamma": Bound(
        6, 5, reason="for negative operands it is a square over the square of a sine, each a few roundings"
    ),
}


def bound_of(name: str) -> Bound:
    """The bound of an op."""
    return BOUNDS.get(name, Bound())
