"""Object code as functions of this process: what is kept on disk runs without Numba, and mostly without LLVM. Floor:
kernels."""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
import platform
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gradtape.kernels.loading import Missing, Unsupported, load


class Linker:
    """Puts object code into memory, where it stays."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.engine: Any = None
        self.held: list[Any] = []  # what would take the code out of memory again
        self.count = itertools.count()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        self.lock = threading.Lock()

    def link(self, name: str, code: bytes, given: Mapping[str, int] | None = None) -> int:
        """The address of a function in object code. What the code calls is looked for in the libraries of this process;
        `given`: addresses of what is in none of them.

        Raises:
          RuntimeError: something that it calls is nowhere.
        """
        try:
            return load(name, code, given or {})
        except Missing as e:
            raise RuntimeError(f"`{name}` calls `{e}`, which no library in this process has.") from e
        except Unsupported:
            return self._by_llvm(name, code, given or {})

    def _by_llvm(self, name: str, code: bytes, given: Mapping[str, int]) -> int:
        import llvmlite.binding as llvm

        with self.lock:
            if self.engine is None:
                llvm.initialize_native_target()
                llvm.initialize_native_asmprinter()
                self.engine = llvm.create_lljit_compiler(suppress_errors=True)
            builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process().export_symbol(name)
            for symbol, place in given.items():
                builder.import_symbol(symbol, place)
            library = builder.link(self.engine, f"{name} {next(self.count)}")
            self.held.append(library)
        address: int = library[name]
        return address


LINKER = Linker()


def _described() -> list[str]:
    """Lines that tell processors apart: from Linux, which costs nothing, else from LLVM."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n", 1)[0].splitlines()
    except OSError:
        lines = []
    own = [line for line in lines if line.split(":")[0].strip() in ("vendor_id", "cpu family", "model", "flags")]
    if len(own) == 4:
        return own
    import llvmlite.binding as llvm

    return [llvm.get_process_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()]


@functools.cache
def processor() -> str:
    """What machine code is made for: code for one processor may be wrong on another."""
    words = [platform.machine(), *_described()]
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:16]
