"""Elementwise functions: one line each over the op table. Floor: api."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.api.declared import doctests
from gradtape.api.declared import of_one as _one
from gradtape.api.declared import of_two as _two
from gradtape.ir.dtypes import as_dtype, bool_, float32, float64
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ops import arithmetic as a
from gradtape.ops import comparison as c
from gradtape.ops import elementary as e
from gradtape.runtime.convert import convert, convert_all
from gradtape.runtime.dispatch import binary, execute, unary
from gradtape.runtime.indexed_slices import IndexedSlices
from gradtape.runtime.operators import absolute, as_quotient, operand, true_divide
from gradtape.runtime.tensor import Tensor

exp = _one("exp", e.EXP, "tf.exp([0.0, 1.0])", "[1.     2.7183]")
expm1 = _one("expm1", e.EXPM1, "tf.math.expm1([0.0, 1.0])", "[0.     1.7183]")
log = _one("log", e.LOG, "tf.math.log([1.0, 2.0])", "[0.     0.6931]")
log1p = _one("log1p", e.LOG1P, "tf.math.log1p([0.0, 1.0])", "[0.     0.6931]")
sqrt = _one("sqrt", e.SQRT, "tf.sqrt([4.0, 9.0])", "[2. 3.]")
rsqrt = _one("rsqrt", e.RSQRT, "tf.math.rsqrt([4.0, 16.0])", "[0.5  0.25]")
square = _one("square", a.SQUARE, "tf.square([2.0, -3.0])", "[4. 9.]")
reciprocal = _one("reciprocal", a.RECIPROCAL, "tf.math.reciprocal([2.0, 4.0])", "[0.5  0.25]")
negative = _one("negative", a.NEGATIVE, "tf.negative([1.0, -2.0])", "[-1.  2.]")
floor = _one("floor", a.FLOOR, "tf.floor([1.5, -1.5])", "[ 1. -2.]")
ceil = _one("ceil", a.CEIL, "tf.math.ceil([1.5, -1.5])", "[ 2. -1.]")
rint = _one("rint", a.RINT, "tf.math.rint([1.5, 2.5])", "[2. 2.]")
sin = _one("sin", e.SIN, "tf.sin([0.0, 1.0])", "[0.     0.8415]")
cos = _one("cos", e.COS, "tf.cos([0.0, 1.0])", "[1.     0.5403]")
tan = _one("tan", e.TAN, "tf.tan([0.0, 1.0])", "[0.     1.5574]")
asin = _one("asin", e.ASIN, "tf.asin([0.0, 1.0])", "[0.     1.5708]")
acos = _one("acos", e.ACOS, "tf.acos([1.0, 0.0])", "[0.     1.5708]")
atan = _one("atan", e.ATAN, "tf.atan([0.0, 1.0])", "[0.     0.7854]")
sinh = _one("sinh", e.SINH, "tf.sinh([0.0, 1.0])", "[0.     1.1752]")
cosh = _one("cosh", e.COSH, "tf.cosh([0.0, 1.0])", "[1.     1.5431]")
tanh = _one("tanh", e.TANH, "tf.tanh([0.0, 1.0])", "[0.     0.7616]")
asinh = _one("asinh", e.ASINH, "tf.asinh([0.0, 1.0])", "[0.     0.8814]")
acosh = _one("acosh", e.ACOSH, "tf.acosh([1.0, 2.0])", "[0.    1.317]")
atanh = _one("atanh", e.ATANH, "tf.atanh([0.0, 0.5])", "[0.     0.5493]")
softplus = _one("softplus", e.SOFTPLUS, "tf.nn.softplus([0.0, 100.0])", "[  0.6931 100.    ]", "features")
log_sigmoid = _one("log_sigmoid", e.LOG_SIGMOID, "tf.math.log_sigmoid([0.0, -100.0])", "[  -0.6931 -100.    ]")
softsign = _one("softsign", e.SOFTSIGN, "tf.nn.softsign([1.0, -3.0])", "[ 0.5  -0.75]", "features")
relu = _one("relu", e.RELU, "tf.nn.relu([-1.0, 2.0])", "[0. 2.]", "features")
relu6 = _one("relu6", e.RELU6, "tf.nn.relu6([-1.0, 2.0, 8.0])", "[0. 2. 6.]", "features")
elu = _one("elu", e.ELU, "tf.nn.elu([-1.0, 2.0])", "[-0.6321  2.    ]", "features")
selu = _one("selu", e.SELU, "tf.nn.selu([-1.0, 2.0])", "[-1.1113  2.1014]", "features")
is_nan = _one("is_nan", c.IS_NAN, "tf.math.is_nan([1.0, float('nan')])", "[False  True]")
is_inf = _one("is_inf", c.IS_INF, "tf.math.is_inf([1.0, float('-inf')])", "[False  True]")
is_finite = _one("is_finite", c.IS_FINITE, "tf.math.is_finite([1.0, float('inf')])", "[ True False]")
logical_not = _one("logical_not", c.LOGICAL_NOT, "tf.logical_not([True, False])", "[False  True]")
identity = _one("identity", a.IDENTITY, "tf.identity([1.0, 2.0])", "[1. 2.]", "input")
stop_gradient = _one("stop_gradient", a.STOP_GRADIENT, "tf.stop_gradient([1.0, 2.0])", "[1. 2.]", "input")
conj = _one("conj", a.CONJ, "tf.math.conj([1 + 2j])", "[1.-2.j]")
real = _one("real", a.REAL, "tf.math.real([1 + 2j])", "[1.]", "input")
imag = _one("imag", a.IMAG, "tf.math.imag([1 + 2j])", "[2.]", "input")

add = _two("add", a.ADD, "tf.add([1.0, 2.0], 3.0)", "[4. 5.]")
subtract = _two("subtract", a.SUBTRACT, "tf.subtract([1.0, 2.0], 3.0)", "[-2. -1.]")
multiply = _two("multiply", a.MULTIPLY, "tf.multiply([1.0, 2.0], 3.0)", "[3. 6.]")
pow = _two("pow", a.POW, "tf.pow([2.0, 3.0], 2.0)", "[4. 9.]")
maximum = _two("maximum", a.MAXIMUM, "tf.maximum([1.0, 5.0], 3.0)", "[3. 5.]")
minimum = _two("minimum", a.MINIMUM, "tf.minimum([1.0, 5.0], 3.0)", "[1. 3.]")
floordiv = _two("floordiv", a.FLOORDIV, "tf.math.floordiv([7, -7], 2)", "[ 3 -4]")
floormod = _two("floormod", a.FLOORMOD, "tf.math.floormod([7, -7], 2)", "[1 1]")
multiply_no_nan = _two(
    "multiply_no_nan", a.MULTIPLY_NO_NAN, "tf.math.multiply_no_nan([float('inf'), 2.0], [0.0, 3.0])", "[0. 6.]"
)
less = _two("less", c.LESS, "tf.less([1, 2], 2)", "[ True False]")
less_equal = _two("less_equal", c.LESS_EQUAL, "tf.less_equal([1, 3], 2)", "[ True False]")
greater = _two("greater", c.GREATER, "tf.greater([1, 3], 2)", "[False  True]")
greater_equal = _two("greater_equal", c.GREATER_EQUAL, "tf.greater_equal([1, 2], 2)", "[False  True]")
equal = _two("equal", c.EQUAL, "tf.equal([1, 2], 2)", "[False  True]")
not_equal = _two("not_equal", c.NOT_EQUAL, "tf.not_equal([1, 2], 2)", "[ True False]")
logical_and = _two("logical_and", c.LOGICAL_AND, "tf.logical_and([True, False], True)", "[ True False]")
logical_or = _two("logical_or", c.LOGICAL_OR, "tf.logical_or([True, False], False)", "[ True False]")
logical_xor = _two("logical_xor", c.LOGICAL_XOR, "tf.math.logical_xor([True, False], True)", "[False  True]")


def abs(x: Any, name: str | None = None) -> Tensor:
    """The absolute value; of complex numbers the modulus, as a real tensor.

    >>> import gradtape as tf
    >>> print(tf.abs([-1.0, 2.0]).numpy(), tf.abs([3 + 4j]).numpy())
    [1. 2.] [5.]
    """
    return absolute(convert(x))


def squared_difference(x: Any, y: Any, name: str | None = None) -> Tensor:
    """(x - y)²; of complex numbers |x - y|², of their dtype.

    Raises:
      InvalidArgumentError: for mixed dtypes and for shapes that do not broadcast.

    >>> import gradtape as tf
    >>> print(tf.math.squared_difference([1.0, 2.0], 4.0).numpy())
    [9. 4.]
    """
    x, y = convert_all([x, y])
    if not x._aval.dtype.is_complex:
        return binary(a.SQUARED_DIFFERENCE.bind(), x, y)
    distance = subtract(x, y)
    return distance * conj(distance)


def divide_no_nan(x: Any, y: Any, name: str | None = None) -> Tensor:
    """x / y, and 0 where y is 0; integers are divided as float64.

    Args:
      x, y: numeric tensors of one dtype, whose shapes broadcast.
      name: accepted for compatibility.

    Raises:
      TypeError: for mixed dtypes and bools.
      InvalidArgumentError: for shapes that do not broadcast.

    >>> import gradtape as tf
    >>> print(tf.math.divide_no_nan([1.0, 2.0], [0.0, 4.0]).numpy())
    [0.  0.5]
    """
    return binary(a.DIVIDE_NO_NAN.bind(), *as_quotient(*convert_all([x, y])))


def divide(x: Any, y: Any, name: str | None = None) -> Tensor:
    """x / y; integers are divided as float64.

    Raises:
      TypeError: for mixed dtypes and bools.
      InvalidArgumentError: for shapes that do not broadcast.

    >>> import gradtape as tf
    >>> print(tf.divide([1.0, 2.0], 4.0).numpy(), tf.divide([1], [2]).numpy())
    [0.25 0.5 ] [0.5]
    """
    return true_divide(*convert_all([x, y]))


def atan2(y: Any, x: Any, name: str | None = None) -> Tensor:
    """The angle of the point (x, y), in [-pi, pi]. Shapes broadcast; dtypes must agree.

    >>> import gradtape as tf
    >>> print(tf.math.atan2([0.0, 1.0], [-1.0, 0.0]).numpy().round(4))
    [3.1416 1.5708]
    """
    return binary(e.ATAN2.bind(), *convert_all([y, x]))


def sign(x: Any, name: str | None = None) -> Tensor:
    """-1, 0 or 1; of complex numbers x / |x|, and 0 at 0.

    Args:
      x: tensors of a floating, complex or integer dtype, or what becomes one.
      name: accepted for compatibility.

    >>> import gradtape as tf
    >>> print(tf.sign([-2.0, 0.0, 5.0]).numpy())
    [-1.  0.  1.]
    """
    x = convert(x)
    if not x._aval.dtype.is_complex:
        return unary(a.SIGN.bind(), x)
    size = absolute(x)
    return divide_no_nan(x, complex(size, convert(0.0, size._aval.dtype)))


def sigmoid(x: Any, name: str | None = None) -> Tensor:
    """1 / (1 + exp(-x)), without overflow.

    Args:
      x: tensors of a floating or complex dtype, or what becomes one.
      name: accepted for compatibility.

    >>> import gradtape as tf
    >>> print(tf.sigmoid([0.0, -100.0]).numpy().round(4))
    [0.5 0. ]
    """
    x = convert(x)
    return reciprocal(1.0 + exp(-x)) if x._aval.dtype.is_complex else unary(e.SIGMOID.bind(), x)


def round(x: Any, name: str | None = None) -> Tensor:
    """The nearest integer, halves to even; integers stay as they are.

    >>> import gradtape as tf
    >>> print(tf.round([0.5, 1.5, -1.2]).numpy())
    [ 0.  2. -1.]
    """
    x = convert(x)
    return x if x._aval.dtype.is_integer else unary(a.RINT.bind(), x)


def leaky_relu(features: Any, alpha: float = 0.2, name: str | None = None) -> Tensor:
    """x where it is positive, else alpha * x.

    Args:
      features: tensors of a floating dtype; integers become float32.
      alpha: a number, which is rounded to single precision in every dtype, or a tensor.
      name: accepted for compatibility.

    >>> import gradtape as tf
    >>> print(tf.nn.leaky_relu([-1.0, 2.0]).numpy())
    [-0.2  2. ]
    """
    x = convert(features)
    if x._aval.dtype.is_integer:
        x = cast(x, float32)
    slope = float(np.float32(alpha)) if isinstance(alpha, int | float) else alpha
    return binary(e.LEAKY_RELU.bind(), x, operand(slope, x._aval.dtype))


def silu(features: Any, beta: float = 1.0) -> Tensor:
    """x * sigmoid(beta * x), also called swish.

    >>> import gradtape as tf
    >>> print(tf.nn.silu([0.0, -1.0]).numpy().round(4))
    [ 0.     -0.2689]
    """
    x = convert(features)
    plain = beta == 1.0 and not x._aval.dtype.is_complex
    return unary(e.SILU.bind(), x) if plain else x * sigmoid(x * beta)


def sigmoid_cross_entropy_with_logits(labels: Any = None, logits: Any = None, name: str | None = None) -> Tensor:
    """-labels · log(sigmoid(logits)) - (1 - labels) · log(1 - sigmoid(logits)), elementwise, without overflow.

    Raises:
      ValueError: when labels and logits have different shapes.

    >>> import gradtape as tf
    >>> print(tf.nn.sigmoid_cross_entropy_with_logits(labels=[1.0, 0.0], logits=[0.0, 0.0]).numpy())
    [0.6931472 0.6931472]
    """
    logits = convert(logits)
    labels = operand(labels, logits._aval.dtype)
    if labels._aval.shape != logits._aval.shape:
        raise ValueError(f"`logits` and `labels` must have the same shape, got {logits.shape} and {labels.shape}.")
    return binary(e.SIGMOID_CROSS_ENTROPY.bind(), labels, logits)


def complex(real: Any, imag: Any, name: str | None = None) -> Tensor:
    """A complex tensor from real and imaginary parts of float32 or float64.

    Raises:
      TypeError: parts of other or of different dtypes.
      InvalidArgumentError: shapes that do not broadcast.

    >>> import gradtape as tf
    >>> print(tf.complex([1.0], [2.0]).numpy())
    [1.+2.j]
    """
    x, y = convert(real), convert(imag)
    if x._aval.dtype is not y._aval.dtype or x._aval.dtype not in (float32, float64):
        raise TypeError(
            f"The `real` and `imag` components have incorrect types: {x.dtype.name} {y.dtype.name}. They must be "
            "consistent, and one of [tf.float32, tf.float64]. Use `tf.cast`."
        )
    return binary(a.COMPLEX.bind(), x, y)


def cast(x: Any, dtype: Any, name: str | None = None) -> Any:
    """A tensor with another dtype. Complex numbers cast to real ones keep their real part; of `tf.IndexedSlices` the
    rows are cast.

    >>> import gradtape as tf
    >>> print(tf.cast([1.7, -1.7], tf.int32).numpy())
    [ 1 -1]
    """
    if isinstance(x, IndexedSlices):
        return x.with_values(cast(x.values, dtype))
    x, target = convert(x), as_dtype(dtype)
    return x if x._aval.dtype is target else unary(a.CAST.bind(dtype=target), x)


def where(condition: Any, x: Any = None, y: Any = None, name: str | None = None) -> Tensor:
    """x where the condition holds, else y, all broadcast; with the condition alone, the positions where it
    holds, as rows of int64.

    Raises:
      ValueError: when only one of x and y is given.
      InvalidArgumentError: a condition that is not bool, or mixed dtypes.

    >>> import gradtape as tf
    >>> print(tf.where([True, False], [1.0, 2.0], 0.0).numpy())
    [1. 0.]
    >>> print(tf.where([True, False, True]).numpy())
    [[0]
     [2]]
    """
    mask = convert(condition)
    if x is None and y is None:
        return convert(_positions_of(mask))
    if x is None or y is None:
        raise ValueError("`where` wants both `x` and `y`, or neither.")
    x, y = convert_all([x, y])
    result: Tensor = execute(c.SELECT.bind(), (mask, x, y))
    return result


def _positions_of(mask: Tensor) -> Any:
    if mask._aval.dtype is not bool_:
        mask = not_equal(mask, convert(0, mask._aval.dtype))
    return np.argwhere(np.asarray(mask))


def clip_by_value(t: Any, clip_value_min: Any, clip_value_max: Any, name: str | None = None) -> Any:
    """Each element moved into [clip_value_min, clip_value_max]; where the bounds cross, to the lower one. At the bounds
    the gradient passes. Of `tf.IndexedSlices` the rows are moved, those at one position after they are added up.

    Raises:
      ValueError: bounds that would broadcast `t` to another shape.

    >>> import gradtape as tf
    >>> print(tf.clip_by_value([-2.0, 0.5, 3.0], -1.0, 1.0).numpy())
    [-1.   0.5  1. ]
    """
    if isinstance(t, IndexedSlices):
        once = t.summed()
        return once.with_values(clip_by_value(once.values, clip_value_min, clip_value_max))
    x = convert(t)
    low, high = (operand(v, x._aval.dtype) for v in (clip_value_min, clip_value_max))
    result = binary(a.MAXIMUM.bind(), binary(a.MINIMUM.bind(), x, high), low)
    if result._aval.shape != x._aval.shape:
        raise ValueError(
            f"Shapes {x.shape} and {result.shape} are incompatible: the bounds must broadcast to the shape of `t`."
        )
    return result


def add_n(inputs: Any, name: str | None = None) -> Tensor:
    """The sum of a list of tensors of one shape and dtype.

    Raises:
      ValueError: an empty list.
      InvalidArgumentError: different shapes or dtypes.

    >>> import gradtape as tf
    >>> print(tf.add_n([[1.0], [2.0], [3.0]]).numpy())
    [6.]
    """
    if not isinstance(inputs, list | tuple) or not inputs:
        raise ValueError("`add_n` wants a non-empty list of tensors of one shape and dtype.")
    parts = convert_all(inputs)
    total = parts[0]
    for p in parts[1:]:
        if p._aval.shape != total._aval.shape:
            raise InvalidArgumentError(f"`add_n` wants tensors of one shape, got {total.shape} and {p.shape}.")
        total = binary(a.ADD.bind(), total, p)
    return total


__test__ = doctests(globals())
