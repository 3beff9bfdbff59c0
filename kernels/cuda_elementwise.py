"""Jobs without reductions: each thread takes packs of neighbouring elements. Floor: kernels.

A thread goes some rounds along a loop where operands are repeated, which it reads once, or lie the other way round.
Where that reads too much again, since operands are repeated along several loops, blocks do tiles."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gradtape.ir.cluster import Access, Cluster
from gradtape.kernels.cuda_body import Body, flag, index_type, position
from gradtape.kernels.cuda_jobs import Job, accesses, bytes_once, size_of, span_of
from gradtape.kernels.cuda_launch import Launch, Number
from gradtape.kernels.cuda_teams import THREADS, blocks_at_once, width_of
from gradtape.kernels.cuda_tiles import Tiling, begin, numbers, tiling
from gradtape.kernels.schedule import schedule

MOST_BLOCKS = 1 << 20  # beyond, each thread takes several packs
ENOUGH = 1 << 16  # threads, beyond which each goes several rounds along the loop of repeated operands
MOST_ROUNDS = 16
ROOM = 1.1  # of the bytes of operands and results, up to which threads need no tiles
SMALL = 4096  # bytes of a job that is not worth tiles
ROUNDS = 12  # of a thread for each that moves as many bytes as it reads for all of them


def elementwise(job: Job) -> tuple[str, Launch]:
    """The text of a job's kernel, and how it is launched."""
    cluster = job.cluster
    vector = schedule(cluster).vector
    width = width_of(cluster, vector)
    size = size_of(cluster, tuple(range(len(cluster.loops))))
    packs = -(-size // width)
    along = _strip_loop(job, vector)
    share = rounds_of(cluster, vector, width, along)
    share = max(share, min(packs // ENOUGH, MOST_ROUNDS)) if along is not None else share
    whole = width if are_packs(job, vector, width) else 1
    least = bytes_once(cluster, accesses(job))
    tiles = None
    if along is not None and least > SMALL and _moved(cluster, vector, whole, along, share) > ROOM * least:
        tiles = tiling(cluster, vector, whole, least)
    grid = -(-packs // (THREADS * share)) if tiles is None else tiles.count
    grid = max(1, min(grid, MOST_BLOCKS))
    span = max(span_of(cluster, access) for _, access in accesses(job))
    body = Body(job, vector, index_type(max(size, span) + grid * THREADS * width))
    more = []
    if tiles is not None:
        _tiles(body, width, tiles)
        more += [("packs", flag(whole > 1))] if width > 1 else []
        more += [*numbers(body, tiles), ("share", Number(tiles.share, body.index))]
    elif len(cluster.loops) == 1 and width > 1 and along is None:
        line(body, width, f"thread<{body.index.name}>()", f"threads<{body.index.name}>()")
    else:
        _grid(body, width, along)
        more += [("packs", flag(whole > 1))] if width > 1 else []
        more += [("share", Number(share, body.index))] if along is not None else []
    buffers = [(f"w{k}", b) for k, b in enumerate(job.writes)]
    bounds = str(THREADS) if tiles is None else f"{THREADS}, {blocks_at_once(cluster)}"
    (text, name), arguments = body.finished(bounds, buffers, more)
    return text, Launch(name, grid, THREADS, 0 if tiles is None else tiles.shared, least, arguments)


def rounds_of(cluster: Cluster, vector: int | None, width: int, along: int | None) -> int:
    """How many rounds a thread goes at least, so that what it reads for all of them is little beside the rest."""
    accesses = [*(r.access for r in cluster.reads), *(w.access for w in cluster.writes)]
    once = sum(_bytes(a, vector, width) for a in accesses if not a.loops or along not in (None, *a.loops))
    each = sum(_bytes(a, vector, width) for a in accesses) - once
    return max(1, min(-(-ROUNDS * once // max(each, 1)), MOST_ROUNDS))


def _moved(cluster: Cluster, vector: int | None, width: int, along: int, share: int) -> int:
    """Bytes that threads move which go so many rounds along a loop."""
    counts = [x.extent // width if k == vector else x.extent for k, x in enumerate(cluster.loops)]
    packs = math.prod(counts)
    strips = packs // counts[along] * -(-counts[along] // share)
    reads = [r.access for r in cluster.reads if r.access.loops]
    written = sum(size_of(cluster, w.access.loops) * w.access.dtype.size for w in cluster.writes)
    return written + sum((packs if along in a.loops else strips) * _bytes(a, vector, width) for a in reads)


def _bytes(access: Access, vector: int | None, width: int) -> int:
    """Bytes of a pack, or of the one element that is the same for all of it."""
    return access.dtype.size * (width if vector in access.loops else 1)


def _strip_loop(job: Job, vector: int | None) -> int | None:
    """The loop along which most operands are repeated, those first that are read in packs; where none is, one along
    which operands lie that do not lie along the vector loop: a thread comes back to the lines of memory it has read."""
    cluster = job.cluster
    moving = [r.access for r in cluster.reads if r.access.loops]
    found: dict[int, tuple[int, int, int]] = {}
    for k in range(len(cluster.loops)):
        repeated = [a for a in moving if k not in a.loops]
        across = [a for a in moving if k != vector and a.strides[k] == 1 and vector in a.loops]
        if repeated or across:
            found[k] = (sum(vector in a.loops for a in repeated), len(repeated), len(across))
    return max(found, key=lambda k: (found[k], -k), default=None)


def are_packs(job: Job, vector: int | None, width: int) -> bool:
    """Whether rows along the vector loop are whole packs, and begin where packs do."""
    cluster = job.cluster
    accesses = [*(r.access for r in cluster.reads), *(w.access for w in cluster.writes if not w.monoid)]
    along = [a for a in accesses if vector is not None and a.strides[vector] == 1]
    steps = [s for a in along for k, s in enumerate(a.strides) if k != vector]
    return vector is not None and all(n % width == 0 for n in (cluster.loops[vector].extent, *steps))


def pointers(body: Body) -> list[str]:
    """The arrays that are read and written in packs."""
    cluster = body.cluster
    written = [f"w{k}" for k, w in enumerate(cluster.writes) if not w.monoid and body.is_along(w.access)]
    found = [*written, *(f"r{k}" for k, r in enumerate(cluster.reads) if body.is_along(r.access))]
    return [name for name in found if body.given is None or name in body.given]


def line(body: Body, width: int, thread: str, threads: str) -> None:
    """One loop: packs as far as they go, single elements for the rest; for the thread of this number, of so many."""
    index = body.index.name
    body.constants(set(range(len(body.cluster.code))))
    if width > 1:
        arrays = ", ".join(pointers(body))
        body.line(f"// {width} elements at once, the last ones (or all, of arrays that are not aligned) one by one")
        body.line(f"const {index} whole = is_aligned<{width}>({arrays}) ? n0 / {width} * {width} : 0;")
    body.open(f"const auto run = [&](auto width, const {index} first, const {index} last) {{")
    body.line("constexpr int V = decltype(width)::value;")
    body.open(f"for ({index} i0 = first + {thread} * V; i0 < last; i0 += {threads} * V) {{")
    _pack(body, range(len(body.cluster.code)))
    body.close()
    body.close("};")
    if width > 1:
        body.line(f"run(Width<{width}>{{}}, 0, whole);")
    body.line(f"run(Width<1>{{}}, {'whole' if width > 1 else 0}, n0);")


def _grid(body: Body, width: int, along: int | None) -> None:
    """Several loops, of which the threads take the rounds in turn."""
    index, vector = body.index.name, body.vector
    body.constants(set(range(len(body.cluster.code))))
    open_lambda(body, width, "packs")
    counts = {k: f"n{k}" for k in range(len(body.cluster.loops))}
    if vector is not None and width > 1:
        body.line(f"const {index} packs_of_row = n{vector} / V;")
        counts[vector] = "packs_of_row"
    if along is not None:
        body.line(f"const {index} strips = ({counts[along]} + share - 1) / share;")
    order = [k for k in counts if k not in (vector, along)]
    order += [k for k in dict.fromkeys((along, vector)) if k is not None]
    sizes = ["strips" if k == along else counts[k] for k in order]
    body.open(f"for ({index} u = thread<{index}>(); u < {' * '.join(sizes) or '1'}; u += threads<{index}>()) {{")
    top = len(body.lines)
    for j, k in enumerate(order):
        at = position("u", sizes, j)
        if k == along:
            body.line(f"const {index} strip = {at};")
        else:
            body.line(f"const {index} i{k} = {_scaled(at, k == vector and width > 1)};")
    if along is None:
        _pack(body, range(len(body.cluster.code)))
    else:
        _strip(body, along, counts[along], width)
    body.close()
    body.without_unused(top, range(len(body.cluster.loops)))
    close_lambda(body, width)


def _scaled(position: str, is_pack: bool) -> str:
    return f"{position} * V" if is_pack else position


def _tiles(body: Body, width: int, tiles: Tiling) -> None:
    """Tiles, each of which a block does before its next one."""
    along, index = tiles.along, body.index.name
    body.constants(set(range(len(body.cluster.code))))
    body.line("extern __shared__ __align__(16) unsigned char kept[];")
    open_lambda(body, width, "packs")
    sizes = begin(body, tiles)
    body.line(f"const {index} strips = (m{along} + share - 1) / share;")
    sizes[along] = "strips"
    body.open(f"for ({index} u = threadIdx.x; u < {' * '.join(sizes)}; u += {THREADS}) {{")
    top = len(body.lines)
    for k in range(len(sizes)):
        at = position("u", sizes, k)
        if k == along:
            body.line(f"const {index} strip = {at};")
        else:
            body.line(f"const {index} i{k} = b{k} + {_scaled(at, k == body.vector)};")
    dependences = body.cluster.dependences
    fixed = [k for k in range(len(dependences)) if along not in dependences[k]]
    body.load(fixed)
    body.fixed(fixed)
    body.line(f"const {index} last = strip * share + share < m{along} ? strip * share + share : m{along};")
    body.open(f"for ({index} i{along} = b{along} + strip * share; i{along} < b{along} + last; ++i{along}) {{")
    _pack(body, [k for k in range(len(dependences)) if k not in body.names and k not in body.raw])
    body.close()
    body.without_unused(top, range(len(sizes)))
    body.close()
    body.line("__syncthreads();")
    body.close()
    close_lambda(body, width)


def _strip(body: Body, along: int, count: str, width: int) -> None:
    """Rounds along one loop; what is the same in all of them comes first."""
    index, dependences = body.index.name, body.cluster.dependences
    fixed = [k for k in range(len(dependences)) if along not in dependences[k]]
    body.load(fixed)
    body.fixed(fixed)
    names = dict(body.names)
    if along == body.vector:  # neighbouring threads stay on neighbouring packs
        body.open(f"for ({index} r = strip; r < {count}; r += strips) {{")
        body.line(f"const {index} i{along} = {_scaled('r', width > 1)};")
    else:
        body.line(f"const {index} last = strip * share + share < {count} ? strip * share + share : {count};")
        body.open(f"for ({index} i{along} = strip * share; i{along} < last; ++i{along}) {{")
    _pack(body, [k for k in range(len(dependences)) if k not in body.names and k not in body.raw])
    body.close()
    body.names = names


def open_lambda(body: Body, width: int, condition: str) -> None:
    """What follows is written once and made for packs of two sizes."""
    if width > 1:
        arrays = ", ".join(pointers(body))
        body.line(f"const bool wide = {condition} && is_aligned<{width}>({arrays});")
    body.open("const auto run = [&](auto width) {")
    body.line("constexpr int V = decltype(width)::value;")


def close_lambda(body: Body, width: int) -> None:
    """The calls of it."""
    body.close("};")
    if width > 1:
        body.line("if (wide)")
        body.line(f"    run(Width<{width}>{{}});")
        body.line("else")
        body.line("    run(Width<1>{});")
    else:
        body.line("run(Width<1>{});")


def _pack(body: Body, order: Sequence[int]) -> None:
    """One pack: read, computed, written."""
    cluster = body.cluster
    writes = {f"w{k}": w for k, w in enumerate(cluster.writes)}
    body.load(order)
    body.fixed(order)
    each = {
        n: w for n, w in writes.items() if body.vector is not None and (w.over[body.vector] or body.moves(w.source))
    }
    for name, w in writes.items():
        if name not in each:
            body.once(name, w)
    if each:
        body.begin(each)
        body.each()
        for k in range(len(cluster.code)):
            if k not in body.names:
                body.operation(k)
        for name, w in each.items():
            body.set(name, w)
        body.close()
        body.end(each)
