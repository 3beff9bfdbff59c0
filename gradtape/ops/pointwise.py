"""Pointwise ops: a scalar function of broadcast operands; its partials are the only other fact. Floor: ops.

vjp:  x̄ᵢ = unbroadcast( c · conj(∂f/∂xᵢ) )    where ∂f/∂xᵢ is an expression in the operands and `out`"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gradtape.ir.aval import Aval, aval
from gradtape.ir.dtypes import DType, bool_, wider
from gradtape.ir.expr import Expr, trace, walk
from gradtape.ir.graph import Node, Value
from gradtape.ir.shapes import Shape, broadcast, broadcast_axes, shape_text
from gradtape.ops.op import Cotangent, Op, Rule, apply, constant, emit, lookup
from gradtape.ops.samples import BadSample, Sample, Spec

Partial = Callable[..., Any] | Expr | int | None

REAL = "f"
NUMERIC = "fciu"
IDLE = ("identity", "stop_gradient")  # ops whose value is their operand


class Pointwise(Op):
    """An elementwise op.

    Args:
      value: an atom's name in the array module (`"tanh"`), or a scalar formula over other ops, or None.
      array: for atoms that the array module does not name: (array module, *arrays, **params) to the result.
      partials: one per operand, a formula over the operand names and `out`; 1, -1 for those constants;
        None where no gradient flows. `vjp` replaces them where dtypes change on the way.
      accepts: kinds of dtype that the operands may have (letters of `DType.kind`).
      result: "same", "bool" or "real" (of a complex operand).
      condition: the first operand is a bool mask and no number.
      linear: groups of operands in which the op is linear, together, while the others stay as they are:
        ((0, 1),) for a sum, ((0,), (1,)) for a product.
      neutral: per operand position, the number that leaves the other operand as it is, bit for bit.
      linear_at_zero: a zero cotangent gives zero, even where the partial is not finite.
      masks: (node, mask of the cotangent) to the masks of the operands' cotangents, where they differ.
      domain: per operand, the interval in which sample values are drawn; `avoid`: kinks.
    """

    kind = "pointwise"

    def __init__(
        self,
        name: str,
        value: str | Callable[..., Any] | Expr | None,
        partials: Sequence[Partial] = (),
        *,
        array: Callable[..., Any] | None = None,
        operands: str = "x",
        accepts: str = REAL,
        result: str = "same",
        condition: bool = False,
        linear_at_zero: bool = False,
        linear: tuple[tuple[int, ...], ...] = (),
        neutral: dict[int, float] | None = None,
        vjp: Rule | None = None,
        masks: Callable[[Node, Value | None], Sequence[Value | None]] | None = None,
        domain: Sequence[tuple[float, float]] | None = None,
        avoid: tuple[float, ...] = (),
        samples: Iterable[Sample] = (),
        errors: Iterable[BadSample] = (),
        doc: str = "",
        notes: str = "",
        listed: bool = True,
    ) -> None:
        self.operands = tuple(operands.split())
        self.ufunc = value if isinstance(value, str) else None
        self.formula = trace(value) if callable(value) else value if isinstance(value, Expr) else None
        self.array = array
        self.partials = tuple(trace(p) if callable(p) else p for p in partials)
        self.accepts, self.result, self.condition = accepts, result, condition
        self.linear_at_zero, self.rule, self.neutral = linear_at_zero, vjp, neutral or {}
        self.masks, self.linear = masks, linear
        self.domain = tuple(domain) if domain else ((-2.0, 2.0),) * len(self.operands)
        self.avoid = avoid
        drawn = tuple(samples) or tuple(self._samples())
        super().__init__(name, doc=doc, samples=drawn, errors=errors, notes=notes, listed=listed)

    def _samples(self) -> Iterable[Sample]:
        shapes: list[tuple[tuple[int, ...], ...]] = [((2, 3),) * 3, ((),) * 3, ((0, 2),) * 3, ((1,),) * 3]
        if len(self.operands) > 1:
            shapes += [((2, 1, 3), (4, 1), (3,)), ((3,), (), (2, 3)), ((1, 3), (2, 1), (1, 1))]
        for group in shapes:
            specs = [
                Spec(s, d, "bool" if self.condition and i == 0 else "float", self.avoid)
                for i, (s, d) in enumerate(zip(group, self.domain, strict=False))
            ]
            yield Sample(tuple(specs))

    def infer(self, avals: tuple[Aval, ...], **params: Any) -> tuple[Aval, ...]:
        if len(avals) != len(self.operands):
            raise TypeError(f"`{self.name}` takes {len(self.operands)} operands, got {len(avals)}.")
        if self.condition and avals[0].dtype is not bool_:
            raise self.invalid(f"wants a bool condition first, got {avals[0]!r}. Use a comparison, or `tf.cast`.")
        numbers = avals[1:] if self.condition else avals
        dtype = self.common_dtype(numbers)
        shape: Shape = avals[0].shape
        for a in avals[1:]:
            try:
                shape = broadcast(shape, a.shape)
            except ValueError:
                shapes = " vs. ".join(shape_text(b.shape) for b in avals)
                raise self.invalid(
                    f"got incompatible shapes: {shapes}. Shapes are aligned at their last axis; each pair of "
                    "dimensions must be equal, or one of them 1. Reshape an operand, or add axes with `tf.newaxis`."
                ) from None
        return (aval(shape, self.result_dtype(dtype, **params)),)

    def common_dtype(self, avals: Sequence[Aval]) -> DType:
        dtype = avals[0].dtype
        for i, a in enumerate(avals[1:], 2):
            if a.dtype is not dtype:
                raise self.invalid(
                    f"wants operands of one dtype: operand 1 is a {dtype.cname} tensor, operand {i} a "
                    f"{a.dtype.cname} tensor. {_way_out(dtype, a.dtype, i)}"
                )
        if dtype.kind not in self.accepts:
            raise self.invalid(
                f"does not take {dtype.cname} tensors; it takes {_kinds(self.accepts)}. Convert with `tf.cast`."
            )
        return dtype

    def result_dtype(self, source: DType, /, **params: Any) -> DType:
        return {"bool": bool_, "real": source.real_dtype, "same": source}[self.result]

    def vjp(self, node: Node, cotangents: list[Value | None], wanted: list[bool]) -> list[Value | None]:
        pulled = self.pull(node, [None if g is None else Cotangent(g) for g in cotangents], wanted)
        return [None if c is None else c.value for c in pulled]

    def pull(self, node: Node, given: list[Cotangent | None], wanted: list[bool]) -> list[Cotangent | None]:
        (c,) = given
        if c is None:
            return [None] * len(node.inputs)
        raw = self.rule(node, c.value) if self.rule else [self._pulled(node, c, i) for i in range(len(node.inputs))]
        masks = self.masks(node, c.mask) if self.masks else [c.mask] * len(node.inputs)
        return [
            Cotangent(unbroadcast(v, x.aval.dims), unbroadcast_mask(m, node.outputs[0], x.aval.dims))
            if v is not None and w
            else None
            for v, m, x, w in zip(raw, masks, node.inputs, wanted, strict=True)
        ]

    def _pulled(self, node: Node, c: Cotangent, i: int) -> Value | None:
        """One operand's cotangent: the given one times the partial."""
        g, partial = c.value, self.partials[i]
        if partial is None:
            return None
        if isinstance(partial, int):
            return g if partial == 1 else emit("negative", g)
        names = dict(zip(self.operands, node.inputs, strict=True)) | {"out": node.outputs[0]}
        p = masked(instantiate(partial, names, g.aval.dtype), c.mask)
        if p.aval.dtype.is_complex:
            p = emit("conj", p)
        return emit("multiply_no_nan" if self.linear_at_zero else "multiply", p, g)


def masked(partial: Value, mask: Value | None) -> Value:
    """A partial, with 0 where the cotangent is zero by a choice; numbers are finite and stay as they are."""
    if mask is None or (partial.node is not None and partial.node.step.op.kind == "constant"):
        return partial
    return emit("select", mask, partial, constant(0, partial.aval.dtype))


def _kinds(letters: str) -> str:
    words = {
        "f": "floating",
        "c": "complex",
        "i": "signed integer",
        "u": "unsigned integer",
        "b": "bool",
        "s": "string",
    }
    return ", ".join(words[k] for k in letters)


def instantiate(expr: Expr, names: dict[str, Value], dtype: DType) -> Value:
    """An expression as graph values; numbers take the dtype of their neighbours, `dtype` where there are none."""
    made: dict[int, Value] = {}
    for e in walk(expr):
        if e.op == "symbol":
            made[id(e)] = names[e.leaf]
        elif e.op != "number":
            near = next((made[id(a)].aval.dtype for a in e.args if _has_dtype(a, made)), dtype)
            values = [constant(a.leaf, near) if a.op == "number" else made[id(a)] for a in e.args]
            made[id(e)] = apply(lookup(e.op).bind(), values)[0]
    return constant(expr.leaf, dtype) if expr.op == "number" else made[id(expr)]


def _has_dtype(e: Expr, made: dict[int, Value]) -> bool:
    """Whether numbers beside this operand take its dtype."""
    return id(e) in made and made[id(e)].aval.dtype is not bool_


def _way_out(first: DType, other: DType, i: int) -> str:
    """Which operand to convert, so that few of its numbers are lost."""
    target = wider(first, other)
    return f"Convert operand {i if target is first else 1} with `tf.cast(x, tf.{target.name})`."


def unbroadcast(v: Value, shape: tuple[int, ...]) -> Value:
    """The transpose of broadcasting `shape` up to the shape of `v`: sums over the repeated axes."""
    have = v.aval.dims
    axes = broadcast_axes(shape, have)
    if axes:
        v = emit("reduce_sum", v, axes=axes, keepdims=False)
    return v if v.aval.dims == shape else emit("reshape", v, shape=shape)


def unbroadcast_mask(mask: Value | None, like: Value, shape: tuple[int, ...]) -> Value | None:
    """Where a sum over the repeated axes can be other than zero: where any of its parts can."""
    if mask is None or mask.aval.dims == shape:
        return mask
    if mask.aval.dims != like.aval.dims:
        mask = emit("broadcast_to", mask, shape=like.aval.dims)
    axes = broadcast_axes(shape, like.aval.dims)
    if axes:
        mask = emit("reduce_any", mask, axes=axes, keepdims=False)
    return mask if mask.aval.dims == shape else emit("reshape", mask, shape=shape)
