"""Rendered kernels compiled by Numba in the background and kept on disk. Floor: kernels.

The text of a kernel goes into a file whose name is the hash of the text, of the arguments' types and of what compiles
it; Numba keeps the machine code beside it. Nobody waits for the compiler: `request` answers with a ticket whose
`function` is there when it is."""

from __future__ import annotations

import builtins
import functools
import hashlib
import itertools
import os
import pickle
import queue
import stat
import sys
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from gradtape.ir.dtypes import DType
from gradtape.ir.show import show
from gradtape.kernels.halves import computed, stored
from gradtape.kernels.kernel import Kernel, partial_dtype
from gradtape.kernels.spelling import environment, fingerprint

MAX_FILES = 1024  # kernels kept on disk; the oldest go first
MAX_TICKETS = 4096
OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"contract", "nsz"}}
DAMAGED = (pickle.UnpicklingError, EOFError, AttributeError, ImportError, IndexError, KeyError, ValueError, OSError)

Function = Callable[..., Any]


class Source(Protocol):
    """What can be compiled: the text of functions whose names end in an @, which stands for the key; `kernel@` is
    called from outside, with arguments of the types `signature`."""

    @property
    def text(self) -> str: ...

    @property
    def words(self) -> Sequence[str]:
        """What the machine code depends on besides the text."""

    def signature(self) -> Any: ...


class Ticket:
    """A kernel that was asked for: `function` is None until it is compiled; `error` says why it never will be."""

    __slots__ = ("done", "error", "function", "name", "source", "text")

    def __init__(self, key: str, source: Source) -> None:
        # Symbols of machine code are told apart by the names of functions: those from disk may have been made anywhere.
        self.name, self.source, self.text = f"kernel_{key}", source, source.text.replace("@(", f"_{key}(")
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
            raise RuntimeError(f"A kernel could not be compiled: {self.error}\n{self.text}") from self.error
        return self.function


class Compiler:
    """One thread that compiles what is asked for, in order. `compiled` and `loaded` count kernels made and kernels
    found on disk."""

    def __init__(self) -> None:
        self.tickets: OrderedDict[str, Ticket] = OrderedDict()
        self.lock = threading.Lock()
        self.waiting: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.thread: threading.Thread | None = None
        self.compiled = self.loaded = 0
        self.pending = 0  # jobs that are not done
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    def request(self, source: Source) -> Ticket:
        """The ticket of a source; the first request begins to compile it."""
        words = [fingerprint(), sys.implementation.cache_tag or "", *_options(), *source.words, source.text]
        key = hashlib.sha256("\n".join(words).encode()).hexdigest()[:32]
        with self.lock:
            found = self.tickets.get(key)
            if found is None:
                found = self.tickets[key] = Ticket(key, source)
                if len(self.tickets) > MAX_TICKETS:
                    self.tickets.popitem(last=False)
                show("kernels", found.name, lambda: found.text)
                self._put(functools.partial(self._finish, found))
            return found

    def submit(self, job: Callable[[], None]) -> None:
        """Have something done in the compiler's thread, in its turn."""
        with self.lock:
            self._put(job)

    def _put(self, job: Callable[[], None]) -> None:
        self.pending += 1
        self.waiting.put(job)
        if self.thread is None:
            self.thread = threading.Thread(target=self._work, name="gradtape-compile", daemon=True)
            self.thread.start()

    def _forked(self) -> None:
        """A child has no such thread: what was not ready is asked for anew."""
        self.lock, self.thread, self.waiting, self.pending = threading.Lock(), None, queue.SimpleQueue(), 0
        self.tickets = OrderedDict((k, t) for k, t in self.tickets.items() if t.function is not None)

    def _work(self) -> None:
        while True:
            job = self.waiting.get()
            try:
                job()
            finally:
                with self.lock:
                    self.pending -= 1

    def _finish(self, ticket: Ticket) -> None:
        try:
            ticket.function = self._compile(ticket)
        except Exception as e:  # noqa: BLE001, for whoever waits: the thread goes on
            ticket.error = e
        ticket.done.set()

    def _compile(self, ticket: Ticket) -> Function:
        """The machine code, from disk if it is there."""
        path = _written(ticket)
        if path is not None:
            try:
                if not _is_whole(path):
                    _forget(path, text=False)
                before = self.loaded
                made = self._njit(ticket, str(path), True)
                if self.loaded == before:
                    _seal(path)
                return made
            except DAMAGED:
                _forget(path)
        return self._njit(ticket, "<gradtape kernel>", False)

    def _njit(self, ticket: Ticket, path: str, cache: bool) -> Function:
        import numba

        # By name: what Numba keeps on disk would hold all that is in there, and what others put into it.
        # From disk, a function belongs to a module that can be imported.
        inside = {"inner": numba.njit(**OPTIONS), "__builtins__": builtins, "__name__": __name__}
        names = environment() | inside
        exec(compile(ticket.text, path, "exec"), names)
        function = numba.njit(ticket.source.signature(), cache=cache, **OPTIONS)(names[ticket.name])
        hits = sum(function.stats.cache_hits.values()) if cache else 0
        self.loaded += hits
        self.compiled += not hits
        compiled: Function = function
        return compiled


def _options() -> list[str]:
    """The options as words."""
    return [f"{k}={sorted(v) if isinstance(v, set) else v}" for k, v in OPTIONS.items()]


COMPILER = Compiler()


@dataclass(frozen=True)
class KernelSource:
    """One rendered cluster whose reads have these dtypes."""

    kernel: Kernel
    reads: tuple[DType, ...]

    @property
    def text(self) -> str:
        return self.kernel.text

    @property
    def words(self) -> Sequence[str]:
        kernel = self.kernel
        written = [w.access.dtype.name for w in kernel.writes] + [partial_dtype(w).name for w in kernel.sinks]
        return [*written, *(d.name for d in self.reads), *(d.name for _, d in kernel.numbers)]

    def signature(self) -> Any:
        import numba
        from numba.core import types

        kernel = self.kernel

        def element(dtype: DType) -> Any:
            return numba.from_dtype(stored(dtype))

        return (types.boolean if kernel.limited else types.void)(
            *(types.Array(element(w.access.dtype), 1, "C") for w in kernel.writes),
            *(types.Array(element(partial_dtype(w)), 1, "C") for w in kernel.sinks),
            *(types.Array(element(self.reads[k]), 1, "C", readonly=True) for k in kernel.arrays),
            *(element(computed(self.reads[k])) for k in kernel.scalars),
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
        if not _is_own(folder):
            return None
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


def _is_own(folder: Path) -> bool:
    """Whether nobody else can put machine code into a folder."""
    if not hasattr(os, "getuid"):
        return True
    found = folder.stat()
    return found.st_uid == os.getuid() and not found.st_mode & stat.S_IWOTH


def _bound(folder: Path) -> None:
    """Drop the oldest kernels beyond the bound."""
    kept = sorted(folder.glob("kernel_*.py"), key=lambda p: p.stat().st_mtime)
    for path in itertools.islice(kept, max(0, len(kept) - MAX_FILES)):
        _forget(path)


def _beside(path: Path) -> list[Path]:
    """What Numba keeps of a file."""
    return sorted(path.parent.glob(f"__pycache__/{path.stem}*"))


def _forget(path: Path, text: bool = True) -> None:
    for p in (*([path] if text else []), path.with_suffix(".sum"), *_beside(path)):
        p.unlink(missing_ok=True)


def _sum(path: Path) -> str:
    """What the machine code of a kernel adds up to."""
    return hashlib.sha256(b"".join(p.read_bytes() for p in _beside(path))).hexdigest()


def _seal(path: Path) -> None:
    """Note what was compiled, so that it is known again: processes end while they write, and disks fail."""
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
    with os.fdopen(handle, "w") as f:
        f.write(_sum(path))
    os.replace(name, path.with_suffix(".sum"))


def _is_whole(path: Path) -> bool:
    """Whether the machine code of a kernel is what was compiled, or there is none."""
    if not _beside(path):
        return True
    seal = path.with_suffix(".sum")
    return seal.exists() and seal.read_text() == _sum(path)
