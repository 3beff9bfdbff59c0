"""Tiles: the part of an elementwise job's rounds that a block does at a time, where operands are repeated along several
loops. What a tile needs several times the block reads once, and keeps in shared memory. Floor: kernels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gradtape.ir.cluster import Access, Cluster
from gradtape.ir.dtypes import int32
from gradtape.kernels.cuda_body import Body, position
from gradtape.kernels.cuda_jobs import size_of
from gradtape.kernels.cuda_launch import Number
from gradtape.kernels.cuda_teams import THREADS

ROW = 32  # elements side by side in a tile, at least
LEAST_ELEMENTS = 1 << 12  # of a tile, so that every thread has some packs
MOST_ELEMENTS = 1 << 15  # of a tile
MOST_SHARED = 24 * 1024  # bytes, so that several blocks share a processor
ENOUGH = 1.08  # of the bytes of operands and results; tiles that move less would only be larger
ALIGNED = 16  # bytes


@dataclass(frozen=True)
class Tiling:
    """The extents of a tile, by loop, and of how many rounds a thread takes along one of them. `starts` says at which
    byte of shared memory the elements of each read lie that is repeated along a loop, by the operation that reads."""

    extents: tuple[int, ...]
    along: int
    share: int
    starts: dict[int, int]
    shared: int
    count: int  # of all tiles


def tiling(cluster: Cluster, vector: int | None, width: int, least: int) -> Tiling | None:
    """The smallest tiles that move little more than the `least` bytes that must be moved; None if none of those do that
    there is room for."""
    along = _along(cluster, vector)
    if vector is None or along is None:
        return None
    whole = [x.extent for x in cluster.loops]
    extents = [min(n, ROW) if k == vector else 1 for k, n in enumerate(whole)]
    while math.prod(extents) < LEAST_ELEMENTS or _moved(cluster, extents) > ENOUGH * least:
        larger = [_doubled(extents, k, n) for k, n in enumerate(whole) if extents[k] < n]
        extents = min(larger, key=lambda sizes: _moved(cluster, sizes), default=extents)
        if not larger or math.prod(extents) > MOST_ELEMENTS or _placed(cluster, extents)[1] > MOST_SHARED:
            break
    if _moved(cluster, extents) > ENOUGH * least:
        return None
    starts, shared = _placed(cluster, extents)
    share = min(extents[along], max(1, math.prod(extents) // (width * THREADS)))
    count = math.prod(-(-n // m) for n, m in zip(whole, extents, strict=True))
    return Tiling(tuple(extents), along, share, starts, shared, count)


def _along(cluster: Cluster, vector: int | None) -> int | None:
    """The loop along which most operands are repeated, those first that are read in packs."""
    moving = [r.access for r in cluster.reads if r.access.loops]
    found = {}
    for k in range(len(cluster.loops)):
        repeated = [a for a in moving if k not in a.loops]
        if repeated and k != vector:
            found[k] = (sum(vector in a.loops for a in repeated), len(repeated), -k)
    return max(found, key=lambda k: found[k], default=None)


def _doubled(extents: Sequence[int], k: int, whole: int) -> list[int]:
    return [min(2 * n, whole) if j == k else n for j, n in enumerate(extents)]


def _moved(cluster: Cluster, extents: Sequence[int]) -> int:
    """Bytes that all tiles move which read their part of each operand once."""
    moved = sum(size_of(cluster, w.access.loops) * w.access.dtype.size for w in cluster.writes)
    for access in (r.access for r in cluster.reads if r.access.loops):
        rounds = (x.extent if k in access.loops else -(-x.extent // extents[k]) for k, x in enumerate(cluster.loops))
        moved += math.prod(rounds) * access.dtype.size
    return moved


def _placed(cluster: Cluster, extents: Sequence[int]) -> tuple[dict[int, int], int]:
    """Where in shared memory lies what is repeated, and how many bytes that takes."""
    starts, at = {}, 0
    for k, e in enumerate(cluster.code):
        access = cluster.reads[e.leaf].access if e.op == "read" else None
        if access is not None and access.loops and len(access.loops) < len(cluster.loops):
            starts[k] = at
            size = math.prod(extents[j] for j in access.loops) * access.dtype.size
            at += -(-size // ALIGNED) * ALIGNED
    return starts, at


# ------------------------------------------------------------------ text


def numbers(body: Body, tiles: Tiling) -> list[tuple[str, Number]]:
    """What a kernel is told of its tiles."""
    found = [(f"e{k}", Number(n, body.index)) for k, n in enumerate(tiles.extents)]
    found += [(f"at{k}", Number(at, int32)) for k, at in tiles.starts.items()]
    return [*found, ("share", Number(tiles.share, body.index))]


def begin(body: Body, tiles: Tiling) -> list[str]:
    """The loop over tiles, which is left open: where a tile begins, and what its block keeps. The names of its sizes,
    of which that along the vector loop counts packs."""
    index, loops = body.index.name, range(len(body.cluster.loops))
    counts = [f"tiles{j}" for j in loops]
    for k in tiles.starts:
        dtype = _access(body.cluster, k).dtype.name
        body.line(f"{dtype}* const k{k} = reinterpret_cast<{dtype}*>(kept + at{k});")
    for j in loops:
        body.line(f"const {index} tiles{j} = (n{j} + e{j} - 1) / e{j};")
    body.open(f"for ({index} tile = blockIdx.x; tile < {' * '.join(counts)}; tile += gridDim.x) {{")
    for j in loops:
        body.line(f"const {index} b{j} = {position('tile', counts, j)} * e{j};")
        body.line(f"const {index} m{j} = b{j} + e{j} < n{j} ? e{j} : n{j} - b{j};")
    body.line(f"const {index} packs_of_row = m{body.vector} / V;")
    sizes = ["packs_of_row" if j == body.vector else f"m{j}" for j in loops]
    for k in tiles.starts:
        _keep(body, k, sizes)
    body.line("__syncthreads();")
    return sizes


def _keep(body: Body, k: int, sizes: Sequence[str]) -> None:
    """A block reads its part of an operand, neighbouring threads neighbouring elements."""
    access, leaf = _access(body.cluster, k), body.cluster.code[k].leaf
    order = sorted(access.loops, key=lambda j: (-abs(access.strides[j]), j))
    mine = [sizes[j] if body.is_along(access) else f"m{j}" for j in order]
    body.staged[k] = place = _place(body, access)
    body.open(f"for ({body.index.name} u = threadIdx.x; u < {' * '.join(mine)}; u += {THREADS}) {{")
    for n, j in enumerate(order):
        at = position("u", mine, n)
        body.line(f"const {body.index.name} i{j} = b{j} + {f'{at} * V' if mine[n] == 'packs_of_row' else at};")
    if body.is_along(access):
        body.line(f"store(k{k}, {place}, load<V>(r{leaf}, {body.place(access)}));")
    else:
        body.line(f"k{k}[{place}] = r{leaf}[{body.place(access)}];")
    body.close()


def _place(body: Body, access: Access) -> str:
    """Where an element lies in the block's memory, for given values of all loops: side by side along the vector
    loop."""
    order = sorted(access.loops, key=lambda j: (j == body.vector, j))
    terms = [" * ".join([f"(i{j} - b{j})", *(f"e{inner}" for inner in order[n + 1 :])]) for n, j in enumerate(order)]
    return " + ".join(terms)


def _access(cluster: Cluster, k: int) -> Access:
    return cluster.reads[cluster.code[k].leaf].access
