"""Clusters: scalar work over loops, some of them reduced, in stages; what one kernel does. Floor: ir.

A cluster reads elements of arrays, applies scalar operations, reduces over the reduced loops, and writes. A stage is
one sweep over the reduced loops: what uses the result of a reduction belongs to a later stage than its operands."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gradtape.ir.dtypes import DType

LEAVES = frozenset({"read", "number", "position"})  # operations that compute nothing


@dataclass(frozen=True)
class Loop:
    """How often it runs, and whether the cluster reduces over it."""

    extent: int
    reduced: bool


@dataclass(frozen=True)
class Access:
    """One element of a flat array for all values of the loops: the sum of loop · stride, in elements."""

    dtype: DType
    strides: tuple[int, ...]

    @property
    def loops(self) -> frozenset[int]:
        """The loops that the element depends on."""
        return frozenset(k for k, s in enumerate(self.strides) if s)


@dataclass(frozen=True)
class Operation:
    """A scalar operation on the results of earlier ones: the name of an atom, or one of

    - "read": `leaf` says which of the cluster's reads;
    - "number": `leaf` is the number;
    - "position": the number of an element in an array that nobody needs to read, since it counts its elements; `leaf`
      are the array's strides;
    - "reduce": over all reduced loops; `leaf` is the monoid: sum, prod, max, min, all or any."""

    op: str
    args: tuple[int, ...]
    dtype: DType
    leaf: Any = None


@dataclass(frozen=True)
class Read:
    """Which operand is read, and where; `over`: the write whose array is the operand's, if it is one."""

    operand: int
    access: Access
    over: int | None = None


@dataclass(frozen=True)
class Write:
    """Where the result of an operation goes, once for each round of the loops that it goes `over`. With a monoid it is
    combined with what was written there before: loops that the access does not move along are reduced by the way, and
    nothing in the cluster sees the result."""

    source: int
    access: Access
    over: tuple[bool, ...]
    monoid: str | None = None


@dataclass(frozen=True, repr=False)
class Cluster:
    """Loops, outermost first; the arrays that are read; operations, operands first; and what is written."""

    loops: tuple[Loop, ...]
    reads: tuple[Read, ...]
    code: tuple[Operation, ...]
    writes: tuple[Write, ...]

    def __repr__(self) -> str:
        """Loops and operations in a line, such as <4096 x 1000 reduced: sin, multiply, sum>."""
        loops = " x ".join(f"{x.extent}{' reduced' if x.reduced else ''}" for x in self.loops)
        work = (e.leaf if e.op == "reduce" else e.op for e in self.code if e.op not in LEAVES)
        return f"<{loops or 1}: {', '.join(work)}>"

    @property
    def size(self) -> int:
        """How many elements the loops visit."""
        n = 1
        for loop in self.loops:
            n *= loop.extent
        return n

    @property
    def work(self) -> int:
        """How many operations are done for an element."""
        return sum(e.op not in LEAVES for e in self.code)

    @functools.cached_property
    def reduced(self) -> frozenset[int]:
        return frozenset(k for k, loop in enumerate(self.loops) if loop.reduced)

    @functools.cached_property
    def dependences(self) -> tuple[frozenset[int], ...]:
        """Per operation, the loops that its result depends on."""
        found: list[frozenset[int]] = []
        for e in self.code:
            if e.op == "read":
                found.append(self.reads[e.leaf].access.loops)
            elif e.op == "position":
                found.append(Access(e.dtype, e.leaf).loops)
            else:
                mine: frozenset[int] = frozenset().union(*(found[a] for a in e.args))
                found.append(mine - self.reduced if e.op == "reduce" else mine)
        return tuple(found)

    @functools.cached_property
    def stages(self) -> tuple[int, ...]:
        """Per operation, how many sweeps over the reduced loops come before it."""
        found: list[int] = []
        for e in self.code:
            found.append(max((found[a] for a in e.args), default=0) + (e.op == "reduce"))
        return tuple(found)


def collapsed(cluster: Cluster) -> Cluster:
    """The same work with as few loops as the strides allow: neighbours that every access walks through as one, and
    none of one round."""
    loops = list(cluster.loops)
    accesses = [*(r.access for r in cluster.reads), *(w.access for w in cluster.writes)]
    counted = [e for e in cluster.code if e.op == "position"]
    strides = [*(list(a.strides) for a in accesses), *(list(e.leaf) for e in counted)]
    over = [list(w.over) for w in cluster.writes]
    rows: list[list[Any]] = [loops, *strides, *over]

    def drop(k: int) -> None:
        for row in rows:
            del row[k]

    for k in range(len(loops) - 1, -1, -1):
        if loops[k].extent == 1:
            drop(k)
    for k in range(len(loops) - 2, -1, -1):
        inner = loops[k + 1]
        together = all(s[k] == s[k + 1] * inner.extent for s in strides) and all(o[k] == o[k + 1] for o in over)
        if inner.reduced is loops[k].reduced and together:
            loops[k + 1] = Loop(loops[k].extent * inner.extent, inner.reduced)
            drop(k)
    walks, rounds = iter(strides), iter(over)
    reads = tuple(Read(r.operand, Access(r.access.dtype, tuple(next(walks)))) for r in cluster.reads)
    writes = tuple(
        Write(w.source, Access(w.access.dtype, tuple(next(walks))), tuple(next(rounds)), w.monoid)
        for w in cluster.writes
    )
    code = tuple(dataclasses.replace(e, leaf=tuple(next(walks))) if e.op == "position" else e for e in cluster.code)
    return Cluster(tuple(loops), reads, code, writes)


def by_the_way(cluster: Cluster) -> Cluster:
    """Reductions whose results are only written become writes that combine, if that leaves no reduced loop: the work
    can be shared out along any loop then."""
    if max(cluster.stages, default=0) != 1:
        return cluster
    ends = {k for k, e in enumerate(cluster.code) if e.op == "reduce"}
    if any(set(e.args) & ends for e in cluster.code):
        return cluster
    if any(w.source in ends and w.monoid not in (None, cluster.code[w.source].leaf) for w in cluster.writes):
        return cluster  # the largest of sums is no sum
    writes = tuple(_combining(cluster, w) if w.source in ends else w for w in cluster.writes)
    if not all(all(w.over) for w in writes if w.monoid is not None):
        return cluster  # it would be combined again in rounds that it does not depend on
    loops = tuple(Loop(x.extent, False) for x in cluster.loops)
    return live(Cluster(loops, cluster.reads, cluster.code, writes))


def _combining(cluster: Cluster, w: Write) -> Write:
    e = cluster.code[w.source]
    over = tuple(a or x.reduced for a, x in zip(w.over, cluster.loops, strict=True))
    return Write(e.args[0], w.access, over, e.leaf)


def live(cluster: Cluster) -> Cluster:
    """The cluster without the operations that nothing needs."""
    needed = {w.source for w in cluster.writes}
    for k in range(len(cluster.code) - 1, -1, -1):
        if k in needed:
            needed.update(cluster.code[k].args)
    number = {k: i for i, k in enumerate(sorted(needed))}
    code = tuple(
        Operation(e.op, tuple(number[a] for a in e.args), e.dtype, e.leaf)
        for k, e in enumerate(cluster.code)
        if k in needed
    )
    writes = tuple(Write(number[w.source], w.access, w.over, w.monoid) for w in cluster.writes)
    return Cluster(cluster.loops, cluster.reads, code, writes)


def may_be_over(cluster: Cluster, write: int, operand: int) -> bool:
    """Whether a result may be written over an operand: each element is read in the round that writes it, and in no
    other."""
    w = cluster.writes[write]
    reads = [r.access for r in cluster.reads if r.operand == operand]
    once = not cluster.reduced and w.monoid is None and all(w.over) and all(w.access.strides)
    return once and bool(cluster.loops) and all(access == w.access for access in reads)


def with_overs(cluster: Cluster, operands: Mapping[int, int]) -> Cluster:
    """The cluster with some results (by their writes) in the arrays of operands."""
    writes = {k: j for j, k in operands.items()}
    reads = tuple(dataclasses.replace(r, over=writes.get(r.operand)) for r in cluster.reads)
    return dataclasses.replace(cluster, reads=reads)
