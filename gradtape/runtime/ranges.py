"""A range of numbers whose bounds are not known while a function is traced: to loop over. Floor: runtime."""

from __future__ import annotations

from typing import Any

from gradtape.ops.comparison import SELECT
from gradtape.runtime.convert import convert, converters
from gradtape.runtime.dispatch import execute
from gradtape.runtime.places import place_of, user_frame
from gradtape.runtime.tensor import SymbolicTensorError, Tensor


class SymbolicRange:
    """`tf.range` of tensors without values: how many numbers there are is not known, so that it is no tensor."""

    def __init__(self, first: Tensor, limit: Tensor, step: Tensor) -> None:
        self.first, self.limit, self.step = first, limit, step
        self.dtype = first._aval.dtype

    def more(self, at: Tensor) -> Tensor:
        """Whether a number belongs to it."""
        zero = convert(0, self.dtype)
        found: Tensor = execute(SELECT.bind(), (self.step > zero, at < self.limit, at > self.limit))
        return found

    def item(self, at: Tensor) -> Tensor:
        return at

    def after(self, at: Tensor) -> Tensor:
        """The next number."""
        return at + self.step

    def note(self, at: Tensor, is_sure: bool) -> None:
        """Nothing is known of it."""

    def __iter__(self) -> Any:
        raise _no_tensor()


def _no_tensor() -> SymbolicTensorError:
    return SymbolicTensorError(
        f"{place_of(user_frame())}: how many numbers this `tf.range` has depends on a tensor without a value, so it "
        "can only be looped over by `for`, in a function that AutoGraph converts."
    )


def _refused(_: Any) -> Tensor:
    raise _no_tensor()


converters.append((SymbolicRange, _refused))
