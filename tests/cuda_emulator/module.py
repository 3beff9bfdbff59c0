"""Modules and their kernels, called as `cupy.RawModule` and `cupy.RawKernel` are."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.cuda_emulator import limits
from tests.cuda_emulator.arguments import Declared, pack
from tests.cuda_emulator.compiler import Compiled
from tests.cuda_emulator.faults import LaunchRefused
from tests.cuda_emulator.native import Kernel, SharedVariable, runtime
from tests.cuda_emulator.text import Source

if TYPE_CHECKING:
    from tests.cuda_emulator.device import Device

__all__ = ["Function", "Module"]


@functools.cache
def load(library: Path) -> ctypes.CDLL:
    """A library of kernels, whose constants the device then allows to be read."""
    loaded = ctypes.CDLL(str(library))
    loaded.emulator_anchor_address.restype = ctypes.c_void_p
    runtime().emulator_add_module(ctypes.cast(loaded.emulator_anchor_address, ctypes.c_void_p))
    return loaded


class Module:
    """A module on a device. `Device.module` makes it."""

    def __init__(self, device: Device, source: Source, compiled: Compiled, registers: dict[str, int]) -> None:
        self.device = device
        self.source = source
        self.library = load(compiled.library)
        self.path = compiled.library
        self.anchor = compiled.anchor
        self.variables = (SharedVariable * len(compiled.variables))(
            *(SharedVariable(variable.offset, variable.size, variable.name.encode()) for variable in compiled.variables)
        )
        self.registers = registers

    def get_function(self, name: str) -> Function:
        """The kernel of this name; it must be `extern "C"`, as its name is mangled otherwise."""
        if name not in self.source.kernels:
            names = ", ".join(f"`{kernel}`" for kernel in self.source.kernels) or "none"
            raise AttributeError(f'no `extern "C" __global__ void {name}(...)` in {self.source.name}; there is {names}')
        return Function(self, name)

    def static_shared(self) -> int:
        """Where this module's `__shared__` variables lie; they belong to the thread that asks."""
        return self.library.emulator_anchor_address() - self.anchor


@dataclass(frozen=True)
class Dimensions:
    """The sizes of a launch, each with all three of x, y and z."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int

    @property
    def threads(self) -> int:
        return self.block[0] * self.block[1] * self.block[2]


def three(what: str, sizes: Any) -> tuple[int, int, int]:
    sizes = (sizes,) if isinstance(sizes, int) else tuple(sizes)
    if not 1 <= len(sizes) <= 3:
        raise LaunchRefused(f"a {what} has one to three sizes, got {sizes}")
    x, y, z = (*(int(size) for size in sizes), 1, 1)[:3]
    return (x, y, z)


class Function:
    """A kernel. `max_dynamic_shared_size_bytes` is the opt-in to more than 48 KB of shared memory."""

    def __init__(self, module: Module, name: str) -> None:
        self.module = module
        self.name = name
        self.kernel = Kernel.in_dll(module.library, module.source.kernel_symbol(name))
        self.registers = module.registers.get(name)
        self.max_dynamic_shared_size_bytes = limits.STATIC_SHARED
        texts = module.source.kernels[name].parameters
        found = [self.kernel.parameters[i] for i in range(self.kernel.parameter_count)]
        self.parameters = [
            Declared(text.name, text.text, parameter.size, chr(parameter.kind), text.is_restricted)
            for text, parameter in zip(texts, found, strict=True)
        ]
        if sum(parameter.size for parameter in self.parameters) > limits.MOST_PARAMETER_BYTES:
            raise LaunchRefused(f"the parameters of `{name}` have more than {limits.MOST_PARAMETER_BYTES} bytes")

    @property
    def shared_size_bytes(self) -> int:
        """Bytes of shared memory that the module declares; a device's compiler counts those of one kernel."""
        return sum(variable.size for variable in self.module.variables)

    @property
    def most_threads(self) -> int:
        """What `__launch_bounds__` allows, or what the hardware does."""
        return self.kernel.most_threads or limits.MOST_THREADS

    def __call__(self, grid: Any, block: Any, args: Sequence[Any], *, shared_mem: int = 0) -> None:
        """Queue a launch. It runs at the next synchronisation."""
        self.module.device.queue(self.prepared(grid, block, args, shared_mem))

    def prepared(self, grid: Any, block: Any, args: Sequence[Any], shared_mem: int) -> Callable[[], None]:
        """A launch, as the stream runs it."""
        sizes = Dimensions(three("grid", grid), three("block", block), shared_mem)
        self._refuse_wrong_sizes(sizes)
        self._refuse_too_much_shared_memory(sizes)
        data = pack(self.name, self.parameters, args)
        return lambda: self.module.device.run(self, sizes, data)

    def _refuse(self, words: str) -> None:
        raise LaunchRefused(f"invalid configuration for `{self.name}`: {words}")

    def _refuse_wrong_sizes(self, sizes: Dimensions) -> None:
        for what, given, most in (
            ("grid", sizes.grid, limits.MOST_GRID),
            ("block", sizes.block, limits.MOST_BLOCK),
        ):
            for axis, size, bound in zip("xyz", given, most):
                if not 1 <= size <= bound:
                    self._refuse(f"{what} {given} has {size} along {axis}, and 1 to {bound} is allowed")
        if sizes.threads > limits.MOST_THREADS:
            self._refuse(f"block {sizes.block} has {sizes.threads} threads, and {limits.MOST_THREADS} are allowed")
        if sizes.threads > self.most_threads:
            self._refuse(
                f"block {sizes.block} has {sizes.threads} threads, and __launch_bounds__ says {self.most_threads}"
            )
        if self.registers is not None:
            needed = limits.registers_of_block(self.registers, sizes.threads)
            if needed > limits.MOST_REGISTERS:
                self._refuse(
                    f"{sizes.threads} threads of {self.registers} registers need {needed}, "
                    f"and there are {limits.MOST_REGISTERS}"
                )

    def _refuse_too_much_shared_memory(self, sizes: Dimensions) -> None:
        arch = self.module.device.arch
        most = limits.SHARED_BY_OPT_IN[arch]
        asked = self.max_dynamic_shared_size_bytes
        if asked > most:
            self._refuse(f"max_dynamic_shared_size_bytes is {asked}, and {arch} has {most}")
        if not 0 <= sizes.shared_bytes <= asked:
            self._refuse(
                f"{sizes.shared_bytes} bytes of dynamic shared memory, and {asked} are allowed: "
                f"set max_dynamic_shared_size_bytes to opt in to more, up to {most} on {arch}"
            )
