"""Tiles: a graph that runs along one axis piece by piece, so that what it makes on the way stays in the cache. Floor:
ops.

Nobody records it: it is made from a program that is about to run, and is differentiated as that."""

from __future__ import annotations

from typing import Any

from gradtape.ir.aval import Aval, aval
from gradtape.ir.graph import Graph, Node, Value
from gradtape.ops.op import Op, Step


class Tiles(Op):
    """The results of a graph over `count` pieces of its operands, one piece behind the other.

    Its parameters: `graph`, of one piece; `count`; `inputs`, by operand the axis along which it is cut (None: each
    piece reads all of it); `outputs`, by result the axis along which the pieces lie."""

    kind = "tiles"

    def infer(self, avals: tuple[Aval, ...], **params: Any) -> tuple[Aval, ...]:
        found = []
        for v, axis in zip(params["graph"].outputs, params["outputs"], strict=True):
            dims = v.aval.dims
            found.append(aval((*dims[:axis], dims[axis] * params["count"], *dims[axis + 1 :]), v.aval.dtype))
        return tuple(found)

    def vjp(self, node: Node, cotangents: list[Value | None], wanted: list[bool]) -> list[Value | None]:
        raise AssertionError("tiles are made of programs that are about to run; those are differentiated")


TILES = Tiles("tiles", doc="A graph along one axis, piece by piece.")


def tiles_step(graph: Graph, count: int, inputs: tuple[int | None, ...], outputs: tuple[int, ...]) -> Step:
    return Step(TILES, {"graph": graph, "count": count, "inputs": inputs, "outputs": outputs})
