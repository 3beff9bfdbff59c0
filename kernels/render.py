"""A cluster as the text of a Python function for Numba: one text for equal operations, ranks, dtypes and layouts,
whatever the extents. Floor: kernels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gradtape.ir.cluster import Access, Cluster, Operation, Write
from gradtape.ir.dtypes import DType
from gradtape.kernels.addresses import Addresses
from gradtape.kernels.halves import computed, in_float32
from gradtape.kernels.kernel import Kernel, described, partial_dtype
from gradtape.kernels.schedule import Sweep, is_by_column, schedule, vectors_at_once
from gradtape.kernels.spelling import carried, combined, is_limited, literal, neutral, spelled

BLOCK = 512  # elements of a block of columns: a few such rows stay in the first-level cache
RUN = 4096  # elements that are added in their own precision before they join a sum in a higher one


def render(cluster: Cluster, anywhere: bool = False) -> Kernel:
    """The kernel of a collapsed cluster; `anywhere`: with operations that have no limits, which are slow."""
    return _Renderer(cluster, anywhere).kernel()


class _Renderer:
    def __init__(self, cluster: Cluster, anywhere: bool) -> None:
        cluster = in_float32(cluster)
        self.cluster, self.plan, self.anywhere = cluster, schedule(cluster), anywhere
        self.dependences, self.stages, self.vector = cluster.dependences, cluster.stages, self.plan.vector
        self.limited = not anywhere and any(is_limited(e.op) for e in cluster.code)
        self.addresses = Addresses(cluster, self.vector)
        self.writes = tuple(w for w in cluster.writes if w.monoid is None)
        self.sinks = tuple(w for w in cluster.writes if w.monoid is not None)
        self.targets = {f"w{k}": w for k, w in enumerate(self.writes)} | {f"z{k}": w for k, w in enumerate(self.sinks)}
        self.sources = [f"r{k}" if r.over is None else self._array_of(r.over) for k, r in enumerate(cluster.reads)]
        self.rows = self.vector in cluster.reduced
        self.columns = bool(cluster.reduced) and not self.rows
        self.split = self.plan.outer[0] if self.plan.outer else None if self.rows else self.vector
        self.lines: list[str] = []
        self.depth = 1
        self.low = "0"  # where the vector loop that is being written begins
        self.scratch: dict[str, str] = {}  # by name: the line that makes it
        self.numbers: dict[tuple[str, DType], Any] = {}
        self.names: dict[int, str] = {}  # of operations whose result is at hand

    def _array_of(self, write: int) -> str:
        return next(n for n, w in self.targets.items() if w is self.cluster.writes[write])

    # ------------------------------------------------------------------ the whole

    def kernel(self) -> Kernel:
        self._body()
        reads = [(k, bool(r.access.loops)) for k, r in enumerate(self.cluster.reads) if r.over is None]
        arrays, scalars = tuple(k for k, moves in reads if moves), tuple(k for k, moves in reads if not moves)
        arguments = [
            *self.targets,
            *(f"r{k}" for k in (*arrays, *scalars)),
            *(f"c{k}" for k in range(len(self.numbers))),
            *self.addresses.integers,
            "start",
            "stop",
        ]
        far, answer = (["    far = False"], ["    return far"]) if self.limited else ([], [])
        comment = [f"    # {line}" for line in described(self.cluster)]
        head = f"def kernel@({', '.join(arguments)}):"
        text = "\n".join([head, *comment, *self.scratch.values(), *far, *self.lines, *answer])
        numbers = tuple((value, dtype) for (_, dtype), value in self.numbers.items())
        integers = tuple(self.addresses.integers.values())
        vectors = vectors_at_once(self.cluster, self.plan)
        return Kernel(
            text, self.writes, self.sinks, arrays, scalars, numbers, integers, self.split, self.limited, vectors
        )

    def _body(self) -> None:
        bound: set[int] = set()
        self._straight(k for k in self.plan.outside[0] if not self.dependences[k])
        for k in self.plan.outer:
            self._open(f"for i{k} in range({self._span(k)}):")
            bound.add(k)
            self._straight(x for x in self.plan.outside[0] if self.dependences[x] <= bound)
        if self.columns:
            self._open(f"for b in range({self._span(self.vector)}, {BLOCK}):")
            self._line(f"e = min(b + {BLOCK}, {self._span(self.vector).split(', ')[1]})")
        for s, sweep in enumerate(self.plan.sweeps):
            if self.columns:
                self._between(s)
            self._straight(self.plan.outside[s])
            if self.vector is not None and (sweep.inside or self._ends(s) or self._written(s)):
                self._sweep(s, sweep)
        for name, w in self.targets.items():
            if self._is_outside(w) and not self.columns:
                self._once(name, w)
        if not self.lines:
            self._line("pass")

    def _span(self, loop: int | None) -> str:
        return "start, stop" if loop == self.split else f"0, n{loop}"

    def _is_outside(self, w: Write) -> bool:
        """Whether a write is done once for a row, or for a column between the sweeps."""
        if is_by_column(self.cluster, w, self.vector):
            return True
        rounds = {k for k, over in enumerate(w.over) if over} | self.dependences[w.source]
        return not rounds & {*self.plan.swept, self.vector}

    def _ends(self, s: int) -> list[int]:
        """The reductions that a sweep is for."""
        return [k for k, e in enumerate(self.cluster.code) if e.op == "reduce" and self.stages[k] == s + 1]

    def _written(self, s: int) -> dict[str, Write]:
        """What a sweep writes."""
        return {n: w for n, w in self.targets.items() if not self._is_outside(w) and self.stages[w.source] == s}

    # ------------------------------------------------------------------ sweeps

    def _sweep(self, s: int, sweep: Sweep) -> None:
        """One pass over the swept loops and the vector loop; reductions carry a number, or one for each column."""
        ends = self._ends(s)
        for k in ends:
            self._begin(k)
        names, depth = dict(self.names), self.depth
        scratches = self._scratches(s, sweep)
        counting = bool(self.plan.swept and scratches)
        if counting:
            self._line("q = 0")
        bound = set(self.plan.outer)
        for k in self.plan.swept:
            self._open(f"for i{k} in range({self._span(k)}):")
            bound.add(k)
            self._straight(x for x in sweep.inside if self.dependences[x] <= bound and x not in self._kept_before(s))
        for k in ends:
            if self.columns and not self._is_across(k):
                self._reduce(k, f"t{k}", carried(self.cluster.code[k].leaf, self.cluster.code[k].dtype))
        ends = [k for k in ends if not self.columns or self._is_across(k)]
        self._vector_loop(s, sweep, ends, scratches, "q + " if counting else "")
        if counting:
            self._line(f"q += n{self.vector}")
        self.names, self.depth = names, depth
        for k in self._ends(s):
            self._end(k)

    def _vector_loop(self, s: int, sweep: Sweep, ends: Sequence[int], scratches: Sequence[int], lead: str) -> None:
        low, high = ("b", "e") if self.columns else self._span(self.vector).split(", ")
        sums = [k for k in ends if self.rows and self._is_long_sum(self.cluster.code[k])]
        written = self._written(s)
        for name, w in list(written.items()):
            if not w.over[self.vector or 0] and self.vector not in self.dependences[w.source]:
                self._once(name, w)
                del written[name]
        if not (ends or written or sweep.kept):
            return
        sinks = {n: w for n, w in written.items() if self._is_carried(w)}
        floats = any(w.monoid == "sum" and w.access.dtype.is_floating for w in sinks.values())
        runs = not self.columns and bool(sums or floats)
        if runs:
            self._open(f"for b in range({low}, {high}, {RUN}):")
            self._line(f"e = min(b + {RUN}, {high})")
            low, high = "b", "e"
        for k in sums:
            self._line(f"s{k} = {neutral('sum', self.cluster.code[k].dtype)}")
        for name, w in sinks.items():
            self._line(f"{name}_ = {neutral(w.monoid or 'sum', computed(w.access.dtype))}")
        for name, access in self._moving(s, sweep, written).items():
            self._line(f"{name}_ = {self.addresses.row(name, access, low, high)}")
        for k in scratches:
            self._line(f"k{k}_ = k{k}[{lead}{low} : {lead}{high}]")
        self._open(f"for i in range({high if low == '0' else f'{high} - {low}'}):")
        self.low = low
        self._inside(s, sweep)
        for k in ends:
            e = self.cluster.code[k]
            held = f"a{k}[i]" if self.columns else f"s{k}" if k in sums else f"t{k}"
            self._reduce(k, held, e.dtype if k in sums else carried(e.leaf, e.dtype))
        for name, w in written.items():
            self._set(name, w)
        for k in sweep.kept:
            if self._copy_of(k) is None:
                self._line(f"k{k}_[i] = {self.names[k]}")
        self._close()
        self._hand_over(sinks)
        for k in sums:
            self._line(f"t{k} += s{k}")
        if runs:
            self._close()

    def _inside(self, s: int, sweep: Sweep) -> None:
        before = self._kept_before(s)
        for k in sweep.inside:
            if k in self.names:
                continue
            if k in before:
                self._line(f"{self._name(k)} = {self._copy_of(k) or f'k{k}'}_[i]")
                self.names[k] = self._name(k)
            else:
                self._operation(k)

    def _kept_before(self, s: int) -> set[int]:
        return {k for x in self.plan.sweeps[:s] for k in x.kept}

    def _copy_of(self, k: int) -> str | None:
        """An array that a result is written to anyway, in which a later sweep finds it."""
        v = self.vector
        return next(
            (
                n
                for n, w in self.targets.items()
                if w.source == k and w.monoid is None and w.access.strides[v or 0] == 1 and not w.access.dtype.is_half
            ),
            None,
        )

    def _moving(self, s: int, sweep: Sweep, written: dict[str, Write]) -> dict[str, Access]:
        """Arrays that move along the vector loop in a sweep."""
        v, before = self.vector, self._kept_before(s)
        assert v is not None
        found: dict[str, Access] = {}
        for k in sweep.inside:
            e = self.cluster.code[k]
            if e.op == "read" and k not in self.names:
                found[self.sources[e.leaf]] = self.cluster.reads[e.leaf].access
            copy = self._copy_of(k) if k in before else None
            if copy is not None:
                found[copy] = self.targets[copy].access
        found |= {n: w.access for n, w in written.items()}
        return {n: a for n, a in found.items() if a.strides[v]}

    def _scratches(self, s: int, sweep: Sweep) -> list[int]:
        """What a sweep keeps, or finds, in arrays that are there for nothing else."""
        before = [k for k in sweep.inside if k in self._kept_before(s)]
        found = [k for k in (*before, *sweep.kept) if self._copy_of(k) is None]
        for k in found:
            size = " * ".join(f"n{x}" for x in (*self.plan.swept, self.vector))
            self.scratch[f"k{k}"] = f"    k{k} = empty({size}, {self.cluster.code[k].dtype.name})"
        return found

    # ------------------------------------------------------------------ reductions

    def _is_long_sum(self, e: Operation) -> bool:
        return bool(e.leaf == "sum" and e.dtype.is_floating)

    def _is_carried(self, w: Write) -> bool:
        """Whether a combining write carries one number through the vector loop."""
        return w.monoid is not None and w.access.strides[self.vector or 0] == 0

    def _begin(self, k: int) -> None:
        e = self.cluster.code[k]
        dtype = carried(e.leaf, e.dtype)
        if self.columns and self._is_across(k):
            self.scratch[f"a{k}"] = f"    a{k} = empty({BLOCK}, {dtype.name})"
            self._line(f"a{k}[: e - b] = {neutral(e.leaf, dtype)}")
        else:
            self._line(f"t{k} = {neutral(e.leaf, dtype)}")

    def _is_across(self, k: int) -> bool:
        """Whether a reduction has a result for each column."""
        return self.vector in self.dependences[k]

    def _reduce(self, k: int, held: str, dtype: DType) -> None:
        e = self.cluster.code[k]
        self._line(f"{held} = {combined(e.leaf, held, self.names[e.args[0]], dtype)}")

    def _end(self, k: int) -> None:
        if not (self.columns and self._is_across(k)):
            self.names[k] = self._name(k)
            self._line(f"{self.names[k]} = {self.cluster.code[k].dtype.name}(t{k})")

    def _between(self, s: int) -> None:
        """What follows from the columns' reductions before the next sweep."""
        v = self.vector
        assert v is not None
        due = {n: w for n, w in self.targets.items() if self._is_outside(w) and self.stages[w.source] == s}
        across = [k for k in self.plan.outside[s] if v in self.dependences[k]]
        self._straight(k for k in self.plan.outside[s] if k not in across)
        along = {n: w for n, w in due.items() if w.over[v] or v in self.dependences[w.source]}
        for name, w in due.items():
            if name not in along:
                self._once(name, w)
        if not across and not along:
            return
        order = self._with_operands([*across, *(w.source for w in along.values())])
        sinks = {n: w for n, w in along.items() if self._is_carried(w)}
        for name, w in sinks.items():
            self._line(f"{name}_ = {neutral(w.monoid or 'sum', computed(w.access.dtype))}")
        moving = {n: w.access for n, w in along.items()}
        for e in (self.cluster.code[k] for k in order):
            if e.op == "read":
                moving[self.sources[e.leaf]] = self.cluster.reads[e.leaf].access
        for name, access in moving.items():
            if access.strides[v]:
                self._line(f"{name}_ = {self.addresses.row(name, access, 'b', 'e')}")
        self._open("for i in range(e - b):")
        self.low = "b"
        names = dict(self.names)
        for k in order:
            self._operation(k)
        held = [k for k in across if self._is_needed_later(k, s)]
        for k in held:
            self.scratch[f"m{k}"] = f"    m{k} = empty({BLOCK}, {self.cluster.code[k].dtype.name})"
            self._line(f"m{k}[i] = {self.names[k]}")
        for name, w in along.items():
            self._set(name, w)
        self._close()
        self._hand_over(sinks)
        self.names = names | {k: f"m{k}[i]" for k in held}

    def _with_operands(self, operations: Iterable[int]) -> list[int]:
        """Operations and what they need that is not at hand yet, operands first."""
        needed: set[int] = set()
        stack = list(operations)
        while stack:
            k = stack.pop()
            if k not in needed and k not in self.names:
                needed.add(k)
                if self.cluster.code[k].op != "reduce":
                    stack += self.cluster.code[k].args
        return sorted(needed)

    def _is_needed_later(self, k: int, s: int) -> bool:
        swept = {x for sweep in self.plan.sweeps for x in sweep.inside}
        if any(w.source == k and not self._is_outside(w) for w in self.targets.values()):
            return True
        return any(k in e.args and (self.stages[j] > s or j in swept) for j, e in enumerate(self.cluster.code))

    # ------------------------------------------------------------------ lines

    def _straight(self, operations: Iterable[int]) -> None:
        for k in operations:
            if k not in self.names and not (self.columns and self.vector in self.dependences[k]):
                self._operation(k)

    def _operation(self, k: int) -> None:
        e = self.cluster.code[k]
        name = self._name(k)
        if e.op == "number" or (e.op == "read" and not self.cluster.reads[e.leaf].access.loops):
            self.names[k] = self.sources[e.leaf] if e.op == "read" else literal(e) or self._argument(e)
            return
        if e.op == "read":
            access = self.cluster.reads[e.leaf].access
            at = "_[i]" if access.strides[self.vector or 0] else f"[{self.addresses.base(access)}]"
            element = f"{self.sources[e.leaf]}{at}"
            self._line(f"{name} = {f'widen_{access.dtype.name}({element})' if access.dtype.is_half else element}")
        elif e.op == "reduce":
            self._line(f"{name} = {e.dtype.name}(a{k}[i])")
        elif e.op == "position":
            self._line(f"{name} = {e.dtype.name}({self.addresses.of(Access(e.dtype, e.leaf), self.low)})")
        else:
            operands = [self.names[a] for a in e.args]
            if self.limited and is_limited(e.op):
                self._line(f"far |= is_beyond({operands[0]})")
            self._line(f"{name} = {spelled(e, operands, self.anywhere)}")
        self.names[k] = name

    def _argument(self, e: Operation) -> str:
        key = (repr(e.leaf), e.dtype)
        self.numbers.setdefault(key, e.leaf)
        return f"c{list(self.numbers).index(key)}"

    def _set(self, name: str, w: Write) -> None:
        """Write one element of the vector loop."""
        value = self.names[w.source]
        if w.monoid is None:
            self._line(f"{name}_[i] = {_as_stored(w, value)}")
        elif self._is_carried(w):
            self._line(f"{name}_ = {combined(w.monoid, f'{name}_', value, computed(w.access.dtype))}")
        else:
            self._line(f"{name}_[i] = {combined(w.monoid, f'{name}_[i]', value, partial_dtype(w))}")

    def _once(self, name: str, w: Write) -> None:
        """Write one element of an outer loop."""
        at, value = self.addresses.base(w.access), self.names[w.source]
        if w.monoid is not None:
            value = combined(w.monoid, f"{name}[{at}]", value, partial_dtype(w))
        self._line(f"{name}[{at}] = {_as_stored(w, value)}")

    def _hand_over(self, sinks: dict[str, Write]) -> None:
        """What the vector loop carried goes where it is combined."""
        for name, w in sinks.items():
            at = self.addresses.base(w.access)
            self._line(f"{name}[{at}] = {combined(w.monoid or 'sum', f'{name}[{at}]', f'{name}_', partial_dtype(w))}")

    def _name(self, k: int) -> str:
        e = self.cluster.code[k]
        return f"t{k}_{e.leaf if e.op == 'reduce' else e.op}"

    def _line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def _open(self, text: str) -> None:
        self._line(text)
        self.depth += 1

    def _close(self) -> None:
        self.depth -= 1


def _as_stored(w: Write, value: str) -> str:
    """A value as the array holds it; parts that are put together later are not rounded yet."""
    return f"narrow_{w.access.dtype.name}({value})" if w.access.dtype.is_half and w.monoid is None else value
