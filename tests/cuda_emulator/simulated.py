"""Kernels of Numba's simulator on the emulated device: they run on the host, in the order of the stream."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tests.cuda_emulator.device import Device, LaunchCount
from tests.cuda_emulator.native import Traffic

__all__ = ["simulating"]


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """A block without garbage collection: each thread of a kernel is one of Python's, and must not be the one that lets
    go of buffers, for which it would wait for the stream that waits for it."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def simulating(device: Device) -> Callable[..., None]:
    """What launches such kernels, each counted as one launch."""

    def launch(
        kernel: Any, grid: Any, block: Any, stream: Any, shared: int, arrays: Sequence[Any], numbers: Sequence[Any]
    ) -> None:
        spans = [a.span() for a in arrays]

        def run() -> None:
            from numba import cuda

            held = [np.array(s.written(kernel.__name__)) for s in spans]
            with uncollected():
                kernel[grid, block, 0, shared](*map(cuda.InOut, held), *numbers)
            for span, array in zip(spans, held, strict=True):
                span.written(kernel.__name__)[...] = array
            sizes = ((*grid, 1, 1)[:3], (*block, 1, 1)[:3])
            device.counts.launches.append(LaunchCount(kernel.__name__, *sizes, shared, {}, Traffic()))

        stream.enqueue(run)

    return launch
