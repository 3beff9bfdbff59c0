"""Fused work: a graph of pointwise ops and reductions that runs as one kernel. Floor: ops.

Fused graphs are what a backend runs; derivatives, rows and costs are made from the graph before fusion."""

from __future__ import annotations

from typing import Any

from gradtape.ir.aval import Aval
from gradtape.ir.cluster import Cluster
from gradtape.ir.graph import Graph
from gradtape.ops.op import Op, Step


class Fused(Op):
    """A cluster applied to values; `graph` is the same work op by op."""

    kind = "fused"

    def infer(self, avals: tuple[Aval, ...], **params: Any) -> tuple[Aval, ...]:
        return tuple(v.aval for v in params["graph"].outputs)


FUSED = Fused("fused", doc="Pointwise ops and reductions as one kernel.")


def fused_step(graph: Graph, cluster: Cluster) -> Step:
    """A step of its own for each cluster: a backend remembers with it how often it ran."""
    return Step(FUSED, {"graph": graph, "cluster": cluster})
