"""Clusters as programs of a device, which may write results over operands. Floor: backends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gradtape.backends.cuda.device import Cuda, Program
from gradtape.ir.cluster import may_be_over
from gradtape.kernels.cuda_render import render_cuda
from gradtape.kernels.cuda_together import Member, render_together

NOTHING: Mapping[int, int] = {}


class Clustered(Program):
    """The launches of a cluster, or of several of one formula that run together.

    Args:
      cuda: the device.
      members: the clusters.
      results: shapes and dtypes.
      over: by numbers of results, the operands in whose arrays they are.
    """

    def __init__(
        self, cuda: Cuda, members: Sequence[Member], results: Sequence[Any], over: Mapping[int, int] = NOTHING
    ) -> None:
        first, *others = members
        program = render_together(members) if others else render_cuda(first.cluster, cuda.shared, over)
        super().__init__(cuda, program, results)
        self.members = members

    def writing_over(self, pairs: Iterable[tuple[int, int]]) -> Callable[..., Any]:
        """What also writes results over operands, of pairs of both where that may be: those that each thread reads just
        before."""
        over: dict[int, int] = {}
        for j, k in pairs:
            if j not in over and k not in over.values() and self._may_be_over(j, k):
                over[j] = k
        if not over:
            return self
        # Where several run together, their kernel is told where arrays are by a table, and is promised nothing of them.
        program = self if len(self.members) > 1 else Clustered(self.cuda, self.members, self.results, over)
        self.cuda.compile(program.texts)
        places = [over.get(j) for j in range(len(self.results))]
        return lambda *arrays: program(*arrays, into=[None if k is None else arrays[k] for k in places])

    def _may_be_over(self, j: int, k: int) -> bool:
        m = next(m for m in reversed(self.members) if m.result <= j)
        if m is not next(m for m in reversed(self.members) if m.operand <= k):
            return False  # other blocks read it
        is_whole = not any(w.monoid for w in m.cluster.writes)
        return is_whole and may_be_over(m.cluster, j - m.result, k - m.operand)
