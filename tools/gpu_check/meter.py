"""What a call costs: on a GPU milliseconds, by CUDA events; on the emulator launches and bytes, which are counted."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from tests.cuda_emulator import cupy_stand_in
from tools.gpu_check.setting import Setting

ROUNDS = 7
LEAST = 20.0  # milliseconds of a round


class Meter:
    """Costs of calls on one device."""

    def __init__(self, s: Setting) -> None:
        self.s = s

    def cost(self, call: Callable[[], Any]) -> float:
        """Milliseconds of a call on the GPU: the median of rounds of calls, each between two events. On the emulator
        the bytes that its kernels read and wrote."""
        call()  # what is made once
        self.s.wait()
        return self._bytes(call) if self.s.emulated else self._milliseconds(call)

    def _bytes(self, call: Callable[[], Any]) -> float:
        counts = cupy_stand_in.device().counts
        counts.clear()
        call()
        self.s.wait()
        return float(sum(launch.bytes_moved for launch in counts.launches))

    def _milliseconds(self, call: Callable[[], Any]) -> float:
        once = max(self._between(call, 1), 1e-3)
        repeats = max(1, round(LEAST / once))
        return statistics.median(self._between(call, repeats) for _ in range(ROUNDS))

    def _between(self, call: Callable[[], Any], repeats: int) -> float:
        cuda = self.s.xp.cuda
        begin, end = cuda.Event(), cuda.Event()
        begin.record()
        for _ in range(repeats):
            call()
        end.record()
        end.synchronize()
        return float(cuda.get_elapsed_time(begin, end)) / repeats

    def launches(self, call: Callable[[], Any]) -> int:
        """How many kernels and calls of libraries the emulator counted."""
        counts = cupy_stand_in.device().counts
        counts.clear()
        call()
        self.s.wait()
        return len(counts.launches) + len(counts.library_calls)
