"""Which device a process uses, and why. Floor: backends."""

from __future__ import annotations

import importlib.util
import os
from typing import NamedTuple

from gradtape.backends.cuda import nvidia
from gradtape.backends.cuda.device import Cuda

WAYS = ("auto", "cpu", "gpu")


class Choice(NamedTuple):
    """The name of a backend, the reason for choosing it, and its device. `is_worth_a_word`: whether somebody may have
    expected another choice."""

    name: str
    reason: str
    device: Cuda | None = None
    is_worth_a_word: bool = False


def choice() -> Choice:
    """The backend that this process uses, with the reason in one line. The environment variable `GRADTAPE_DEVICE` may
    ask for one: cpu, gpu, or auto (a GPU where there is one).

    Raises:
      ValueError: a variable that says something else.
      RuntimeError: a GPU was asked for, and there is none.
    """
    way = os.environ.get("GRADTAPE_DEVICE", "auto").lower()
    if way not in WAYS:
        raise ValueError(f"GRADTAPE_DEVICE should be one of {', '.join(WAYS)}, got {way!r}.")
    if way == "cpu":
        return Choice("cpu", "GRADTAPE_DEVICE=cpu asks for it; tensors are NumPy arrays")
    if importlib.util.find_spec("cupy") is None:
        if way == "gpu":
            raise RuntimeError(
                "GRADTAPE_DEVICE=gpu asks for a GPU, but CuPy is not installed. Install it: `pip install "
                "gradtape[cu13]`."
            )
        return Choice("cpu", "CuPy is not installed; tensors are NumPy arrays (install gradtape[cu13] on a GPU host)")
    try:
        device = nvidia.device()
    except nvidia.NoDevice as e:
        if way == "gpu":
            raise RuntimeError(f"GRADTAPE_DEVICE=gpu asks for a GPU, but {e}") from e
        return Choice("cpu", f"{str(e).rstrip('.')}; tensors are NumPy arrays", None, True)
    return Choice("cuda", "CuPy found a GPU", device)
