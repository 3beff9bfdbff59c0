"""What is to be compiled, in a form that another process understands. Floor: kernels."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from gradtape.kernels.arguments import Parameter
from gradtape.kernels.objects import ObjectCode, object_code
from gradtape.kernels.spelling import environment
from gradtape.kernels.vector_options import side_by_side


class Request(Protocol):
    """Something that can be compiled."""

    @property
    def name(self) -> str:
        """Of its entry."""

    def object_code(self) -> ObjectCode:
        """Compile it in this process."""


@dataclass(frozen=True)
class TextRequest:
    """A rendered kernel: functions as text, of which the one with this name is called."""

    name: str
    text: str
    parameters: Sequence[Parameter]
    answer: np.dtype[Any] | None
    vectors: int
    streamed: bool
    options: Mapping[str, Any]

    def object_code(self) -> ObjectCode:
        with side_by_side(self.vectors):
            return object_code(self.function(), self.name, self.parameters, self.answer, self.options, self.streamed)

    def function(self) -> Callable[..., Any]:
        """The kernel as a Python function."""
        import numba

        # No wrappers: Python calls none of them.
        inner: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, **self.options}
        names = environment() | {"inner": numba.njit(**inner)}
        exec(compile(self.text, "<gradtape kernel>", "exec"), names)
        function: Callable[..., Any] = names[self.name]
        return function


@dataclass(frozen=True)
class LoopRequest:
    """A loop that is written in a module, under a name there."""

    name: str
    module: str
    place: str
    parameters: Sequence[Parameter]
    streamed: bool
    options: Mapping[str, Any]

    def object_code(self) -> ObjectCode:
        return self.here(getattr(importlib.import_module(self.module), self.place))

    def here(self, loop: Any) -> ObjectCode:
        """Compile a loop that only this process has."""
        return object_code(loop.function, self.name, self.parameters, None, self.options, self.streamed)

    def finds(self, loop: Any) -> bool:
        """Whether another process would find this very loop."""
        return getattr(sys.modules.get(self.module), self.place, None) is loop
