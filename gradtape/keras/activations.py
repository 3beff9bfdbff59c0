"""`tf.keras.activations`: functions of one tensor that layers take by name. Floor: keras."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradtape.api import elementwise as e
from gradtape.api import rows, transcendental
from gradtape.api.creation import convert_to_tensor
from gradtape.keras.names import by_name
from gradtape.runtime.tensor import Tensor

__all__ = [
    "elu",
    "exponential",
    "gelu",
    "get",
    "hard_sigmoid",
    "leaky_relu",
    "linear",
    "log_sigmoid",
    "log_softmax",
    "relu",
    "relu6",
    "selu",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "softsign",
    "swish",
    "tanh",
]


def linear(x: Any) -> Tensor:
    """x itself.

    >>> import gradtape as tf
    >>> print(tf.keras.activations.linear([-1.0, 2.0]).numpy())
    [-1.  2.]
    """
    return convert_to_tensor(x)


def relu(x: Any, negative_slope: float = 0.0, max_value: float | None = None, threshold: float = 0.0) -> Tensor:
    """x where it is at least `threshold` (0), else negative_slope · (x - threshold); at most `max_value`.

    >>> import gradtape as tf
    >>> print(tf.keras.activations.relu([-1.0, 2.0, 9.0]).numpy())
    [0. 2. 9.]
    >>> print(tf.keras.activations.relu([-1.0, 2.0, 9.0], negative_slope=0.5, max_value=6.0).numpy())
    [-0.5  2.   6. ]
    """
    t = convert_to_tensor(x)
    if not negative_slope and max_value is None and not threshold:
        return e.relu(t)
    result = e.where(t >= threshold, t, (t - threshold) * negative_slope)
    return result if max_value is None else e.minimum(result, max_value)


def leaky_relu(x: Any, negative_slope: float = 0.2) -> Tensor:
    """x where it is positive, else negative_slope · x.

    >>> import gradtape as tf
    >>> print(tf.keras.activations.leaky_relu([-1.0, 2.0]).numpy())
    [-0.2  2. ]
    """
    return e.leaky_relu(x, negative_slope)


def elu(x: Any, alpha: float = 1.0) -> Tensor:
    """x where it is positive, else alpha · (exp(x) - 1).

    >>> import gradtape as tf
    >>> print(tf.keras.activations.elu([-1.0, 2.0]).numpy().round(4))
    [-0.6321  2.    ]
    """
    t = convert_to_tensor(x)
    value = e.elu(t)
    return value if alpha == 1.0 else e.where(t > 0, t, value * alpha)


def softmax(x: Any, axis: int = -1) -> Tensor:
    """exp(x) / sum(exp(x)) along an axis.

    >>> import gradtape as tf
    >>> print(tf.keras.activations.softmax([[0.0, 0.0]]).numpy())
    [[0.5 0.5]]
    """
    return rows.softmax(x, axis)


def log_softmax(x: Any, axis: int = -1) -> Tensor:
    """The logarithm of the softmax along an axis.

    >>> import gradtape as tf
    >>> print(tf.keras.activations.log_softmax([[0.0, 0.0]]).numpy())
    [[-0.6931472 -0.6931472]]
    """
    return rows.log_softmax(x, axis)


def hard_sigmoid(x: Any) -> Tensor:
    """0 up to -3, 1 from 3 on, x/6 + 1/2 between.

    >>> import gradtape as tf
    >>> print(tf.keras.activations.hard_sigmoid([-4.0, 0.0, 4.0]).numpy())
    [0.  0.5 1. ]
    """
    return e.relu6(convert_to_tensor(x) + 3.0) / 6.0


def gelu(x: Any, approximate: bool = False) -> Tensor:
    """x · Φ(x), with the normal distribution function Φ; `approximate` takes a formula with tanh for it.

    >>> import gradtape as tf
    >>> print(tf.keras.activations.gelu([-1.0, 0.0, 2.0]).numpy().round(4))
    [-0.1587  0.      1.9545]
    """
    return transcendental.gelu(x, approximate)


def silu(x: Any) -> Tensor:
    """x · sigmoid(x), also called swish.

    >>> import gradtape as tf
    >>> print(tf.keras.activations.silu([0.0, -1.0]).numpy().round(4))
    [ 0.     -0.2689]
    """
    return e.silu(x)


swish = silu
tanh, sigmoid, softplus, softsign, selu, relu6 = e.tanh, e.sigmoid, e.softplus, e.softsign, e.selu, e.relu6
log_sigmoid, exponential = e.log_sigmoid, e.exp

_KNOWN: dict[str, Callable[..., Tensor]] = {
    "elu": elu,
    "exponential": exponential,
    "gelu": gelu,
    "hard_sigmoid": hard_sigmoid,
    "leaky_relu": leaky_relu,
    "linear": linear,
    "log_sigmoid": log_sigmoid,
    "log_softmax": log_softmax,
    "relu": relu,
    "relu6": relu6,
    "selu": selu,
    "sigmoid": sigmoid,
    "silu": silu,
    "softmax": softmax,
    "softplus": softplus,
    "softsign": softsign,
    "swish": silu,
    "tanh": tanh,
}


def get(identifier: Any) -> Callable[..., Tensor]:
    """The activation of that name; a callable is itself, None is `linear`.

    Raises:
      ValueError: an unknown name; the message lists the known ones.

    >>> import gradtape as tf
    >>> tf.keras.activations.get("relu") is tf.keras.activations.relu
    True
    """
    if identifier is None:
        return linear
    if callable(identifier):
        return identifier
    return by_name("activation", _KNOWN, identifier)
