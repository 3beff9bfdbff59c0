"""Cases: every op of the table with every sample that it declares, and a few more that follow from its kind.

`CASES` is what all checks loop over. Nothing here knows an op by name, but for the few that have no samples."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import gradtape.ops  # noqa: F401  (declares the built-in ops)
from gradtape.ir import dtypes
from gradtape.ir.aval import Aval, aval_of
from gradtape.ir.dtypes import DType
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.graph import Graph, Value
from gradtape.ops.arithmetic import Cast
from gradtape.ops.contraction import Contraction, parts
from gradtape.ops.op import Op, Step, all_ops, apply
from gradtape.ops.reduction import Reduction
from gradtape.ops.samples import Sample, Spec

TESTED = (
    dtypes.float64,
    dtypes.float32,
    dtypes.float16,
    dtypes.bfloat16,
    dtypes.complex128,
    dtypes.complex64,
    dtypes.int32,
    dtypes.bool_,
)
DOUBLE = (dtypes.float64, dtypes.complex128)  # where derivatives are compared with differences

# Ops of which a sample of arrays alone says nothing. `test_graph_ops.py` checks those that run.
WITHOUT_SAMPLES = {
    "constant": "takes no operands: all it is stands in its parameters",
    "positions": "takes no operands: all it is stands in its parameters",
    "call": "its parameter is a graph; every op of the table runs inside one in `test_graph_ops.py`",
    "fused": "its parameter is a graph; random graphs run fused in `tests/transforms` and `tests/backends`",
    "together": "its parameters are clusters; steps of optimizers on a device run in one, in `tests/backends/cuda`",
    "tiles": "its parameter is a graph; random graphs run inside one in `tests/transforms/test_tiling.py`",
    "cond": "its parameters are graphs; branches run in `tests/transforms/test_branches_and_loops.py`",
    "while": "its parameters are graphs; loops run in `tests/transforms/test_branches_and_loops.py`",
    "scan": "its parameter is a graph; gradients of loops have it, in `tests/transforms/test_branches_and_loops.py`",
    "checkpoint": "its parameter is a graph; checkpoints run in `tests/functions/test_checkpoint.py`",
    "add_stacks": "its operands are stacks, which only loops make, and sums of their cotangents use",
    "empty_stack": "stands for the stack of a branch that did not run",
    "host": "its parameter is a Python function, such as those of `tests/functions/test_host_steps.py`",
    "custom_call": "runs the user's Python function, which the tape supplies",
    "host_rule": "runs the user's Python rule, which the tape supplies",
    "bent": "hands on the answer of a rule; custom gradients in maps and functions run through it",
    "effectful": "its parameter is the graph of a rule with effects; functions that are traced run through it",
    "unknown_rule": "it is a rule that is missing, which loaded models say when a gradient is asked for",
    "ruled": "its parameter is the graph of a rule; custom gradients in maps and functions run through it",
}


@dataclass(frozen=True)
class Case:
    """An op with operands' specs and static parameters."""

    op: Op
    sample: Sample
    label: str

    @property
    def step(self) -> Step:
        return self.op.bind(**self.sample.params)

    @property
    def is_free(self) -> bool:
        """Whether any operand has the dtype under test (others are positions or masks)."""
        return any(s.dtype == "float" for s in self.sample.specs)

    def draw(self, dtype: DType, seed: int = 0) -> list[Any]:
        """Operands, equal in every run. Arrays cannot be written to, so that a kernel that writes to its
        operands fails; what has no axes is an array scalar, as in the runtime."""
        rng = np.random.default_rng([seed, *self.op.name.encode()])
        return [sealed(_operand(s, dtype, rng)) for s in self.sample.specs]

    def takes(self, dtype: DType) -> bool:
        """Whether the op accepts the sample in this dtype."""
        try:
            self.step.infer(tuple(map(aval_of, self.draw(dtype))))
        except InvalidArgumentError:
            return False
        return True

    def dtypes(self, among: Iterable[DType] = TESTED) -> list[DType]:
        """The dtypes to run this case in; one that no operand has, where none is free."""
        if not self.is_free:
            return [dtypes.float64]
        return [d for d in among if self.takes(d)]

    def graph(self, dtype: DType) -> Graph:
        """The step as a graph of one node."""
        inputs = [Value(aval_of(a)) for a in self.draw(dtype)]
        return Graph(inputs, apply(self.step, inputs))

    def __repr__(self) -> str:
        return f"{self.op.name}[{self.label}] of {[s.shape for s in self.sample.specs]} {dict(self.sample.params)}"


def sealed(array: Any) -> Any:
    """The array, read-only; an array scalar where it has no axes."""
    array = np.asarray(array)
    if array.shape == ():
        return array[()]
    array.flags.writeable = False
    return array


def _operand(spec: Spec, dtype: DType, rng: np.random.Generator) -> Any:
    if spec.dtype != "float":
        return np.asarray(spec.draw(rng))
    if dtype.is_bool:
        return np.asarray(rng.random(spec.shape) < 0.5)
    if dtype.is_integer:
        low = int(np.ceil(spec.domain[0]))
        high = max(low, int(np.floor(spec.domain[1])))
        return np.asarray(rng.integers(low, high + 1, spec.shape)).astype(dtype.numpy_dtype)
    values = spec.draw(rng)
    if dtype.is_complex:
        values = values + 1j * rng.uniform(-0.5, 0.5, spec.shape)
    return spec.structured(values).astype(dtype.numpy_dtype)


def _derived(op: Op) -> Iterable[Sample]:
    """Samples that follow from the kind: nothing, one element, and no axes at all."""
    if isinstance(op, Reduction):
        like = op.samples[0].specs[0]
        for shape, axes in (((2, 0, 3), (1,)), ((0,), (0,)), ((), ()), ((1, 1), (1,)), ((2, 2, 2), (0, 1, 2))):
            for keepdims in (False, True):
                yield Sample((replace_shape(like, shape),), {"axes": axes, "keepdims": keepdims})
    if isinstance(op, Cast):
        for target in TESTED:
            yield Sample((Spec((2, 3)),), {"dtype": target})
    if isinstance(op, Contraction):
        for sample in op.samples:
            for size in (0, 1):
                yield replace(sample, specs=_resized(sample, size))
        yield from _arrangements()


def _arrangements() -> Iterable[Sample]:
    """Contractions with and without a letter that is kept in both operands (b), summed (s), kept of the left (l) and
    of the right (r) one, each operand's and the result's letters in this order and backwards."""
    sizes = {"b": 2, "s": 3, "l": 4, "r": 5}
    for letters in ("sl", "sr", "slr", "bs", "bsl", "bsr", "bslr", "bl", "br", "blr", "lr"):
        words = [[c for c in letters if c in part] for part in ("bls", "bsr", "blr")]
        for left, right, out in itertools.product(*[sorted({"".join(w), "".join(w[::-1])}) for w in words]):
            specs = tuple(Spec(tuple(sizes[c] for c in word)) for word in (left, right))
            yield Sample(specs, {"subscripts": f"{left},{right}->{out}"})


def replace_shape(spec: Spec, shape: tuple[int, ...]) -> Spec:
    return spec._replace(shape=shape)


def _resized(sample: Sample, size: int) -> tuple[Spec, ...]:
    """The operands of a contraction with another size for its first letter."""
    left, right, _ = parts(sample.params["subscripts"])
    first = (left + right)[:1]
    return tuple(
        replace_shape(s, tuple(size if c == first else n for c, n in zip(letters, s.shape)))
        for letters, s in zip((left, right), sample.specs)
    )


def cases(op: Op) -> list[Case]:
    """The declared samples of an op, then those derived from its kind."""
    declared = [Case(op, s, str(k)) for k, s in enumerate(op.samples)]
    return declared + [Case(op, s, f"derived {k}") for k, s in enumerate(_derived(op))]


OPS = [op for op in all_ops() if op.name not in WITHOUT_SAMPLES]
CASES: dict[str, list[Case]] = {op.name: cases(op) for op in OPS}


def each_op(where: Callable[[Op], bool] = lambda op: True) -> Any:
    """Parametrize a test by the ops for which `where` holds; the test loops over their cases."""
    chosen = [op for op in OPS if where(op)]
    if not chosen:
        raise ValueError("No op is chosen, so nothing would be checked.")
    return pytest.mark.parametrize("op", chosen, ids=[op.name for op in chosen])


def avals_of(arrays: Iterable[Any]) -> tuple[Aval, ...]:
    return tuple(map(aval_of, arrays))
