"""Large results that are written past the cache. Floor: kernels.

A processor reads the line of the cache that it is about to write to, unless it is told that whole lines are written.
For results that do not stay in the cache anyway that is a third of all traffic: a polynomial of 4 million numbers takes
0.63 ms in place of 0.86. Such stores want vectors that begin with a line, or with a part of one: results that lie in
order, from the beginning of a line on."""

from __future__ import annotations

import re
from typing import Any

from gradtape.ir.cluster import Cluster
from gradtape.ir.dtypes import float32, float64
from gradtape.kernels.memory import LINE
from gradtape.kernels.spelling import is_limited

LARGE = 1 << 23  # bytes of a result that is not expected to be in the cache when somebody reads it
SIZES = {"float": 4, "double": 8}
# A store of a vector to elements of an array, and what it is known to begin at.
STORE = re.compile(r"(store <(\d+) x (float|double)> [^\n]*?, ptr [^\n,]*), align [48]\b([^\n]*)")


def is_streamed(cluster: Cluster) -> bool:
    """Whether a kernel writes nothing but large results, in order, and reads none of them. No loop of it may be taken
    apart where its elements are counted, or where a round may end it: vectors then begin elsewhere."""
    if len(cluster.loops) != 1 or cluster.reduced or any(r.over is not None for r in cluster.reads):
        return False
    if any(e.op == "position" or is_limited(e.op) for e in cluster.code):
        return False
    return all(
        w.monoid is None
        and w.access.strides == (1,)
        and w.access.dtype in (float32, float64)
        and cluster.size * w.access.dtype.numpy_dtype.itemsize >= LARGE
        for w in cluster.writes
    )


def past_the_cache(module: Any) -> Any:
    """A module of LLVM whose vector stores go past the cache; its arrays that are written begin with a line."""
    import llvmlite.binding as llvm

    text = STORE.sub(_aligned, str(module))
    mark = 1 + max(map(int, re.findall(r"^!(\d+) = ", text, re.MULTILINE)), default=0)
    text = f"{text.replace('!nontemporal !', f'!nontemporal !{mark}')}\n!{mark} = !{{i32 1}}\n"
    found = llvm.parse_assembly(text)
    found.verify()
    return found


def _aligned(found: re.Match[str]) -> str:
    begin, count, kind, rest = found.groups()
    return f"{begin}, align {min(LINE, int(count) * SIZES[kind])}{rest}, !nontemporal !"
