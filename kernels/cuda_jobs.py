"""Clusters as jobs for a GPU: which reductions a kernel does itself, and what is left to a later one. Floor: kernels.

A kernel reduces over one set of loops, its *elements*; the others are its *rounds*, which teams of threads share. A
combining write (a sink) is done by the way if each team can carry its numbers from round to round; a second kernel
puts the teams' numbers together. Any other is written in full to scratch memory and reduced by a job of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from gradtape.ir.cluster import Access, Cluster, Loop, Operation, Read, Write, by_the_way, collapsed
from gradtape.ir.dtypes import DType
from gradtape.kernels.cuda_launch import Buffer, Scratch
from gradtape.kernels.halves import in_float32


@dataclass(frozen=True)
class Job:
    """A cluster, and the buffers behind its reads and writes."""

    cluster: Cluster
    reads: tuple[Buffer, ...]
    writes: tuple[Buffer, ...]

    @property
    def elements(self) -> tuple[int, ...]:
        """The reduced loops."""
        return tuple(sorted(self.cluster.reduced))

    @property
    def rounds(self) -> tuple[int, ...]:
        """The other loops."""
        return tuple(k for k in range(len(self.cluster.loops)) if k not in self.cluster.reduced)

    @property
    def has_teams(self) -> bool:
        """Whether anything is reduced."""
        return any(e.op == "reduce" for e in self.cluster.code) or any(w.monoid for w in self.cluster.writes)


@dataclass(frozen=True)
class Parts:
    """Numbers that a second kernel puts together: `count` for each result, `distance` elements apart; results are the
    rounds of these loops, or one in all."""

    write: Write
    result: Buffer
    partial: Buffer
    count: int
    distance: int
    loops: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return self.count * self.distance * self.partial.dtype.size


def size_of(cluster: Cluster, loops: tuple[int, ...] | frozenset[int]) -> int:
    """How many rounds some loops have together."""
    n = 1
    for k in loops:
        n *= cluster.loops[k].extent
    return n


def span_of(cluster: Cluster, access: Access) -> int:
    """How far apart the elements lie that an access goes to."""
    return sum(abs(step) * (x.extent - 1) for step, x in zip(access.strides, cluster.loops, strict=True)) + 1


Fits = Callable[[Job], bool]


def bytes_once(cluster: Cluster, touched: Iterable[tuple[Buffer, Access]]) -> int:
    """The bytes of buffers that accesses go to, each counted once."""
    found: dict[Buffer, int] = {}
    for buffer, access in touched:
        n = size_of(cluster, access.loops) * access.dtype.size
        found[buffer] = max(found.get(buffer, 0), n)
    return sum(found.values())


def accesses(job: Job) -> list[tuple[Buffer, Access]]:
    """What a job reads and writes."""
    reads = zip(job.reads, (r.access for r in job.cluster.reads), strict=True)
    return [*reads, *zip(job.writes, (w.access for w in job.cluster.writes), strict=True)]


def jobs(cluster: Cluster, scratch: list[Scratch], fits: Fits, over: Mapping[int, int] | None = None) -> list[Job]:
    """The jobs that do a cluster's work, in order; the scratch memory they need is added to the list. `fits`: whether
    the numbers that a job would carry have room; `over`: by results, operands in whose arrays they are."""
    cluster = in_float32(collapsed(by_the_way(cluster)))
    lies = {k: ("result", j) for j, k in (over or {}).items()}
    reads = tuple(Buffer(*lies.get(r.operand, ("operand", r.operand)), r.access.dtype) for r in cluster.reads)
    writes = tuple(Buffer("result", k, w.access.dtype) for k, w in enumerate(cluster.writes))
    job = Job(cluster, reads, writes)
    reduces = any(e.op == "reduce" for e in cluster.code)
    if not cluster.reduced and not reduces and any(w.monoid for w in cluster.writes):
        job = _reducing(job)
    return list(_with_later(job, scratch, fits))


def reduced_by(cluster: Cluster, w: Write) -> frozenset[int]:
    """The loops that a combining write reduces over."""
    return frozenset(k for k, over in enumerate(w.over) if over and not w.access.strides[k])


def is_carried(job: Job, w: Write) -> bool:
    """Whether teams can carry a combining write from round to round: it has a number for each element, or one in
    all."""
    return w.monoid is not None and w.access.loops in (frozenset(), frozenset(job.elements))


# ------------------------------------------------------------------ combining writes as reductions


def _reducing(job: Job) -> Job:
    """A job whose loops are all kept, with those reduced over which most of its combining writes can be done."""
    cluster = job.cluster
    found = {reduced_by(cluster, w): None for w in cluster.writes if w.monoid}
    ranked = sorted(found, key=lambda loops: (-_done(cluster, loops), len(loops), sorted(loops)))
    return _reduced_over(job, ranked[0])


def _done(cluster: Cluster, loops: frozenset[int]) -> int:
    """How many elements need not be written in full if these loops are reduced."""
    sinks = [w for w in cluster.writes if w.monoid]
    return sum(_fits(cluster, w, loops) for w in sinks)


def _fits(cluster: Cluster, w: Write, loops: frozenset[int]) -> bool:
    mine = reduced_by(cluster, w)
    return all(w.over) and (mine == loops or (loops < mine and not w.access.loops))


def _reduced_over(job: Job, reduced: frozenset[int]) -> Job:
    cluster = job.cluster
    loops = tuple(Loop(x.extent, k in reduced) for k, x in enumerate(cluster.loops))
    kept = tuple(not x.reduced for x in loops)
    code = list(cluster.code)
    made: dict[tuple[int, str], int] = {}
    writes = []
    for w in cluster.writes:
        if w.monoid is None or not _fits(cluster, w, reduced):
            writes.append(w)
            continue
        key = (w.source, w.monoid)
        if key not in made:
            made[key] = len(code)
            code.append(Operation("reduce", (w.source,), cluster.code[w.source].dtype, w.monoid))
        monoid = w.monoid if reduced_by(cluster, w) - reduced else None
        writes.append(Write(made[key], w.access, kept, monoid))
    return Job(Cluster(loops, cluster.reads, tuple(code), tuple(writes)), job.reads, job.writes)


# ------------------------------------------------------------------ what is left to a later job


def _with_later(job: Job, scratch: list[Scratch], fits: Fits) -> Iterator[Job]:
    """The job, with combining writes that it cannot carry written in full; and the jobs that reduce those."""
    writes, buffers, later = [], [], []
    room = fits(job)
    for w, buffer in zip(job.cluster.writes, job.writes, strict=True):
        if w.monoid is None or (is_carried(job, w) and (room or not w.access.loops)):
            writes.append(w)
            buffers.append(buffer)
            continue
        full, access = _in_full(job.cluster, w, scratch)
        writes.append(Write(w.source, access, w.over))
        buffers.append(full)
        later.append(_reduction(job.cluster, w, buffer, full, access))
    yield Job(dataclasses.replace(job.cluster, writes=tuple(writes)), job.reads, tuple(buffers))
    for other in later:
        yield from _with_later(other, scratch, fits)


def _in_full(cluster: Cluster, w: Write, scratch: list[Scratch]) -> tuple[Buffer, Access]:
    """A scratch array with an element for each round of the loops that a write goes over."""
    dtype = cluster.code[w.source].dtype
    strides = [0] * len(cluster.loops)
    step = 1
    for k in range(len(cluster.loops) - 1, -1, -1):
        if w.over[k]:
            strides[k] = step
            step *= cluster.loops[k].extent
    return allocated(step, dtype, scratch), Access(dtype, tuple(strides))


def allocated(size: int, dtype: DType, scratch: list[Scratch]) -> Buffer:
    """New scratch memory."""
    scratch.append(Scratch(size, dtype))
    return Buffer("scratch", len(scratch) - 1, dtype)


def _reduction(cluster: Cluster, w: Write, result: Buffer, full: Buffer, access: Access) -> Job:
    """The reduction of what was written in full."""
    assert w.monoid is not None
    inside = [k for k, over in enumerate(w.over) if over]
    mine = reduced_by(cluster, w)
    loops = tuple(Loop(cluster.loops[k].extent, k in mine) for k in inside)
    code = (Operation("read", (), access.dtype, 0), Operation("reduce", (0,), access.dtype, w.monoid))
    read = Read(0, Access(access.dtype, tuple(access.strides[k] for k in inside)))
    target = Access(w.access.dtype, tuple(w.access.strides[k] for k in inside))
    write = Write(1, target, tuple(k not in mine for k in inside))
    return Job(collapsed(Cluster(loops, (read,), code, (write,))), (full,), (result,))
