"""How assembled terms are written on the host: into memory of the pool, large products by a compiled loop. Floor:
backends."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.backends.memory import empty, view, zeros
from gradtape.kernels.loops import share
from gradtape.kernels.outer import outer

__all__ = ["empty", "product", "share", "view", "zeros"]


def product(a: Any, b: Any, out: Any) -> None:
    """out = a * b; the operands have as many axes as `out`, of its sizes or 1."""
    if not outer(out, a, b):
        np.multiply(a, b, out=out)
