"""Kernels are compiled in the background: how a program comes to its final speed before it is timed."""

from __future__ import annotations

import time
from collections.abc import Callable

import gradtape
from benchmarks.harness import Program

WARM = 1.0  # seconds of calls that ask for every kernel that is worth it
CALLS = 20  # that there should be in that time, or in five times as long: long programs are compiled after so many
PATIENCE = 120.0  # seconds after which a compiler that is still at work is a fault
TURN = 0.1  # seconds between calls that only wait: compilers give way to what runs, and may have the same core


def warm(program: Program, seconds: float = WARM) -> None:
    """Call a program until nothing that it asked for is being compiled any more.

    Raises:
      TimeoutError: the compiler does not come to an end.
    """
    program.start()
    until_ready(program.run, seconds)


def until_ready(call: Callable[[], object], seconds: float = WARM) -> int:
    """Call a function for some seconds, then until no kernel is waiting; how often it was called.

    Raises:
      TimeoutError: one still is after a long time.
    """
    call()  # makes what is made once, however long that takes
    count, begin = 1, time.monotonic()

    def asked() -> bool:
        gone = time.monotonic() - begin
        return count >= 2 and gone >= (seconds if count >= CALLS else 5 * seconds)

    while not asked() or gradtape.cache_info().kernels.waiting:
        if time.monotonic() - begin > PATIENCE:
            raise TimeoutError(f"kernels are still waiting to be compiled: {gradtape.cache_info().kernels}")
        call()
        count += 1
        if asked():
            time.sleep(TURN)
    call()  # takes the kernels that came last
    return count + 1
