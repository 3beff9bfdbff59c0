"""Whose threads a program of the host runs in. Floor: runtime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradtape.backends.one_thread import in_one_thread
from gradtape.ir.graph import Graph
from gradtape.transforms.cost import is_for_our_threads


def threaded(program: Callable[..., Any], graph: Graph) -> Callable[..., Any]:
    """The program of a graph, in threads of ours or of BLAS, whichever have more to do."""
    return in_one_thread(program) if is_for_our_threads(graph) else program
