"""What a backend must know to launch rendered CUDA kernels: texts, arguments, grids, scratch memory. Floor: kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gradtape.ir.dtypes import DType

LONG = 1 << 31  # from where on places no longer fit 32 bits


@dataclass(frozen=True)
class Buffer:
    """A flat array, given by the address of its first element: the cluster's "operand" or "result" of this number, or a
    "scratch" array of the program. Operands are in C order; no result may lie over an operand."""

    kind: str
    number: int
    dtype: DType


@dataclass(frozen=True)
class Number:
    """A number that a kernel is given by value, as its dtype."""

    value: Any
    dtype: DType


@dataclass(frozen=True)
class Table:
    """What a kernel of several members is given by value: for each the addresses of its buffers, its extent, and its
    first block, at the end the number of all blocks; for `capacity` members, of which the last may be missing."""

    rows: tuple[tuple[Buffer, ...], ...]
    extents: tuple[int, ...]
    first: tuple[int, ...]
    capacity: int


@dataclass(frozen=True)
class Launch:
    """One kernel in a grid of blocks along x; `shared` are the bytes of dynamic shared memory for each block, `bytes`
    those of device memory that it reads and writes, each counted once."""

    kernel: str
    grid: int
    block: int
    shared: int
    bytes: int
    arguments: tuple[Buffer | Number | Table, ...]


@dataclass(frozen=True)
class Scratch:
    """Memory that a program needs while it runs: so many elements, aligned to 16 bytes, of any content."""

    size: int
    dtype: DType


@dataclass(frozen=True)
class CudaProgram:
    """A cluster in CUDA C++: a text for each kernel (whole but for the templates that it includes), and its launches
    one after the other, on one stream. Texts are the same for equal work, ranks and dtypes; extents are arguments."""

    texts: tuple[str, ...]
    launches: tuple[Launch, ...]
    scratch: tuple[Scratch, ...]

    @property
    def text(self) -> str:
        """All kernels as one source."""
        return "\n".join(self.texts)
