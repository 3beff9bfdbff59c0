"""Products in the thread that asks, and what threads of ours share then. Floor: backends.

BLAS's threads go round in circles for a while after each product that they share, and keep a core from whatever runs
next. They pay where products follow products; elsewhere they are not woken."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

from gradtape.kernels.loops import share

WAKING = 1 << 22  # multiply-adds that are done before another thread is awake
WORTH = 64  # multiply-adds for which it is worth as much to wake a thread as for touching an element


class OneThread:
    """A context in which BLAS uses one thread, whoever calls it; outside of all of them it uses what it did before."""

    def __init__(self) -> None:
        self.inside = 0
        self.lock = threading.Lock()
        self.before: list[tuple[Any, int]] = []  # those whose threads were taken away, with how many they had
        self._libraries: list[Any] | None = None

    @property
    def libraries(self) -> list[Any]:
        """The BLAS libraries of this process whose threads can be set."""
        if self._libraries is None:
            from threadpoolctl import ThreadpoolController  # it looks through all that is loaded: not while importing

            self._libraries = ThreadpoolController().select(user_api="blas").lib_controllers
        return self._libraries

    def __enter__(self) -> None:
        with self.lock:
            self.inside += 1
            if self.inside == 1:
                self.before = [(b, n) for b in self.libraries if (n := b.get_num_threads()) != 1]
                for b, _ in self.before:
                    b.set_num_threads(1)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with self.lock:
            self.inside -= 1
            if self.inside == 0:
                for b, count in self.before:
                    b.set_num_threads(count)

    def suits(self, work: int) -> bool:
        """Whether a product of so many multiply-adds may call BLAS as things are: it has one thread anyway, or is worth
        its others and nobody has taken them away."""
        if work >= WAKING:
            return not self.inside
        return bool(self.inside) or all(b.get_num_threads() == 1 for b in self.libraries)


ONE_THREAD = OneThread()


def share_products(rows: int, work: int, run: Callable[[int, int], object]) -> None:
    """`run(start, stop)` for all rows as `share` does it, where `run` calls BLAS. One thread does it all where nobody
    knows whether BLAS has threads of its own."""
    if not ONE_THREAD.libraries:
        run(0, rows)
        return
    with ONE_THREAD:
        share(rows, work, run)


def multiply(rows: int, work: int, run: Callable[[int, int], object]) -> None:
    """`run(start, stop)` for all rows, a product for which BLAS would wake its threads; `work`: multiply-adds."""
    if ONE_THREAD.suits(work):
        run(0, rows)
    else:
        share_products(rows, work // WORTH, run)


def in_one_thread(program: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, as long as which BLAS has no threads."""

    def run(*arrays: Any) -> Any:
        with ONE_THREAD:
            return program(*arrays)

    return run
