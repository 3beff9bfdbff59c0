"""Tiles: the part of a job's rounds that a block does at a time, where operands are repeated along some loops; how an
elementwise job is tiled, and what a block reads at the beginning of a tile. Floor: kernels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gradtape.ir.cluster import Access, Cluster
from gradtape.ir.dtypes import int32
from gradtape.kernels.cuda_body import Body, position
from gradtape.kernels.cuda_extents import ENOUGH, Tiles, count_of, larger, moved, placed
from gradtape.kernels.cuda_launch import Number
from gradtape.kernels.cuda_teams import THREADS

ROW = 32  # elements side by side in a tile, at least
LEAST_ELEMENTS = 1 << 12  # of a tile, so that every thread has some packs
# Tiles that have or take more do not grow: the last step doubles them, so several blocks share a processor even so.
MOST_ELEMENTS = 1 << 15
MOST_SHARED = 24 * 1024  # bytes


@dataclass(frozen=True)
class Tiling(Tiles):
    """Tiles of an elementwise job, and how many rounds a thread takes along one loop."""

    along: int
    share: int


def tiling(cluster: Cluster, vector: int | None, width: int, least: int) -> Tiling | None:
    """The smallest tiles that move little more than the `least` bytes that must be moved; None if none of those do that
    there is room for."""
    along = _along(cluster, vector)
    if vector is None or along is None:
        return None
    whole = [x.extent for x in cluster.loops]
    extents = [min(n, ROW) if k == vector else 1 for k, n in enumerate(whole)]
    while math.prod(extents) < LEAST_ELEMENTS or moved(cluster, extents) > ENOUGH * least:
        found = list(larger(cluster, extents))
        extents = min(found, key=lambda sizes: moved(cluster, sizes), default=extents)
        if not found or math.prod(extents) > MOST_ELEMENTS or placed(cluster, extents)[1] > MOST_SHARED:
            break
    if moved(cluster, extents) > ENOUGH * least:
        return None
    starts, shared = placed(cluster, extents)
    share = min(extents[along], max(1, math.prod(extents) // (width * THREADS)))
    return Tiling(tuple(extents), starts, shared, count_of(cluster, extents), along, share)


def _along(cluster: Cluster, vector: int | None) -> int | None:
    """The loop along which most operands are repeated, those first that are read in packs."""
    moving = [r.access for r in cluster.reads if r.access.loops]
    found = {}
    for k in range(len(cluster.loops)):
        repeated = [a for a in moving if k not in a.loops]
        if repeated and k != vector:
            found[k] = (sum(vector in a.loops for a in repeated), len(repeated), -k)
    return max(found, key=lambda k: found[k], default=None)


# ------------------------------------------------------------------ text


def numbers(body: Body, tiles: Tiles, before: int = 0) -> list[tuple[str, Number]]:
    """What a kernel is told of its tiles; `before` are the bytes of shared memory that are used otherwise."""
    found = [(f"e{k}", Number(tiles.extents[k], body.index)) for k in _tiled(body)]
    return found + [(f"at{k}", Number(before + at, int32)) for k, at in tiles.starts.items()]


def begin(body: Body, tiles: Tiles, threads: int = THREADS) -> list[str]:
    """The loop over tiles, which is left open: where a tile begins, and what its block of so many threads keeps. The
    sizes of the loops, of which that along the vector loop counts packs."""
    index, loops = body.index.name, _tiled(body)
    counts = [f"tiles{j}" for j in loops]
    for k in tiles.starts:
        dtype = _access(body.cluster, k).dtype.name
        body.line(f"{dtype}* const k{k} = reinterpret_cast<{dtype}*>(kept + at{k});")
    for j in loops:
        body.line(f"const {index} tiles{j} = (n{j} + e{j} - 1) / e{j};")
    body.open(f"for ({index} tile = blockIdx.x; tile < {' * '.join(counts)}; tile += gridDim.x) {{")
    for n, j in enumerate(loops):
        body.line(f"const {index} b{j} = {position('tile', counts, n)} * e{j};")
        body.line(f"const {index} m{j} = b{j} + e{j} < n{j} ? e{j} : n{j} - b{j};")
    sizes = [f"m{j}" if j in loops else f"n{j}" for j in range(len(body.cluster.loops))]
    if body.vector is not None:
        body.line(f"const {index} packs_of_row = {sizes[body.vector]} / V;")
    packs = ["packs_of_row" if j == body.vector else size for j, size in enumerate(sizes)]
    for k in tiles.starts:
        _keep(body, k, packs if body.is_along(_access(body.cluster, k)) else sizes, threads)
    body.line("__syncthreads();")
    return packs


def in_tile(body: Body, loops: Sequence[int]) -> None:
    """The values of loops in the round u of a tile."""
    sizes = [f"m{k}" for k in loops]
    for n, k in enumerate(loops):
        body.line(f"const {body.index.name} i{k} = b{k} + {position('u', sizes, n)};")


def _tiled(body: Body) -> list[int]:
    """The loops of which a tile is a part."""
    return [k for k, x in enumerate(body.cluster.loops) if not x.reduced]


def _keep(body: Body, k: int, sizes: Sequence[str], threads: int) -> None:
    """A block reads its part of an operand, neighbouring threads neighbouring elements."""
    access, leaf = _access(body.cluster, k), body.cluster.code[k].leaf
    order = sorted(access.loops, key=lambda j: (-abs(access.strides[j]), j))
    mine = [sizes[j] for j in order]
    body.staged[k] = place = _place(body, access)
    body.open(f"for ({body.index.name} u = threadIdx.x; u < {' * '.join(mine)}; u += {threads}) {{")
    for n, j in enumerate(order):
        at = position("u", mine, n)
        at = f"{at} * V" if mine[n] == "packs_of_row" else at
        body.line(f"const {body.index.name} i{j} = {at if body.cluster.loops[j].reduced else f'b{j} + {at}'};")
    if body.is_along(access):
        body.line(f"store(k{k}, {place}, load<V>(r{leaf}, {body.place(access)}));")
    else:
        body.line(f"k{k}[{place}] = r{leaf}[{body.place(access)}];")
    body.close()


def _place(body: Body, access: Access) -> str:
    """Where an element lies in the block's memory, for given values of all loops: side by side for neighbouring
    threads, which are along the vector loop, or on neighbouring columns."""
    loops = body.cluster.loops
    order = sorted(access.loops, key=lambda j: (j == body.vector, body.vector is None and not loops[j].reduced, j))
    terms = []
    for n, j in enumerate(order):
        at = f"i{j}" if loops[j].reduced else f"(i{j} - b{j})"
        terms.append(" * ".join([at, *(f"n{i}" if loops[i].reduced else f"e{i}" for i in order[n + 1 :])]))
    return " + ".join(terms)


def _access(cluster: Cluster, k: int) -> Access:
    return cluster.reads[cluster.code[k].leaf].access
