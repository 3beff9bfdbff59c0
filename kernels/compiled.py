"""Rendered kernels compiled in the background. Floor: kernels.

The name of a kernel is the hash of its text, of its arguments' types and of what compiles it; under that name its
machine code is kept on disk. Nobody waits for the compiler: `request` answers with a ticket whose `function` is there
when it is."""

from __future__ import annotations

import functools
import os
import queue
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from gradtape.ir.dtypes import DType
from gradtape.ir.show import show
from gradtape.kernels.arguments import INTEGER, Array, Entry, Number, Parameter
from gradtape.kernels.entries import entry_of, key_of
from gradtape.kernels.halves import computed, stored
from gradtape.kernels.kernel import Kernel, partial_dtype
from gradtape.kernels.requests import TextRequest
from gradtape.kernels.workshop import WORKSHOP

MAX_TICKETS = 4096
OPTIONS: dict[str, Any] = {"error_model": "numpy", "fastmath": {"contract", "nsz"}}


class Source(Protocol):
    """What can be compiled: the text of functions whose names end in an @, which stands for the key; `kernel@` is
    called from outside, with such arguments, and may answer with a bool or an integer."""

    @property
    def text(self) -> str: ...

    @property
    def parameters(self) -> Sequence[Parameter]: ...

    @property
    def answer(self) -> np.dtype[Any] | None: ...

    @property
    def vectors(self) -> int:
        """How many vectors its loops work on side by side; 0: as the compiler likes."""

    @property
    def streamed(self) -> bool:
        """Whether its results go past the cache: they begin with a line, and so does each part that a thread does."""


class Ticket:
    """A kernel that was asked for: `function` is None until it is compiled; `error` says why it never will be."""

    __slots__ = ("done", "error", "function", "name", "source", "text")

    def __init__(self, key: str, source: Source) -> None:
        self.name, self.source, self.text = f"kernel_{key}", source, source.text.replace("@(", f"_{key}(")
        self.function: Entry | None = None
        self.error: BaseException | None = None
        self.done = threading.Event()

    def wait(self) -> Entry:
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
        how = OPTIONS | {"vectors": source.vectors, "streamed": source.streamed}
        key = key_of(source.text, source.parameters, how)
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

    def _compile(self, ticket: Ticket) -> Entry:
        """The machine code, from disk if it is there."""
        entry, found = entry_of(ticket.name, ticket.source.parameters, lambda: WORKSHOP.object_code(request_of(ticket)))
        self.loaded += found
        self.compiled += not found
        return entry


def request_of(ticket: Ticket) -> TextRequest:
    """What a ticket wants compiled."""
    source = ticket.source
    return TextRequest(
        ticket.name, ticket.text, source.parameters, source.answer, source.vectors, source.streamed, OPTIONS
    )


COMPILER = Compiler()


@dataclass(frozen=True)
class KernelSource:
    """One rendered cluster whose reads have these dtypes."""

    kernel: Kernel
    reads: tuple[DType, ...]
    streamed: bool = False

    @property
    def text(self) -> str:
        return self.kernel.text

    @property
    def vectors(self) -> int:
        return self.kernel.vectors

    @property
    def answer(self) -> np.dtype[Any] | None:
        return np.dtype(bool) if self.kernel.limited else None

    @property
    def parameters(self) -> Sequence[Parameter]:
        kernel = self.kernel
        return (
            *(Array(stored(w.access.dtype), written=True) for w in kernel.writes),
            *(Array(stored(partial_dtype(w)), written=True) for w in kernel.sinks),
            *(Array(stored(self.reads[k])) for k in kernel.arrays),
            *(Number(stored(computed(self.reads[k]))) for k in kernel.scalars),
            *(Number(stored(d)) for _, d in kernel.numbers),
            *[INTEGER] * (len(kernel.integers) + 2),
        )
