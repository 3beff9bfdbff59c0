"""Elementwise clusters of one formula as one kernel, whose blocks are shared out among them. Floor: kernels.

Where the arrays of each are, and how long, stands in a table that the kernel is given by value."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from gradtape.ir.cluster import Access, Cluster, Loop
from gradtape.kernels.cuda_body import Body, assembled, index_type, named, templates
from gradtape.kernels.cuda_elementwise import MOST_BLOCKS, line, rounds_of
from gradtape.kernels.cuda_jobs import Job, accesses, bytes_once, jobs
from gradtape.kernels.cuda_launch import Buffer, CudaProgram, Launch, Number, Table
from gradtape.kernels.cuda_teams import THREADS, width_of
from gradtape.kernels.kernel import described

BYTES = 3968  # of a table: every driver takes 4 KB of arguments, of which numbers need some


@dataclass(frozen=True)
class Member:
    """A cluster, and the numbers of its first operand and of its first result among those of all."""

    cluster: Cluster
    operand: int
    result: int


def render_together(members: Sequence[Member]) -> CudaProgram:
    """The kernel of clusters of one formula, none of them empty; as few launches as tables hold them."""
    made = [_job(m) for m in members]
    most = max(made, key=lambda job: job.cluster.size)
    capacity = _capacity(len(most.reads) + len(most.writes))
    width = width_of(most.cluster, 0)
    packs = width * THREADS * rounds_of(most.cluster, 0, width, None)
    grids = [max(1, min(-(-job.cluster.size // packs), MOST_BLOCKS)) for job in made]
    reach = max(job.cluster.size + grid * THREADS * width for job, grid in zip(made, grids, strict=True))
    text, name, numbers = _text(most, width, reach, capacity)
    launches = []
    for k in range(0, len(made), capacity):
        part, blocks = made[k : k + capacity], grids[k : k + capacity]
        rows = tuple((*job.writes, *job.reads) for job in part)
        first = tuple(itertools.accumulate(blocks, initial=0))
        table = Table(rows, tuple(job.cluster.size for job in part), first, capacity)
        moved = sum(bytes_once(job.cluster, accesses(job)) for job in part)
        launches.append(Launch(name, first[-1], THREADS, 0, moved, (table, *numbers)))
    return CudaProgram((text,), tuple(launches), ())


def _capacity(arrays: int) -> int:
    """How many members a table holds; an odd number, so that its bytes are whole words."""
    return ((BYTES - 4) // (8 * (arrays + 1) + 4) - 1) | 1


def _job(m: Member) -> Job:
    """A cluster as a job along one loop, its buffers numbered among those of all."""
    (job,) = jobs(m.cluster, [], lambda job: True)
    return Job(
        job.cluster if job.cluster.loops else _along_one(job.cluster),
        tuple(_moved(b, m.operand) for b in job.reads),
        tuple(_moved(b, m.result) for b in job.writes),
    )


def _moved(b: Buffer, by: int) -> Buffer:
    return dataclasses.replace(b, number=b.number + by)


def _along_one(cluster: Cluster) -> Cluster:
    """A cluster without loops with one of one round, along which all elements lie."""
    reads = tuple(dataclasses.replace(r, access=Access(r.access.dtype, (1,))) for r in cluster.reads)
    writes = tuple(dataclasses.replace(w, access=Access(w.access.dtype, (1,)), over=(True,)) for w in cluster.writes)
    return Cluster((Loop(1, False),), reads, cluster.code, writes)


def _text(job: Job, width: int, reach: int, capacity: int) -> tuple[str, str, tuple[Number, ...]]:
    """The text, its name, and the numbers that it is given behind the table."""
    body = Body(job, 0, index_type(reach))
    index, arrays = body.index.name, len(job.reads) + len(job.writes)
    names = [(f"w{k}", f"{b.dtype.name}") for k, b in enumerate(job.writes)]
    names += [(f"r{k}", f"const {b.dtype.name}") for k, b in enumerate(job.reads)]
    body.line("const int32 member = table.member(int32(blockIdx.x));")
    body.line("const int32 before = table.first[member], blocks = table.first[member + 1] - before;")
    body.line(f"const {index} n0 = {index}(table.extents[member]);")
    for k, (name, kind) in enumerate(names):
        body.line(f"{kind}* const {name} = table.template array<{kind}>(member, {k});")
    body.line(f"const {index} lane = {index}(int32(blockIdx.x) - before) * {THREADS} + {index}(threadIdx.x);")
    body.line(f"const {index} lanes = {index}(blocks) * {THREADS};")
    line(body, width, "lane", "lanes")
    numbers = tuple(Number(v, dtype) for (_, dtype), v in body.numbers.items())
    parameters = [f"const Table<{capacity}, {arrays}> GRID_CONSTANT table"]
    parameters += [f"const {n.dtype.name} c{k}" for k, n in enumerate(numbers)]
    comment = ["// of several members, each along its own loop:", *(f"// {x}" for x in described(job.cluster))]
    files = (*templates(job.cluster), "together.cuh")
    text, name = assembled(f"{named(job.cluster.code)}_together", comment, str(THREADS), parameters, body.lines, files)
    return text, name, numbers
