"""gradtape with its tensors on the emulated device, for what takes a module by name: `tests.on_emulated`."""

from __future__ import annotations

from typing import Any

import gradtape
from gradtape import *  # noqa: F403
from gradtape.backends.cuda.blas import MATH
from gradtape.runtime.devices import DEVICES
from tests.cuda_emulator import cupy_stand_in
from tests.cuda_emulator.devices import emulated

CONTEXT = cupy_stand_in.using_device()
CONTEXT.__enter__()
DEVICES.use(emulated())
MATH.tf32 = False  # what it is compared with has all bits


def __getattr__(name: str) -> Any:
    return getattr(gradtape, name)
