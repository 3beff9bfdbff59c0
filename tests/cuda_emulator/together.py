"""Modules that are compiled when one of their kernels has to run, and all others that wait with it, in one call of g++:
several texts take little longer than one. What a launch is refused for shows when it runs, and no earlier."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from tests.cuda_emulator import limits
from tests.cuda_emulator.arguments import given
from tests.cuda_emulator.device import Device
from tests.cuda_emulator.module import Function, Module

__all__ = ["Together"]

WORDY = os.environ.get("EMULATOR_WORDY") == "1"  # whether faults say which undefined behaviour they were


class Together:
    """What a device has still to compile."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.waiting: list[LaterModule] = []

    def module(self, text: str) -> LaterModule:
        self.waiting.append(LaterModule(self, text))
        return self.waiting[-1]

    def compile(self) -> None:
        """All that waits."""
        waiting, self.waiting = self.waiting, []
        modules = self.device.modules([self.device.source(later.text) for later in waiting], WORDY)
        for later, module in zip(waiting, modules, strict=True):
            later.compiled = module


class LaterModule:
    """A module of this text."""

    def __init__(self, together: Together, text: str) -> None:
        self.together, self.text = together, text
        self.compiled: Module | None = None

    def made(self) -> Module:
        """The module itself; by itself where one that waited with it could not be compiled."""
        if self.compiled is None:
            self.together.compile()
        if self.compiled is None:
            self.compiled = self.together.device.module(self.text)
        return self.compiled

    def get_function(self, name: str) -> LaterFunction:
        return LaterFunction(self, name)


class LaterFunction:
    """A kernel, called as `cupy.RawKernel` is."""

    def __init__(self, module: LaterModule, name: str) -> None:
        self.module, self.name = module, name
        self.max_dynamic_shared_size_bytes = limits.STATIC_SHARED
        self._function: Function | None = None

    def __call__(self, grid: Any, block: Any, args: Sequence[Any], *, shared_mem: int = 0) -> None:
        """Queue a launch with the arguments as they are now."""
        values, most = [given(value) for value in args], self.max_dynamic_shared_size_bytes

        def run() -> None:
            function = self._compiled()
            function.max_dynamic_shared_size_bytes = most
            function.prepared(grid, block, values, shared_mem)()

        self.module.together.device.queue(run)

    @property
    def shared_size_bytes(self) -> int:
        return self._compiled().shared_size_bytes

    def _compiled(self) -> Function:
        if self._function is None:
            self._function = self.module.made().get_function(self.name)
        return self._function
