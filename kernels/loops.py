"""Loops over elements, compiled by Numba when they are first called with a dtype and kept on disk; and how the rows
that they run over are shared out among threads. Floor: kernels.

Numba is imported when the first loop is compiled: importing this module costs nothing."""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

from gradtape.ir.determinism import DETERMINISM
from gradtape.kernels.arguments import INTEGER, Array, Entry, Integers, Parameter
from gradtape.kernels.background import in_background
from gradtape.kernels.entries import entry_of, key_of
from gradtape.kernels.requests import LoopRequest
from gradtape.kernels.workshop import WORKSHOP

SHARE = 1 << 18  # elements from which another thread pays
OPTIONS: dict[str, Any] = {"error_model": "numpy"}


class Loop:
    """A function of arrays that is written as loops over single elements.

    `arguments` says what it is called with, a word each: "x5" is an array in C order with 5 axes and the elements
    that the loop is compiled for, "=x5" one that it writes to, "i2" one of int64; "n" is an integer and "n3" a tuple
    of three. Arrays that are only read may be read-only: there is one compiled loop for each type of element."""

    def __init__(self, function: Callable[..., None], arguments: str) -> None:
        self.function, self.arguments = function, arguments
        self.compiled: dict[tuple[Any, bool], Entry] = {}
        self.begun: set[tuple[Any, bool]] = set()
        self.lock = threading.Lock()

    def soon(self, dtype: Any, streamed: bool = False) -> Entry | None:
        """The compiled loop if it is there already; else another thread begins to compile it. Where results must be the
        same in every run, it is waited for."""
        if DETERMINISM.required:
            return self.of(dtype, streamed)
        key = dtype, streamed
        found = self.compiled.get(key)
        if found is None and key not in self.begun:
            self.begun.add(key)
            in_background(lambda: self.of(dtype, streamed))
        return found

    def of(self, dtype: Any, streamed: bool = False) -> Entry:
        """The compiled loop for elements of a NumPy dtype; `streamed`: its stores go past the cache, which wants each
        innermost loop to begin to write where a line begins."""
        key = dtype, streamed
        found = self.compiled.get(key)
        if found is None:
            with self.lock:
                found = self.compiled.get(key) or self.compiled.setdefault(key, self._compile(dtype, streamed))
        return found

    def _compile(self, dtype: Any, streamed: bool) -> Entry:
        function = self.function
        parameters = [_parameter(word, dtype) for word in self.arguments.split()]
        where = f"{function.__qualname__}\n{Path(function.__code__.co_filename).read_text(encoding='utf-8')}"
        name = f"loop{function.__name__}_{key_of(where, parameters, OPTIONS | {'streamed': streamed})}"
        request = LoopRequest(name, function.__module__, function.__qualname__, parameters, streamed, OPTIONS)
        made_by = WORKSHOP.object_code if request.finds(self) else lambda r: r.here(self)
        entry, _ = entry_of(name, parameters, lambda: made_by(request))
        return entry


def _parameter(word: str, dtype: Any) -> Parameter:
    kind, size = word.lstrip("=")[0], int(word.lstrip("=")[1:] or 0)
    if kind == "n":
        return Integers(size) if size else INTEGER
    return Array(dtype if kind == "x" else INTEGER.dtype, size, written=word[0] == "=")


def loop(arguments: str) -> Callable[[Callable[..., None]], Loop]:
    """A decorator that makes a `Loop` of a function."""
    return lambda function: Loop(function, arguments)


class _Helpers:
    """The threads that help the calling one; another process after a fork starts its own.

    They stay off the core of the thread that calls. A virtual machine's idle cores look busy to its kernel while the
    host has put them to sleep: left to itself, it wakes the helpers on the caller's core, to wait for it."""

    def __init__(self) -> None:
        self.forget()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.forget)

    def forget(self) -> None:
        self.pool: ThreadPoolExecutor | None = None
        self.lock = threading.Lock()
        self.ids: list[int] = []
        self.avoided: int | None = None  # the core that all of them are kept off

    def get(self) -> ThreadPoolExecutor:
        with self.lock:
            if self.pool is None:
                count = max(1, (os.cpu_count() or 1) - 1)
                self.pool = ThreadPoolExecutor(count, "gradtape-loops", initializer=self._begun)
            core = current_core()
            if core != self.avoided and core is not None:
                self._keep_off(core)
            return self.pool

    def _begun(self) -> None:
        with self.lock:
            self.ids.append(threading.get_native_id())
            self.avoided = None

    def _keep_off(self, core: int) -> None:
        self.avoided = core
        others = os.sched_getaffinity(0) - {core}
        try:
            for thread in self.ids if others else ():
                os.sched_setaffinity(thread, others)
        except OSError:  # a sandbox that forbids it: they run where the system puts them
            self.ids.clear()


_HELPERS = _Helpers()


class _Inside(threading.local):
    """Whether this thread runs a part of something that threads share already: it does all of its part itself."""

    shared = False


_INSIDE = _Inside()


def _core_asked_for() -> Callable[[], int] | None:
    """The C library's function that says on which core a thread runs, where there is one."""
    found = getattr(ctypes.CDLL(None), "sched_getcpu", None) if hasattr(os, "sched_setaffinity") else None
    return None if found is None else cast(Callable[[], int], found)


_CORE = _core_asked_for()


def current_core() -> int | None:
    """The core that this thread runs on; None where nobody says."""
    core = -1 if _CORE is None else _CORE()
    return None if core < 0 else core


class _Share:
    """One thread's part of the rows. It lets go of what it runs before anybody hears that it is done: arrays in there
    are memory that the next step takes again."""

    __slots__ = ("run", "start", "stop")

    def __init__(self, run: Callable[[int, int], object], start: int, stop: int) -> None:
        self.run: Callable[[int, int], object] | None = run
        self.start, self.stop = start, stop

    def __call__(self) -> None:
        run, self.run = self.run, None
        assert run is not None
        _INSIDE.shared = True
        try:
            run(self.start, self.stop)
        finally:
            _INSIDE.shared = False


def threads() -> int:
    """How many threads a loop may use: the cores that this thread may run on, or fewer if `OMP_NUM_THREADS` says so."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores, int(limit)) if limit.isdigit() and int(limit) else cores


def sharing(rows: int, work: int) -> int:
    """How many threads share so many rows."""
    if _INSIDE.shared:
        return 1
    parts = min(rows, work // SHARE)
    return max(1, min(parts, threads())) if parts > 1 else 1


def share(rows: int, work: int, run: Callable[[int, int], object]) -> None:
    """`run(start, stop)` for all rows, in several threads where there is enough work (elements that are touched).
    Rows must not depend on each other, so that results are the same for any number of threads."""
    parts = sharing(rows, work)
    if parts == 1:
        run(0, rows)
        return
    cuts = [rows * k // parts for k in range(parts + 1)]
    others = [_HELPERS.get().submit(_Share(run, a, b)) for a, b in itertools.pairwise(cuts[1:])]
    _Share(run, cuts[0], cuts[1])()
    for other in others:
        other.result()
