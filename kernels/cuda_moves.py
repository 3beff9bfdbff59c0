"""CUDA kernels that only move elements: parts put among zeros, parts taken out, arrays joined, diagonals, rows at
positions. Floor: kernels.

Elements are words of their bytes, so that one text serves all dtypes; where rows and addresses allow it, several
elements are one word."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gradtape.ir.dtypes import DType
from gradtape.kernels.cuda_entry import (
    NOTHING,
    WORDS,
    Given,
    blocks_for,
    entry,
    integers,
    program,
    reach,
    read,
    written,
)
from gradtape.kernels.cuda_launch import CudaProgram

TEMPLATE = ("moving.cuh",)
MOST_JOINED = 8  # arrays that one kernel joins
TEAMS = ((1, 1), (4, 4), (16, 8))  # threads that share a row of up to so many words
WARP = 32
SPAN = 16  # words of a row for each thread


@dataclass(frozen=True)
class Line:
    """How one axis of a result goes through its source.

    Args:
      extent, source: the sizes of the result's axis and of the source's.
      kind: "all"; "put" (the source stands in the result, from `begin` on in steps); "taken" (the other way round).
      begin: a number, or None: element `which` of the vector of beginnings."""

    extent: int
    source: int
    kind: str = "all"
    begin: int | None = 0
    step: int = 1
    which: int = 0

    @property
    def is_run(self) -> bool:
        """Whether what stands side by side in the result does so in the source."""
        return self.kind == "all" or (self.kind == "put" and self.step == 1 and self.begin is not None)

    def times(self, inner: int) -> Line:
        """The axis with an inner one, of which it takes all."""
        return Line(self.extent * inner, self.source * inner, self.kind, (self.begin or 0) * inner)

    def by(self, word: int) -> Line:
        return Line(self.extent // word, self.source // word, self.kind, (self.begin or 0) // word)


def in_bytes(lines: Sequence[Line], size: int) -> list[Line]:
    """The same axes with as few as there need be, the last one in bytes of elements of a size."""
    found = [Line(size, size)]
    for line in reversed(lines):
        if found[0].kind == "all" and line.is_run:
            found[0] = line.times(found[0].extent)
        else:
            found.insert(0, line)
    return found


def cut(lines: Sequence[Line], size: int, address: int, begins: DType) -> CudaProgram:
    """A result whose elements come from a source (operand 0) or are zero; operand 1: beginnings, where they are asked
    for. `size`: bytes of an element, `address`: where the source lies."""
    if not math.prod(line.extent for line in lines):
        return NOTHING
    *outer, last = in_bytes(lines, size)
    word = math.gcd(16, last.extent, last.source, last.begin or 0, address)
    axes = [*outer, last.by(word)]
    count = math.prod(a.extent for a in axes)
    blocks = blocks_for(count)
    index = reach(max(count, math.prod(a.source for a in axes)), blocks)
    text = [f"for ({index.name} u = thread<{index.name}>(); u < size; u += threads<{index.name}>()) {{"]
    text += ["    bool inside = true;"]
    numbers = {"size": count}
    place = ""
    for k, a in enumerate(axes):
        inner = " * ".join(f"n{j}" for j in range(k + 1, len(axes)))
        position = f"u / ({inner})" if inner else "u"
        text.append(f"    const {index.name} i{k} = {position}{f' % n{k}' if k else ''};")
        numbers |= {f"n{k}": a.extent} if k else {}
        numbers |= _numbers(a, k)
        text.append(f"    const {index.name} j{k} = {_position(a, k)};")
        place = f"({place}) * {_source(a, k)} + j{k}" if k else "j0"
    text += [f"    out[u] = inside ? x[{place}] : {WORDS[word]}{{}};", "}"]
    given = [written("out", WORDS[word]), read("x", WORDS[word], 0)]
    if any(a.begin is None for a in axes):
        given.append(read("begins", begins.name, 1))
    given += integers(index, **numbers)
    moved = word * (count + min(count, math.prod(a.source for a in axes)))
    return program([entry("cut", TEMPLATE, given, text, blocks, moved)])


def _numbers(a: Line, k: int) -> dict[str, int]:
    """What a kernel is told of an axis besides its extent."""
    if a.kind == "all":
        return {}
    found = {f"m{k}": a.source}
    if a.begin is not None:
        found[f"b{k}"] = a.begin
    if a.kind == "taken" or a.step != 1:
        found[f"s{k}"] = a.step
    return found


def _source(a: Line, k: int) -> str:
    return f"n{k}" if a.kind == "all" else f"m{k}"


def _position(a: Line, k: int) -> str:
    if a.kind == "all":
        return f"i{k}"
    begin = f"b{k}" if a.begin is not None else f"int64(begins[{a.which}])"
    if a.kind == "taken":
        return f"taken(i{k}, {begin}, s{k}, m{k}, inside)"
    step = "" if a.step == 1 else f"s{k}, "
    return f"{'put' if a.step == 1 else 'spread'}(i{k}, {begin}, {step}m{k}, inside)"


# ------------------------------------------------------------------ joined


def join(rows: int, columns: Sequence[int], addresses: Sequence[int]) -> CudaProgram:
    """Arrays of so many rows side by side; `columns`: the bytes of a row of each, none of them 0."""
    word = math.gcd(16, *columns, *addresses)
    total = sum(columns) // word
    if not rows * total:
        return NOTHING
    parts = []
    for first in range(0, len(columns), MOST_JOINED):
        some = [n // word for n in columns[first : first + MOST_JOINED]]
        size = rows * sum(some)
        blocks = blocks_for(size)
        index = reach(rows * total, blocks)
        given = [written("out", WORDS[word])]
        given += [read(f"x{k}", WORDS[word], first + k) for k in range(len(some))]
        ends = {f"e{k}": sum(some[: k + 1]) for k in range(len(some))}
        given += integers(index, size=size, total=total, first=sum(columns[:first]) // word, **ends)
        parts.append(entry("join", TEMPLATE, given, _joining(len(some), index.name), blocks, 2 * size * word))
    return program(parts)


def _joining(count: int, index: str) -> list[str]:
    lines = [
        f"for ({index} u = thread<{index}>(); u < size; u += threads<{index}>()) {{",
        f"    const {index} row = u / e{count - 1}, j = u % e{count - 1};",
    ]
    choice = f"x{count - 1}[row * (e{count - 1} - e{count - 2}) + j - e{count - 2}]" if count > 1 else "x0[u]"
    for k in range(count - 2, -1, -1):
        element = f"x{k}[row * (e{k} - e{k - 1}) + j - e{k - 1}]" if k else "x0[row * e0 + j]"
        choice = f"j < e{k} ? {element}\n        : {choice}"
    return [*lines, f"    out[row * total + first + j] = {choice};", "}"]


# ------------------------------------------------------------------ diagonals


def undiagonal(rows: int, n: int, size: int) -> CudaProgram:
    """Rows (batch · n of them) as the diagonals of squares of n · n elements of a size."""
    total = rows * n
    if not total:
        return NOTHING
    width = 16 // size
    blocks = blocks_for(-(-total // width))
    index = reach(total, blocks, width)
    given = [written("out", WORDS[size]), read("x", WORDS[size], 0), *integers(index, size=total, n=n)]
    return program(
        [
            entry(
                "undiagonal", TEMPLATE, given, [f"undiagonal<{width}>(out, x, size, n);"], blocks, size * (total + rows)
            )
        ]
    )


# ------------------------------------------------------------------ rows at positions


def gather(batches: int, before: int, n: int, count: int, row: int, positions: DType, address: int) -> CudaProgram:
    """The rows, of so many bytes, of x (batches, before, n) at positions (batches, count): (batches, before, count)."""
    rows = batches * before * count
    if not rows * row:
        return NOTHING
    word = math.gcd(16, row, address)
    width = row // word
    team = next((t for most, t in TEAMS if width <= most), WARP)
    span = team * SPAN
    blocks = blocks_for(rows * -(-width // span) * team)
    index = reach(max(rows, batches * before * n) * width, blocks)
    given: list[Given] = [written("out", WORDS[word]), read("x", WORDS[word], 0), read("positions", positions.name, 1)]
    given += integers(index, rows=rows, count=count, before=before, n=n, width=width, span=span)
    call = f"gather<{team}>(out, x, positions, rows, count, before, n, width, span);"
    moved = 2 * rows * row + batches * count * positions.size
    return program([entry("gather", TEMPLATE, given, [call], blocks, moved)])
