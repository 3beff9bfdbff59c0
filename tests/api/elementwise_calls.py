"""Elementwise functions: of one operand over shapes with and without elements, of two with broadcasting."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.api.calls import Call, call, draw, positive, unit

SLOPE = float(np.float32(0.2))  # as TensorFlow rounds it


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def softplus(x: Any) -> Any:
    return np.logaddexp(x, 0)


def elu(x: Any, scale: float = 1.0, alpha: float = 1.0) -> Any:
    return scale * np.where(x > 0, x, alpha * np.expm1(x))


def logits_loss(labels: Any, x: Any) -> Any:
    return -labels * np.log(sigmoid(x)) - (1 - labels) * np.log(1 - sigmoid(x))


ONE: dict[str, tuple[Any, Any]] = {
    "abs": (np.abs, draw),
    "acos": (np.arccos, unit),
    "acosh": (np.arccosh, lambda *s: 1.2 + positive(*s)),
    "asin": (np.arcsin, unit),
    "asinh": (np.arcsinh, draw),
    "atan": (np.arctan, draw),
    "atanh": (np.arctanh, unit),
    "cos": (np.cos, draw),
    "cosh": (np.cosh, draw),
    "exp": (np.exp, draw),
    "identity": (lambda x: x, draw),
    "math.conj": (np.conj, draw),
    "math.expm1": (np.expm1, draw),
    "math.log": (np.log, positive),
    "math.log1p": (np.log1p, positive),
    "math.log_sigmoid": (lambda x: -softplus(-x), draw),
    "math.real": (np.real, draw),
    "math.reciprocal": (lambda x: 1 / x, positive),
    "math.reciprocal_no_nan": (lambda x: 1 / x, positive),
    "math.rsqrt": (lambda x: x**-0.5, positive),
    "math.softsign": (lambda x: x / (1 + abs(x)), draw),
    "negative": (np.negative, draw),
    "nn.elu": (elu, draw),
    "nn.leaky_relu": (lambda x: np.where(x > 0, x, SLOPE * x), draw),
    "nn.relu": (lambda x: np.maximum(x, 0), draw),
    "nn.relu6": (lambda x: np.clip(x, 0, 6), lambda *s: draw(*s, low=-3.0, high=9.0)),
    "nn.selu": (lambda x: elu(x, 1.0507009873554805, 1.6732632423543772), draw),
    "nn.silu": (lambda x: x * sigmoid(x), draw),
    "nn.softplus": (softplus, draw),
    "nn.swish": (lambda x: x * sigmoid(x), draw),
    "sigmoid": (sigmoid, draw),
    "sin": (np.sin, draw),
    "sinh": (np.sinh, draw),
    "sqrt": (np.sqrt, positive),
    "square": (np.square, draw),
    "tan": (np.tan, unit),
    "tanh": (np.tanh, draw),
}
FLAT: dict[str, Any] = {
    "floor": np.floor,
    "math.ceil": np.ceil,
    "math.rint": np.rint,
    "round": np.round,
    "sign": np.sign,
    "stop_gradient": lambda x: x,
    "math.is_finite": np.isfinite,
    "math.is_inf": np.isinf,
    "math.is_nan": np.isnan,
    "ones_like": np.ones_like,
    "zeros_like": np.zeros_like,
    "shape": lambda x: np.array(x.shape, "int32"),
    "size": lambda x: np.int32(x.size),
    "rank": lambda x: np.int32(x.ndim),
}
TWO: dict[str, tuple[Any, Any]] = {
    "add": (np.add, draw),
    "atan2": (np.arctan2, positive),
    "divide": (np.divide, positive),
    "math.divide_no_nan": (np.divide, positive),
    "math.floormod": (lambda x, y: np.mod(x, y), positive),
    "math.mod": (lambda x, y: np.mod(x, y), positive),
    "math.multiply_no_nan": (np.multiply, draw),
    "math.squared_difference": (lambda x, y: (x - y) ** 2, draw),
    "maximum": (np.maximum, draw),
    "minimum": (np.minimum, draw),
    "multiply": (np.multiply, draw),
    "pow": (np.power, positive),
    "subtract": (np.subtract, draw),
    "truediv": (np.divide, positive),
}
COMPARISONS: dict[str, Any] = {
    "equal": np.equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "not_equal": np.not_equal,
    "math.floordiv": np.floor_divide,
}
LOGIC: dict[str, Any] = {
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "math.logical_xor": np.logical_xor,
}
SHAPES: tuple[tuple[int, ...], ...] = ((2, 3), (), (0, 2))
PAIRS: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((2, 3), (2, 3)),
    ((2, 1, 3), (4, 1)),
    ((), (2,)),
    ((0, 2), (1, 2)),
)


def other(draw_: Any, shape: tuple[int, ...]) -> Any:
    """A second operand whose elements never meet those of the first."""
    return draw_(*shape) * 0.83 + 0.171


NUMBERS = (
    *(call(n, want, draw_(*s)) for n, (want, draw_) in ONE.items() for s in SHAPES),
    *(call(n, want, draw(*s), slopes=False) for n, want in FLAT.items() for s in SHAPES),
    *(call(n, want, draw_(*a), other(draw_, b)) for n, (want, draw_) in TWO.items() for a, b in PAIRS),
    *(call(n, f, positive(*a), other(positive, b), slopes=False) for n, f in COMPARISONS.items() for a, b in PAIRS),
    *(call(n, f, draw(*a) > 0, draw(*b) > 0.5, slopes=False) for n, f in LOGIC.items() for a, b in PAIRS),
    call("logical_not", np.logical_not, draw(2, 3) > 0, slopes=False),
    call("math.imag", np.imag, np.array([1 + 2j, 3 - 4j])),
    call("math.real", np.real, np.array([1 + 2j, 3 - 4j])),
    call("math.conj", np.conj, np.array([1 + 2j, 3 - 4j])),
    call("abs", np.abs, np.array([3 + 4j, 0j])),
    call("complex", lambda x, y: x + 1j * y, draw(2, 3), draw(3)),
)
MORE: tuple[Call, ...] = (
    call("add_n", lambda *xs: sum(xs), draw(2, 3), positive(2, 3), unit(2, 3), listed=True),
    call("add_n", lambda x: x, draw(2), listed=True),
    call("scalar_mul", lambda a, x: a * x, draw(), draw(2, 3)),
    call("cast", lambda x: x.astype("float32"), draw(2, 3), dtype="float32", slopes=False),
    call("cast", lambda x: x.astype("int32"), draw(2, 3), dtype="int32", slopes=False),
    call("cast", lambda x: x != 0, np.array([0.0, 1.5]), dtype="bool", slopes=False),
    call("clip_by_value", lambda x: np.clip(x, -0.53, 0.81), draw(2, 3), clip_value_min=-0.53, clip_value_max=0.81),
    call("clip_by_value", np.clip, draw(2, 3), draw(3) - 1.4, draw(3) + 1.07),
    call("where", lambda c, x, y: np.where(c, x, y), draw(2, 1) > 0, draw(2, 3), positive(3)),
    call("where", lambda c: np.argwhere(c), draw(2, 3) > 0, slopes=False),
    call("where", lambda c: np.argwhere(c), np.array([0, 2, 0, 3]), slopes=False),
    call("nn.leaky_relu", lambda x: np.where(x > 0, x, 0.25 * x), draw(2, 3), alpha=0.25),
    call("nn.silu", lambda x: x * sigmoid(1.7 * x), draw(2, 3), beta=1.7),
    call("nn.sigmoid_cross_entropy_with_logits", logits_loss, unit(2, 3), draw(2, 3)),
    call("nn.softmax", lambda x: np.full((2, 1), 1.0), draw(2, 1)),
    call("saturate_cast", lambda x: np.clip(x, -128, 127).astype("int8"), draw(4) * 200.0, dtype="int8", slopes=False),
    call("math.accumulate_n", lambda *xs: sum(xs), draw(2, 3), positive(2, 3), listed=True),
    call("math.angle", np.angle, np.array([1 + 2j, -3 - 4j])),
    call(
        "math.approximate_equal", lambda x, y: np.abs(x - y) < 0.5, draw(2, 3), unit(2, 3), tolerance=0.5, slopes=False
    ),
    call("math.is_non_decreasing", lambda x: np.bool_(True), np.array([1.0, 1.0, 2.0]), slopes=False),
    call("math.is_strictly_increasing", lambda x: np.bool_(False), np.array([1.0, 1.0, 2.0]), slopes=False),
    call("math.lbeta", lambda x: sum(math.lgamma(v) for v in x) - math.lgamma(x.sum()), positive(3)),
    call("math.polyval", lambda c, x: c[0] * x * x + c[1] * x + c[2], [2.0, -1.0, 0.5], draw(2, 3)),
    call(
        "math.reciprocal_no_nan",
        lambda x: np.where(x == 0, 0.0, 1 / np.where(x == 0, 1.0, x)),
        np.array([0.0, 0.5, -2.0]),
        slopes=False,
    ),
    call("nn.crelu", lambda x: np.maximum(np.concatenate([x, -x], -1), 0), draw(2, 3)),
    call("identity_n", lambda *xs: list(xs), draw(2), draw(3), listed=True),
)
CALLS = (*NUMBERS, *MORE)
