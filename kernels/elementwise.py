"""Small elementwise programs as one loop over elements, compiled by Numba in the background. Floor: kernels.

A program is a list of steps over names; an op that has no scalar spelling here leaves the program to whoever asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from gradtape.ir.cluster import Operation
from gradtape.ir.dtypes import float64
from gradtape.kernels.arguments import Array, Number, Parameter
from gradtape.kernels.compiled import COMPILER
from gradtape.kernels.loops import share
from gradtape.kernels.spelling import is_limited, spelled
from gradtape.kernels.vector_math import FORMS


class Step(NamedTuple):
    """One op: the name of its result, and of its operands."""

    result: str
    op: str
    operands: tuple[str, ...]


class ElementwiseProgram(NamedTuple):
    """Steps over operands, of which some are arrays (an element each) and others scalars, and what they return. The
    results are written over the first arrays: one name per array lets the compiler see that nothing else overlaps."""

    arrays: tuple[str, ...]
    scalars: tuple[str, ...]
    steps: tuple[Step, ...]
    results: tuple[str, ...]


def source(program: ElementwiseProgram) -> str | None:
    """The loop as Python text, or None where an op has no spelling for all floats."""
    if any(s.op not in FORMS or FORMS[s.op].condition or is_limited(s.op) for s in program.steps):
        return None
    operands = [*(f"{a}_" for a in program.arrays), *program.scalars]
    lines = [f"def kernel@({', '.join(operands)}):"]
    lines += [f"    for i in range({operands[0]}.size):"]  # from 0, so that no index can be negative
    lines += [f"        {a} = {a}_[i]" for a in program.arrays]
    lines += [f"        {s.result} = {spelled(Operation(s.op, (), float64), s.operands, False)}" for s in program.steps]
    lines += [f"        {a}_[i] = {r}" for a, r in zip(program.arrays, program.results, strict=False)]
    return "\n".join(lines)


@dataclass(frozen=True)
class LoopSource:
    """The text of a loop over elements, and of what it is called with."""

    text: str
    parameters: tuple[Parameter, ...]
    answer: None = None
    vectors: int = 0


class BackgroundLoop:
    """A loop that is compiled in another thread; `run` says whether it could be used already."""

    def __init__(self, text: str, program: ElementwiseProgram, dtype: np.dtype[Any]) -> None:
        written = len(program.results)
        arrays = [Array(dtype, written=k < written) for k in range(len(program.arrays))]
        self.ticket = COMPILER.request(LoopSource(text, (*arrays, *[Number(dtype)] * len(program.scalars))))

    def is_ready(self) -> bool:
        return self.ticket.function is not None

    def run(self, arrays: Sequence[Any], scalars: Sequence[Any]) -> bool:
        """Write the results over the first of the flat arrays, if the loop is there; threads share the elements."""
        function = self.ticket.function
        if function is None:
            return False
        size = arrays[0].size
        share(size, size * len(arrays), lambda start, stop: function(*(a[start:stop] for a in arrays), *scalars))
        return True
