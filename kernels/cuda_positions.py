"""CUDA kernels that find positions: of the first extreme element along an axis, of values in sorted rows. Floor:
kernels."""

from __future__ import annotations

from gradtape.ir.dtypes import DType
from gradtape.kernels.cuda_entry import NOTHING, blocks_for, entry, integers, program, reach, read, written
from gradtape.kernels.cuda_launch import CudaProgram, Scratch

TEMPLATE = ("positions.cuh",)
WARP = 32
ENOUGH = 1 << 14  # threads up to which the elements of one result are shared out among several teams
LEAST = 8  # packs for each thread of these teams
SHARE = 128  # elements, the least for a team


def width_of(n: int, inner: int, dtype: DType, alignment: int) -> int:
    """The elements of a pack."""
    width = 16 // dtype.size
    return width if inner == 1 and n % width == 0 and alignment == 16 else 1


def extreme(
    outer: int, n: int, inner: int, dtype: DType, largest: bool, positions: DType, alignment: int
) -> CudaProgram:
    """From an array (outer, n, inner) to the positions (outer, inner) of the first extreme elements."""
    results = outer * inner
    if not results:
        return NOTHING
    width = width_of(n, inner, dtype, alignment)
    team = 1 if inner >= WARP or n // width <= 2 else 4 if n // width <= WARP else WARP
    parts = max(1, min(ENOUGH // (results * team), n // max(width * team * LEAST, SHARE)))
    blocks = blocks_for(results * parts * team)
    index = reach(outer * n * inner + team * width, blocks, width)
    numbers = integers(index, outer=outer, n=n, inner=inner, parts=parts)
    word = "true" if largest else "false"
    name = "argmax" if largest else "argmin"
    call = f"extreme<{word}, {team}, {width}>(out, x, outer, n, inner, parts);"
    moved = outer * n * inner * dtype.size
    if parts == 1:
        given = [written("out", positions.name), read("x", dtype.name, 0), *numbers]
        return program([entry(name, TEMPLATE, given, [call], blocks, moved + results * positions.size)])
    held = results * parts
    given = [written("out", index.name, 0, "scratch"), read("x", dtype.name, 0), *numbers]
    first = entry(name, TEMPLATE, given, [call], blocks, moved + held * index.size)
    given = [written("out", positions.name), read("found", index.name, 0, "scratch"), read("x", dtype.name, 0)]
    call = f"extreme_of_parts<{word}>(out, found, x, outer, n, inner, parts);"
    moved = held * (index.size + dtype.size) + results * positions.size
    second = entry(f"{name}_of_parts", TEMPLATE, [*given, *numbers], [call], blocks_for(results * WARP), moved)
    return program([first, second], [Scratch(held, index)])


def search(rows: int, n: int, count: int, dtype: DType, right: bool, nan_last: bool, positions: DType) -> CudaProgram:
    """From sorted rows (rows, n) and values (rows, count) to how many of its row are below each value (`right`: or
    equal to it); `nan_last`: NaN is above all numbers, else it is above none."""
    size = rows * count
    if not size:
        return NOTHING
    blocks = blocks_for(size)
    index = reach(max(size, rows * n), blocks)
    given = [written("out", positions.name), read("sorted", dtype.name, 0), read("values", dtype.name, 1)]
    given += integers(index, size=size, count=count, n=n)
    flags = ", ".join("true" if b else "false" for b in (right, nan_last))
    moved = (rows * n + size) * dtype.size + size * positions.size
    call = f"search<{flags}>(out, sorted, values, size, count, n);"
    return program([entry("search", TEMPLATE, given, [call], blocks, moved)])
