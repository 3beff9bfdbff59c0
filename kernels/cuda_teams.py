"""How teams of threads do a job with reductions: which threads share a round, how often they sweep over its elements,
and what stays on the chip between sweeps. Floor: kernels.

Every thread goes over the same elements in each sweep, so that what it keeps in shared memory is its own and needs no
barrier. Up to 48 KB, so that several blocks share a processor, what is dear to compute is kept beside what is read, or
at least what is read. A row that needs more gets what the architecture has for a block that asks for it, and twice as
many threads, since it has the processor almost to itself. If that is too little, later sweeps read again."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from gradtape.ir.cluster import LEAVES, Cluster, Write
from gradtape.kernels.cuda_extents import Tiles, need_tiles, tiles_of_rows
from gradtape.kernels.cuda_jobs import Job, size_of
from gradtape.kernels.schedule import CHEAP, CHEAP_DEPTH, schedule

THREADS = 256  # of a block
WARP = 32
SHARED = 48 * 1024  # bytes of shared memory that a block has on every device without asking
ROOM = 24 * 1024  # bytes up to which several rows are kept in a block, each by a part of a warp
ALIGNED = 16  # elements: what follows so many is aligned, whatever their type
LONG_FORMULA = 64  # operations that are not cheap, of all elements of a pack
MANY_ROUNDS = 1 << 10  # from which a warp is enough for a row of some length
MANY_BLOCKS = 128  # below, blocks are of few columns
SECTOR = 32  # bytes that move together
LANE = 16  # elements that a thread has of a column, or of a part of a round, at least
ROUNDS = 12  # of a block for each that moves as many bytes and is there for all of them
LONG_ROW = 1 << 14  # elements from which a row is shared by twice as many threads


def aligned(elements: int) -> int:
    """So many elements or a few more, behind which everything is aligned."""
    return -(-elements // ALIGNED) * ALIGNED


@dataclass(frozen=True)
class Team:
    """`size` threads that share a round, `count` such teams in a block. They run along the loop `vector`, in packs of
    `width` elements; None: neighbouring threads are teams of neighbouring rounds."""

    size: int
    count: int
    vector: int | None
    width: int

    @property
    def threads(self) -> int:
        return self.size * self.count

    @property
    def name(self) -> str:
        """The team's type in a text."""
        if self.vector is None:
            return f"Across<{self.count}, {self.threads}>"
        return f"Along<{self.size}, {self.threads}>"

    def held(self, elements: int) -> int:
        """How many elements of a value the threads of a block keep, those that lie beyond the end counted in."""
        return aligned(-(-elements // (self.size * self.width)) * self.threads * self.width)


@dataclass(frozen=True)
class Sweep:
    """One pass over the elements: the operations inside, operands first; those that an earlier sweep kept, and those
    that this one keeps."""

    inside: tuple[int, ...]
    found: tuple[int, ...]
    kept: tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """A job's team and sweeps. `slots` says for what is kept at which byte (for each element held) it lies, `carried`
    for the numbers that combining writes carry for each element, by write. What is `still` is the same in all rounds:
    a block reads it once, for all its teams, and keeps it behind the rest, at these bytes for each element; or what is
    the same in some rounds for each of the `tiles`."""

    team: Team
    sweeps: tuple[Sweep, ...]
    slots: dict[int, int]
    carried: dict[int, int]
    bytes: int  # for each element held
    still: dict[int, int]
    still_bytes: int  # for each element
    tiles: Tiles | None = None

    @property
    def read_before(self) -> set[int]:
        """Reads that a block keeps for several rounds."""
        return {*self.still, *(self.tiles.starts if self.tiles is not None else ())}

    def shared(self, elements: int) -> int:
        """Bytes of shared memory that are needed, beside what its teams put numbers together in."""
        tiled = self.tiles.shared if self.tiles is not None else 0
        return self.team.held(elements) * self.bytes + aligned(elements) * self.still_bytes + tiled


def layout(job: Job, limit: int, with_still: bool = True) -> Layout:
    """How a job runs in blocks with so much shared memory; what its combining writes carry must fit. Nothing is kept if
    nothing that is kept fits."""
    found = next((x for x in _layouts(job, with_still) if _bytes(job, x) <= _room(x.team, limit)), None)
    return found or apart(job)


def fits_on_chip(job: Job, limit: int) -> bool:
    """Whether what a block goes over several times can stay with it."""
    return any(_bytes(job, x) <= _room(x.team, limit) for x in _layouts(job))


def _layouts(job: Job, with_still: bool = True) -> Iterator[Layout]:
    """The layouts that read nothing twice, the best first: small ones, then those that ask for memory; then those that
    read what is the same in some rounds anew in each, at last also what is the same in all."""
    teams = list(_teams(job))
    side = None if teams[0].vector is not None else schedule(job.cluster).vector
    ways = (["tiles"] if need_tiles(job) else []) + ["still"] if with_still else []
    for way in (*ways, "anew"):
        for team in (*teams, _wide(teams[-1])):
            tiles = tiles_of_rows(job, team.count, side, _usual(team) // 2) if way == "tiles" else None
            if way == "tiles" and tiles is None:
                continue
            still = _still(job, team) if way == "still" else ()
            before = still if tiles is None else tuple(tiles.starts)
            for kept in (_sweeps(job, _dear, before), _sweeps(job, _nothing, before)):
                slots, size = _placed(job, kept)
                carried, total = _carried(job, size)
                sizes = [kept_size(job.cluster, k) for k in still]
                starts = dict(zip(still, itertools.accumulate(sizes, initial=0), strict=False))
                yield Layout(team, kept, slots, carried, total, starts, sum(sizes), tiles)


def _room(team: Team, limit: int) -> int:
    """Bytes of shared memory for blocks of a team."""
    if team.threads > THREADS:
        return limit
    return min(limit, _usual(team))


def _usual(team: Team) -> int:
    """Bytes of shared memory that blocks of a team have without asking."""
    return ROOM if team.count > 1 and team.vector is not None else SHARED


def _bytes(job: Job, x: Layout) -> int:
    """Bytes of shared memory that a block takes, those counted in that its teams put numbers together in."""
    code = job.cluster.code
    ends = {(e.leaf, e.dtype) for e in code if e.op == "reduce"}
    ends |= {(w.monoid, code[w.source].dtype) for w in job.cluster.writes if w.monoid}
    places = x.team.threads if x.team.vector is None else x.team.threads // WARP
    static = sum(dtype.size for _, dtype in ends) * places
    return x.shared(size_of(job.cluster, job.elements)) + static


def asked_for(job: Job, x: Layout) -> int:
    """Bytes of shared memory that a launch asks for. A block that takes more than SHARED with what its kernel has by
    itself gets it only if it asks for more than SHARED."""
    needed = x.shared(size_of(job.cluster, job.elements))
    return max(needed, SHARED + ALIGNED) if _bytes(job, x) > SHARED else needed


def apart(job: Job) -> Layout:
    """How a job runs of which nothing stays on the chip but what combining writes carry."""
    teams = list(_teams(job))
    team = teams[0] if teams[0].vector is None else teams[-1]
    carried, total = _carried(job, 0)
    return Layout(team, _sweeps(job, None), {}, carried, total, {}, 0)


def _still(job: Job, team: Team) -> tuple[int, ...]:
    """Reads that are the same in each round."""
    cluster, mine = job.cluster, frozenset(job.elements)
    found = []
    for k in {k for sweep in _sweeps(job, None) for k in sweep.inside}:
        e = cluster.code[k]
        if e.op == "read":
            access = cluster.reads[e.leaf].access
            if access.loops <= mine and (team.vector is None or access.strides[team.vector] == 1):
                found.append(k)
    return tuple(sorted(found))


def fits(job: Job, limit: int) -> bool:
    """Whether what combining writes carry for each element has room."""
    carried, _ = _carried(job, 0)
    return not carried or _bytes(job, apart(job)) <= limit


def width_of(cluster: Cluster, vector: int | None) -> int:
    """Elements of a pack: 16 bytes of the largest type that moves along the vector loop; fewer where a formula is so
    long that it takes the registers."""
    accesses = [*(r.access for r in cluster.reads), *(w.access for w in cluster.writes)]
    sizes = [a.dtype.size for a in accesses if vector is not None and a.strides[vector] == 1]
    if not sizes:
        return 1
    dear = sum(1 + e.dtype.is_complex for e in cluster.code if e.op not in CHEAP | LEAVES)
    room = max(1, LONG_FORMULA // max(dear, 1))
    return min(16 // max(sizes), 8, 1 << (room.bit_length() - 1))


def blocks_at_once(cluster: Cluster) -> int:
    """How many blocks share a processor: so many that each thread has registers enough."""
    return 2 if cluster.work > LONG_FORMULA or any(e.dtype.size > 4 for e in cluster.code) else 4


def is_inside(job: Job, w: Write) -> bool:
    """Whether a write is done for elements, and not once a round."""
    reduced = job.cluster.reduced
    return any(w.over[k] for k in reduced) or bool(job.cluster.dependences[w.source] & reduced)


# ------------------------------------------------------------------ bytes


def moved_of_element(job: Job) -> int:
    """Bytes of an element of a round that no other round reads or writes."""
    cluster, rounds = job.cluster, set(job.rounds)
    accesses = [*(r.access for r in cluster.reads), *(w.access for w in cluster.writes if w.monoid is None)]
    mine = [a for a in accesses if a.loops & cluster.reduced and (a.loops & rounds or not rounds)]
    return max(1, sum(a.dtype.size for a in mine))


def elements_of_lane(job: Job) -> int:
    """Elements of a round for a thread, at least: so many that what it reads for the round is little beside."""
    reads = [r.access for r in job.cluster.reads]
    once = sum(a.dtype.size for a in reads if a.loops and not a.loops & job.cluster.reduced)
    return max(LANE, -(-2 * ROUNDS * once // moved_of_element(job)))


# ------------------------------------------------------------------ threads


def _teams(job: Job) -> Iterator[Team]:
    """The teams that would do, the best first."""
    cluster = job.cluster
    elements, rounds = size_of(cluster, job.elements), size_of(cluster, job.rounds)
    vector = schedule(cluster).vector
    if vector is None or vector in cluster.reduced or not job.elements:
        inner = vector if vector in cluster.reduced else None
        width = width_of(cluster, inner)
        lanes = _power_of_two(-(-elements // width))
        if inner is None:
            yield Team(1, THREADS, None, 1)
            return
        if lanes <= WARP or (elements <= 2 * WARP * WARP and rounds >= MANY_ROUNDS):
            yield Team(min(lanes, WARP), THREADS // min(lanes, WARP), inner, width)
        threads = THREADS if elements <= LONG_ROW else 2 * THREADS
        yield Team(threads, 1, inner, width)
        return
    for columns in _columns(cluster, rounds):
        lanes = min(THREADS // columns, _power_of_two(-(-elements // elements_of_lane(job))))
        wide = min(THREADS // lanes, _power_of_two(rounds // MANY_BLOCKS))
        yield Team(lanes, max(columns, wide), None, 1)


def _columns(cluster: Cluster, rounds: int) -> Iterator[int]:
    """Columns that a block has side by side: those of a warp, or fewer that are whole sectors of memory."""
    accesses = [*(r.access for r in cluster.reads), *(w.access for w in cluster.writes)]
    least = SECTOR // min((a.dtype.size for a in accesses if a.loops), default=1)
    columns = min(_power_of_two(rounds), WARP)
    while columns:
        yield columns
        columns = columns // 2 if columns // 2 >= least else 0


def _wide(team: Team) -> Team:
    """Twice as many threads for a round."""
    if team.count == 1 or team.vector is None:
        return dataclasses.replace(team, size=max(team.size, 2 * THREADS // team.count))
    return team


def _power_of_two(n: int) -> int:
    return 1 << max(n - 1, 0).bit_length()


# ------------------------------------------------------------------ sweeps

Dear = Callable[[Job, int], set[int]]


def _sweeps(job: Job, dear_at: Dear | None, still: Iterable[int] = ()) -> tuple[Sweep, ...]:
    """The sweeps of a job. What is read, and what is `dear_at` a sweep, is kept for later ones; or nothing (None)."""
    cluster = job.cluster
    count = max(cluster.stages, default=0) + 1
    kept = set(still)
    found = []
    for s in range(count):
        inside = _closure(job, _roots(job, s), kept)
        new: set[int] = set()
        if dear_at is not None:
            dear = dear_at(job, s) & set(inside)
            reads = {k for k in inside if cluster.code[k].op == "read"}
            needed = {k for t in range(s + 1, count) for k in _closure(job, _roots(job, t), kept | dear)}
            new = (dear | reads) & needed - kept
        found.append(Sweep(inside, tuple(k for k in inside if k in kept), tuple(sorted(new))))
        kept |= new
    return tuple(found)


def roots(job: Job, s: int) -> list[int]:
    """What a sweep is for: operands of reductions, and what is written."""
    cluster = job.cluster
    ends = [e.args[0] for k, e in enumerate(cluster.code) if e.op == "reduce" and cluster.stages[k] == s + 1]
    return [*ends, *(w.source for w in cluster.writes if is_inside(job, w) and cluster.stages[w.source] == s)]


def _roots(job: Job, s: int) -> list[int]:
    return [k for k in roots(job, s) if job.cluster.dependences[k] & job.cluster.reduced]


def _closure(job: Job, ends: Iterable[int], kept: Iterable[int]) -> tuple[int, ...]:
    """What is done for elements to get there, operands first; what was kept is there."""
    dependences, reduced, held = job.cluster.dependences, job.cluster.reduced, set(kept)
    needed: set[int] = set()
    stack = list(ends)
    while stack:
        k = stack.pop()
        if k not in needed and dependences[k] & reduced:
            needed.add(k)
            if k not in held:
                stack += job.cluster.code[k].args
    return tuple(sorted(needed))


def _dear(job: Job, s: int) -> set[int]:
    """Results of a sweep that are not cheap to compute again."""
    cluster = job.cluster
    inside = [bool(d & cluster.reduced) for d in cluster.dependences]
    return {
        k
        for k, t in enumerate(cluster.stages)
        if inside[k] and t == s and not _is_cheap(cluster, k, inside, CHEAP_DEPTH)
    }


def _nothing(job: Job, s: int) -> set[int]:
    return set()


def _is_cheap(cluster: Cluster, k: int, inside: Sequence[bool], depth: int) -> bool:
    e = cluster.code[k]
    if not inside[k] or e.op in LEAVES:
        return True
    return e.op in CHEAP and depth > 0 and all(_is_cheap(cluster, a, inside, depth - 1) for a in e.args)


# ------------------------------------------------------------------ shared memory


def kept_size(cluster: Cluster, k: int) -> int:
    """Bytes of an element as it is kept: of what is read, as it lies in memory."""
    e = cluster.code[k]
    return cluster.reads[e.leaf].access.dtype.size if e.op == "read" else e.dtype.size


def _placed(job: Job, sweeps: Sequence[Sweep]) -> tuple[dict[int, int], int]:
    """Where what is kept lies; what is needed no more makes room for what is as large."""
    last = {k: s for s, sweep in enumerate(sweeps) for k in sweep.found}
    places: list[list[int]] = []  # of what is kept one after the other in one place
    for s, sweep in enumerate(sweeps):
        for k in sweep.kept:
            size = kept_size(job.cluster, k)
            free = (p for p in places if last[p[-1]] <= s and kept_size(job.cluster, p[-1]) == size)
            place = next(free, None)
            if place is None:
                places.append([k])
            else:
                place.append(k)
    slots, at = {}, 0
    for place in sorted(places, key=lambda p: -kept_size(job.cluster, p[0])):
        slots.update(dict.fromkeys(place, at))
        at += kept_size(job.cluster, place[0])
    return slots, at


def _carried(job: Job, at: int) -> tuple[dict[int, int], int]:
    """Where the numbers lie that combining writes carry for each element."""
    found = {}
    for k, w in enumerate(job.cluster.writes):
        if w.monoid is not None and w.access.loops and w.access.loops == frozenset(job.elements):
            found[k] = at
            at += job.cluster.code[w.source].dtype.size
    return found, at
