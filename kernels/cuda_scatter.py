"""CUDA kernels that combine slices at integer positions: keys for a sort, and sums of what the sorted keys bring
together. Floor: kernels."""

from __future__ import annotations

from dataclasses import dataclass

from gradtape.ir.dtypes import DType, bool_, int32, int64
from gradtape.ir.errors import InvalidArgumentError
from gradtape.kernels.cuda_entry import (
    NOTHING,
    THREADS,
    Given,
    blocks_for,
    entry,
    integers,
    program,
    reach,
    read,
    written,
)
from gradtape.kernels.cuda_launch import CudaProgram, Launch, Scratch
from gradtape.kernels.cuda_sorting import SHORT
from gradtape.kernels.cuda_spelling import MONOIDS
from gradtape.kernels.halves import computed

TEMPLATE = ("scattering.cuh",)
TEAMS = ((1, 1), (4, 4), (16, 8))  # threads that share a row of up to so many packs
WARP = 32
ENOUGH = 1 << 17  # threads, beyond which chunks are longer
CHUNKS = (16, 1024)  # keys of the shortest and the longest chunk
FEW = 32  # as in the template
MOST_LONG = 1 << 10  # blocks for rows of many chunks
KEY = 63  # bits


@dataclass(frozen=True)
class Slices:
    """The operand (batches, before, count, inner) of which slices go to positions (batches, count) of the result
    (batches, before, n, inner)."""

    batches: int
    before: int
    count: int
    n: int
    inner: int

    @property
    def size(self) -> int:
        """How many positions there are."""
        return self.batches * self.count

    @property
    def rows(self) -> int:
        """How many rows the result has."""
        return self.batches * self.n

    @property
    def bits(self) -> int:
        """Those of a key that number the positions."""
        bits = max(self.size - 1, 0).bit_length()
        if self.rows.bit_length() + bits > KEY:
            raise InvalidArgumentError(
                f"`scatter_add` of {self.size} positions among {self.rows} wants keys of more than {KEY} bits."
            )
        return bits

    @property
    def result(self) -> int:
        return self.rows * self.before * self.inner

    @property
    def operand(self) -> int:
        return self.size * self.before * self.inner


def are_sorted(at: Slices) -> bool:
    """Whether a block sorts the keys that it makes; all others are sorted by a library."""
    return at.size <= SHORT


def keys(at: Slices, positions: DType) -> CudaProgram:
    """From positions (operand 0) to keys (result 0), which are distinct: sorted, they are in the order of rows of the
    result, and within a row in the order of positions. Those of few positions are sorted."""
    few = are_sorted(at)
    blocks = 1 if few else blocks_for(at.size)
    index = reach(at.size, blocks)
    given = [written("keys", "int64"), read("positions", positions.name, 0)]
    given += integers(index, size=at.size, count=at.count)
    given += [*integers(int64, rows=at.rows, n=at.n), *integers(int32, bits=at.bits)]
    size = max(2, 1 << max(at.size - 1, 0).bit_length())
    name, function = ("sorted_keys", f"sort_keys<{size}, {THREADS}>") if few else ("keys", "make_keys")
    call = f"{function}(keys, positions, size, count, rows, n, bits);"
    return program([entry(name, TEMPLATE, given, [call], blocks, at.size * (8 + positions.size))])


def scatter(at: Slices, monoid: str, dtype: DType, width: int) -> CudaProgram:
    """From sorted keys (operand 0) and slices (operand 1) to those rows of result 0 that have a key; `width`: the
    elements of a pack."""
    if not at.size * at.before * at.inner or not at.rows:
        return NOTHING
    columns = at.before * at.inner // width
    team = next((t for most, t in TEAMS if columns <= most), WARP)
    strips = -(-columns // team)
    chunk = chunk_of(at.size, strips * team)
    chunks = -(-at.size // chunk)
    wide = computed(dtype)
    rounds = blocks_for(chunks * strips * team)
    index = reach(max(at.operand, at.result, at.size + chunk, chunks * columns * width), rounds, width)
    held = chunks * columns * width if chunks > 1 else 1
    types = f"{structure(monoid, dtype)}, {team}, {width}"
    numbers = integers(index, count=at.count, n=at.n, before=at.before, inner=at.inner // width, columns=columns)
    numbers += integers(index, size=at.size, chunk=chunk)
    last = [*integers(int64, rows=at.rows), *integers(int32, bits=at.bits)]
    lines = [f"const Slices<{index.name}> at{{count, n, before, inner, columns}};"]
    given = [
        written("out", dtype.name),
        written("heads", wide.name, 0, "scratch"),
        written("tails", wide.name, 1, "scratch"),
        read("keys", "int64", 0),
        read("x", dtype.name, 1),
    ]
    call = f"scatter<{types}>(out, heads, tails, keys, x, at, size, chunk, rows, bits);"
    moved = at.size * 8 + (at.operand + at.result) * dtype.size
    parts = [entry(f"scatter_{monoid}", TEMPLATE, [*given, *numbers, *last], [*lines, call], rounds, moved)]
    if chunks > 1:
        many = min((chunks - 1) // FEW * strips, MOST_LONG)
        parts.append(
            _meeting(types, dtype, wide, [*numbers, *integers(index, blocks=many), *last], lines, many, chunks, columns)
        )
    return program(parts, [Scratch(held, wide), Scratch(held, wide)])


def _meeting(
    types: str,
    dtype: DType,
    wide: DType,
    numbers: list[Given],
    lines: list[str],
    many: int,
    chunks: int,
    columns: int,
) -> tuple[str, Launch]:
    """The kernel that puts rows of several chunks together."""
    given = [
        written("out", dtype.name),
        read("heads", wide.name, 0, "scratch"),
        read("tails", wide.name, 1, "scratch"),
        read("keys", "int64", 0),
    ]
    call = f"meet<{types}>(out, heads, tails, keys, at, size, chunk, blocks, rows, bits);"
    blocks = many + blocks_for((chunks - 1) * columns)
    return entry("meet", TEMPLATE, [*given, *numbers], [*lines, call], blocks, chunks * columns * wide.size)


def chunk_of(size: int, threads: int) -> int:
    """How many keys a team goes through, where so many threads share a row: a power of two."""
    least, most = CHUNKS
    wanted = size * threads // ENOUGH
    return min(max(least, 1 << max(wanted.bit_length() - 1, 0)), most)


def structure(monoid: str, dtype: DType) -> str:
    """What combines elements of a dtype; a sum of truth values is whether one is true."""
    return MONOIDS["any" if dtype is bool_ and monoid == "sum" else monoid][0]


def width_of(at: Slices, dtype: DType, alignment: int) -> int:
    """The elements of a pack: those of 16 bytes, but at most 8 (registers hold several packs), where rows and the
    operand's address allow it; else one."""
    width = min(16 // dtype.size, 8)
    fits = at.inner % width == 0 and alignment == 16
    return width if fits else 1
