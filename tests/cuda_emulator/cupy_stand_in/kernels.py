"""`RawModule` and `RawKernel` over the emulator's modules."""

from __future__ import annotations

from typing import Any

from tests.cuda_emulator.cupy_stand_in.state import device
from tests.cuda_emulator.module import Function, Module

__all__ = ["RawKernel", "RawModule"]


class RawModule:
    """A text of kernels, compiled at the first use. The emulator runs text, not machine code: no `path`."""

    def __init__(
        self,
        code: str | None = None,
        *,
        path: str | None = None,
        options: tuple[str, ...] = (),
        backend: str = "nvrtc",
        translate_cucomplex: bool = False,
        enable_cooperative_groups: bool = False,
        name_expressions: Any = None,
        jitify: Any = None,
    ) -> None:
        if (code is None) == (path is None):
            raise TypeError("Exactly one of `code` and `path` keyword arguments must be given.")
        if code is None or backend != "nvrtc" or translate_cucomplex or enable_cooperative_groups or name_expressions:
            raise NotImplementedError("the stand-in takes `code` and `options` only")
        self.code = code
        self.options = tuple(options)
        self._module: Module | None = None

    def compile(self, log_stream: Any = None) -> None:
        self._module = device().module(self.code, self.options)

    def get_function(self, name: str) -> RawKernel:
        if self._module is None or self._module.device is not device():
            self.compile()
        assert self._module is not None
        return RawKernel._of(self._module.get_function(name))


class RawKernel:
    """A kernel, called with a grid, a block, and its arguments."""

    _function: Function

    def __init__(
        self,
        code: str,
        name: str,
        options: tuple[str, ...] = (),
        backend: str = "nvrtc",
        translate_cucomplex: bool = False,
        *,
        enable_cooperative_groups: bool = False,
        jitify: Any = None,
    ) -> None:
        module = RawModule(
            code,
            options=options,
            backend=backend,
            translate_cucomplex=translate_cucomplex,
            enable_cooperative_groups=enable_cooperative_groups,
        )
        self._function = module.get_function(name)._function

    @classmethod
    def _of(cls, function: Function) -> RawKernel:
        kernel = cls.__new__(cls)
        kernel._function = function
        return kernel

    def __call__(self, grid: tuple[int, ...], block: tuple[int, ...], args: Any, *, shared_mem: int = 0) -> None:
        self._function(grid, block, args, shared_mem=shared_mem)

    @property
    def name(self) -> str:
        return self._function.name

    @property
    def max_threads_per_block(self) -> int:
        return self._function.most_threads

    @property
    def shared_size_bytes(self) -> int:
        return self._function.shared_size_bytes

    @property
    def max_dynamic_shared_size_bytes(self) -> int:
        return self._function.max_dynamic_shared_size_bytes

    @max_dynamic_shared_size_bytes.setter
    def max_dynamic_shared_size_bytes(self, size: int) -> None:
        self._function.max_dynamic_shared_size_bytes = size
