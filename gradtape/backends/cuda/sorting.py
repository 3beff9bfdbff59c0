"""Sorting on a device. Floor: backends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradtape.backends.cuda.device import Cuda
from gradtape.ir.dtypes import of_numpy
from gradtape.kernels import cuda_sorting
from gradtape.kernels.cuda_launch import CudaProgram
from gradtape.kernels.cuda_sorting import Order


def argsort(cuda: Cuda, x: Any, axis: int, descending: bool, count: int) -> Any:
    """Short rows are sorted by a block each; the keys of long ones by the library, whose sort is stable."""
    order = Order(of_numpy(x.dtype), x.shape, axis, count, descending)
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    if not order.results:
        return cuda.empty(shape, "int32")

    def run(render: Callable[[Order], CudaProgram], operand: Any, result: tuple[tuple[int, ...], Any]) -> Any:
        return cuda.once((render, order), lambda: cuda.program(render(order), [result]))(operand)[0]

    if order.n <= cuda_sorting.SHORT:
        return run(cuda_sorting.sorted_rows, x, (shape, "int32"))
    cuda.needs_host("long rows are sorted by a library")
    rows = run(cuda_sorting.keys, x, ((order.rows, order.n), order.key.numpy_dtype))
    return run(cuda_sorting.positions, cuda.xp.argsort(rows, axis=-1), (shape, "int32"))


OPS: dict[str, Callable[..., Any]] = {"argsort": argsort}
