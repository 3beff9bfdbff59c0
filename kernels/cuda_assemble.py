"""CUDA kernels that write products of factors to where their letters stand in a result: strided parts as clusters,
other positions by index. Floor: kernels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gradtape.ir.cluster import Access, Cluster, Loop, Operation, Read, Write, collapsed
from gradtape.ir.dtypes import DType
from gradtape.kernels.cuda_elementwise import elementwise
from gradtape.kernels.cuda_entry import NOTHING, Given, blocks_for, entry, integers, program, reach, read, written
from gradtape.kernels.cuda_jobs import Job
from gradtape.kernels.cuda_launch import Buffer, CudaProgram
from gradtape.kernels.halves import computed, in_float32

Sizes = tuple[int, ...]
TEMPLATE = ("arithmetic.cuh", "packs.cuh")


@dataclass(frozen=True)
class Factor:
    """An operand of a product: its dtype, and its stride along each loop."""

    dtype: DType
    strides: Sizes


# ------------------------------------------------------------------ strided parts


def part(shape: Sizes, steps: Sizes, dtype: DType, terms: Sequence[Sequence[Factor]], adds: bool) -> CudaProgram:
    """The sum of products of factors (operands, term by term) in a part of a result that begins where result 0 does;
    `adds`: to what is there."""
    if not math.prod(shape):
        return NOTHING
    code: list[Operation] = []
    reads: list[Read] = []
    over = Access(dtype, steps)
    products = [_product(code, reads, factors, dtype) for factors in terms]
    buffers = [Buffer("operand", r.operand, r.access.dtype) for r in reads]
    if adds:
        products.append(_put(code, "read", (), dtype, len(reads)))
        reads.append(Read(len(reads), over))
        buffers.append(Buffer("result", 0, dtype))
    total = products[0]
    for k in products[1:]:
        total = _put(code, "logical_or" if dtype.is_bool else "add", (total, k), dtype)
    loops = tuple(Loop(n, False) for n in shape)
    write = Write(total, over, (True,) * len(shape))
    cluster = in_float32(collapsed(Cluster(loops, tuple(reads), tuple(code), (write,))))
    return program([elementwise(Job(cluster, tuple(buffers), (Buffer("result", 0, dtype),)))])


def _product(code: list[Operation], reads: list[Read], factors: Iterable[Factor], dtype: DType) -> int:
    """The operation that is a product of factors; of none it is 1."""
    found = None
    for f in factors:
        k = _put(code, "read", (), f.dtype, len(reads))
        reads.append(Read(len(reads), Access(f.dtype, f.strides)))
        if f.dtype is not dtype:
            k = _put(code, "cast", (k,), dtype)
        found = k if found is None else _put(code, "logical_and" if dtype.is_bool else "multiply", (found, k), dtype)
    return _put(code, "number", (), dtype, dtype.numpy_dtype.type(1)) if found is None else found


def _put(code: list[Operation], op: str, args: Sizes, dtype: DType, leaf: object = None) -> int:
    code.append(Operation(op, args, dtype, leaf))
    return len(code) - 1


# ------------------------------------------------------------------ by index


@dataclass(frozen=True)
class Vector:
    """An operand of positions for the values of a loop: each adds so many places; it must be below `extent`, if that is
    not known to hold."""

    loop: int
    dtype: DType
    stride: int
    extent: int | None = None


@dataclass(frozen=True)
class Places:
    """Where the values of loops stand in a flat result: `start`, steps along loops, and vectors of positions."""

    sizes: Sizes
    start: int
    steps: Sizes
    vectors: tuple[Vector, ...]

    @property
    def count(self) -> int:
        return math.prod(self.sizes)


def write_at(at: Places, size: int, dtype: DType, factors: Sequence[Factor]) -> CudaProgram:
    """Products of factors (operands; vectors come behind them) added to result 0 of a size, at places of which no two
    are equal."""
    if not at.count or not size:
        return NOTHING
    wide = computed(dtype).name
    index, given, lines = _walk(at, size, len(factors))
    value = f"cast<{wide}>(1)"
    for k, f in enumerate(factors):
        place = _sum([f"i{c} * f{k}_{c}" for c, s in enumerate(f.strides) if s])
        given += [read(f"x{k}", f.dtype.name, k)]
        given += integers(index, **{f"f{k}_{c}": s for c, s in enumerate(f.strides) if s})
        element = f"cast<{wide}>(widen(x{k}[{place}]))"
        value = element if not k else _both("logical_and" if dtype.is_bool else "multiply", value, element)
    there = _both("logical_or" if dtype.is_bool else "add", f"cast<{wide}>(widen(out[at]))", value)
    lines += ["    if (inside)", f"        out[at] = stored<{dtype.name}>({there});", "}"]
    blocks = blocks_for(at.count)
    given.insert(0, written("out", dtype.name))
    return program([entry("write_at", TEMPLATE, given, lines, blocks, at.count * dtype.size * 2)])


def places(at: Places, size: int) -> CudaProgram:
    """The places themselves (result 0), flat; -1 for those that do not exist."""
    if not at.count:
        return NOTHING
    _, given, lines = _walk(at, size, 0)
    lines += ["    places[u] = inside ? int64(at) : -1;", "}"]
    given.insert(0, written("places", "int64"))
    return program([entry("places", TEMPLATE, given, lines, blocks_for(at.count), at.count * 8)])


def _both(function: str, x: str, y: str) -> str:
    return f"{function}({x}, {y})"


def _sum(terms: Sequence[str]) -> str:
    return " + ".join(terms) or "0"


def _walk(at: Places, size: int, first: int) -> tuple[DType, list[Given], list[str]]:
    """The type of places, the parameters, and the beginning of a loop over all values, with their place `at`; vectors
    are operands from `first` on."""
    index = reach(max(size, at.count), blocks_for(at.count))
    name = index.name
    rank = len(at.sizes)
    lines = [f"for ({name} u = thread<{name}>(); u < size; u += threads<{name}>()) {{"]
    for c in range(rank):
        inner = " * ".join(f"n{j}" for j in range(c + 1, rank))
        position = f"u / ({inner})" if inner else "u"
        lines.append(f"    const {name} i{c} = {position}{f' % n{c}' if c else ''};")
    numbers = {"size": at.count, "start": at.start} | {f"n{c}": n for c, n in enumerate(at.sizes) if c}
    numbers |= {f"d{c}": step for c, step in enumerate(at.steps) if step}
    terms = ["start", *(f"i{c} * d{c}" for c, step in enumerate(at.steps) if step)]
    given, conditions = [], []
    for k, v in enumerate(at.vectors):
        given.append(read(f"v{k}", v.dtype.name, first + k))
        lines.append(f"    const int64 p{k} = int64(v{k}[i{v.loop}]);")
        numbers[f"s{k}"] = v.stride
        terms.append(f"{name}(p{k}) * s{k}")
        if v.extent is not None:
            numbers[f"e{k}"] = v.extent
            conditions.append(f"p{k} >= 0 && p{k} < int64(e{k})")
    lines.append(f"    const bool inside = {' && '.join(conditions) or 'true'};")
    lines.append(f"    const {name} at = inside ? {_sum(terms)} : 0;")
    return index, [*given, *integers(index, **numbers)], lines
