"""Checks of values on a device. Floor: backends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradtape.backends.cuda.device import Cuda
from gradtape.ops.checks import checked


def check_numerics(cuda: Cuda, x: Any, message: str) -> Any:
    """The host looks at the elements, since it must wait for the answer in any case; the array stays where it is."""
    cuda.needs_host("`check_numerics` looks at the elements on the host")
    checked(np, np.asarray(cuda.host(x)), message)
    return x


OPS: dict[str, Callable[..., Any]] = {"check_numerics": check_numerics}
