"""Kernels in CUDA C++ and of Numba's as ops. Floor: api."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gradtape.api.layout import reshape
from gradtape.api.reductions import reduce_sum
from gradtape.ir.aval import Aval
from gradtape.ir.bounded import Bounded
from gradtape.ir.dtypes import DType, of_numpy
from gradtape.ir.expr import Expr, symbol
from gradtape.ir.graph import Node, Value
from gradtape.kernel_ops.base import KernelOp
from gradtape.kernel_ops.scalar import partials_of
from gradtape.ops.call import NO_GRADIENT
from gradtape.ops.kernels import Kernel, KernelStep, Rule, Static, values_of, without_gradient
from gradtape.ops.op import Step, apply, constant, emit
from gradtape.overrides import REGISTRY, run_with
from gradtape.runtime.convert import convert
from gradtape.runtime.dispatch import execute
from gradtape.runtime.tensor import SymbolicTensor, Tensor
from gradtape.runtime.trace import function_tracer
from gradtape.runtime.variable import Variable

KEPT = 64  # values of static parameters for which partials are remembered

PythonRule = Callable[..., Any]  # of the operation and its cotangents


class OpaqueKernel(KernelOp):
    """An op whose value is a kernel.

    Args:
      kernel: what runs.
      names: what its operands are called.
      parameters: the names of its static parameters.
      usual: their values where a call gives none.
      derivative: scalar functions, as of scalar kernels.
      backward: another kernel op, or a Python function of the operation and its cotangents.
      linear: the backward kernel is linear in the cotangents, as its user says.
    """

    def __init__(
        self,
        kernel: Kernel,
        names: Sequence[str],
        parameters: Sequence[str],
        usual: Mapping[str, Any],
        derivative: Any = None,
        backward: KernelOp | PythonRule | None = None,
        linear: bool = False,
    ) -> None:
        super().__init__(kernel.name, names, parameters)
        self.kernel, self.usual = kernel, dict(usual)
        self.derivative, self.backward, self.linear = derivative, backward, linear
        self.partials: Bounded[Static, Sequence[Expr | None]] = Bounded(KEPT)
        self.steps: dict[tuple[int, ...], KernelStep] = {}

    # ------------------------------------------------------------------ calls

    def __call__(self, *operands: Any, **static: Any) -> Any:
        if len(operands) != self.kernel.operands:
            raise TypeError(
                f"`{self.name}` takes {self.kernel.operands} operands ({', '.join(self.names)}), got {len(operands)}. "
                f"Its parameters {self.parameters} are given by name."
            )
        tensors = self._tensors(operands)
        known = self.static(static)
        step, rule = self.step(known), self.python_rule(tensors)
        return execute(step, tensors) if rule is None else run_with(self.name, rule, step, tensors, values_of(known))

    def _tensors(self, operands: Sequence[Any]) -> list[Tensor]:
        """Operands as tensors; what is none takes the dtype that the kernel declares, or that of its letter."""
        read = [v.read() if isinstance(v, Variable) else v for v in operands]
        if all(isinstance(v, Tensor) for v in read):
            return read
        given = [(v, d, _dtype_of(v)) for v, d in zip(read, self._declared(), strict=True)]
        known: dict[str, DType] = {}
        for kind in (Tensor, np.ndarray | np.generic, object):
            for is_floating in (True, False):
                for v, d, own in given:
                    if isinstance(d, str) and isinstance(v, kind) and own.is_floating is is_floating:
                        known.setdefault(d, own)
        return [v if isinstance(v, Tensor) else convert(v, _taken(d, own, known)) for v, d, own in given]

    def _declared(self) -> list[DType | str]:
        """Dtypes or letters of the operands; no letter where the kernel does not say."""
        if self.kernel.source is None:
            return [""] * self.kernel.operands
        return [p.type for p in self.kernel.source.of_kind("operand")]

    def static(self, given: Mapping[str, Any]) -> Static:
        """Static parameters, of which each has a value.

        Raises:
          TypeError: one too many, or none too few, or what is no number.
        """
        if unknown := sorted(set(given) - set(self.parameters)):
            near = difflib.get_close_matches(unknown[0], self.parameters, 1)
            raise TypeError(
                f"`{self.name}` has no parameter `{unknown[0]}`; it has {self.parameters}."
                + (f" Did you mean `{near[0]}`?" if near else "")
            )
        every = {n: given.get(n, self.usual.get(n)) for n in self.parameters}
        if missing := [n for n, v in every.items() if v is None]:
            raise TypeError(f"`{self.name}` wants its parameter `{missing[0]}`: `{self.name}(..., {missing[0]}=...)`.")
        return tuple((n, v, repr(v)) for n, v in ((n, _plain(v, n, self.name)) for n, v in every.items()))

    def step(self, static: Static, linear: Sequence[int] = ()) -> Step:
        """The step for static parameters; `linear`: operands in which the kernel is linear."""
        key = tuple(linear)
        if key not in self.steps:
            partials = None if self.derivative is None else self._partials
            self.steps[key] = KernelStep(self.kernel, self._rule(key), partials, key)
        return self.steps[key].bind(static=static, rows=0)

    # ------------------------------------------------------------------ gradients

    def python_rule(self, operands: Sequence[Tensor] = ()) -> PythonRule | None:
        """The rule that runs as Python; None where the gradient is that of graphs, or where a function is traced and
        nobody may ask for one."""
        if self.derivative is not None:
            return None
        if isinstance(self.backward, KernelOp):
            return self._through_backward if self.has_python_rule() else None
        if self.backward is not None:
            return self.backward
        if self.name not in REGISTRY.rules and (
            function_tracer() or any(isinstance(t, SymbolicTensor) for t in operands)
        ):
            return None
        return self._registered

    def has_python_rule(self) -> bool:
        """Whether derivatives of its own are Python functions, or those of its backward kernel are."""
        if isinstance(self.backward, OpaqueKernel):
            return self.backward.has_python_rule()
        return self.derivative is None and (self.backward is not None or self.name in REGISTRY.rules)

    def _registered(self, op: Any, *cotangents: Any) -> Any:
        """The rule that is registered when the gradient is asked for."""
        if self.name not in REGISTRY.rules:
            raise NO_GRADIENT.refusal(self.name)
        return REGISTRY.get(self.name)(op, *cotangents)

    def _through_backward(self, op: Any, *cotangents: Any) -> list[Any]:
        """The backward kernel, called as an op of its own."""
        assert isinstance(self.backward, KernelOp)
        static = {n: op.get_attr(n) for n in self.parameters if n in self.backward.parameters}
        given = [g for g, t in zip(cotangents, op.outputs, strict=True) if t.dtype.is_differentiable]
        outputs = op.outputs if self._reads_outputs(len(given)) else ()
        made = self.backward(*op.inputs, *outputs, *given, **static)
        answers = self._by_operand(made if isinstance(made, tuple) else [made], [t._aval for t in op.inputs])
        return [None if g is None else self._summed(g, t, k) for k, (g, t) in enumerate(zip(answers, op.inputs))]

    def _summed(self, gradient: Tensor, operand: Tensor, k: int) -> Tensor:
        """A gradient of the shape of its operand."""
        want = operand._aval.dims
        axes = self.kernel.repeated(gradient._aval.dims, want, k)
        return reshape(reduce_sum(gradient, axes), want) if axes else gradient

    def _rule(self, linear: tuple[int, ...]) -> Rule | None:
        if isinstance(self.backward, OpaqueKernel):
            return self._pulled
        is_elementwise = self.kernel.signature is not None and self.kernel.signature.is_elementwise
        return functools.partial(self._transposed, linear) if linear and is_elementwise else None

    def _partials(self, static: Static) -> Sequence[Expr | None]:
        symbols = {n: symbol(f"x{k}") for k, n in enumerate(self.names)}
        known = {n: v for n, v, _ in static}
        return self.partials.find(static, lambda: partials_of(self.derivative, symbols, known, self.name))

    def _reads_outputs(self, cotangents: int) -> bool:
        """Whether the backward kernel takes the results between operands and cotangents."""
        assert isinstance(self.backward, KernelOp)
        return len(self.backward.names) == self.kernel.operands + self.kernel.results + cotangents

    def _pulled(self, node: Node, cotangents: Sequence[Value | None]) -> Sequence[Value | None]:
        """The backward kernel applied to operands, results where it takes them, and cotangents."""
        back = self.backward
        assert isinstance(back, OpaqueKernel)
        given = [g for g in cotangents if g is not None]
        inputs = [*node.inputs, *(node.outputs if self._reads_outputs(len(given)) else ()), *given]
        if len(inputs) != back.kernel.operands:
            raise ValueError(
                f"The backward kernel of `{self.name}` takes {back.kernel.operands} operands; it should take those of "
                f"`{self.name}`, {len(node.inputs)}, and the cotangents of its results, {len(given)} (or between them "
                f"the results as well)."
            )
        linear = range(len(inputs) - len(given), len(inputs)) if self.linear else ()
        own = {n: v for n, v, _ in node.step.params["static"] if n in back.parameters}
        made = apply(back.step(back.static(own), tuple(linear)), inputs)
        return self._by_operand(made, [v.aval for v in node.inputs])

    def _by_operand(self, made: Sequence[Any], operands: Sequence[Aval]) -> list[Any]:
        """What a backward kernel makes, at the operands that it belongs to: one for each of them, or for those that
        have fractions."""
        places = [k for k, a in enumerate(operands) if a.dtype.is_differentiable]
        found = dict(zip(range(len(operands)) if len(made) == len(operands) else places, made, strict=True))
        return [found[k] if k in places else None for k in range(len(operands))]

    def _transposed(
        self, linear: tuple[int, ...], node: Node, tangents: Sequence[Value | None]
    ) -> Sequence[Value | None]:
        """A kernel of single numbers that is linear in some operands, turned around with respect to them: each of its
        results is a sum of them times what it makes of a 1 in their place. By others it has no gradient."""
        missing = iter(without_gradient(self.name, node, tangents))
        found: list[Value | None] = []
        for k, unknown in enumerate(missing):
            if k not in linear:
                found.append(unknown if node.inputs[k].aval.dtype.is_differentiable else None)
                continue
            ones = [
                constant(int(i == k), v.aval.dtype, v.aval.dims) if i in linear else v
                for i, v in enumerate(node.inputs)
            ]
            slopes = apply(node.step, ones)
            parts = [emit("multiply", s, t) for s, t in zip(slopes, tangents, strict=True) if t is not None]
            found.append(functools.reduce(lambda a, b: emit("add", a, b), parts))
        return found


def _dtype_of(value: Any) -> DType:
    """The dtype that a value has by itself."""
    if isinstance(value, Tensor):
        return value._aval.dtype
    return of_numpy(value.dtype) if isinstance(value, np.ndarray | np.generic) else convert(value).dtype


def _taken(declared: DType | str, own: DType, known: Mapping[str, DType]) -> DType | None:
    """The dtype that a value takes which is no tensor. Of a kernel that does not say its types, only what has fractions
    takes that of others."""
    if isinstance(declared, DType):
        return declared
    return known[declared] if declared or own.is_floating else None


def _plain(value: Any, name: str, op: str) -> Any:
    """A static parameter as a number of Python's."""
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, bool | int | float):
        raise TypeError(
            f"The parameter `{name}` of `{op}` should be a number, got {type(value).__name__}. A tensor is an operand: "
            "give the kernel a pointer to it."
        )
    return value
