"""How LLVM makes vector code of loops that are compiled meanwhile. Floor: kernels.

A loop whose body is a long chain of functions waits for each result most of the time, and what is left of its range
when whole vectors are done runs through scalar code, at the price of a vector for every element. So several vectors
are worked on side by side, and the last ones are masked. Of five functions in a row, float32, on AVX-512: 127 elements
5.9 → 3.1 ns each, 1000 elements 4.0 → 3.1, or 2.4 with four vectors. A loop that does little loses some of its time,
unless it waits for memory."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

# LLVM ends the process when it is given an option that it does not know: versions in which these have been tried.
TRIED = (22,)
INTERLEAVE = "--force-vector-interleave"
TAIL = "--prefer-predicate-over-epilogue"


@contextlib.contextmanager
def vectorized(interleave: int = 2, masked_tail: bool = True) -> Iterator[bool]:
    """Loops compiled inside work on so many vectors side by side, and mask those at the end of the range; yields
    whether this version of LLVM is known to take the options. Results are the same, bit for bit, but for sums that may
    be reordered. Numba compiles nothing else meanwhile."""
    import llvmlite.binding as llvm
    from numba.core.compiler_lock import global_compiler_lock

    known = llvm.llvm_version_info[0] in TRIED
    with global_compiler_lock:
        if known:
            llvm.set_option("", f"{INTERLEAVE}={interleave}")
            llvm.set_option("", f"{TAIL}={'predicate-else-scalar-epilogue' if masked_tail else 'scalar-epilogue'}")
        try:
            yield known
        finally:
            if known:
                llvm.set_option("", f"{INTERLEAVE}=0")
                llvm.set_option("", f"{TAIL}=scalar-epilogue")
