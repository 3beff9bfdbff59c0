"""How LLVM makes vector code of loops that are compiled meanwhile. Floor: kernels.

A loop whose body is a long chain of functions waits for each result most of the time. So several vectors are worked on
side by side. The gradient of twenty operations in a row, float32, on AVX-512: 5.8 ns an element, 4.1 with two vectors,
3.7 with three, 3.4 with four. Loops that do little gain nothing, and those of few rounds leave more of them to the code
for what is left of a range."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

# LLVM ends the process when it is given an option that it does not know: versions in which this has been tried.
TRIED = (22,)
INTERLEAVE = "--force-vector-interleave"


@contextlib.contextmanager
def side_by_side(vectors: int) -> Iterator[bool]:
    """Loops compiled inside work on so many vectors at once (0: as LLVM likes); yields whether this version of LLVM is
    known to take the option. Results are the same, bit for bit, but for sums that may be reordered. Numba compiles
    nothing else meanwhile."""
    import llvmlite.binding as llvm
    from numba.core.compiler_lock import global_compiler_lock

    known = llvm.llvm_version_info[0] in TRIED
    with global_compiler_lock:
        if known:
            llvm.set_option("", f"{INTERLEAVE}={vectors}")
        try:
            yield known
        finally:
            if known:
                llvm.set_option("", f"{INTERLEAVE}=0")
