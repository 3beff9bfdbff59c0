"""Running sums and their like along one axis as CUDA kernels. Floor: kernels.

Rows that lie in one piece are shared by the threads of a warp or a block; of other axes each thread goes through a
column. Where rows or columns are few and long they are cut into parts: a first kernel leaves the whole of each part, a
second one begins each part with what lies before it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from gradtape.ir.dtypes import DType, bool_, float32
from gradtape.kernels.cuda_entry import (
    ROOMY,
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
from gradtape.kernels.cuda_launch import Buffer, CudaProgram, Launch, Number, Scratch
from gradtape.kernels.cuda_teams import WARP

BLOCKS = 512  # that keep a device busy
SEVERAL = 8  # packs of each lane, up to which a warp does a row
LONG_PART = 4  # packs of each thread in a part of a row, at least
LONG_PIECE = 16  # elements of a part of a column, at least
MANY_THREADS = 1 << 16  # that keep a device busy with columns


class Stage(NamedTuple):
    """One scan: its structure in `scans.cuh`, whose members are `arrays`, the last of which are written."""

    structure: str
    arrays: tuple[str, ...]
    written: int
    numbers: int  # in a state
    back: bool = False  # whether it goes the other way


# By op: out of x, and of what else is given, perhaps by way of arrays between.
STAGES: dict[str, tuple[Stage, ...]] = {
    "cumsum": (Stage("Running<Sum, {}>", ("x", "out"), 1, 1),),
    "cumprod": (Stage("Running<Prod, {}>", ("x", "out"), 1, 1),),
    "cumulative_logsumexp": (Stage("LogSumExp<{}>", ("x", "out"), 1, 2),),
    "logsumexps_push": (Stage("Pushed<{}>", ("x", "u", "out"), 1, 3),),
    "logsumexps_pull": (
        Stage("Tops<{}>", ("x", "top", "scale"), 2, 2),
        Stage("Pulled<{}>", ("x", "u", "top", "scale", "out"), 1, 2, back=True),
    ),
}
COMMENTS = {
    "cumsum": "out[k] = x[0] + ... + x[k]",
    "cumprod": "out[k] = x[0] * ... * x[k]",
    "cumulative_logsumexp": "out[k] = log(exp(x[0]) + ... + exp(x[k]))",
    "logsumexps_push": "out[k] = sum of u[i] exp(x[i]) over i <= k, divided by the sum of exp(x[i])",
    "logsumexps_pull": "out[i] = sum over k >= i of u[k] exp(x[i]) / (exp(x[0]) + ... + exp(x[k]))",
}


@dataclass(frozen=True)
class Shape:
    """An array as a scan sees it: `inner` elements lie between neighbours, `outer` times."""

    outer: int
    n: int
    inner: int

    @property
    def lines(self) -> int:
        return self.outer * self.inner

    @property
    def size(self) -> int:
        return self.outer * self.n * self.inner


def scan(
    op: str, dtype: DType, shape: tuple[int, ...], axis: int, reverse: bool, exclusive: bool = False
) -> CudaProgram:
    """The program of a scan; operands are those of the op, in order."""
    seen = Shape(math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :]))
    computed = float32 if dtype.is_half else dtype
    scratch: list[Scratch] = []
    buffers = {"x": Buffer("operand", 0, dtype), "u": Buffer("operand", 1, dtype), "out": Buffer("result", 0, dtype)}
    made: list[tuple[str, Launch]] = []
    if seen.size:
        for stage in STAGES[op]:
            for name in stage.arrays[-stage.written :]:
                if name not in buffers:
                    scratch.append(Scratch(seen.size, computed))
                    buffers[name] = Buffer("scratch", len(scratch) - 1, computed)
            made += _Scan(op, stage, seen, buffers, reverse != stage.back, exclusive, computed).kernels(scratch)
    return program(made, scratch)


class _Scan:
    """The kernels of one stage."""

    def __init__(
        self,
        op: str,
        stage: Stage,
        seen: Shape,
        buffers: dict[str, Buffer],
        back: bool,
        exclusive: bool,
        computed: DType,
    ) -> None:
        self.op, self.stage, self.seen, self.computed = op, stage, seen, computed
        self.back, self.exclusive = back, exclusive
        given = [(name, buffers[name]) for name in stage.arrays]
        self.reads, self.writes = given[: -stage.written], given[-stage.written :]
        self.width = min(16 // max(b.dtype.size for _, b in given), 8 if stage.numbers == 1 else 4)
        self.structure = stage.structure.format(buffers["x"].dtype.name)

    def kernels(self, scratch: list[Scratch]) -> list[tuple[str, Launch]]:
        make = self._rows if self.seen.inner == 1 else self._columns
        parts, share = self._parts()
        if parts == 1:
            return [make(1, self.seen.n, None, False)]
        scratch.append(Scratch(parts * self.seen.lines * self.stage.numbers, self.computed))
        totals = Buffer("scratch", len(scratch) - 1, self.computed)
        return [make(parts, share, totals, True), make(parts, share, totals, False)]

    # ------------------------------------------------------------------ parts

    def _parts(self) -> tuple[int, int]:
        """In how many parts lines are cut, and how many elements a part has."""
        n, lines = self.seen.n, self.seen.lines
        if self.seen.inner == 1:
            step = THREADS * self.width
            most = min(n // (LONG_PART * step), BLOCKS // lines) if self._lanes() == THREADS else 1
        else:
            step, most = 1, min(n // LONG_PIECE, MANY_THREADS // lines)
        parts = max(1, min(most, THREADS))
        share = -(-n // (parts * step)) * step
        return -(-n // share), share

    def _lanes(self) -> int:
        """Threads that share a row."""
        packs = -(-self.seen.n // self.width)
        if packs <= WARP:
            return 1 << max(packs - 1, 0).bit_length()
        return WARP if packs <= WARP * SEVERAL and self.seen.lines >= BLOCKS else THREADS

    # ------------------------------------------------------------------ texts

    def _rows(self, parts: int, share: int, totals: Buffer | None, leaves: bool) -> tuple[str, Launch]:
        seen, lanes = self.seen, self._lanes()
        blocks = blocks_for(seen.outer * parts * lanes)
        index = reach(max(seen.size, seen.outer * parts), blocks, self.width)
        call = (
            f"scan_rows<{lanes}, {THREADS}, {self.width}, {self._flags(leaves)}>(scan, rows, n, whole, parts, share, "
        )
        numbers = [
            *integers(index, rows=seen.outer, n=seen.n),
            Given("whole", "const bool", Number(seen.n % self.width == 0, bool_)),
            *integers(index, parts=parts, share=share),
        ]
        return self._kernel("rows", call, numbers, blocks, totals, parts, leaves)

    def _columns(self, parts: int, share: int, totals: Buffer | None, leaves: bool) -> tuple[str, Launch]:
        seen = self.seen
        blocks = blocks_for(seen.lines * parts)
        index = reach(max(seen.size, seen.lines * parts), blocks)
        call = f"scan_columns<{self._flags(leaves)}>(scan, columns, inner, n, parts, share, "
        numbers = integers(index, columns=seen.lines, inner=seen.inner, n=seen.n, parts=parts, share=share)
        return self._kernel("columns", call, numbers, blocks, totals, parts, leaves)

    def _flags(self, leaves: bool) -> str:
        return ", ".join(map(truth, (self.back, self.exclusive, leaves)))

    def _kernel(
        self, about: str, call: str, numbers: list[Given], blocks: int, totals: Buffer | None, parts: int, leaves: bool
    ) -> tuple[str, Launch]:
        """A kernel that scans, or (`leaves`) one that leaves the totals of parts, and writes nothing else."""
        writes = [] if leaves else self.writes
        given = [written(n, b.dtype.name, b.number, b.kind) for n, b in writes]
        given += [read(n, b.dtype.name, b.number, b.kind) for n, b in self.reads]
        members = [*(n for n, _ in self.reads), *("nullptr" if leaves else n for n, _ in self.writes)]
        lines = [f"using Scan = {self.structure};", f"const Scan scan{{{', '.join(members)}}};"]
        moved = sum(self.seen.size * b.dtype.size for _, b in (*self.reads, *writes))
        if totals is None:
            lines.append(call + "(Scan::State*)nullptr);")
        else:
            given.append((written if leaves else read)("totals", totals.dtype.name, totals.number, totals.kind))
            lines.append(call + "(Scan::State*)totals);")
            moved += self.seen.lines * parts * self.stage.numbers * totals.dtype.size
        comment = f"// {'The whole of each part of ' if leaves else ''}{COMMENTS[self.op]}"
        name = f"{self.op}_{about}{'_parts' if leaves else ''}"
        return entry(name, ("scans.cuh",), [*given, *numbers], lines, blocks, moved, [comment], ROOMY)
