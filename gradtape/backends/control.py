"""Branches and loops on the CPU: Python around the programs of their graphs. Floor: backends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradtape.backends.program import compile_graph
from gradtape.ops.op import Step

Kernel = Callable[..., Any]
Lower = Callable[[Any], Kernel]


class Stack(list[Any]):
    """As many arrays as a loop had iterations. `stack[()]` is the stack, as for an array."""

    def __getitem__(self, key: Any) -> Any:
        return self if key == () else super().__getitem__(key)


def _results(found: tuple[Any, ...]) -> Any:
    return found[0] if len(found) == 1 else found


def cond(step: Step, lower: Lower) -> Kernel:
    true, false = (compile_graph(step.params[k], lower) for k in ("true", "false"))

    def run(pred: Any, *operands: Any) -> Any:
        return _results((true if pred else false)(*operands))

    return run


def while_loop(step: Step, lower: Lower) -> Kernel:
    test, body = (compile_graph(step.params[k], lower) for k in ("test", "body"))
    n = step.params["carried"]
    pushes = len(step.params["body"].outputs) - n

    def run(*operands: Any) -> Any:
        carry, constants = operands[:n], operands[n:]
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


def scan(step: Step, lower: Lower) -> Kernel:
    body = compile_graph(step.params["body"], lower)
    n, k, backwards = step.params["carried"], step.params["constants"], step.params["reverse"]
    pushes = len(step.params["body"].outputs) - n

    def run(trips: Any, *operands: Any) -> Any:
        carry, constants, given = operands[:n], operands[n : n + k], operands[n + k :]
        stacks = [Stack([None] * int(trips)) for _ in range(pushes)]
        at = range(int(trips))
        for t in reversed(at) if backwards else at:
            found = body(*carry, *constants, *(list.__getitem__(s, t) for s in given))
            carry = found[:n]
            for stack, x in zip(stacks, found[n:], strict=True):
                stack[t] = x
        return _results((*carry, *stacks))

    return run


def add_stacks(step: Step, lower: Lower) -> Kernel:
    return _added


def _added(a: Any, b: Any) -> Any:
    """Stacks of stacks are added as deep as they go."""
    return Stack(map(_added, a, b)) if isinstance(a, Stack) else np.add(a, b)


def empty_stack(step: Step, lower: Lower) -> Kernel:
    return Stack


def checkpoint(step: Step, lower: Lower) -> Kernel:
    program = compile_graph(step.params["graph"], lower)
    return lambda *operands: _results(program(*operands))
