"""Rendered kernels compiled by Numba in the background and kept on disk. Floor: kernels.

The text of a kernel goes into a file whose name is the hash of the text, of the arguments' types and of what compiles
it; Numba keeps the machine code beside it. Nobody waits for the compiler: `request` answers with a ticket whose
`function` is there when it is."""

from __future__ import annotations

import hashlib
import itertools
import os
import pickle
import queue
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gradtape.ir.dtypes import DType
from gradtape.ir.show import show
from gradtape.kernels.render import Kernel, partial_dtype
from gradtape.kernels.spelling import environment, fingerprint

MAX_FILES = 1024  # kernels kept on disk; the oldest go first
MAX_TICKETS = 4096
FASTMATH = {"contract", "nsz"}
DAMAGED = (pickle.UnpicklingError, EOFError, AttributeError, ImportError, IndexError, KeyError, ValueError, OSError)

Function = Callable[..., Any]
Dtypes = tuple[DType, ...]


class Ticket:
    """A kernel that was asked for: `function` is None until it is compiled; `error` says why it never will be."""

    __slots__ = ("done", "error", "function", "kernel", "name", "reads", "text")

    def __init__(self, key: str, kernel: Kernel, reads: Dtypes) -> None:
        self.name, self.kernel, self.reads = f"kernel_{key}", kernel, reads
        # Symbols of machine code are told apart by the function's name: those from disk may have been made anywhere.
        self.text = kernel.text.replace("def kernel(", f"def {self.name}(", 1)
        self.function: Function | None = None
        self.error: BaseException | None = None
        self.done = threading.Event()

    def wait(self) -> Function:
        """The function, once it is compiled.

        Raises:
          RuntimeError: with the kernel's text, if it cannot be compiled.
        """
        self.done.wait()
        if self.function is None:
            raise RuntimeError(f"A kernel could not be compiled: {self.error}\n{self.kernel.text}") from self.error
        return self.function


class Compiler:
    """One thread that compiles what is asked for, in order. `compiled` and `loaded` count kernels made and kernels
    found on disk."""

    def __init__(self) -> None:
        self.tickets: OrderedDict[str, Ticket] = OrderedDict()
        self.lock = threading.Lock()
        self.waiting: queue.SimpleQueue[Ticket] = queue.SimpleQueue()
        self.thread: threading.Thread | None = None
        self.compiled = self.loaded = 0
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    def request(self, kernel: Kernel, reads: Dtypes) -> Ticket:
        """The ticket of a kernel whose reads have these dtypes; the first request begins to compile it."""
        key = _key(kernel, reads)
        with self.lock:
            found = self.tickets.get(key)
            if found is None:
                found = self.tickets[key] = Ticket(key, kernel, reads)
                if len(self.tickets) > MAX_TICKETS:
                    self.tickets.popitem(last=False)
                show("kernels", found.name, lambda: kernel.text)
                self.waiting.put(found)
                if self.thread is None:
                    self.thread = threading.Thread(target=self._work, name="gradtape-compile", daemon=True)
                    self.thread.start()
            return found

    def _forked(self) -> None:
        """A child has no such thread: what was not ready is asked for anew."""
        self.lock, self.thread, self.waiting = threading.Lock(), None, queue.SimpleQueue()
        self.tickets = OrderedDict((k, t) for k, t in self.tickets.items() if t.function is not None)

    def _work(self) -> None:
        while True:
            ticket = self.waiting.get()
            try:
                ticket.function = self._compile(ticket)
            except Exception as e:  # for whoever waits: the thread goes on
                ticket.error = e
            ticket.done.set()

    def _compile(self, ticket: Ticket) -> Function:
        """The machine code, from disk if it is there."""
        path = _written(ticket)
        if path is not None:
            try:
                return self._njit(ticket, str(path), True)
            except DAMAGED:
                _forget(path)
        return self._njit(ticket, "<gradtape kernel>", False)

    def _njit(self, ticket: Ticket, path: str, cache: bool) -> Function:
        import numba

        names = environment()
        exec(compile(ticket.text, path, "exec"), names)
        options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": FASTMATH, "cache": cache}
        function = numba.njit(_signature(ticket), **options)(names[ticket.name])
        hits = sum(function.stats.cache_hits.values()) if cache else 0
        self.loaded += hits
        self.compiled += not hits
        compiled: Function = function
        return compiled


COMPILER = Compiler()


def _key(kernel: Kernel, reads: Dtypes) -> str:
    words = [
        fingerprint(),
        *(w.access.dtype.name for w in kernel.writes),
        *(f"{w.access.dtype.name} {w.monoid}" for w in kernel.sinks),
        *(d.name for d in reads),
        *(d.name for _, d in kernel.numbers),
        kernel.text,
    ]
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:32]


def _signature(ticket: Ticket) -> Any:
    import numba
    from numba.core import types

    kernel = ticket.kernel

    def element(dtype: DType) -> Any:
        return numba.from_dtype(dtype.numpy_dtype)

    return (types.boolean if kernel.limited else types.void)(
        *(types.Array(element(w.access.dtype), 1, "C") for w in kernel.writes),
        *(types.Array(element(partial_dtype(w)), 1, "C") for w in kernel.sinks),
        *(types.Array(element(ticket.reads[k]), 1, "C", readonly=True) for k in kernel.arrays),
        *(element(ticket.reads[k]) for k in kernel.scalars),
        *(element(d) for _, d in kernel.numbers),
        *[types.int64] * (len(kernel.integers) + 2),
    )


# ------------------------------------------------------------------ on disk


def cache_folder() -> Path:
    """Where compiled kernels are kept: `GRADTAPE_CACHE`, or a folder in the user's cache."""
    chosen = os.environ.get("GRADTAPE_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "gradtape" / "kernels"


def _written(ticket: Ticket) -> Path | None:
    """The file of a kernel's text, which is only believed if it holds exactly that; None where none can be kept: then
    the kernel is compiled in every process."""
    folder = cache_folder()
    path = folder / f"{ticket.name}.py"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if hasattr(os, "getuid") and folder.stat().st_uid != os.getuid():
            return None  # somebody else's: it might hold anything
        if path.exists() and path.read_text() == ticket.text:
            return path
        handle, name = tempfile.mkstemp(dir=folder, suffix=".part")
        with os.fdopen(handle, "w") as f:
            f.write(ticket.text)
        os.replace(name, path)
        _bound(folder)
    except OSError:
        return None
    return path


def _bound(folder: Path) -> None:
    """Drop the oldest kernels beyond the bound."""
    kept = sorted(folder.glob("kernel_*.py"), key=lambda p: p.stat().st_mtime)
    for path in itertools.islice(kept, max(0, len(kept) - MAX_FILES)):
        _forget(path)


def _forget(path: Path) -> None:
    for p in (path, *path.parent.glob(f"__pycache__/{path.stem}*")):
        p.unlink(missing_ok=True)
