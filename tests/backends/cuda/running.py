"""Ops of the CUDA backend on the emulated device, their kernels compiled at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradtape.backends.cuda.cudnn import Cudnn
from gradtape.backends.cuda.device import OPT_IN, Cuda
from tests.cuda_emulator import cupy_stand_in
from tests.cuda_emulator.cublas import Cublas
from tests.cuda_emulator.cupy_stand_in.state import address_of_stream
from tests.cuda_emulator.devices import fresh

Function = Callable[..., Any]


class Idle:
    """A kernel that is not run."""

    max_dynamic_shared_size_bytes = OPT_IN

    def __call__(self, grid: Any, block: Any, args: Any, *, shared_mem: int = 0) -> None:
        pass


class Learning(Cuda):
    """A device that runs no kernel: it finds out which there are. `cudnn`: as for `emulated`."""

    def __init__(self, cudnn: Any = None) -> None:
        device = cupy_stand_in.device()
        convolving = Cudnn(lambda: cudnn, lambda: address_of_stream(device.current_stream))
        library, stream = Cublas(device), lambda: device.current_stream
        super().__init__("GPU:0", cupy_stand_in, lambda text: None, library, stream, cudnn=convolving)

    def compile(self, texts: Sequence[str]) -> None:
        self.functions.update((t, Idle()) for t in texts)

    def host(self, a: Any) -> Any:
        """Zeros: nothing has been computed that could be waited for."""
        return np.zeros(a.shape, a.dtype)[()] if self.owns(a) else a


def texts_of(run: Callable[[Cuda], Any], cudnn: Any = None) -> list[str]:
    """The texts of all kernels that a function would run."""
    with cupy_stand_in.using_device():
        cuda = Learning(cudnn)
        run(cuda)
        return list(cuda.functions)


def on_device(calls: Sequence[Callable[[Cuda], Any]], seed: int = 0, cudnn: Any = None) -> list[list[Any]]:
    """The results, on the host, of functions of a device."""
    texts = texts_of(lambda cuda: [call(cuda) for call in calls], cudnn)
    with fresh(seed, cudnn) as cuda:
        cuda.compile(texts)
        found = []
        for call in calls:
            results = call(cuda)
            found.append([cuda.host(a) for a in (results if isinstance(results, tuple) else (results,))])
        return found


def placed(cuda: Cuda, a: Any, layout: str) -> Any:
    """A host array on the device: "plain"; "shifted" by one element, so that no pack is aligned; "strided", its
    elements two places apart and backwards."""
    a = np.asarray(a)
    if layout == "shifted":
        flat = np.concatenate([np.zeros(1, a.dtype), a.reshape(-1)])
        return cuda.array(flat)[1:].reshape(a.shape)
    if layout == "strided" and a.ndim:
        wide = np.zeros((*a.shape[:-1], 2 * a.shape[-1]), a.dtype)
        wide[..., ::2] = a[..., ::-1]
        return cuda.array(wide)[..., ::2][..., ::-1]
    return cuda.array(a)


LAYOUTS = ("plain", "shifted", "strided")
