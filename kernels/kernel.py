"""What a rendered kernel is, and what it says of itself. Floor: kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gradtape.ir.cluster import Cluster, Write
from gradtape.ir.dtypes import DType
from gradtape.kernels.halves import computed
from gradtape.kernels.spelling import carried, literal


@dataclass(frozen=True)
class Kernel:
    """A rendered cluster. It is called with the arrays it writes, those it combines into, those it reads (all flat),
    the numbers it reads, the numbers of its formula, its integers, and the part of the split loop that it does (from
    `start` to `stop`)."""

    text: str
    writes: tuple[Write, ...]  # that set their elements
    sinks: tuple[Write, ...]  # that combine with what is there
    arrays: tuple[int, ...]  # reads that move along loops
    scalars: tuple[int, ...]  # reads that do not
    numbers: tuple[tuple[Any, DType], ...]  # of the formula but not of the text
    integers: tuple[int, ...]
    split: int | None  # the loop that threads share
    limited: bool  # it answers whether an operand was beyond the limit of an operation, so that nothing of it counts
    vectors: int = 0  # so many are worked on side by side; 0: as the compiler likes


def partial_dtype(w: Write) -> DType:
    """The dtype of the array that a combining write combines into."""
    return carried(w.monoid or "sum", computed(w.access.dtype))


def described(cluster: Cluster) -> list[str]:
    """What a cluster computes, an operation a line, as a comment for readers."""
    names: dict[int, str] = {}
    loops = [f"{k} (reduced)" if x.reduced else f"{k}" for k, x in enumerate(cluster.loops)]
    lines = [f"loops: {', '.join(loops) or 'none'}"]
    for k, e in enumerate(cluster.code):
        if e.op == "number":
            names[k] = str(e.leaf) if literal(e) else "c"
        elif e.op == "read":
            names[k] = f"r{e.leaf}"
        else:
            names[k] = f"t{k}"
            word = f"reduce_{e.leaf}" if e.op == "reduce" else f"round_{e.leaf.name}" if e.op == "round" else e.op
            lines.append(f"t{k} = {word}({', '.join(names[a] for a in e.args)})")
    return lines
