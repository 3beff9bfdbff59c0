"""What the emulated device raises: faults of kernels, refused launches, text that does not compile."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CaptureRefused", "CompilerMissing", "DeviceFault", "KernelCompileError", "LaunchRefused"]


@dataclass(eq=False)
class DeviceFault(RuntimeError):
    """A kernel did what it may not do. `kind` is the word to test for; README.md lists all kinds."""

    kind: str
    message: str
    kernel: str
    line: int | None = None
    block: tuple[int, int, int] | None = None
    thread: tuple[int, int, int] | None = None

    def __str__(self) -> str:
        place = f"kernel `{self.kernel}`"
        if self.line is not None:
            place += f", line {self.line}"
        if self.thread is not None:
            place += f", block {self.block}, thread {self.thread}"
        return f"{self.kind}: {place}: {self.message}"


class LaunchRefused(ValueError):
    """A launch whose arguments or sizes a driver refuses, or, worse, would take without a word."""


class CaptureRefused(RuntimeError):
    """What CUDA does not do while a stream records a graph."""


class KernelCompileError(ValueError):
    """g++ refused the text of a kernel; the message has its log."""


class CompilerMissing(RuntimeError):
    """There is no g++ (or none of its binutils) on this machine, so that no kernel can be emulated."""
