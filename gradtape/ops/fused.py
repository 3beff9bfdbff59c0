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


class Together(Op):
    """Several clusters of one formula, each applied to values of its own: `members` are the clusters with the numbers
    of their first operand and result, `results` the avals of all."""

    kind = "together"

    def infer(self, avals: tuple[Aval, ...], **params: Any) -> tuple[Aval, ...]:
        results: tuple[Aval, ...] = params["results"]
        return results


TOGETHER = Together("together", doc="Elementwise kernels of one formula as one kernel.")


def together_step(members: tuple[tuple[Cluster, int, int], ...], results: tuple[Aval, ...]) -> Step:
    """A step of its own for each set of clusters."""
    return Step(TOGETHER, {"members": members, "results": results})


def fused_step(graph: Graph, cluster: Cluster) -> Step:
    """A step of its own for each cluster: a backend remembers with it how often it ran."""
    return Step(FUSED, {"graph": graph, "cluster": cluster})
