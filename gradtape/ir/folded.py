"""Graphs that are put away: the same as numbers, in a fortieth of the memory. Floor: ir."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any

from gradtape.ir.aval import Aval
from gradtape.ir.graph import Graph, Node, Value


class Folded:
    """A graph that nobody looks at for a while. `unfolded` makes it anew, of the same steps in the same order: other
    nodes and values, so that who holds some of the old ones must not mix them with these."""

    __slots__ = ("avals", "inputs", "outputs", "steps", "words")

    def __init__(self, graph: Graph) -> None:
        steps: dict[Any, int] = {}
        avals: dict[Aval, int] = {}
        place = {id(v): k for k, v in enumerate(graph.inputs)}
        made = len(graph.inputs)
        self.inputs = tuple(v.aval for v in graph.inputs)
        self.words = words = array("i")  # per node: its step, how many operands, which; how many results, their avals
        for node in graph.nodes:
            words.append(steps.setdefault(node.step, len(steps)))
            words.append(len(node.inputs))
            words.extend([place[id(v)] for v in node.inputs])
            words.append(len(node.outputs))
            for v in node.outputs:
                words.append(avals.setdefault(v.aval, len(avals)))
                place[id(v)] = made
                made += 1
        self.steps, self.avals = tuple(steps), tuple(avals)
        self.outputs = array("i", [place[id(v)] for v in graph.outputs])

    def unfolded(self) -> Graph:
        values = [Value(a) for a in self.inputs]
        inputs = list(values)
        nodes = []
        for step, operands, results in self._nodes():
            node = Node(step, tuple([values[k] for k in operands]), results)
            nodes.append(node)
            values += node.outputs
        return Graph(inputs, [values[k] for k in self.outputs]).in_order(nodes)

    def _nodes(self) -> Iterator[tuple[Any, array[int], tuple[Aval, ...]]]:
        """Steps, the numbers of their operands, the avals of their results."""
        words, at = self.words, 0
        while at < len(words):
            step, count = self.steps[words[at]], words[at + 1]
            middle = at + 2 + count
            end = middle + 1 + words[middle]
            yield step, words[at + 2 : middle], tuple([self.avals[k] for k in words[middle + 1 : end]])
            at = end
