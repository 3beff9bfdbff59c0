"""How large tiles are, the parts of a job's rounds that a block does at a time: what a tile needs several times the
block reads once, and keeps in shared memory. Floor: kernels."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gradtape.ir.cluster import Access, Cluster
from gradtape.kernels.cuda_jobs import Job, accesses, bytes_once, size_of

ENOUGH = 1.08  # of the bytes of operands and results; tiles that move less would only be larger
AGAIN = 0.1  # of the same, beyond which rows need tiles for what they would read again
SMALL = 4096  # bytes of a job that is not worth tiles
ALIGNED = 16  # bytes
FEW_TILES = 64  # to which tiles of rows do not grow, so that there is work for many processors


@dataclass(frozen=True)
class Tiles:
    """The extents of a tile, by loop; a job's elements are whole. `starts` says at which byte of shared memory the
    elements of each read lie that is repeated along a loop, by the operation that reads."""

    extents: tuple[int, ...]
    starts: dict[int, int]
    shared: int
    count: int  # of all tiles


def larger(cluster: Cluster, extents: Sequence[int]) -> Iterator[list[int]]:
    """Tiles that are twice as large along one loop."""
    for k, x in enumerate(cluster.loops):
        if extents[k] < x.extent:
            yield [min(2 * n, x.extent) if j == k else n for j, n in enumerate(extents)]


def count_of(cluster: Cluster, extents: Sequence[int]) -> int:
    """How many tiles there are."""
    return math.prod(-(-x.extent // n) for x, n in zip(cluster.loops, extents, strict=True))


def moved(cluster: Cluster, extents: Sequence[int]) -> int:
    """Bytes that all tiles move which read their part of each operand once."""
    total = sum(size_of(cluster, w.access.loops) * w.access.dtype.size for w in cluster.writes)
    for access in (r.access for r in cluster.reads if r.access.loops):
        rounds = (x.extent if k in access.loops else -(-x.extent // extents[k]) for k, x in enumerate(cluster.loops))
        total += math.prod(rounds) * access.dtype.size
    return total


def placed(cluster: Cluster, extents: Sequence[int]) -> tuple[dict[int, int], int]:
    """Where in shared memory lies what is repeated, and how many bytes that takes."""
    starts, at = {}, 0
    for k, e in enumerate(cluster.code):
        access = cluster.reads[e.leaf].access if e.op == "read" else None
        if access is not None and _is_repeated(cluster, access):
            starts[k] = at
            size = math.prod(extents[j] for j in access.loops) * access.dtype.size
            at += -(-size // ALIGNED) * ALIGNED
    return starts, at


def _is_repeated(cluster: Cluster, access: Access) -> bool:
    """Whether a tile needs elements several times; of rows, those that are not the same for all of a row."""
    moving = access.loops & cluster.reduced if cluster.reduced else access.loops
    return bool(moving) and len(access.loops) < len(cluster.loops)


# ------------------------------------------------------------------ rows


def need_tiles(job: Job) -> bool:
    """Whether rows would move too much that read an operand anew in each round which is repeated along some loops; what
    is the same in all rounds needs no tiles."""
    least = bytes_once(job.cluster, accesses(job))
    return bool(job.elements) and least > SMALL and _again(job) > AGAIN * least


def _again(job: Job) -> int:
    """Bytes that are read more than once where each round reads its operands."""
    cluster, rounds = job.cluster, set(job.rounds)
    reads = [r.access for r in cluster.reads if _is_repeated(cluster, r.access) and r.access.loops & rounds]
    return sum((cluster.size - size_of(cluster, a.loops)) * a.dtype.size for a in reads)


def tiles_of_rows(job: Job, at_once: int, side: int | None, room: int) -> Tiles | None:
    """The smallest tiles of rounds that move little more than they must, or as little as there is `room` for, in bytes;
    None where that is no gain, or no room for the `at_once` rounds that the teams of a block do, those along the loop
    `side` side by side."""
    cluster = job.cluster
    least = bytes_once(cluster, accesses(job))
    extents = [
        x.extent if x.reduced else min(at_once, x.extent) if k == side else 1 for k, x in enumerate(cluster.loops)
    ]
    room = max(room, placed(cluster, extents)[1])
    wanted = min(at_once, size_of(cluster, job.rounds))
    while (missing := _rounds(job, extents) < wanted) or moved(cluster, extents) > ENOUGH * least:
        found = [x for x in larger(cluster, extents) if placed(cluster, x)[1] <= room]
        if not missing:
            found = [x for x in found if count_of(cluster, x) >= FEW_TILES]
        best = min(found, key=lambda x: moved(cluster, x), default=extents)
        if best is extents:
            break
        extents = best
    if missing or moved(cluster, extents) >= least + _again(job):
        return None
    return Tiles(tuple(extents), *placed(cluster, extents), count_of(cluster, extents))


def _rounds(job: Job, extents: Sequence[int]) -> int:
    return math.prod(extents[k] for k in job.rounds)
