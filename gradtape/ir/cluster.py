"""Clusters: scalar work over loops, some of them reduced, in stages; what one kernel does. Floor: ir.

A cluster reads elements of arrays, applies scalar operations, reduces over the reduced loops, and writes. A stage is
one sweep over the reduced loops: what uses the result of a reduction belongs to a later stage than its operands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gradtape.ir.dtypes import DType


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
    - "reduce": over all reduced loops; `leaf` is the monoid: sum, prod, max, min, all or any."""

    op: str
    args: tuple[int, ...]
    dtype: DType
    leaf: Any = None


@dataclass(frozen=True)
class Read:
    """Which operand is read, and where."""

    operand: int
    access: Access


@dataclass(frozen=True)
class Write:
    """Where the result of an operation goes."""

    source: int
    access: Access


@dataclass(frozen=True)
class Cluster:
    """Loops, outermost first; the arrays that are read; operations, operands first; and what is written."""

    loops: tuple[Loop, ...]
    reads: tuple[Read, ...]
    code: tuple[Operation, ...]
    writes: tuple[Write, ...]

    @property
    def size(self) -> int:
        """How many elements the loops visit."""
        n = 1
        for loop in self.loops:
            n *= loop.extent
        return n

    @property
    def reduced(self) -> frozenset[int]:
        return frozenset(k for k, loop in enumerate(self.loops) if loop.reduced)

    @property
    def dependences(self) -> tuple[frozenset[int], ...]:
        """Per operation, the loops that its result depends on."""
        found: list[frozenset[int]] = []
        for e in self.code:
            if e.op == "read":
                found.append(self.reads[e.leaf].access.loops)
            else:
                mine = frozenset().union(*(found[a] for a in e.args))
                found.append(mine - self.reduced if e.op == "reduce" else mine)
        return tuple(found)

    @property
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
    strides = [list(x.access.strides) for x in (*cluster.reads, *cluster.writes)]
    for k in range(len(loops) - 1, -1, -1):
        if loops[k].extent == 1:
            _drop(loops, strides, k)
    for k in range(len(loops) - 2, -1, -1):
        inner = loops[k + 1]
        if inner.reduced is loops[k].reduced and all(s[k] == s[k + 1] * inner.extent for s in strides):
            loops[k + 1] = Loop(loops[k].extent * inner.extent, inner.reduced)
            _drop(loops, strides, k)
    return _with_strides(cluster, loops, strides)


def _drop(loops: list[Loop], strides: Iterable[list[int]], k: int) -> None:
    del loops[k]
    for s in strides:
        del s[k]


def _with_strides(cluster: Cluster, loops: Sequence[Loop], strides: Sequence[Sequence[int]]) -> Cluster:
    walks = iter(strides)
    reads = tuple(Read(r.operand, Access(r.access.dtype, tuple(next(walks)))) for r in cluster.reads)
    writes = tuple(Write(w.source, Access(w.access.dtype, tuple(next(walks)))) for w in cluster.writes)
    return Cluster(tuple(loops), reads, cluster.code, writes)
