"""Running sums and their like on a device. Floor: backends."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from gradtape.backends.cuda.device import Cuda
from gradtape.ir.dtypes import of_numpy
from gradtape.kernels.cuda_scans import STAGES, scan


def _scan(op: str, cuda: Cuda, x: Any, *others: Any, axis: int, reverse: bool, exclusive: bool = False) -> Any:
    given = (op, of_numpy(x.dtype), x.shape, axis, reverse, exclusive)
    program = cuda.once(("scan", given), lambda: cuda.program(scan(*given), [(x.shape, x.dtype)]))
    return program(x, *others)[0]


OPS: dict[str, Callable[..., Any]] = {op: functools.partial(_scan, op) for op in STAGES}
