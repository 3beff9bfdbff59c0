"""Ops that move elements and are no views: one kernel that writes the result once. Floor: backends.

Positions that are only known on the device cannot be refused without waiting for them: what is asked for at a position
that does not exist is zero, as TensorFlow has it on a GPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from gradtape.backends.cuda.device import Cuda, as_given
from gradtape.ir.dtypes import int64, of_numpy
from gradtape.kernels import cuda_moves
from gradtape.kernels.cuda_moves import Line
from gradtape.ops.indexing import checked
from gradtape.ops.layout import slices

Array = Any
Sizes = tuple[int, ...]


def address(array: Array) -> int:
    """Where an operand's elements will lie for a kernel: what is not in C order is copied to a multiple of anything."""
    return int(array.data.ptr) if array.size and array.flags.c_contiguous else 0


def alignment(array: Array) -> int:
    """The bytes, 16 at most, of which an operand's address is a multiple."""
    return math.gcd(16, address(array))


# ------------------------------------------------------------------ parts


def take_slice(cuda: Cuda, x: Array, begin: Array, axes: Sizes, sizes: Sizes, strides: Sizes) -> Array:
    """A view if it is known on the host where the slice begins, else a copy; what lies outside of x is zero there."""
    if not cuda.owns(begin):
        return x[slices(begin, x.ndim, axes, sizes, strides)]
    lines = [Line(n, n) for n in x.shape]
    for which, (k, size, stride) in enumerate(zip(axes, sizes, strides, strict=True)):
        lines[k] = Line(size, x.shape[k], "taken", None, stride, which)
    return _cut(cuda, x, lines, begin)


def unslice(cuda: Cuda, g: Array, begin: Array, axes: Sizes, sizes: Sizes, strides: Sizes) -> Array:
    known = not cuda.owns(begin)
    lines = [Line(n, n) for n in g.shape]
    for which, (k, size, stride) in enumerate(zip(axes, sizes, strides, strict=True)):
        lines[k] = Line(size, g.shape[k], "put", int(begin[which]) if known else None, stride, which)
    return _cut(cuda, g, lines, None if known else begin)


def pad(cuda: Cuda, x: Array, low: Sizes, high: Sizes) -> Array:
    sizes = zip(x.shape, low, high, strict=True)
    return _cut(cuda, x, [Line(n + a + b, n, "put", a) if a or b else Line(n, n) for n, a, b in sizes], None)


def _cut(cuda: Cuda, x: Array, lines: list[Line], begin: Array | None) -> Array:
    begins = int64 if begin is None else of_numpy(begin.dtype)
    key = ("cut", tuple(lines), x.dtype, alignment(x), begins)
    shape = tuple(line.extent for line in lines)

    def make() -> Any:
        return cuda.program(cuda_moves.cut(lines, x.dtype.itemsize, alignment(x), begins), [(shape, x.dtype)])

    return cuda.once(key, make)(x, *([] if begin is None else [begin]))[0]


def undiagonal(cuda: Cuda, d: Array) -> Array:
    def make() -> Any:
        shape = (*d.shape, d.shape[-1])
        return cuda.program(cuda_moves.undiagonal(d.size, shape[-1], d.dtype.itemsize), [(shape, d.dtype)])

    return cuda.once(("undiagonal", d.shape, d.dtype), make)(d)[0]


def concat(cuda: Cuda, *parts: Array, axis: int) -> Array:
    shape = list(parts[0].shape)
    shape[axis] = sum(p.shape[axis] for p in parts)
    given = [p for p in parts if p.size] or list(parts[:1])
    places = tuple(alignment(p) for p in given)

    def make() -> Any:
        rows, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :]) * given[0].dtype.itemsize
        program = cuda_moves.join(rows, [p.shape[axis] * inner for p in given], places)
        return cuda.program(program, [(tuple(shape), given[0].dtype)])

    key = ("concat", tuple(p.shape for p in given), given[0].dtype, axis, places)
    return cuda.once(key, make)(*given)[0]


# ------------------------------------------------------------------ positions


def on_device(cuda: Cuda, indices: Array, size: int) -> Array:
    """Positions on the device.

    Raises:
      InvalidArgumentError: positions that are on the host and do not exist."""
    if not cuda.owns(indices):
        return cuda.array(checked(indices, size))
    cuda.note_positions(indices, size)
    return indices


@as_given(1)
def gather(cuda: Cuda, x: Array, indices: Array, axis: int, batch_dims: int) -> Array:
    """Zeros at positions that do not exist."""
    positions, place = on_device(cuda, indices, x.shape[axis]), alignment(x)

    def make() -> Any:
        dims = x.shape
        inner = positions.shape[batch_dims:]
        row = math.prod(dims[axis + 1 :]) * x.dtype.itemsize
        program = cuda_moves.gather(
            math.prod(dims[:batch_dims]),
            math.prod(dims[batch_dims:axis]),
            dims[axis],
            math.prod(inner),
            row,
            of_numpy(positions.dtype),
            place,
        )
        return cuda.program(program, [((*dims[:axis], *inner, *dims[axis + 1 :]), x.dtype)])

    key = ("gather", x.shape, x.dtype, positions.shape, positions.dtype, axis, batch_dims, place)
    return cuda.once(key, make)(x, positions)[0]


OPS: dict[str, Callable[..., Any]] = {
    "slice": take_slice,
    "unslice": unslice,
    "pad": pad,
    "undiagonal": undiagonal,
    "concat": concat,
    "gather": gather,
    "gather_rows": gather,
}
