"""JVPs that functions with a rule of their own came with, as graphs: transposed, they are pullbacks. Floor: runtime."""

from __future__ import annotations

from collections.abc import Sequence

from gradtape.ir.aval import Aval
from gradtape.ir.graph import Graph, Value
from gradtape.ir.shapes import shape_text
from gradtape.runtime.record import Rule
from gradtape.runtime.tensor import Tensor
from gradtape.transforms.differentiate import pull_back
from gradtape.transforms.linearity import is_linear
from gradtape.transforms.simplify import flattened


def pushed_by(rule: Rule, tangents: Sequence[Tensor], results: Sequence[Aval]) -> Sequence[Tensor | None]:
    """What the JVP of a rule gives, one tangent for each differentiable result.

    Raises:
      ValueError: another number of them, or a tangent of another shape or dtype."""
    assert rule.push is not None
    pushed = rule.push(tangents)
    due = [a for a in results if a.dtype.is_differentiable]
    if len(pushed) != len(due):
        raise ValueError(f"The `jvp` of `{rule.name}` returned {len(pushed)} tangents for {len(due)} results.")
    for k, (p, a) in enumerate(zip(pushed, due, strict=True)):
        if p is not None and p._aval is not a:
            raise ValueError(
                f"The `jvp` of `{rule.name}` returned a tangent {p.dtype.name}{shape_text(p._aval.shape)} for result "
                f"{k}, which is {a.dtype.name}{shape_text(a.shape)}. Return a tensor of that shape and dtype."
            )
    return pushed


def transposed(
    name: str,
    pushed: Sequence[Value | None],
    tangents: Sequence[Value],
    others: Sequence[Value],
    results: Sequence[Aval],
) -> tuple[list[Value], list[Value | None]]:
    """A JVP turned around: cotangents of the differentiable results, and what comes of them for each tangent.

    Raises:
      ValueError: the JVP is not known to be linear in its tangents."""
    cotangents = [Value(a) for a in results if a.dtype.is_differentiable]
    live = [(p, c) for p, c in zip(pushed, cotangents, strict=True) if p is not None]
    graph = flattened(Graph([*tangents, *others], [p for p, _ in live]))
    if not is_linear(graph, [k < len(tangents) for k in range(len(graph.inputs))]):
        raise ValueError(
            f"The `jvp` of `{name}` does not show that it is linear in its tangents, as every JVP is. Write each "
            "tangent of a result as a sum of products of the given tangents with what does not depend on them."
        )
    return cotangents, pull_back(graph.nodes, graph.outputs, [c for _, c in live], tangents)
