"""Declarations: arithmetic, rounding, and what converts between dtypes. Floor: ops."""

from __future__ import annotations

from typing import Any

from gradtape.ir.aval import aval
from gradtape.ir.dtypes import DType, complex64, complex128, float64
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.expr import fn
from gradtape.ir.graph import Node, Value
from gradtape.ir.shapes import broadcast
from gradtape.ops.op import constant, emit
from gradtape.ops.pointwise import NUMERIC, Pointwise
from gradtape.ops.samples import BadSample, Sample, Spec

POSITIVE = (0.3, 3.0)
REAL_NUMBERS = "fiu"


def _mismatched(name: str) -> tuple[BadSample, ...]:
    return (
        BadSample((((2, 3), "float32"), ((2, 4), "float32")), InvalidArgumentError, "incompatible shapes"),
        BadSample((((2,), "float32"), ((2,), "float64")), InvalidArgumentError, "double"),
        BadSample((((2,), "string"), ((2,), "string")), InvalidArgumentError, "does not take string"),
    )


def _binary(name: str, value: Any, partials: Any, **options: Any) -> Pointwise:
    options.setdefault("accepts", NUMERIC)
    return Pointwise(name, value, partials, operands="x y", errors=_mismatched(name), **options)


ADD = _binary("add", "add", [1, 1], linear=((0, 1),), doc="x + y, elementwise.")
SUBTRACT = _binary("subtract", "subtract", [1, -1], linear=((0, 1),), neutral={1: 0}, doc="x - y, elementwise.")
MULTIPLY = _binary(
    "multiply",
    "multiply",
    [lambda y: y, lambda x: x],
    linear=((0,), (1,)),
    neutral={0: 1, 1: 1},
    doc="x * y, elementwise.",
)
DIVIDE = _binary(
    "divide",
    "divide",
    [lambda y: 1 / y, lambda out, y: -out / y],
    accepts="fc",
    linear=((0,),),
    neutral={1: 1},
    domain=((-2.0, 2.0), POSITIVE),
    doc="x / y, elementwise, of floating or complex tensors.",
)
NEGATIVE = Pointwise("negative", "negative", [-1], accepts="fciu", linear=((0,),), doc="-x, elementwise.")


def _power(xp: Any, x: Any, y: Any) -> Any:
    """Powers; a scalar exponent of 0, 1, 2 or 3 is multiplied out, which is exact and many times faster. NumPy takes
    square roots for a scalar exponent of ½, which are NaN and -0 where powers are inf and 0."""
    exponent = float(y) if getattr(y, "ndim", 0) == 0 and y.dtype.kind in "fiu" else None
    if exponent == 2:
        return xp.square(x)
    if exponent == 1:
        return xp.positive(x)
    if exponent == 3:
        return xp.square(x) * x
    if exponent == 0.5:
        return xp.where(x == -xp.inf, xp.inf, xp.sqrt(x + 0))
    return xp.power(x, y)


def _power_slope(x: Any, y: Any) -> Any:
    """y x^(y - 1), and 0 at 0^0 alone: elsewhere a zero exponent keeps the mixed derivative, which is 1 / x there."""
    slope = y * x ** (y - 1)
    return fn.select(fn.equal(y, 0), fn.select(fn.equal(x, 0), 0, slope), slope)


POW = _binary(
    "pow",
    None,
    [_power_slope, lambda x, out: out * fn.log_or_zero(x)],
    array=_power,
    domain=(POSITIVE, (-2.0, 2.0)),
    doc="x ** y, elementwise.",
    notes="The derivative with respect to the exponent is 0 where the base is 0 or negative.",
)


HAS_LOG = Pointwise(
    "has_log",
    None,
    [None],
    array=lambda xp, x: x != 0 if x.dtype.kind == "c" else x > 0,
    accepts="fc",
    result="bool",
    doc="Where x has a logarithm of its own dtype: x > 0 of real numbers, x != 0 of complex ones.",
)
LOG_OR_ZERO = Pointwise(
    "log_or_zero",
    lambda x: fn.select(fn.has_log(x), fn.log(fn.select(fn.has_log(x), x, 1)), 0),
    [lambda x: fn.select(fn.has_log(x), 1 / x, 0)],
    accepts="fc",
    domain=[POSITIVE],
    doc="log(x), and 0 where there is none (see `has_log`).",
)
SQUARE = Pointwise("square", "square", [lambda x: 2 * x], accepts=NUMERIC, doc="x * x, elementwise.")
RECIPROCAL = Pointwise(
    "reciprocal", lambda x: 1 / x, [lambda out: -(out * out)], accepts="fc", domain=[POSITIVE], doc="1 / x."
)
SQUARED_DIFFERENCE = _binary(
    "squared_difference",
    lambda x, y: fn.square(x - y),
    [lambda x, y: 2 * (x - y), lambda x, y: 2 * (y - x)],
    accepts=REAL_NUMBERS,
    doc="(x - y)², elementwise.",
)
MAXIMUM = _binary(
    "maximum",
    "maximum",
    [lambda x, y: fn.select(x >= y, 1, 0), lambda x, y: fn.select(x >= y, 0, 1)],
    accepts=REAL_NUMBERS,
    doc="The larger of x and y.",
    notes="Where they are equal, x receives the gradient.",
)
MINIMUM = _binary(
    "minimum",
    "minimum",
    [lambda x, y: fn.select(x <= y, 1, 0), lambda x, y: fn.select(x <= y, 0, 1)],
    accepts=REAL_NUMBERS,
    doc="The smaller of x and y.",
    notes="Where they are equal, x receives the gradient.",
)


def refuse_zero(name: str, x: Any, y: Any) -> None:
    """Integers have no quotient by 0, and no number to stand for it.

    Raises:
      InvalidArgumentError: a zero in `y`.
    """
    if x.size and not y.all():
        raise InvalidArgumentError(
            f"`{name}`: Integer division by zero. Replace the zeros first, as in `tf.where(y == 0, 1, y)`, or divide "
            "floating tensors (`tf.cast`), where x / 0 is inf or NaN."
        )


def _floordiv(xp: Any, x: Any, y: Any) -> Any:
    """NumPy's own, except where x is infinite: so is the quotient, for which NumPy has NaN."""
    if x.dtype.kind in "iu":
        refuse_zero("floordiv", x, y)
        return xp.floor_divide(x, y)
    return xp.where(xp.isinf(x), x / y, xp.floor_divide(x, y))


def _floormod(xp: Any, x: Any, y: Any) -> Any:
    if x.dtype.kind in "iu":
        refuse_zero("floormod", x, y)
    return xp.mod(x, y)


FLOORDIV = _binary(
    "floordiv",
    None,
    [None, None],
    array=_floordiv,
    accepts=REAL_NUMBERS,
    domain=((-2.0, 2.0), POSITIVE),
    doc="floor(x / y).",
    notes="Integers by 0 are an error.",
)
FLOORMOD = _binary(
    "floormod",
    None,
    [1, lambda x, y: -fn.floor(x / y)],
    array=_floormod,
    accepts=REAL_NUMBERS,
    domain=((0.4, 0.9), (1.0, 2.0)),
    doc="The remainder of x / y with the sign of y.",
    notes="Integers by 0 are an error.",
)


def _multiply_no_nan(xp: Any, x: Any, y: Any) -> Any:
    return xp.where(y == 0, xp.zeros((), y.dtype), xp.multiply(x, y))


MULTIPLY_NO_NAN = _binary(
    "multiply_no_nan",
    None,
    [lambda y: y, lambda x: x],
    array=_multiply_no_nan,
    linear=((0,), (1,)),
    accepts="fc",
    linear_at_zero=True,
    doc="x * y, and 0 where y is 0 even if x is not finite.",
)


def _divide_no_nan(xp: Any, x: Any, y: Any) -> Any:
    zero = y == 0
    return xp.where(zero, xp.zeros((), y.dtype), xp.divide(x, xp.where(zero, xp.ones((), y.dtype), y)))


DIVIDE_NO_NAN = _binary(
    "divide_no_nan",
    None,
    [lambda y: fn.divide_no_nan(1, y), lambda out, y: -fn.divide_no_nan(out, y)],
    array=_divide_no_nan,
    linear=((0,),),
    accepts="fc",
    domain=((-2.0, 2.0), POSITIVE),
    doc="x / y, and 0 where y is 0.",
)
ABS = Pointwise("abs", "abs", [lambda x: fn.sign(x)], accepts="fiu", avoid=(0.0,), doc="|x| of a real tensor.")
SIGN = Pointwise("sign", "sign", [lambda: 0], accepts="fiu", avoid=(0.0,), doc="-1, 0 or 1.")
FLOOR = Pointwise("floor", "floor", [None], avoid=(-1.0, 0.0, 1.0), doc="The largest integer not above x.")
CEIL = Pointwise("ceil", "ceil", [None], avoid=(-1.0, 0.0, 1.0), doc="The smallest integer not below x.")
RINT = Pointwise("rint", "rint", [None], avoid=(-1.5, -0.5, 0.5, 1.5), doc="The nearest integer; halves to even.")


def _cast_vjp(node: Node, g: Value) -> list[Value | None]:
    source = node.inputs[0].aval.dtype
    return [emit("cast", g, dtype=source) if source.is_differentiable else None]


class Cast(Pointwise):
    """A change of dtype: the one pointwise op whose result dtype is a parameter."""

    def result_dtype(self, source: DType, /, **params: Any) -> DType:
        target: DType = params["dtype"]
        if source.kind == "s" or target.kind == "s":
            raise self.invalid(f"does not convert {source.cname} to {target.cname}; strings stay strings.")
        return target


def _cast(xp: Any, x: Any, dtype: DType) -> Any:
    if x.dtype.kind == "c" and dtype.kind != "c":
        x = x.real if dtype.kind != "b" else x
    return x.astype(dtype.numpy_dtype)


CAST = Cast(
    "cast",
    None,
    array=_cast,
    accepts="fciubs",
    linear=((0,),),
    vjp=_cast_vjp,
    samples=[Sample((Spec((2, 3)),), {"dtype": float64}), Sample((Spec(()),), {"dtype": float64})],
    errors=[BadSample((((2,), "string"),), InvalidArgumentError, "does not convert string", {"dtype": float64})],
    doc="x with another dtype; a complex tensor cast to a real one keeps its real part.",
)
IDENTITY = Pointwise(
    "identity", "positive", [1], linear=((0,),), accepts="fciubs", array=lambda xp, x: x, doc="x itself."
)
STOP_GRADIENT = Pointwise(
    "stop_gradient", None, [None], array=lambda xp, x: x, accepts="fciubs", doc="x, as a constant for gradients."
)
ASSIGNED = Pointwise(
    "assigned",
    None,
    [1, None],
    array=lambda xp, x, y: y if x.shape == y.shape else xp.broadcast_arrays(x, y)[1],
    operands="x y",
    linear=((1,),),
    accepts="fc",
    doc="y, the value of a variable that was x and is assigned to; for gradients it is x, since none flows through "
    "an assignment.",
)

# ------------------------------------------------------------------ complex numbers


class Complex(Pointwise):
    """Two real tensors to one complex tensor."""

    def result_dtype(self, source: DType, /, **params: Any) -> DType:
        return complex128 if source is float64 else complex64

    def infer(self, avals: Any, **params: Any) -> Any:
        (out,) = super().infer(avals)
        if avals[0].dtype.is_half:
            raise self.invalid(f"wants float32 or float64 parts, got {avals[0].dtype.cname}. Use `tf.cast`.")
        return (aval(broadcast(avals[0].shape, avals[1].shape), out.dtype),)


def _complex(xp: Any, x: Any, y: Any) -> Any:
    """Part by part: x + 1j * y would multiply an infinite y by the zero in 1j."""
    out = xp.empty(xp.broadcast_shapes(x.shape, y.shape), xp.complex128 if x.dtype == xp.float64 else xp.complex64)
    out.real, out.imag = x, y
    return out[()]


COMPLEX = Complex(
    "complex",
    None,
    operands="x y",
    array=_complex,
    linear=((0, 1),),
    vjp=lambda node, g: [emit("real", g), emit("imag", g)],
    doc="x + iy from real and imaginary parts.",
)
CONJ = Pointwise(
    "conj",
    "conj",
    accepts="fciu",
    linear=((0,),),
    vjp=lambda node, g: [emit("conj", g)],
    doc="The complex conjugate.",
)


def _real_vjp(node: Node, g: Value) -> list[Value | None]:
    return [emit("complex", g, constant(0, g.aval.dtype)) if node.inputs[0].aval.dtype.is_complex else g]


def _imag_vjp(node: Node, g: Value) -> list[Value | None]:
    return [emit("complex", constant(0, g.aval.dtype), g) if node.inputs[0].aval.dtype.is_complex else None]


REAL = Pointwise("real", "real", accepts="fciu", result="real", linear=((0,),), vjp=_real_vjp, doc="The real part.")
IMAG = Pointwise(
    "imag", "imag", accepts="fciub", result="real", linear=((0,),), vjp=_imag_vjp, doc="The imaginary part."
)


def _complex_abs_vjp(node: Node, g: Value) -> list[Value | None]:
    (z,), (size,) = node.inputs, node.outputs
    zero = constant(0, g.aval.dtype)
    return [emit("multiply", emit("complex", g, zero), emit("divide_no_nan", z, emit("complex", size, zero)))]


COMPLEX_ABS = Pointwise(
    "complex_abs", "abs", accepts="c", result="real", vjp=_complex_abs_vjp, doc="|z| of a complex tensor."
)
