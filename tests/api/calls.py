"""A public function's call, what it should give, and how such calls are run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import gradtape as tf


@dataclass(frozen=True)
class Call:
    """`tf.name(*operands, **options)`, with float64 arrays among the operands as what is differentiated.

    `want` gives the same from the same arrays by NumPy. `slopes`: differences exist at these operands. `listed`: the
    operands are one argument, a list."""

    name: str
    want: Callable[..., Any]
    operands: tuple[Any, ...]
    options: dict[str, Any] = field(default_factory=dict)
    slopes: bool = True
    listed: bool = False

    def __str__(self) -> str:
        given = ", ".join(str(a.shape) if isinstance(a, np.ndarray) else repr(a) for a in self.operands)
        return f"{self.name}({given}{''.join(f', {k}={v}' for k, v in self.options.items())})"[:90]

    def run(self, operands: Sequence[Any]) -> Any:
        f = function(self.name)
        return f(list(operands), **self.options) if self.listed else f(*operands, **self.options)

    @property
    def real(self) -> list[int]:
        """Which operands are differentiated."""
        return [i for i, a in enumerate(self.operands) if is_real(a)]


def call(
    name: str, want: Callable[..., Any], *operands: Any, slopes: bool = True, listed: bool = False, **options: Any
) -> Call:
    return Call(name, want, operands, options, slopes, listed)


def is_real(a: Any) -> bool:
    return isinstance(a, np.ndarray) and a.dtype == np.float64


def function(name: str) -> Callable[..., Any]:
    found: Any = tf
    for part in name.split("."):
        found = getattr(found, part)
    f: Callable[..., Any] = found
    return f


def flat(result: Any) -> list[Any]:
    """A result's tensors in order."""
    if isinstance(result, list | tuple) and not isinstance(result, tf.TensorShape):
        return [leaf for part in result for leaf in flat(part)]
    return [result]


def draw(*shape: int, low: float = -2.0, high: float = 2.0) -> Any:
    """Numbers far enough from one another and from small integers that no difference crosses a kink."""
    size = int(np.prod(shape))
    order = np.random.default_rng(size).permutation(size)
    steps = (order + 0.45 + 0.1 * np.sin(order)) / max(size, 1)
    return (low + (high - low) * steps).reshape(shape)


def positive(*shape: int) -> Any:
    return draw(*shape, low=0.4, high=2.6)


def unit(*shape: int) -> Any:
    return draw(*shape, low=-0.9, high=0.9)
