"""How functions of windows read their arguments: strides, padding, and where channels are. Floor: api."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gradtape.api.arguments import integers, pairs
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.shapes import shape_text, size_of
from gradtape.ops.layout import TRANSPOSE
from gradtape.runtime.contract import reshape
from gradtape.runtime.dispatch import unary
from gradtape.runtime.tensor import Tensor

LAST = {1: "NWC", 2: "NHWC", 3: "NDHWC"}
FIRST = {1: "NCW", 2: "NCHW", 3: "NCDHW"}

Sizes = tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """Images with `rank` axes between batch and channels, or behind them."""

    function: str
    rank: int
    channels_first: bool

    @property
    def axes(self) -> int:
        return self.rank + 2

    def sizes(self, value: Any, what: str) -> Sizes:
        """A positive number for each axis of the image: from one, one per axis, or one for every axis of the tensor."""
        found = (1,) if value is None else integers(value, what)
        if len(found) not in (1, self.rank, self.axes):
            wanted = " or ".join(map(str, sorted({1, self.rank, self.axes})))
            raise ValueError(f"`{what}` of `{self.function}` should have {wanted} entries, got {list(found)}.")
        if any(n < 1 for n in found):
            raise InvalidArgumentError(f"`{what}` of `{self.function}` should be positive, got {list(found)}.")
        if len(found) == 1:
            return found * self.rank
        if len(found) == self.rank:
            return found
        if any(n != 1 for n in self.others(found)):
            raise InvalidArgumentError(
                f"`{what}` of `{self.function}` should be 1 for batch and channels, got {list(found)}."
            )
        return self.space(found)

    def space(self, dims: Sequence[Any]) -> tuple[Any, ...]:
        """The entries of the image's axes, of one entry per axis."""
        return tuple(dims[2:] if self.channels_first else dims[1:-1])

    def others(self, dims: Sequence[Any]) -> tuple[Any, Any]:
        """The entries of batch and channels."""
        return dims[0], dims[1 if self.channels_first else -1]

    def joined(self, space: Sizes, channels: int) -> Sizes:
        """The dimensions of an image in the order of the layout."""
        return (channels, *space) if self.channels_first else (*space, channels)

    def channels_last(self, x: Tensor) -> Tensor:
        """The tensor with its channels moved to the end."""
        if not self.channels_first:
            return x
        return unary(TRANSPOSE.bind(perm=(0, *range(2, self.axes), 1)), x)

    def restored(self, x: Tensor) -> Tensor:
        """A result with its channels where the layout has them."""
        if not self.channels_first:
            return x
        return unary(TRANSPOSE.bind(perm=(0, self.axes - 1, *range(1, self.axes - 1))), x)

    def merged(self, x: Tensor) -> tuple[Tensor, Sizes]:
        """The tensor with all its batch axes made one, and what they were."""
        if x.ndim < self.axes:
            raise InvalidArgumentError(
                f"`{self.function}` wants input with {self.axes} or more dimensions, got shape {x.shape}. "
                "Add axes with `tf.expand_dims`."
            )
        dims = x._aval.dims
        batch = dims[: x.ndim - self.axes + 1]
        return reshape(x, (size_of(batch), *dims[len(batch) :])), batch


def layout(function: str, rank: int, data_format: Any) -> Layout:
    """The layout that a data format names; None: channels last.

    Raises:
      ValueError: an unknown one.
    """
    known = (LAST[rank], FIRST[rank])
    if data_format is not None and data_format not in known:
        raise ValueError(f"`data_format` of `{function}` should be {known[0]!r} or {known[1]!r}, got {data_format!r}.")
    return Layout(function, rank, data_format == FIRST[rank])


def padded(at: Layout, padding: Any, space: Sizes, window: Sizes, strides: Sizes, dilations: Sizes) -> dict[str, Sizes]:
    """The parameters of windows on images of this size, checked.

    Raises:
      ValueError: a padding that is not known.
      InvalidArgumentError: windows that do not fit.
    """
    reach = tuple((k - 1) * d + 1 for k, d in zip(window, dilations, strict=True))
    low, high = _amounts(at, padding, space, reach, strides)
    for n, a, b, r, s in zip(space, low, high, reach, strides, strict=True):
        if n + a + b - r + s <= -s:
            raise InvalidArgumentError(
                f"Computed output size of `{at.function}` would be negative: windows of size {shape_text(reach)} do "
                f"not fit into images of size {shape_text(space)}. Use a smaller window, or padding='SAME'."
            )
    return {"window": window, "strides": strides, "dilations": dilations, "low": low, "high": high}


def _amounts(at: Layout, padding: Any, space: Sizes, reach: Sizes, strides: Sizes) -> tuple[Sizes, Sizes]:
    """How many zeros go before and after each axis."""
    if not isinstance(padding, str):
        amounts = pairs(padding, at.axes, "padding")
        if any(n < 0 for pair in amounts for n in pair) or any(map(any, at.others(amounts))):
            raise InvalidArgumentError(
                f"`padding` of `{at.function}` should be 0 or more, and 0 for batch and channels, got {amounts}."
            )
        inner = at.space(amounts)
        return tuple(a for a, _ in inner), tuple(b for _, b in inner)
    kind = padding.upper()
    if kind == "VALID":
        return (0,) * at.rank, (0,) * at.rank
    if kind != "SAME":
        raise ValueError(f"`padding` of `{at.function}` should be 'SAME', 'VALID' or a list of pairs, got {padding!r}.")
    totals = [max(0, (-(-n // s) - 1) * s + r - n) for n, r, s in zip(space, reach, strides, strict=True)]
    return tuple(t // 2 for t in totals), tuple(t - t // 2 for t in totals)
