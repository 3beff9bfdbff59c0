"""Reductions: a monoid over some axes, and one partial. Floor: ops.

vjp:  x̄ = broadcast(c) · ∂/∂x    where the partial is an expression in x, `out` (with its axes kept) and n"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from gradtape.ir.aval import Aval, aval
from gradtape.ir.expr import mentions, trace
from gradtape.ir.graph import Graph, Node, Value
from gradtape.ir.shapes import Dims, size_of
from gradtape.ops.op import MAX_CACHED, Cotangent, Op, Rule, constant, emit
from gradtape.ops.pointwise import NUMERIC, _kinds, instantiate, masked
from gradtape.ops.samples import BadSample, Sample, Spec


class Reduction(Op):
    """A reduction over `axes` (sorted, not negative); `keepdims` leaves axes of size 1.

    Args:
      value: the array module's function of (x, axis=, keepdims=), by name or as a function of the module; None with
        a body.
      partial: formula over x, out and n (the number of elements in one result); or `vjp`: a rule of
        (node, cotangent with axes kept) where that is not enough; None where no gradient flows.
      weights: the partial as a graph value of (node), where no formula in x and out keeps its digits.
      monoid: what combines two elements, by name: sum, prod, max, min, all or any; None where there is more to it.
      body: (graph value, axes=, keepdims=) to the result, written with other ops, where there is more to it.
      accumulate: sums are carried in float32 for half types.
      identity: the result over nothing; None: there is none, and empty reductions follow the array module.
    """

    kind = "reduction"

    def __init__(
        self,
        name: str,
        value: str | Callable[..., Any] | None,
        partial: Callable[..., Any] | None = None,
        *,
        accepts: str = NUMERIC,
        accumulate: bool = False,
        identity: float | bool | None = None,
        vjp: Rule | None = None,
        weights: Callable[[Node], Value] | None = None,
        monoid: str | None = None,
        body: Callable[..., Value] | None = None,
        domain: tuple[float, float] = (-2.0, 2.0),
        samples: Iterable[Sample] = (),
        errors: Iterable[BadSample] = (),
        doc: str = "",
        notes: str = "",
    ) -> None:
        self.value = value
        self.formula: Callable[..., Any] = partial or (lambda: 0)
        self.partial = None if partial is None else trace(partial)
        self.accepts, self.accumulate, self.identity, self.rule = accepts, accumulate, identity, vjp
        self.weights, self.body = weights, body
        self.monoid = value if isinstance(value, str) else monoid
        self.graphs: dict[Any, Graph] = {}
        drawn = tuple(samples) or tuple(_samples(domain))
        super().__init__(name, doc=doc, samples=drawn, errors=errors, notes=notes)

    def infer(self, avals: tuple[Aval, ...], **params: Any) -> tuple[Aval, ...]:
        (x,) = avals
        if x.dtype.kind not in self.accepts:
            raise self.invalid(
                f"does not take {x.dtype.cname} tensors; it takes {_kinds(self.accepts)}. Convert with `tf.cast`."
            )
        shape = None if x.shape is None else reduced(x.shape, params["axes"], params["keepdims"])
        return (aval(shape, x.dtype),)

    def expand(self, avals: tuple[Aval, ...], **params: Any) -> Graph:
        """The graph that a reduction with a body stands for."""
        assert self.body is not None
        key = (avals, tuple(params.items()))
        found = self.graphs.get(key)
        if found is None:
            inputs = tuple(map(Value, avals))
            found = Graph(inputs, [self.body(*inputs, **params)])
            if len(self.graphs) >= MAX_CACHED:
                self.graphs.clear()
            self.graphs[key] = found
        return found

    def coefficient(self, n: int) -> float | None:
        """The number c for which the reduction of n elements is c times their sum; None: there is none."""
        if self.partial is None or mentions(self.partial) - {"n"} or not n:
            return None
        value = trace(self.formula, n=n)
        return float(value.leaf) if value.op == "number" else None

    def vjp(self, node: Node, cotangents: list[Value | None], wanted: list[bool]) -> list[Value | None]:
        pulled = self.pull(node, [None if g is None else Cotangent(g) for g in cotangents], wanted)
        return [None if c is None else c.value for c in pulled]

    def pull(self, node: Node, given: list[Cotangent | None], wanted: list[bool]) -> list[Cotangent | None]:
        (c,) = given
        if c is None or not wanted[0] or not (self.rule or self.weights or self.partial):
            return [None]
        (x,) = node.inputs
        if x.aval.size == 0:  # nothing to pull back to, and a partial such as 1 / n has no value
            return [Cotangent(constant(0, x.aval.dtype, x.aval.dims))]
        kept = reduced(x.aval.dims, node.step.params["axes"], True)
        g, mask = _spread(c.value, kept), None if c.mask is None else _spread(c.mask, kept)
        grad = self.rule(node, g)[0] if self.rule else self._pulled(node, g, mask)
        if grad is None:
            return [None]
        if mask is not None:
            mask = emit("broadcast_to", mask, shape=x.aval.dims)
        return [Cotangent(grad if grad.aval is x.aval else emit("broadcast_to", grad, shape=x.aval.dims), mask)]

    def _pulled(self, node: Node, g: Value, mask: Value | None) -> Value:
        """The cotangent times the partial, as small as broadcasting leaves it."""
        if self.weights:
            return emit("multiply", g, masked(self.weights(node), mask))
        (x,), axes = node.inputs, node.step.params["axes"]
        names = {"x": x, "out": reshaped(node.outputs[0], reduced(x.aval.dims, axes, True))}
        formula = trace(self.formula, n=size_of(x.aval.dims[k] for k in axes))
        p = masked(instantiate(formula, names, g.aval.dtype), mask)
        if p.aval.dtype.is_complex and "x" in mentions(formula):
            p = emit("conj", p)
        return emit("multiply", g, p)


def _spread(g: Value, kept: Dims) -> Value:
    """A value per result so that it broadcasts over the elements that were reduced."""
    return g if _aligned(g.aval.dims, kept) else reshaped(g, kept)


def reshaped(v: Value, shape: Dims) -> Value:
    """`v` in another shape, or `v` itself."""
    return v if v.aval.shape == shape else emit("reshape", v, shape=shape)


def _aligned(shape: Dims, kept: Dims) -> bool:
    """Whether broadcasting reads `shape` as `kept` anyway: what is missing are leading axes of size 1."""
    lead = len(kept) - len(shape)
    return all(n == 1 for n in kept[:lead]) and kept[lead:] == shape


def reduced(shape: Dims, axes: tuple[int, ...], keepdims: bool) -> Any:
    """The shape that a reduction leaves."""
    if keepdims:
        return tuple(1 if k in axes else n for k, n in enumerate(shape))
    return tuple(n for k, n in enumerate(shape) if k not in axes)


def _samples(domain: tuple[float, float]) -> Iterable[Sample]:
    for shape, axes, keepdims in (
        ((2, 3, 4), (1,), False),
        ((2, 3, 4), (0, 2), True),
        ((3,), (0,), False),
        ((2, 3), (), False),
        ((1, 3), (0, 1), False),
        ((2, 0, 3), (2,), False),
    ):
        yield Sample((Spec(shape, domain),), {"axes": axes, "keepdims": keepdims})
