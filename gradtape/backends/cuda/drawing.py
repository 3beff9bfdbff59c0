"""Random words, moments of gamma distributions, bytes read as another dtype, on a device. Floor: backends."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gradtape.backends.cuda.device import Cuda
from gradtape.ir.dtypes import DType, of_numpy
from gradtape.kernels.cuda_drawing import bits, moments
from gradtape.ops.gamma_draws import NODES, REACH, rule


def random_bits(cuda: Cuda, state: Any, shape: tuple[int, ...]) -> Any:
    """The words that the host draws from the same key and counter, which may lie there."""
    size = math.prod(shape)
    if not size:
        return cuda.empty(shape, np.uint32)
    program = cuda.once(("random_bits", shape), lambda: cuda.program(bits(size), [(shape, np.uint32)]))
    return program(state)[0]


def gamma_moment(cuda: Cuda, a: Any, x: Any, order: int) -> Any:
    """In double precision by the rule that the host has."""
    if not x.size:
        return cuda.empty(x.shape, x.dtype)
    nodes = cuda.once("gamma rule", lambda: cuda.array(np.concatenate(rule())))
    program = cuda.once(
        ("gamma_moment", x.dtype, x.shape, order),
        lambda: cuda.program(moments(of_numpy(x.dtype), x.size, order, NODES, REACH), [(x.shape, x.dtype)]),
    )
    return program(a, x, nodes)[0]


def gamma_drawn(cuda: Cuda, a: Any, x: Any) -> Any:
    return x.copy()


# ------------------------------------------------------------------ the same bytes


def bitcast_split(cuda: Cuda, x: Any, dtype: DType) -> Any:
    rows = cuda.xp.ascontiguousarray(x).reshape(-1, 1)
    return rows.view(dtype.numpy_dtype).reshape(*x.shape, x.dtype.itemsize // dtype.size)


def bitcast_join(cuda: Cuda, x: Any, dtype: DType) -> Any:
    return cuda.xp.ascontiguousarray(x).view(dtype.numpy_dtype).reshape(x.shape[:-1])


FREE = frozenset({"bitcast_split", "bitcast_join", "gamma_drawn"})  # the same bytes, in place or copied
OPS: dict[str, Callable[..., Any]] = {
    f.__name__: f for f in (random_bits, gamma_moment, gamma_drawn, bitcast_split, bitcast_join)
}
