"""Random numbers, moments of gamma distributions, bytes read as another dtype, on a device. Floor: backends."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradtape.backends.cuda.device import Cuda
from gradtape.ir.dtypes import DType, of_numpy
from gradtape.kernels.cuda_drawing import (
    advanced,
    bits,
    counts,
    gamma_numbers,
    integers_between,
    moments,
    sources_of,
    truncated_normals,
)
from gradtape.kernels.cuda_launch import CudaProgram
from gradtape.ops.gamma_draws import NODES, REACH, rule
from gradtape.ops.random_bits import MASK
from gradtape.ops.random_draws import limit_of
from gradtape.ops.random_states import COUNTERS


def random_bits(cuda: Cuda, state: Any, shape: tuple[int, ...]) -> Any:
    """The words that the host draws from the same key and counter, which may lie there."""
    size = math.prod(shape)
    if not size:
        return cuda.empty(shape, np.uint32)
    program = cuda.once(("random_bits", shape), lambda: cuda.program(bits(size), [(shape, np.uint32)]))
    return program(state)[0]


def random_next(cuda: Cuda, state: Any, by: int) -> tuple[Any, ...]:
    loops = state.shape[:-1]
    rows, results = math.prod(loops), [(state.shape, np.int64), ((*loops, 2), np.uint64)]
    if not rows:
        return tuple(cuda.empty(*r) for r in results)
    by &= COUNTERS
    return cuda.once(("random_next", loops, by), lambda: cuda.program(advanced(rows, by), results))(state)


def random_source(cuda: Cuda, seed: Any, *data: Any, purpose: int) -> Any:
    xp = cuda.xp
    loops = np.broadcast_shapes(seed.shape[:-1], *(d.shape for d in data))
    rows, result = math.prod(loops), ((*loops, 2), np.uint64)
    if not rows:
        return cuda.empty(*result)
    numbers = cuda.empty((max(len(data), 1), *loops), np.int64)
    for k, d in enumerate(data):
        numbers[k] = d
    key = ("random_source", loops, purpose, len(data))
    program = cuda.once(key, lambda: cuda.program(sources_of(rows, purpose, len(data)), [result]))
    return program(xp.broadcast_to(seed, (*loops, 2)), numbers)[0]


def random_integers(cuda: Cuda, state: Any, shape: tuple[int, ...], low: int, span: int, dtype: DType) -> Any:
    """Those of the host, bit for bit."""
    numbers = (low & MASK, span & MASK, limit_of(span) & MASK)
    return _drawn(
        cuda, ("random_integers", *numbers), shape, dtype, [state], lambda n: integers_between(dtype, n, *numbers)
    )


def random_truncated_normal(cuda: Cuda, state: Any, shape: tuple[int, ...], dtype: DType) -> Any:
    return _drawn(cuda, ("random_truncated_normal",), shape, dtype, [state], lambda n: truncated_normals(dtype, n))


def random_gamma(cuda: Cuda, state: Any, alpha: Any, shape: tuple[int, ...]) -> Any:
    dtype = of_numpy(alpha.dtype)
    operands = [state, cuda.xp.broadcast_to(alpha, shape)]
    return _drawn(cuda, ("random_gamma",), shape, dtype, operands, lambda n: gamma_numbers(dtype, n))


def random_poisson(cuda: Cuda, state: Any, rate: Any, shape: tuple[int, ...], dtype: DType) -> Any:
    of = of_numpy(rate.dtype)
    operands = [state, cuda.xp.broadcast_to(rate, shape)]
    return _drawn(cuda, ("random_poisson", of), shape, dtype, operands, lambda n: counts(dtype, n, of))


def _drawn(
    cuda: Cuda,
    key: tuple[Any, ...],
    shape: tuple[int, ...],
    dtype: DType,
    operands: Sequence[Any],
    render: Callable[[int], CudaProgram],
) -> Any:
    """What the kernel of a draw makes; `render`: its program for so many elements."""
    size, result = math.prod(shape), (shape, dtype.numpy_dtype)
    if not size:
        return cuda.empty(*result)
    return cuda.once((*key, *result), lambda: cuda.program(render(size), [result]))(*operands)[0]


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
DRAWS = (
    random_next,
    random_source,
    random_bits,
    random_integers,
    random_truncated_normal,
    random_gamma,
    random_poisson,
)
OPS: dict[str, Callable[..., Any]] = {
    f.__name__: f for f in (*DRAWS, gamma_moment, gamma_drawn, bitcast_split, bitcast_join)
}
