"""Branches and loops: Python around the programs of their graphs. Floor: backends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradtape.backends.rows_in_place import chains_of, rewritten
from gradtape.ir.graph import Graph
from gradtape.ops.op import Step

Kernel = Callable[..., Any]


@dataclass(frozen=True)
class Compile:
    """From a graph to the function that runs it: to the nodes that run, and those to the function."""

    prepared: Callable[[Graph], Graph]
    compiled: Callable[[Graph], Kernel]

    def __call__(self, graph: Graph) -> Kernel:
        return self.compiled(self.prepared(graph))


class Stack(list[Any]):
    """As many arrays as a loop had iterations. `stack[()]` is the stack, as for an array."""

    def __getitem__(self, key: Any) -> Any:
        return self if key == () else super().__getitem__(key)


def _results(found: tuple[Any, ...]) -> Any:
    return found[0] if len(found) == 1 else found


def cond(step: Step, program_of: Compile) -> Kernel:
    true, false = (program_of(step.params[k]) for k in ("true", "false"))

    def run(pred: Any, *operands: Any) -> Any:
        return _results((true if pred else false)(*operands))

    return run


def _body(step: Step, program_of: Compile) -> tuple[Kernel, list[int]]:
    """What runs the body of a loop, and which of the carried arrays it changes in their own memory."""
    body = program_of.prepared(step.params["body"])
    chains = chains_of(body, step.params["carried"])
    return program_of.compiled(rewritten(body, chains)), [j for j, chain in chains.written.items() if chain]


def _begun(carry: tuple[Any, ...], written: list[int]) -> tuple[Any, ...]:
    """What a loop carries first: arrays that it writes to are its own."""
    return tuple(x.copy() if j in written else x for j, x in enumerate(carry)) if written else carry


def while_loop(step: Step, program_of: Compile) -> Kernel:
    test = program_of(step.params["test"])
    body, written = _body(step, program_of)
    n = step.params["carried"]
    pushes = len(step.params["body"].outputs) - n

    def run(*operands: Any) -> Any:
        carry, constants = _begun(operands[:n], written), operands[n:]
        stacks = [Stack() for _ in range(pushes)]
        trips = 0
        while test(*carry, *constants)[0]:
            found = body(*carry, *constants)
            carry = found[:n]
            for stack, x in zip(stacks, found[n:], strict=True):
                stack.append(x)
            trips += 1
        return _results((*carry, *stacks, np.int32(trips)))

    return run


def scan(step: Step, program_of: Compile) -> Kernel:
    body, written = _body(step, program_of)
    n, k, backwards = step.params["carried"], step.params["constants"], step.params["reverse"]
    pushes = len(step.params["body"].outputs) - n

    def run(trips: Any, *operands: Any) -> Any:
        carry, constants, given = _begun(operands[:n], written), operands[n : n + k], operands[n + k :]
        stacks = [Stack([None] * int(trips)) for _ in range(pushes)]
        at = range(int(trips))
        for t in reversed(at) if backwards else at:
            found = body(*carry, *constants, *(list.__getitem__(s, t) for s in given))
            carry = found[:n]
            for stack, x in zip(stacks, found[n:], strict=True):
                stack[t] = x
        return _results((*carry, *stacks))

    return run


def stack_adder(add: Kernel) -> Kernel:
    """What adds stacks element by element; stacks of stacks as deep as they go."""

    def added(a: Any, b: Any) -> Any:
        return Stack(map(added, a, b)) if isinstance(a, Stack) else add(a, b)

    return added


def checkpoint(step: Step, program_of: Compile) -> Kernel:
    program = program_of(step.params["graph"])
    return lambda *operands: _results(program(*operands))
