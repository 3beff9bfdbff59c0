"""What graphs of the stand-in for cuDNN's frontend are made of: tensors, the convolution with its checks, and engines
with what is said of their numbers."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from tests.cuda_emulator.cupy_stand_in.state import device
from tests.cuda_emulator.host import Span

__all__ = [
    "DTYPES",
    "LOSSY",
    "N",
    "Engine",
    "Node",
    "Plan",
    "Tensor",
    "data_type",
    "engines",
    "heur_mode",
    "is_beyond",
    "numerical_note",
]

data_type = enum.Enum("data_type", ["NOT_SET", "FLOAT", "DOUBLE", "HALF", "BFLOAT16"])
heur_mode = enum.Enum("heur_mode", ["A", "B", "FALLBACK", "OPENSOURCE"])
numerical_note = enum.Enum(
    "numerical_note",
    "TENSOR_CORE DOWN_CONVERT_INPUTS REDUCED_PRECISION_REDUCTION FFT NONDETERMINISTIC WINOGRAD WINOGRAD_TILE_4x4 "
    "WINOGRAD_TILE_6x6 WINOGRAD_TILE_13x13 STRICT_NAN_PROP",
)
N = numerical_note
LOSSY = {N.WINOGRAD, N.FFT, N.REDUCED_PRECISION_REDUCTION}
DTYPES = {
    data_type.FLOAT: np.dtype(np.float32),
    data_type.HALF: np.dtype(np.float16),
    data_type.BFLOAT16: np.dtype(ml_dtypes.bfloat16),
}


@dataclass(eq=False)
class Tensor:
    """Where the elements lie; of a result also what is set later."""

    dim: list[int]
    stride: list[int]
    data_type: Any
    uid: int
    is_output: bool = False

    def set_output(self, value: bool) -> Tensor:
        self.is_output = value
        return self

    def set_uid(self, uid: int) -> Tensor:
        self.uid = uid
        return self

    def set_dim(self, dim: list[int]) -> Tensor:
        self.dim = list(dim)
        return self

    def set_stride(self, stride: list[int]) -> Tensor:
        self.stride = list(stride)
        return self

    def set_data_type(self, dtype: Any) -> Tensor:
        self.data_type = dtype
        return self

    def span(self, address: int) -> Span:
        """The elements at an address, channels last."""
        dtype = DTYPES[self.data_type]
        order = (0, *range(2, len(self.dim)), 1)
        shape, strides = (tuple(values[k] for k in order) for values in (self.dim, self.stride))
        return Span(address, shape, tuple(n * dtype.itemsize for n in strides), dtype)

    @property
    def has_channels_last(self) -> bool:
        """Whether the elements are in one piece, the last axis that of channels."""
        step = 1
        for k in (1, *reversed(range(2, len(self.dim))), 0):
            if self.stride[k] != step:
                return False
            step *= self.dim[k]
        return True


@dataclass(frozen=True)
class Engine:
    """A way to do a convolution: what is said of its numbers, and the bytes that it works in."""

    name: str
    notes: frozenset[Any]
    workspace: int
    modes: frozenset[Any] = frozenset([heur_mode.A])


@dataclass(eq=False)
class Plan:
    engine: Engine
    has_run: bool = False


def engines(kind: str, dtype: Any) -> list[Engine]:
    """The engines of a convolution, the fastest first, such as the library has them."""
    fast = {N.TENSOR_CORE} | ({N.DOWN_CONVERT_INPUTS} if dtype is data_type.FLOAT else set())
    by_chance = {N.NONDETERMINISTIC} if kind == "wgrad" else set()
    chance = [Engine("added by chance", frozenset(by_chance), 64, frozenset([heur_mode.FALLBACK]))] if by_chance else []
    halves = [Engine("in halves", frozenset([N.REDUCED_PRECISION_REDUCTION]), 0)] if dtype is data_type.HALF else []
    return [
        *halves,
        Engine("transformed", frozenset([N.WINOGRAD, N.WINOGRAD_TILE_4x4]), 1 << 20),
        Engine("greedy", frozenset(), 8 << 30),
        Engine("split", frozenset(fast | by_chance), 131),
        Engine("whole", frozenset(fast), 1024),
        *chance,
        Engine("plain", frozenset(), 0, frozenset([heur_mode.FALLBACK])),
    ]


@dataclass
class Node:
    """The convolution of a graph."""

    kind: str
    operands: tuple[Tensor, Tensor]
    result: Tensor
    steps: dict[str, list[int]]
    compute: Any

    @property
    def roles(self) -> tuple[Tensor, Tensor, Tensor]:
        """Images, filters and results, whichever is computed from the others."""
        first, second = self.operands
        return {
            "fprop": (first, second, self.result),
            "dgrad": (self.result, second, first),
            "wgrad": (first, self.result, second),
        }[self.kind]

    def problem(self) -> str | None:
        """What is wrong with it, if anything is."""
        images, filters, results = self.roles
        x, w, y = images.dim, filters.dim, results.dim
        axes = len(x) - 2
        if axes not in (2, 3) or not len(x) == len(w) == len(y) == len(images.stride) == len(filters.stride):
            return f"dimensions {x}, {w} and {y}: there are 2 or 3 axes of space"
        if any(len(s) != axes or not all(type(n) is int for n in s) for s in self.steps.values()):
            return f"{self.steps} for {axes} axes of space"
        if min(*x, *w, *y, *self.steps["stride"], *self.steps["dilation"]) < 1:
            return "a size or a step is less than 1"
        if x[0] != y[0] or w[0] != y[1] or x[1] % w[1] or w[0] % (x[1] // w[1]):
            return f"images {x}, filters {w} and results {y} do not fit each other"
        names = ("pre_padding", "post_padding", "stride", "dilation")
        for n, k, count, a, b, s, d in zip(x[2:], w[2:], y[2:], *(self.steps[name] for name in names), strict=True):
            if (n + a + b - (k - 1) * d - 1) // s + 1 != count:
                return f"{count} windows along an axis of {n} elements"
        return None


def is_beyond(dtype: Any) -> bool:
    """Whether the architecture has no units for a dtype."""
    return dtype is data_type.BFLOAT16 and int(device().arch.removeprefix("sm_")) < 80
