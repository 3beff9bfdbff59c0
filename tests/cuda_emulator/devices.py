"""The CUDA backend on the emulated device."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from gradtape.backends.cuda.device import Cuda
from tests.cuda_emulator import cupy_stand_in
from tests.cuda_emulator.cublas import Cublas
from tests.cuda_emulator.simulated import simulating
from tests.cuda_emulator.together import Together


def emulated() -> Cuda:
    """A backend for the stand-in's present device."""
    device = cupy_stand_in.device()
    return Cuda(
        "GPU:0",
        cupy_stand_in,
        Together(device).module,
        Cublas(device),
        lambda: device.current_stream,
        simulating(device),
    )


@contextlib.contextmanager
def fresh(seed: int = 0) -> Iterator[Cuda]:
    """A backend for a device of its own."""
    with cupy_stand_in.using_device(seed=seed):
        yield emulated()
