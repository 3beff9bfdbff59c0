"""Which backend runs, and why. Floor: backends."""

from __future__ import annotations

import importlib.util
from typing import NamedTuple


class Choice(NamedTuple):
    """The name of a backend and the reason for choosing it."""

    name: str
    reason: str


def choice() -> Choice:
    """The backend that this process uses, with the reason in one line."""
    if importlib.util.find_spec("cupy") is None:
        return Choice("cpu", "CuPy is not installed; tensors are NumPy arrays (install gradtape[cu13] on a GPU host)")
    return Choice("cpu", "this version runs on NumPy only; CuPy was found but its backend is not part of it yet")
