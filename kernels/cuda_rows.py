"""Jobs with reductions: teams of threads share rounds, and sweep over the elements of each. Floor: kernels."""

from __future__ import annotations

from collections.abc import Sequence

from gradtape.ir.cluster import Write
from gradtape.ir.dtypes import DType, int32
from gradtape.kernels.cuda_body import Body, flag, index_type, structure
from gradtape.kernels.cuda_elementwise import are_packs, close_lambda, open_lambda
from gradtape.kernels.cuda_jobs import Job, Parts, accesses, allocated, bytes_once, size_of, span_of
from gradtape.kernels.cuda_launch import Buffer, Launch, Number, Scratch
from gradtape.kernels.cuda_teams import (
    ROUNDS,
    THREADS,
    Layout,
    Sweep,
    aligned,
    asked_for,
    blocks_at_once,
    elements_of_lane,
    is_inside,
    kept_size,
    layout,
    moved_of_element,
)
from gradtape.kernels.cuda_tiles import begin, in_tile, numbers
from gradtape.kernels.schedule import schedule

MOST_BLOCKS = 1 << 20  # beyond, each team takes several rounds
CARRYING = 1024  # blocks of teams that carry numbers from round to round
CARRIED = 24  # the same for numbers that a block carries, and writes, and that are read again
PLENTY = 1 << 18  # threads from which no more are needed


def rows(job: Job, scratch: list[Scratch], limit: int) -> tuple[str, Launch, list[Parts]]:
    """The text of a job's kernel, how it is launched, and what is left to put together."""
    made = Rows(job, scratch, layout(job, limit))
    if made.parts > 1 and (
        made.plan.still or made.plan.tiles is not None
    ):  # a block that does a part needs a part of it
        made = Rows(job, scratch, layout(job, limit, with_still=False))
    return made.kernel()


class Rows:
    """The kernel of a job with reductions while it is written."""

    def __init__(self, job: Job, scratch: list[Scratch], plan: Layout) -> None:
        self.job, self.cluster, self.scratch, self.plan, self.team = job, job.cluster, scratch, plan, plan.team
        vector, inner = schedule(job.cluster).vector, plan.team.vector
        self.rounds = sorted(job.rounds, key=lambda k: (inner is None and k == vector, k))
        self.elements = sorted(job.elements, key=lambda k: (k == inner, k))
        self.round_count, self.size = size_of(self.cluster, job.rounds), size_of(self.cluster, job.elements)
        self.carrying = any(w.monoid for w in self.cluster.writes)
        self.parts = self._parts()
        self.grid = self._grid()
        span = max(span_of(self.cluster, access) for _, access in accesses(job))
        reach = max(self.size, self.round_count * self.parts, span) + (self.grid + 1) * self.team.threads * 8
        reach = max(reach, self.grid * self.team.count * self.size if plan.carried else 0)
        self.body = Body(job, inner, index_type(reach))
        self.body.in_team = inner is not None
        self.index = self.body.index.name
        self.waiting: list[Parts] = []
        self.needed = set(range(len(self.cluster.code)))

    # ------------------------------------------------------------------ the whole

    def kernel(self) -> tuple[str, Launch, list[Parts]]:
        body, team = self.body, self.team
        buffers = [self._target(k) for k in range(len(self.cluster.writes))]
        self._text()
        more: list[tuple[str, Number]] = []
        if team.width > 1:
            more.append(("packs", flag(are_packs(self.job, team.vector, team.width))))
        if self.parts > 1:
            more.append(("parts", Number(self.parts, body.index)))
        if self.plan.bytes:
            more.append(("held", Number(team.held(self.size), int32)))
        if self.plan.still:
            more.append(("line", Number(aligned(self.size), int32)))
        if self.plan.tiles is not None:
            more += numbers(body, self.plan.tiles, team.held(self.size) * self.plan.bytes)
        (text, name), arguments = body.finished(self._bounds(), buffers, more)
        later = {p.result for p in self.waiting}
        moved = bytes_once(self.cluster, (a for a in accesses(self.job) if a[0] not in later))
        moved += sum(p.bytes for p in self.waiting)
        launch = Launch(name, self.grid, team.threads, asked_for(self.job, self.plan), moved, arguments)
        return text, launch, self.waiting

    def _bounds(self) -> str:
        """Threads of a block, and how many blocks share a processor: so many that each thread has registers enough."""
        threads, blocks = self.team.threads, blocks_at_once(self.cluster)
        if self.plan.tiles is not None:  # places in tiles take registers, too
            blocks = max(2, blocks - 1 - bool(self.plan.carried))
        elif threads < THREADS:
            return str(threads)
        return f"{threads}, {blocks * THREADS // threads}"

    def _parts(self) -> int:
        """In how many parts a round's elements are reduced, where rounds are few and results only written."""
        cluster = self.cluster
        ends = {k for k, e in enumerate(cluster.code) if e.op == "reduce"}
        sources = {w.source for w in cluster.writes}
        used = any(set(e.args) & ends for e in cluster.code)
        others = any(not is_inside(self.job, w) and w.source not in ends for w in cluster.writes)
        if used or others or self.plan.carried or not ends <= sources or not self._same_monoids():
            return 1
        share = self.team.size * elements_of_lane(self.job)
        return max(1, min(PLENTY // (self.round_count * self.team.size), self.size // share))

    def _same_monoids(self) -> bool:
        code = self.cluster.code
        return all(
            w.monoid in (None, code[w.source].leaf) for w in self.cluster.writes if code[w.source].op == "reduce"
        ) and not any(w.monoid and code[w.source].op != "reduce" for w in self.cluster.writes)

    def _grid(self) -> int:
        units = self.round_count * self.parts
        blocks = max(1, -(-units // self.team.count))
        code, writes = self.cluster.code, self.cluster.writes
        carried = sum(code[writes[k].source].dtype.size for k in self.plan.carried)
        alike = ROUNDS * self.plan.still_bytes + CARRIED * carried
        rounds = max(self.team.count, -(-alike // moved_of_element(self.job)))
        blocks = blocks if self.plan.tiles is None else self.plan.tiles.count
        return max(1, min(blocks, CARRYING if self.carrying else MOST_BLOCKS, -(-units // rounds)))

    def _target(self, k: int) -> tuple[str, Buffer]:
        """The parameter that a write goes to: its array, or numbers that are put together later."""
        w, result = self.cluster.writes[k], self.job.writes[k]
        dtype, teams = self.cluster.code[w.source].dtype, self.grid * self.team.count
        if k in self.plan.carried:
            count, distance, loops = self.grid, self.size, tuple(self.elements)
        elif w.monoid is not None:
            count, distance, loops = teams, 1, ()
        elif self.parts > 1 and not is_inside(self.job, w):
            count, distance, loops = self.parts, self.round_count, tuple(self.rounds)
        else:
            return f"w{k}", result
        partial = allocated(count * distance, dtype, self.scratch)
        self.waiting.append(Parts(w, result, partial, count, distance, loops))
        return f"p{k}", partial

    # ------------------------------------------------------------------ the text

    def _text(self) -> None:
        body, team, index = self.body, self.team, self.index
        if self.plan.bytes or self.plan.read_before:
            body.line("extern __shared__ __align__(16) unsigned char kept[];")
        open_lambda(body, team.width, "packs")
        body.line(f"const {team.name} team;")
        self._declare_slots()
        inner = team.vector
        counts = [f"n{k} / V" if k == inner else f"n{k}" for k in self.elements]
        body.line(f"const {index} size = {' * '.join(counts) or '1'};")
        if self.plan.tiles is None:
            rounds = " * ".join([*(f"n{k}" for k in self.rounds), *(["parts"] if self.parts > 1 else [])]) or "1"
            body.line(f"const {index} rounds = {rounds};")
        if self.plan.bytes:
            body.line("int m;  // where a thread keeps what it needs again")
        body.constants(self.needed)
        self._load_still()
        self._begin_carried()
        if self.plan.tiles is not None:
            begin(body, self.plan.tiles, team.threads)
            body.line(f"const {index} rounds = {' * '.join(f'm{k}' for k in self.rounds)};")
            body.open(f"for ({index} first = 0; first < rounds; first += {team.count}) {{")
        else:
            step = f"{index}(gridDim.x) * {team.count}" if team.count > 1 else f"{index}(gridDim.x)"
            start = f"{index}(blockIdx.x) * {team.count}" if team.count > 1 else f"{index}(blockIdx.x)"
            body.open(f"for ({index} first = {start}; first < rounds; first += {step}) {{")
        self._round()
        body.close()
        if self.plan.tiles is not None:
            body.line("__syncthreads();")
            body.close()
        self._hand_over()
        close_lambda(body, team.width)

    def _round(self) -> None:
        """One round, all sweeps. Threads of teams that have none stay with the others, since they meet at barriers."""
        body, index = self.body, self.index
        body.line(f"const {index} mine = first + team.number;")
        body.line("const bool active = mine < rounds;")
        top = len(body.lines)
        if self.rounds or self.parts > 1:
            body.line(f"const {index} u = active ? mine : 0;")
        low, high = "0", "active ? size : 0"
        if self.parts > 1:
            loops = " * ".join(f"n{k}" for k in self.rounds) or "1"
            body.line(f"const {index} part = u / ({loops}), share = (size + parts - 1) / parts;")
            body.line(f"const {index} round = u % ({loops});")
            body.line(f"const {index} begin = part * share, left = size - begin;")
            body.line(f"const {index} end = !active || left <= 0 ? 0 : left < share ? size : begin + share;")
            low, high = "begin", "end"
            body.decompose("round", self.rounds)
        else:
            body.line(f"const {index} end = {high};")
            if self.plan.tiles is None:
                body.decompose("u", self.rounds)
            else:
                in_tile(body, self.rounds)
        names = dict(body.names)
        self._work(low)
        body.without_unused(top, self.rounds)
        body.names = names

    def _work(self, low: str) -> None:
        """All sweeps of a round, and what is done once for it."""
        for s, sweep in enumerate(self.plan.sweeps):
            for k, stage in enumerate(self.cluster.stages):
                if self._is_outside(k) and stage == s and k not in self.body.names:
                    self.body.operation(k)
            self._sweep(s, sweep, low)
        self._outside_writes()

    def _is_outside(self, k: int) -> bool:
        return not self.cluster.dependences[k] & self.cluster.reduced

    def _outside_writes(self) -> None:
        body = self.body
        for k, w in enumerate(self.cluster.writes):
            if is_inside(self.job, w):
                continue
            if w.monoid is not None:
                idle = body.guard(w, "active")
                body.line(f"{idle}z{k} = {structure(w.monoid)}::of(z{k}, {body.names[w.source]});")
            elif self.parts > 1:
                body.line(f"if (active && team.lane == 0) p{k}[u] = {body.names[w.source]};")
            else:
                body.once(f"w{k}", w, "active && team.lane == 0")

    # ------------------------------------------------------------------ one sweep

    def _sweep(self, s: int, sweep: Sweep, low: str) -> None:
        body, code, stages = self.body, self.cluster.code, self.cluster.stages
        ends = [k for k, e in enumerate(code) if e.op == "reduce" and stages[k] == s + 1]
        inside = {k: w for k, w in enumerate(self.cluster.writes) if is_inside(self.job, w) and stages[w.source] == s}
        for k in ends:
            body.line(f"{code[k].dtype.name} t{k} = {structure(code[k].leaf)}::neutral<{code[k].dtype.name}>();")
        if ends or inside:
            found = [k for k in sweep.found if k not in self.plan.read_before]
            slots = bool(found or sweep.kept or any(k in self.plan.carried for k in inside))
            self._loop(sweep, ends, inside, low, slots)
        for k in ends:
            name = f"t{k}_reduce_{code[k].leaf}"
            body.line(f"const {code[k].dtype.name} {name} = team.template all<{structure(code[k].leaf)}>(t{k});")
            body.names[k] = name

    def _loop(self, sweep: Sweep, ends: Sequence[int], inside: dict[int, Write], low: str, slots: bool) -> None:
        body, team, index = self.body, self.team, self.index
        names, top = dict(body.names), len(body.lines)
        start = f"{low} + team.lane" if low != "0" else "team.lane"
        if slots:
            body.line("m = threadIdx.x * V;")
        move = f", m += {team.threads} * V" if slots else ""
        body.open(f"for ({index} q = {start}; q < end; q += {team.size}{move}) {{")
        self._positions()
        writes = {f"w{k}": w for k, w in inside.items() if not w.monoid}
        places = {k: "q * V" if k in self.plan.still else "m" for k in sweep.found if k not in body.staged}
        body.load(sweep.inside, places)
        body.fixed(sweep.inside, sweep.kept)
        each = {n: w for n, w in writes.items() if team.vector is None or w.over[team.vector] or body.moves(w.source)}
        for name, w in writes.items():
            if name not in each:
                body.once(name, w)
        body.begin(each)
        self._packs_kept(sweep, inside)
        body.each()
        for k in sweep.inside:
            if k not in body.names:
                body.operation(k, k in sweep.kept)
        self._reduce(ends, inside)
        for name, w in each.items():
            body.set(name, w)
        for k in sweep.kept:
            if not self._is_read_whole(k):
                body.line(f"k{k}_[j] = {self._as_kept(k)};")
        body.close()
        body.end(each)
        for k in sweep.kept:
            source = f"r{self.cluster.code[k].leaf}_" if self._is_read_whole(k) else f"k{k}_"
            body.line(f"store(k{k}, m, {source});")
        for k in inside:
            if k in self.plan.carried:
                body.line(f"store(z{k}, m, z{k}_);")
        body.close()
        body.without_unused(top, self.elements)
        body.names = names
        body.raw.clear()

    def _positions(self) -> None:
        """The values of the reduced loops for a pack."""
        body, index, inner = self.body, self.index, self.team.vector
        if inner is None:
            body.decompose("q", self.elements)
        elif len(self.elements) == 1:
            body.line(f"const {index} i{inner} = q * V;")
        else:
            body.line(f"const {index} i{inner} = q % (n{inner} / V) * V, row = q / (n{inner} / V);")
            body.decompose("row", self.elements[:-1])

    def _packs_kept(self, sweep: Sweep, inside: dict[int, Write]) -> None:
        body = self.body
        for k in sweep.kept:
            if not self._is_read_whole(k):
                body.line(f"Pack<{self._kept_dtype(k).name}, V> k{k}_;")
        for k in inside:
            if k in self.plan.carried:
                body.line(f"auto z{k}_ = load<V>(z{k}, m);")

    def _reduce(self, ends: Sequence[int], inside: dict[int, Write]) -> None:
        body, code = self.body, self.cluster.code
        for k in ends:
            body.line(f"t{k} = {structure(code[k].leaf)}::of(t{k}, {body.names[code[k].args[0]]});")
        for k, w in inside.items():
            if w.monoid is not None:
                held = f"z{k}_[j]" if k in self.plan.carried else f"z{k}"
                body.line(f"{body.guard(w)}{held} = {structure(w.monoid)}::of({held}, {body.names[w.source]});")

    # ------------------------------------------------------------------ what is kept, and carried

    def _is_read_whole(self, k: int) -> bool:
        """Whether what is kept is a pack just as it was read."""
        e = self.cluster.code[k]
        return e.op == "read" and self.body.is_along(self.cluster.reads[e.leaf].access)

    def _kept_dtype(self, k: int) -> DType:
        e = self.cluster.code[k]
        return self.cluster.reads[e.leaf].access.dtype if e.op == "read" else e.dtype

    def _as_kept(self, k: int) -> str:
        return f"t{k}_raw" if self._kept_dtype(k).is_half else self.body.names[k]

    def _declare_slots(self) -> None:
        for k, at in self.plan.slots.items():
            assert kept_size(self.cluster, k) == self._kept_dtype(k).size
            self._slot(f"k{k}", self._kept_dtype(k), at)
        for k, at in self.plan.still.items():
            start = (
                "kept" + (f" + held * {self.plan.bytes}" if self.plan.bytes else "") + (f" + line * {at}" if at else "")
            )
            dtype = self._kept_dtype(k).name
            self.body.line(f"{dtype}* const k{k} = reinterpret_cast<{dtype}*>({start});")
        for k, at in self.plan.carried.items():
            self._slot(f"z{k}", self.cluster.code[self.cluster.writes[k].source].dtype, at)

    def _slot(self, name: str, dtype: DType, at: int) -> None:
        start = f"kept + held * {at}" if at else "kept"
        self.body.line(f"{dtype.name}* const {name} = reinterpret_cast<{dtype.name}*>({start});")

    def _load_still(self) -> None:
        """What is the same in all rounds is read once."""
        body, plan, team = self.body, self.plan, self.team
        if not plan.still:
            return
        top = len(body.lines)
        body.open(f"for ({self.index} q = threadIdx.x; q < size; q += {team.threads}) {{")
        self._positions()
        for k in plan.still:
            read = self.cluster.code[k].leaf
            body.line(f"store(k{k}, q * V, load<V>(r{read}, {body.place(self.cluster.reads[read].access)}));")
        body.close()
        body.line("__syncthreads();")
        body.without_unused(top, self.elements)

    def _begin_carried(self) -> None:
        body = self.body
        for k, w in enumerate(self.cluster.writes):
            if w.monoid is None:
                continue
            dtype, name = self.cluster.code[w.source].dtype.name, structure(w.monoid)
            if k in self.plan.carried:
                body.open(f"for (int m = threadIdx.x; m < held; m += {self.team.threads})")
                body.line(f"z{k}[m] = {name}::neutral<{dtype}>();")
                body.depth -= 1
            else:
                body.line(f"{dtype} z{k} = {name}::neutral<{dtype}>();")
        if self.plan.carried:
            body.line("__syncthreads();")

    def _hand_over(self) -> None:
        """Each team writes what it carried, for the second kernel."""
        body, team, index = self.body, self.team, self.index
        if not self.carrying:
            return
        for k in self.plan.carried:
            monoid = structure(self.cluster.writes[k].monoid or "sum")
            body.line(f"hand_over<{monoid}, {team.name}, V>(z{k}, p{k}, size);")
        if any(w.monoid and k not in self.plan.carried for k, w in enumerate(self.cluster.writes)):
            body.line(f"const {index} number = {index}(blockIdx.x) * {team.count} + team.number;")
        for k, w in enumerate(self.cluster.writes):
            if w.monoid is None or k in self.plan.carried:
                continue
            value = f"z{k}"
            if is_inside(self.job, w):
                value = f"team.template all<{structure(w.monoid)}>(z{k})"
                body.line(f"z{k} = {value};")
            body.line(f"if (team.lane == 0) p{k}[number] = z{k};")
