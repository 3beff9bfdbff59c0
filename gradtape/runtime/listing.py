"""What happens to a graph on its way to what runs, as text for people. Floor: runtime."""

from __future__ import annotations

from collections.abc import Callable

from gradtape.backends.cpu import lower
from gradtape.backends.program import render
from gradtape.ir.graph import Graph
from gradtape.ir.show import show
from gradtape.transforms.cost import multiply_adds
from gradtape.transforms.peak import peak_bytes


def changes(graph: Graph) -> Callable[[str, Graph], None]:
    """A function that is told what each pass made of a graph, and shows what is new."""
    before = graph

    def after(name: str, made: Graph) -> None:
        nonlocal before
        last, before = before, made
        show("passes", name, lambda: _change(last, made))

    return after


def _change(before: Graph, after: Graph) -> str:
    text = repr(after)
    if text == repr(before):
        return "nothing changed"
    return f"{len(before.nodes)} nodes became {len(after.nodes)}\n{text}"


def plan_text(graph: Graph) -> str:
    """The Python function that runs a graph, and what it takes."""
    text, _ = render(graph, lower)
    work = sum(map(multiply_adds, graph.nodes))
    return f"# {work:,} multiply-adds in products; at most {peak_bytes(graph):,} bytes at a time\n{text}"
