"""Jobs of few and long rounds: a kernel for each sweep, so that many blocks share a round. Floor: kernels.

The kernel of a sweep first puts together what the parts of earlier sweeps left, each team for its own round and all in
the same order; the results of its own reductions it leaves in parts."""

from __future__ import annotations

import math
from collections.abc import Iterable

from gradtape.kernels.cuda_body import flag, structure
from gradtape.kernels.cuda_elementwise import are_packs
from gradtape.kernels.cuda_jobs import Job, allocated, bytes_once, size_of
from gradtape.kernels.cuda_launch import Buffer, Launch, Number, Scratch
from gradtape.kernels.cuda_rows import PLENTY, Rows
from gradtape.kernels.cuda_teams import (
    ROUNDS,
    Layout,
    apart,
    elements_of_lane,
    fits_on_chip,
    is_inside,
    moved_of_element,
)

MOST_PARTS = 256  # which each team puts together again
FEW_BLOCKS = 128  # below, rounds are shared
LONG = 4  # parts that a round has at least


def parts_of(job: Job, limit: int) -> int:
    """In how many parts the rounds of a job are done, if in a kernel for each sweep; else 1. What stays in so much
    shared memory is swept by one kernel."""
    rounds, elements = size_of(job.cluster, job.rounds), size_of(job.cluster, job.elements)
    team = apart(job).team
    blocks = -(-rounds // team.count)
    code = job.cluster.code
    ends = {k for k, e in enumerate(code) if e.op == "reduce"}
    goes_on = any(set(e.args) & ends for e in code)
    if any(w.monoid for w in job.cluster.writes) or not goes_on or blocks >= FEW_BLOCKS or fits_on_chip(job, limit):
        return 1
    again = sum(code[k].dtype.size for k in ends)  # bytes of each part that each of the parts reads
    few = math.isqrt(elements * moved_of_element(job) // (2 * ROUNDS * again))
    parts = min(PLENTY // (rounds * team.size), elements // (team.size * elements_of_lane(job)), few, MOST_PARTS)
    return parts if parts >= LONG else 1


def stages(job: Job, scratch: list[Scratch], parts: int) -> list[tuple[str, Launch]]:
    """The kernels of a job, one for each sweep that there is something to do in."""
    plan = apart(job)
    partials: dict[int, Buffer] = {}
    found = []
    for s in range(len(plan.sweeps)):
        stage = _Stage(job, scratch, plan, parts, s, partials)
        if stage.has_work:
            found.append(stage.written())
    return found


class _Stage(Rows):
    """The kernel of one sweep."""

    def __init__(
        self, job: Job, scratch: list[Scratch], plan: Layout, parts: int, s: int, partials: dict[int, Buffer]
    ) -> None:
        self.count, self.stage, self.partials = parts, s, partials
        super().__init__(job, scratch, plan)
        code, stages = self.cluster.code, self.cluster.stages
        self.ends = [k for k, e in enumerate(code) if e.op == "reduce" and stages[k] == s + 1]
        self.targets = [k for k, w in enumerate(self.cluster.writes) if stages[w.source] == s]
        self.needed = self._needed()

    @property
    def has_work(self) -> bool:
        return bool(self.ends or self.targets)

    def _parts(self) -> int:
        return self.count

    def written(self) -> tuple[str, Launch]:
        """The text, and how it is launched."""
        code, body = self.cluster.code, self.body
        mine = {k: allocated(self.round_count * self.parts, code[k].dtype, self.scratch) for k in self.ends}
        earlier = {k: b for k, b in self.partials.items() if k in self.needed}
        self.partials.update(mine)
        read = sorted(code[k].leaf for k in self.needed if code[k].op == "read")
        body.given = frozenset([*(f"r{k}" for k in read), *(f"w{k}" for k in self.targets)])
        self._text()
        more: list[tuple[str, Number]] = []
        if self.team.width > 1:
            more.append(("packs", flag(are_packs(self.job, self.team.vector, self.team.width))))
        more.append(("parts", Number(self.parts, body.index)))
        reads = [*((f"r{k}", self.job.reads[k]) for k in read), *((f"p{k}", b) for k, b in earlier.items())]
        buffers = [*((f"w{k}", self.job.writes[k]) for k in self.targets), *((f"p{k}", b) for k, b in mine.items())]
        (text, name), arguments = body.finished(self._bounds(), buffers, more, reads)
        touched = [(self.job.reads[k], self.cluster.reads[k].access) for k in read]
        touched += [(self.job.writes[k], self.cluster.writes[k].access) for k in self.targets]
        parts = sum(self.scratch[b.number].size * b.dtype.size for b in (*mine.values(), *earlier.values()))
        moved = bytes_once(self.cluster, touched) + parts
        return text, Launch(name, self.grid, self.team.threads, 0, moved, arguments)

    def _needed(self) -> set[int]:
        """The operations that the sweep, or what is done beside it, takes; results of reductions are there."""
        stack = [self.cluster.code[k].args[0] for k in self.ends] + [
            self.cluster.writes[k].source for k in self.targets
        ]
        found: set[int] = set()
        while stack:
            k = stack.pop()
            if k not in found:
                found.add(k)
                if self.cluster.code[k].op != "reduce":
                    stack += self.cluster.code[k].args
        return found

    def _work(self, low: str) -> None:
        body, code = self.body, self.cluster.code
        for k in self._outside():
            e = code[k]
            if e.op == "reduce":
                name = f"t{k}_reduce_{e.leaf}"
                place = "round" if self.rounds else "0"
                call = f"combined<{structure(e.leaf)}>(team, p{k} + {place}, {self._distance()}, int(parts))"
                body.line(f"const {e.dtype.name} {name} = {call};")
                body.names[k] = name
            elif k not in body.names:
                body.operation(k)
        self._sweep(self.stage, self.plan.sweeps[self.stage], low)
        for k in self.ends:
            body.line(f"if (active && team.lane == 0) p{k}[u] = {body.names[k]};")
        for k in self.targets:
            w = self.cluster.writes[k]
            if not is_inside(self.job, w):
                body.once(f"w{k}", w, "active && part == 0 && team.lane == 0")

    def _outside(self) -> Iterable[int]:
        """What is needed and done once for a round."""
        return (k for k in sorted(self.needed) if self._is_outside(k))

    def _distance(self) -> str:
        loops = " * ".join(f"n{k}" for k in self.rounds) or "1"
        return f"{self.index}({loops})"
