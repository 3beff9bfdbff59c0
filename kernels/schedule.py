"""In which order a cluster's loops run on a processor with vectors, and what is done where. Floor: kernels.

One loop is the vector loop: the innermost, along which most accesses move by single elements. If it is reduced, each
row (one round of the kept loops) is swept as often as there are stages; if it is kept, blocks of it are, and
reductions carry a number for each element of the block."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gradtape.ir.cluster import LEAVES, Access, Cluster, Write

CHEAP = frozenset(
    {
        *("add", "subtract", "multiply", "negative", "square", "abs", "maximum", "minimum", "select", "cast", "step"),
        *("identity", "stop_gradient", "less", "less_equal", "greater", "greater_equal", "equal", "not_equal", "sign"),
        *("logical_and", "logical_or", "logical_not", "round", "assigned"),
    }
)
CHEAP_DEPTH = 4  # cheap operations in a row that are done again rather than kept
DEAR = 2  # operations that are not cheap, from which a loop waits for results most of the time
LONG = 256  # rounds of a loop from which it works on several vectors at once
MUCH = 128  # operations from which these are fewer: compilers take their time


@dataclass(frozen=True)
class Sweep:
    """One pass over the reduced loops: which operations run inside, operands first; and which are kept for later."""

    inside: tuple[int, ...]
    kept: tuple[int, ...]


@dataclass(frozen=True)
class Schedule:
    """`outer` loops, then sweeps over the loops `swept`, each with the loop `vector` innermost. `outside` are the
    operations that no sweep has to do, by stage. A cluster without reductions is one sweep."""

    outer: tuple[int, ...]
    swept: tuple[int, ...]
    vector: int | None
    sweeps: tuple[Sweep, ...]
    outside: tuple[tuple[int, ...], ...]


def schedule(cluster: Cluster) -> Schedule:
    """How a cluster runs."""
    vector = _vector(cluster)
    swept = tuple(k for k in sorted(cluster.reduced) if k != vector)
    outer = tuple(k for k in range(len(cluster.loops)) if k not in swept and k != vector)
    moving = {*swept, *(() if vector is None else (vector,))}
    inside = [bool(d & moving) and not _between(cluster, k, vector) for k, d in enumerate(cluster.dependences)]
    count = max(cluster.stages, default=0) + 1
    stages = range(count)
    # A block of columns has too many elements for anything to be kept.
    later = [_dear(cluster, inside, s, count) if vector in cluster.reduced else frozenset() for s in stages]
    kept: set[int] = set()
    sweeps = []
    for s in stages:
        order = _closure(cluster, _roots(cluster, inside, s, vector), inside, kept)
        new = tuple(k for k in order if k in later[s] and k not in kept)
        kept.update(new)
        sweeps.append(Sweep(order, new))
    outside = tuple(tuple(k for k, n in enumerate(cluster.stages) if not inside[k] and n == s) for s in stages)
    return Schedule(outer, swept, vector, tuple(sweeps), outside)


def vectors_at_once(cluster: Cluster, plan: Schedule) -> int:
    """How many vectors the innermost loop should work on side by side; 0: as the compiler likes."""
    if plan.vector is None or cluster.loops[plan.vector].extent < LONG:
        return 0
    inside = {k for sweep in plan.sweeps for k in sweep.inside}
    dear = sum(cluster.code[k].op not in CHEAP | LEAVES | {"reduce"} for k in inside)
    return 0 if dear < DEAR else 4 if cluster.work < MUCH else 2


def _vector(cluster: Cluster) -> int | None:
    if not cluster.loops:
        return None
    accesses = [*(r.access for r in cluster.reads), *(w.access for w in cluster.writes)]
    kept = [k for k in range(len(cluster.loops)) if k not in cluster.reduced]
    candidates = {max(cluster.reduced, default=-1), max(kept, default=-1)} - {-1}
    return max(candidates, key=lambda k: (sum(_elements(cluster, a) for a in accesses if a.strides[k] == 1), k))


def _elements(cluster: Cluster, access: Access) -> int:
    """How many elements an access touches."""
    n = 1
    for k in access.loops:
        n *= cluster.loops[k].extent
    return n


def is_by_column(cluster: Cluster, w: Write, vector: int | None) -> bool:
    """Whether a write is done once for each column, between the sweeps."""
    rounds = {k for k, over in enumerate(w.over) if over} | cluster.dependences[w.source]
    return bool(cluster.reduced) and vector not in cluster.reduced and not rounds & cluster.reduced


def _between(cluster: Cluster, k: int, vector: int | None) -> bool:
    """Whether an operation runs between sweeps though it depends on the vector loop: it needs the result of a
    reduction over columns, and of the swept loops nothing."""
    return vector not in cluster.reduced and cluster.stages[k] > 0 and not cluster.dependences[k] & cluster.reduced


def _roots(cluster: Cluster, inside: Sequence[bool], s: int, vector: int | None) -> list[int]:
    """What a sweep is for: operands of reductions, and what is written."""
    ends = [e.args[0] for k, e in enumerate(cluster.code) if e.op == "reduce" and cluster.stages[k] == s + 1]
    swept = [w for w in cluster.writes if not is_by_column(cluster, w, vector)]
    written = [w.source for w in swept if cluster.stages[w.source] == s]
    return [k for k in (*ends, *written) if inside[k]]


def _closure(cluster: Cluster, roots: Iterable[int], inside: Sequence[bool], kept: set[int]) -> tuple[int, ...]:
    """What must be done for the roots, operands first; what an earlier sweep kept is there."""
    needed: set[int] = set()
    stack = list(roots)
    while stack:
        k = stack.pop()
        if k not in needed and inside[k]:
            needed.add(k)
            if k not in kept:
                stack += cluster.code[k].args
    return tuple(sorted(needed))


def _dear(cluster: Cluster, inside: Sequence[bool], s: int, count: int) -> frozenset[int]:
    """Results of sweep s that a later sweep needs and that are not cheap to compute again, as those are that do not
    depend on the vector loop."""
    found: set[int] = set()
    vector = _vector(cluster)
    for later in range(s + 1, count):
        stack = _roots(cluster, inside, later, vector)
        seen: set[int] = set()
        while stack:
            k = stack.pop()
            if k in seen or not inside[k]:
                continue
            seen.add(k)
            dear = cluster.stages[k] == s and vector in cluster.dependences[k]
            if dear and not _is_cheap(cluster, k, inside, CHEAP_DEPTH):
                found.add(k)
            elif cluster.stages[k] >= s:
                stack += cluster.code[k].args
    return frozenset(found)


def _is_cheap(cluster: Cluster, k: int, inside: Sequence[bool], depth: int) -> bool:
    e = cluster.code[k]
    if not inside[k] or e.op in LEAVES:
        return True
    return e.op in CHEAP and depth > 0 and all(_is_cheap(cluster, a, inside, depth - 1) for a in e.args)
