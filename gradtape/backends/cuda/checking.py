"""Checks of values on a device. Floor: backends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradtape.backends.cuda.device import Cuda
from gradtape.ir.cluster import Access, Cluster, Loop, Operation, Read, Write
from gradtape.ir.dtypes import DType, bool_, of_numpy
from gradtape.kernels.cuda_render import render_cuda
from gradtape.ops.checks import checked


def check_numerics(cuda: Cuda, x: Any, message: str) -> Any:
    """The host waits for one truth value; only where something is not finite does it look at the elements."""
    cuda.needs_host("`check_numerics` waits for its answer")
    if not all_finite(cuda, x):
        checked(np, np.asarray(cuda.host(x)), message)
    return x


def all_finite(cuda: Cuda, x: Any) -> bool:
    """Whether all elements of an array of the device are finite; waits for it."""
    if not x.size:
        return True
    dtype = of_numpy(x.dtype)
    if dtype.is_complex:
        x = cuda.xp.ascontiguousarray(x).reshape(-1).view(dtype.real_dtype.numpy_dtype)
        dtype = dtype.real_dtype
    key = ("all_finite", dtype, x.size)
    program = cuda.once(key, lambda: cuda.program(render_cuda(_finite(dtype, x.size)), [((), np.bool_)]))
    return bool(cuda.host(program(x)[0]))


def _finite(dtype: DType, size: int) -> Cluster:
    """Whether so many elements are finite, as one truth value."""
    code = (
        Operation("read", (), dtype, 0),
        Operation("is_finite", (0,), bool_),
        Operation("reduce", (1,), bool_, "all"),
    )
    write = Write(2, Access(bool_, (0,)), (False,))
    return Cluster((Loop(size, True),), (Read(0, Access(dtype, (1,))),), code, (write,))


OPS: dict[str, Callable[..., Any]] = {"check_numerics": check_numerics}
