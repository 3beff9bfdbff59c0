"""The CUDA backend on the emulated device."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from gradtape.backends.cuda.cudnn import Cudnn
from gradtape.backends.cuda.device import Cuda
from tests.cuda_emulator import cupy_stand_in
from tests.cuda_emulator.cublas import Cublas
from tests.cuda_emulator.cupy_stand_in.state import address_of_stream
from tests.cuda_emulator.simulated import simulating
from tests.cuda_emulator.together import Together


def emulated(cudnn: Any = None) -> Cuda:
    """A backend for the stand-in's present device. `cudnn`: the module that does convolutions; None: im2col does."""
    device = cupy_stand_in.device()
    return Cuda(
        "GPU:0",
        cupy_stand_in,
        Together(device).module,
        Cublas(device),
        lambda: device.current_stream,
        simulating(device),
        Cudnn(lambda: cudnn, lambda: address_of_stream(device.current_stream)),
    )


@contextlib.contextmanager
def fresh(seed: int = 0, cudnn: Any = None) -> Iterator[Cuda]:
    """A backend for a device of its own."""
    with cupy_stand_in.using_device(seed=seed):
        yield emulated(cudnn)
