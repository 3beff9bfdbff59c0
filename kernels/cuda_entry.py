"""Kernels that are written by hand: functions of `kernels/cuda/` behind entries that say for which types, how many
blocks and which arguments. Floor: kernels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gradtape.ir.dtypes import DType, int64, uint8
from gradtape.kernels.cuda_body import assembled, index_type
from gradtape.kernels.cuda_launch import Buffer, CudaProgram, Launch, Number, Scratch

THREADS = 256  # of a block
BOUNDS = f"{THREADS}, 3"  # threads, and blocks that a processor should have room for: 80 registers for each thread
ROOMY = f"{THREADS}, 1"  # one block, whose threads may take more
MOST_BLOCKS = 1 << 20  # beyond, each thread goes on to further elements
WORDS = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64", 16: "Pack<uint32, 4>"}  # that move at once, by bytes


@dataclass(frozen=True)
class Given:
    """A parameter of a kernel: its name, its type in the text, and what is given for it."""

    name: str
    type: str
    argument: Buffer | Number

    @property
    def declared(self) -> str:
        return f"{self.type} {self.name}"


def read(name: str, type_: str, number: int, kind: str = "operand") -> Given:
    """An array that the kernel reads, and does not write."""
    return Given(name, f"const {type_}* __restrict__", Buffer(kind, number, uint8))


def written(name: str, type_: str, number: int = 0, kind: str = "result") -> Given:
    """An array that the kernel writes."""
    return Given(name, f"{type_}*", Buffer(kind, number, uint8))


def integers(index: DType, **values: int) -> list[Given]:
    """Whole numbers by value."""
    return [Given(name, f"const {index.name}", Number(n, index)) for name, n in values.items()]


def truth(value: bool) -> str:
    """A constant in a text."""
    return "true" if value else "false"


def word_of(*bytes_: int) -> int:
    """The bytes that may move at once where all these are multiples of places and sizes: 16 at most."""
    return math.gcd(16, *bytes_)


def blocks_for(threads: int) -> int:
    """Blocks with so many threads in all."""
    return max(1, min(-(-threads // THREADS), MOST_BLOCKS))


def reach(size: int, blocks: int, each: int = 1) -> DType:
    """The type of places below a size that the threads of some blocks go through, `each` at a time."""
    return index_type(size + blocks * THREADS * each)


def entry(
    name: str,
    templates: Sequence[str],
    given: Sequence[Given],
    lines: Sequence[str],
    blocks: int,
    moved: int = 0,
    comment: Sequence[str] = (),
    bounds: str = BOUNDS,
) -> tuple[str, Launch]:
    """The text of a kernel, and its launch in so many blocks; `moved`: bytes that it reads and writes; `bounds`: of its
    launches, such as ROOMY."""
    text, full = assembled(name, comment, bounds, [g.declared for g in given], [f"    {x}" for x in lines], templates)
    return text, Launch(full, blocks, THREADS, 0, moved, tuple(g.argument for g in given))


def program(parts: Sequence[tuple[str, Launch]], scratch: Sequence[Scratch] = ()) -> CudaProgram:
    """Kernels that run one after the other."""
    return CudaProgram(tuple(dict.fromkeys(t for t, _ in parts)), tuple(x for _, x in parts), tuple(scratch))


NOTHING = CudaProgram((), (), ())  # for results without elements
INDEX = int64  # the dtype of positions that kernels hand to each other
