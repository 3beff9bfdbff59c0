"""Loops that other threads compile: how many there are at the moment. Floor: kernels."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Background:
    """`running` counts the threads at work."""

    def __init__(self) -> None:
        self.running = 0
        self.lock = threading.Lock()

    def start(self, work: Callable[[], object]) -> None:
        with self.lock:
            self.running += 1
        threading.Thread(target=self._run, args=(work,), name="gradtape-loop", daemon=True).start()

    def _run(self, work: Callable[[], object]) -> None:
        try:
            work()
        finally:
            with self.lock:
                self.running -= 1


BACKGROUND = Background()


def in_background(work: Callable[[], object]) -> None:
    """Run a function in a thread of its own, which ends with the process."""
    BACKGROUND.start(work)
