"""Positions in sorted order as CUDA kernels: of short rows by one kernel, of long ones by a library, which sorts keys
that a kernel makes. Floor: kernels."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gradtape.ir.dtypes import DType, int32, int64, uint32, uint64
from gradtape.kernels.cuda_entry import (
    THREADS,
    Given,
    blocks_for,
    entry,
    integers,
    program,
    reach,
    read,
    truth,
    written,
)
from gradtape.kernels.cuda_launch import CudaProgram

SHORT = 2048  # elements of a row that a block sorts: 32 KB of shared memory
TOGETHER = 512  # elements that a block has at least


@dataclass(frozen=True)
class Order:
    """What is asked of a sort: along an axis, the first `count`, and whether the largest come first."""

    dtype: DType
    shape: tuple[int, ...]
    axis: int
    count: int
    descending: bool

    @property
    def key(self) -> DType:
        return uint64 if self.dtype.size == 8 else uint32

    @property
    def n(self) -> int:
        return self.shape[self.axis]

    @property
    def inner(self) -> int:
        return math.prod(self.shape[self.axis + 1 :])

    @property
    def rows(self) -> int:
        return math.prod(self.shape[: self.axis]) * self.inner

    @property
    def size(self) -> int:
        return self.rows * self.n

    @property
    def results(self) -> int:
        return self.rows * self.count


def sorted_rows(order: Order) -> CudaProgram:
    """The positions, of rows that are no longer than SHORT."""
    size = max(2, 1 << max(order.n - 1, 0).bit_length())
    rows = max(1, TOGETHER // size)
    blocks = blocks_for(-(-order.rows // rows) * THREADS)
    given = [
        written("out", "int32"),
        read("x", order.dtype.name, 0),
        *integers(reach(order.size, blocks), rows=order.rows, n=order.n, inner=order.inner, count=order.count),
    ]
    call = f"sort_rows<{size}, {rows}, {THREADS}, {truth(order.descending)}>(out, x, rows, n, inner, count);"
    moved = order.size * order.dtype.size + order.results * int32.size
    return _program("argsort", given, call, blocks, moved, "The positions of the first elements of each row in order")


def keys(order: Order) -> CudaProgram:
    """Integers in the order of the elements, row by row."""
    blocks = blocks_for(order.size)
    given = [
        written("keys", order.key.name),
        read("x", order.dtype.name, 0),
        *integers(reach(order.size, blocks), size=order.size, n=order.n, inner=order.inner),
    ]
    call = f"write_keys<{truth(order.descending)}>(keys, x, size, n, inner);"
    moved = order.size * (order.dtype.size + order.key.size)
    return _program("sort_keys", given, call, blocks, moved, "Integers in the order of the elements, row by row")


def positions(order: Order) -> CudaProgram:
    """The first of all positions, which the library gives row by row."""
    blocks = blocks_for(order.results)
    given = [
        written("out", "int32"),
        read("order", "int64", 0),
        *integers(reach(order.size, blocks), size=order.results, n=order.n, inner=order.inner, count=order.count),
    ]
    call = "write_positions(out, order, size, n, inner, count);"
    moved = order.results * (int32.size + int64.size)
    return _program("first_positions", given, call, blocks, moved, "The first of the positions of each row")


def _program(name: str, given: list[Given], call: str, blocks: int, moved: int, comment: str) -> CudaProgram:
    return program([entry(name, ("sorting.cuh",), given, [call], blocks, moved, [f"// {comment}"])])
