"""Windows on a device: windows added up, pooling and its gradients, each by kernels of its own. Floor: backends."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from gradtape.backends.cuda.device import Cuda
from gradtape.backends.cuda.moves import alignment
from gradtape.ir.dtypes import of_numpy
from gradtape.ir.errors import UnimplementedError
from gradtape.kernels import cuda_windows
from gradtape.kernels.cuda_launch import CudaProgram
from gradtape.kernels.cuda_windows import AXES, Axis, Images
from gradtape.ops.windows import Windows

Array = Any
Sizes = tuple[int, ...]


def fold(cuda: Cuda, g: Array, axis: int, length: int, stride: int, dilation: int) -> Array:
    def make() -> Any:
        *shape, window = g.shape
        before, n, after = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
        program = cuda_windows.fold(before, length, after, n, window, (stride, dilation), of_numpy(g.dtype))
        return cuda.program(program, [((*shape[:axis], length, *shape[axis + 1 :]), g.dtype)])

    return cuda.once(("fold", g.shape, g.dtype, axis, length, stride, dilation), make)(g)[0]


def _pooled(
    cuda: Cuda,
    *arrays: Array,
    kernels: Callable[[Images], CudaProgram],
    to_images: bool,
    shape: Sizes | None = None,
    **params: Sizes,
) -> Array:
    """What the kernels make of arrays, of which the first is of images or (`to_images`) of windows."""
    w = Windows(**params)
    if len(w.window) > AXES:
        raise UnimplementedError(
            f"Pooling over {len(w.window)} axes has no kernel for {cuda.name}; {AXES} are the most."
        )
    places = min(map(alignment, arrays))
    x = arrays[0]
    space = shape if shape is not None else x.shape[1:-1]

    def make() -> Any:
        counts = w.counts(space)
        assert counts is not None
        sizes = zip(space, counts, w.window, w.strides, w.dilations, w.low, strict=True)
        n, channels, dtype = x.shape[0], x.shape[-1], of_numpy(x.dtype)
        at = Images(n, tuple(Axis(*a) for a in sizes), channels, dtype, cuda_windows.width_of(channels, dtype, places))
        result = (n, *(space if to_images else counts), channels)
        return cuda.program(kernels(at), [(result, x.dtype)])

    return cuda.once((kernels, x.shape, x.dtype, space, w, places), make)(*arrays)[0]


def _op(kernels: Callable[[Images], CudaProgram], to_images: bool = False) -> Callable[..., Any]:
    return functools.partial(_pooled, kernels=kernels, to_images=to_images)


OPS: dict[str, Callable[..., Any]] = {
    "fold": fold,
    "max_pool": _op(cuda_windows.largest),
    "max_pool_input": _op(cuda_windows.route, True),
    "max_pool_pick": _op(cuda_windows.pick),
    "avg_pool": _op(cuda_windows.mean),
    "avg_pool_input": _op(cuda_windows.share, True),
}
