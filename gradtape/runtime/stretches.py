"""How many elements a slice has whose ends have no value: what its ends differ by. Floor: runtime."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

from gradtape.ir.graph import Value
from gradtape.ops.arithmetic import ADD, MULTIPLY, SUBTRACT
from gradtape.ops.op import Constant
from gradtape.runtime.counting import captured
from gradtape.runtime.tensor import SymbolicTensor

Sum = tuple[Counter[int], int]  # how often each number without a value is added, and a number


def difference(stop: Any, start: Any) -> int | None:
    """`stop - start` of integers or scalar tensors, where it is one number whatever they are."""
    names: dict[Any, int] = {}
    (these, a), (those, b) = (_sum_of(x, names) for x in (stop, start))
    rest = {k: these[k] - those[k] for k in {*these, *those}}
    return a - b if not any(rest.values()) else None


def _sum_of(x: Any, names: dict[Any, int]) -> Sum:
    return _spelled(x._value, x._tracer, names) if isinstance(x, SymbolicTensor) else (Counter(), int(x))


def _spelled(v: Value, tracer: Any, names: dict[Any, int]) -> Sum:
    """A value as a sum; `names`: numbers for what is no sum, equal ones for what is computed alike."""
    node = v.node
    given = None if node is not None else captured(v, tracer)
    if isinstance(given, SymbolicTensor):
        return _spelled(given._value, given._tracer, names)
    if given is not None and not v.aval.shape:
        return Counter(), int(given)
    if node is not None and isinstance(node.step.op, Constant):
        return Counter(), int(node.step.params["value"])
    if node is not None and node.step.op in (ADD, SUBTRACT):
        (left, a), (right, b) = (_spelled(w, tracer, names) for w in node.inputs)
        sign = 1 if node.step.op is ADD else -1
        total = Counter(left)
        for k, n in right.items():
            total[k] += sign * n
        return total, a + sign * b
    if node is not None and node.step.op is MULTIPLY:
        for (parts, a), (rest, b) in itertools.permutations(_spelled(w, tracer, names) for w in node.inputs):
            if not any(rest.values()):
                return Counter({k: n * b for k, n in parts.items()}), a * b
    return Counter({_named(v, tracer, names): 1}), 0


def _named(v: Value, tracer: Any, names: dict[Any, int]) -> int:
    given = captured(v, tracer) if v.node is None else None
    if isinstance(given, SymbolicTensor):
        return _named(given._value, given._tracer, names)
    if ("value", id(v)) not in names:
        made: Any = id(v)
        if v.node is not None:
            made = (v.node.step, v.index, *(_named(w, tracer, names) for w in v.node.inputs))
        names["value", id(v)] = names.setdefault(("made", made), len(names))
    return names["value", id(v)]
