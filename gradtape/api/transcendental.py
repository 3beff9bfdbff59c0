"""Special functions of `tf.math` and the activations made of them. Floor: api."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradtape.api.declared import doctests, of_one, of_two
from gradtape.api.elementwise import relu
from gradtape.api.layout import concat
from gradtape.api.reductions import reduce_sum
from gradtape.ir.dtypes import float64
from gradtape.ops import bessel as b
from gradtape.ops import error_functions as f
from gradtape.ops import gamma as g
from gradtape.ops import quotients as q
from gradtape.ops.elementary import GELU_TANH
from gradtape.runtime.convert import convert, convert_all
from gradtape.runtime.dispatch import binary, unary
from gradtape.runtime.tensor import Tensor

erf = of_one("erf", f.ERF, "tf.math.erf([0.0, 1.0])", "[0.     0.8427]")
erfc = of_one("erfc", f.ERFC, "tf.math.erfc([0.0, 1.0])", "[1.     0.1573]")
erfinv = of_one("erfinv", f.ERFINV, "tf.math.erfinv([0.0, 0.5])", "[0.     0.4769]")
erfcinv = of_one("erfcinv", f.ERFCINV, "tf.math.erfcinv([1.0, 0.5])", "[0.     0.4769]")
ndtri = of_one("ndtri", f.NDTRI, "tf.math.ndtri([0.5, 0.975])", "[-0.    1.96]")
lgamma = of_one("lgamma", g.LGAMMA, "tf.math.lgamma([0.5, 4.0])", "[0.5724 1.7918]")
digamma = of_one("digamma", g.DIGAMMA, "tf.math.digamma([1.0, 4.0])", "[-0.5772  1.2561]")
bessel_i0 = of_one("bessel_i0", b.BESSEL_I0, "tf.math.bessel_i0([0.0, 1.0])", "[1.     1.2661]")
bessel_i0e = of_one("bessel_i0e", b.BESSEL_I0E, "tf.math.bessel_i0e([0.0, 1.0])", "[1.     0.4658]")
bessel_i1 = of_one("bessel_i1", b.BESSEL_I1, "tf.math.bessel_i1([0.0, 1.0])", "[0.     0.5652]")
bessel_i1e = of_one("bessel_i1e", b.BESSEL_I1E, "tf.math.bessel_i1e([0.0, 1.0])", "[0.     0.2079]")

xlogy = of_two("xlogy", q.XLOGY, "tf.math.xlogy([0.0, 2.0], [0.0, 3.0])", "[0.     2.1972]")
xlog1py = of_two("xlog1py", q.XLOG1PY, "tf.math.xlog1py([0.0, 2.0], [-1.0, 3.0])", "[0.     2.7726]")
xdivy = of_two("xdivy", q.XDIVY, "tf.math.xdivy([0.0, 2.0], [0.0, 4.0])", "[0.  0.5]")
truncatediv = of_two("truncatediv", q.TRUNCATEDIV, "tf.truncatediv([7, -7], 2)", "[ 3 -3]")
truncatemod = of_two("truncatemod", q.TRUNCATEMOD, "tf.truncatemod([7, -7], 2)", "[ 1 -1]")

TENSORFLOW_ROOT = float(np.float32(math.sqrt(0.5))) * math.sqrt(2)  # 1 - 1.7e-8


def polygamma(a: Any, x: Any, name: str | None = None) -> Tensor:
    """The a-th derivative of the digamma function at x; NaN unless a is one of 0, 1, 2, ...

    Args:
      a: tensors of a floating dtype, the orders.
      x: tensors of the same dtype. Shapes broadcast.
      name: accepted for compatibility.

    Returns:
      A tensor of the broadcast shape. Gradients flow to x.

    Raises:
      InvalidArgumentError: for mixed dtypes, and for shapes that do not broadcast.

    >>> import gradtape as tf
    >>> print(tf.math.polygamma([0.0, 1.0, 2.0], 1.0).numpy().round(4))
    [-0.5772  1.6449 -2.4041]
    """
    return binary(g.POLYGAMMA.bind(), *convert_all([a, x]))


def zeta(x: Any, q: Any, name: str | None = None) -> Tensor:
    """Hurwitz' zeta function, the sum of (q + k)⁻ˣ over k = 0, 1, 2, ...

    Args:
      x: tensors of a floating dtype, the exponents; the function is NaN below 1.
      q: tensors of the same dtype. Shapes broadcast. Negative q want whole exponents.
      name: accepted for compatibility.

    Returns:
      A tensor of the broadcast shape. Gradients flow to q.

    Raises:
      InvalidArgumentError: for mixed dtypes, and for shapes that do not broadcast.

    >>> import gradtape as tf
    >>> print(tf.math.zeta([2.0, 3.0], 1.0).numpy().round(4))
    [1.6449 1.2021]
    """
    return binary(g.ZETA.bind(), *convert_all([x, q]))


def lbeta(x: Any, name: str | None = None) -> Tensor:
    """log |B(x)| along the last axis: the sum of log |Γ(x)| less log |Γ| of the sum.

    Args:
      x: a tensor of a floating dtype with at least one axis.
      name: accepted for compatibility.

    Returns:
      A tensor without the last axis.

    >>> import gradtape as tf
    >>> print(tf.math.lbeta([[1.0, 2.0], [3.0, 4.0]]).numpy().round(4))
    [-0.6931 -4.0943]
    """
    x = convert(x)
    return reduce_sum(lgamma(x), axis=-1) - lgamma(reduce_sum(x, axis=-1))


def gelu(features: Any, approximate: bool = False, name: str | None = None) -> Tensor:
    """The Gaussian error linear unit: x Φ(x), Φ being the normal distribution function.

    Args:
      features: tensors of a floating dtype.
      approximate: whether to take 0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³))) for it.
      name: accepted for compatibility.

    Returns:
      A tensor of the same shape and dtype.

    Raises:
      ValueError: for another dtype.

    In double precision the √½ in Φ(x) = (1 + erf(√½ x)) / 2 is TensorFlow's, which is rounded to single precision. That
    moves the result by 1.7e-7 of itself at x = -3.

    Source: Hendrycks and Gimpel, Gaussian Error Linear Units, 2016.

    >>> import gradtape as tf
    >>> print(tf.nn.gelu([-1.0, 0.0, 2.0]).numpy().round(4))
    [-0.1587  0.      1.9545]
    """
    x = convert(features)
    if not x._aval.dtype.is_floating:
        raise ValueError(f"`features.dtype` must be a floating point dtype, got {x.dtype.name}. Use `tf.cast`.")
    if approximate or x._aval.dtype is not float64:
        return unary((GELU_TANH if approximate else f.GELU).bind(), x)
    return x * unary(f.NDTR.bind(), x * TENSORFLOW_ROOT)


def crelu(features: Any, axis: int = -1, name: str | None = None) -> Tensor:
    """The positive parts of x and of -x, one behind the other along an axis.

    Args:
      features: tensors of a floating dtype.
      axis: the axis that doubles.
      name: accepted for compatibility.

    Returns:
      A tensor with twice the size along the axis.

    Source: Shang et al., Understanding and Improving Convolutional Neural Networks via Concatenated Rectified Linear
    Units, 2016.

    >>> import gradtape as tf
    >>> print(tf.nn.crelu([-1.0, 2.0]).numpy())
    [0. 2. 1. 0.]
    """
    x = convert(features)
    return concat([relu(x), relu(-x)], axis=axis)


__test__ = doctests(globals())
