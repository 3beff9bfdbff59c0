"""Kernels of Numba's simulator on the emulated device: they run on the host, in the order of the stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.cuda_emulator.device import Device, LaunchCount
from tests.cuda_emulator.native import Traffic

__all__ = ["simulating"]


def simulating(device: Device) -> Callable[..., None]:
    """What launches such kernels, each counted as one launch."""

    def launch(
        kernel: Any, grid: Any, block: Any, stream: Any, shared: int, arrays: Sequence[Any], numbers: Sequence[Any]
    ) -> None:
        spans = [a.span() for a in arrays]

        def run() -> None:
            from numba import cuda

            held = [np.array(s.written(kernel.__name__)) for s in spans]
            kernel[grid, block, 0, shared](*map(cuda.InOut, held), *numbers)
            for span, array in zip(spans, held, strict=True):
                span.written(kernel.__name__)[...] = array
            sizes = ((*grid, 1, 1)[:3], (*block, 1, 1)[:3])
            device.counts.launches.append(LaunchCount(kernel.__name__, *sizes, shared, {}, Traffic()))

        stream.enqueue(run)

    return launch
