"""Both modes are tried, and the graph of one lies aside as numbers meanwhile."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradtape as tf
from gradtape.ir.folded import Folded
from gradtape.ir.graph import Graph
from gradtape.runtime import backward, jacobian


@pytest.mark.parametrize("wide", [2, 12], ids=["forward costs less", "reverse costs less"])
def test_a_large_graph_is_put_away_while_the_other_mode_is_tried(wide: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Jacobian is the same, and of one mode only some numbers are left meanwhile."""
    away: list[int] = []

    class Noted(Folded):
        __slots__ = ()

        def __init__(self, graph: Graph) -> None:
            super().__init__(graph)
            away.append(len(graph.nodes))

    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(6, wide)), rng.normal(size=(14 - wide, 6))
    x = tf.constant(rng.normal(size=wide))

    def rows() -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.linalg.matvec(b, tf.sin(tf.linalg.matvec(a, tf.exp(x * 0.1))))
        return tape.jacobian(y, x).numpy()

    wanted = rows()
    backward.PROGRAMS.clear()
    monkeypatch.setattr(jacobian, "LARGE", 0)
    monkeypatch.setattr(jacobian, "Folded", Noted)
    np.testing.assert_allclose(rows(), wanted, rtol=1e-12)
    assert len(away) == 2 and min(away) > 2
    backward.PROGRAMS.clear()
