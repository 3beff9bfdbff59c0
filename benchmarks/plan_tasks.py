"""What the benchmarks of plans compute: inputs, one function for all libraries, and results by hand in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from benchmarks.sizes import Size, pick

Array = Any
Inputs = dict[str, Array]

# "gradient": of the sum of the results, "jacobian": of the result by the one source, "third": the gradient of the
# gradient of the gradient.
Question = Literal["gradient", "jacobian", "third"]

EPSILON = 1e-5  # of layer norm
STEP = 0.05  # of the solver of differential equations


class Spelling(NamedTuple):
    """The functions of one library that the programs use; operators are the same everywhere."""

    exp: Callable[[Any], Any]
    log: Callable[[Any], Any]
    sin: Callable[[Any], Any]
    sqrt: Callable[[Any], Any]
    rsqrt: Callable[[Any], Any]
    tanh: Callable[[Any], Any]
    sigmoid: Callable[[Any], Any]
    total: Callable[[Any], Any]
    row_mean: Callable[[Any], Any]  # over the last axis, which stays with size 1
    logsumexp: Callable[[Any], Any]  # over the last axis
    cross_entropy: Callable[[Any, Any], Any]  # labels, logits: one number per row
    matvec: Callable[[Any, Any], Any]
    loop: Callable[[int, Callable[[Any], Any], Any], Any]  # rounds, what is done to a vector in each, the vector


def python_loop(rounds: int, step: Callable[[Any], Any], x: Any) -> Any:
    for _ in range(rounds):
        x = step(x)
    return x


@dataclass(frozen=True)
class Task:
    """Derivatives of `function(spelling, inputs)` by the inputs named in `by`."""

    inputs: Callable[[Size], Inputs]
    function: Callable[[Spelling, Inputs], Any]
    by: tuple[str, ...]
    reference: Callable[[Inputs], Sequence[Array]]
    question: Question = "gradient"


def wide(given: Inputs) -> Inputs:
    return {k: v.astype(np.float64) if v.dtype == np.float32 else v for k, v in given.items()}


def _normal(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> Array:
    return (scale * rng.standard_normal(shape)).astype(np.float32)


# ------------------------------------------------------------------ chains of 20 elementwise operations


def _chain(s: Spelling, p: Inputs) -> Any:
    y = s.tanh(p["x"] * 1.1) + 0.3
    y = s.exp(-(y * y * 0.5)) + 1.0
    y = s.sin(s.sqrt(y) - 0.2) * 2.0
    y = s.log(s.sigmoid(y) + 0.1) * 0.7
    y = s.tanh(y) - 0.4
    return y * y + 0.05


def _chain_slope(given: Inputs) -> Sequence[Array]:
    x = given["x"].astype(np.float64)
    y = np.tanh(1.1 * x)
    slope = 1.1 * (1 - y * y)
    y += 0.3
    e = np.exp(-0.5 * y * y)
    slope *= -y * e
    root = np.sqrt(e + 1)
    slope *= 0.5 / root
    slope *= 2 * np.cos(root - 0.2)
    sigmoid = 1 / (1 + np.exp(-2 * np.sin(root - 0.2)))
    slope *= sigmoid * (1 - sigmoid) * 0.7 / (sigmoid + 0.1)
    t = np.tanh(0.7 * np.log(sigmoid + 0.1))
    return [slope * (1 - t * t) * 2 * (t - 0.4)]


ROUNDS = 4


def _cheap(s: Spelling, p: Inputs) -> Any:
    y = p["x"]
    for _ in range(ROUNDS):
        y = y * 0.9
        y = y + 0.05
        y = y * y
        y = y - 0.3
        y = y * 1.2
    return y


def _cheap_slope(given: Inputs) -> Sequence[Array]:
    y = given["x"].astype(np.float64)
    slope = np.ones_like(y)
    for _ in range(ROUNDS):
        inner = 0.9 * y + 0.05
        slope *= 2 * 0.9 * 1.2 * inner
        y = 1.2 * (inner * inner - 0.3)
    return [slope]


def _long(seed: int, bound: float | None = None) -> Callable[[Size], Inputs]:
    def inputs(size: Size) -> Inputs:
        rng, n = np.random.default_rng(seed), pick(size, 1000, 4_000_000, 128_000_000)
        return {"x": _normal(rng, n) if bound is None else rng.uniform(-bound, bound, n).astype(np.float32)}

    return inputs


chain = Task(_long(60), _chain, ("x",), _chain_slope)
chain_cheap = Task(_long(61, 1.0), _cheap, ("x",), _cheap_slope)

# ------------------------------------------------------------------ rows


def _rows(rng: np.random.Generator, size: Size, scale: float) -> Array:
    return _normal(rng, *pick(size, (6, 10), (4096, 1000), (131_072, 1000)), scale=scale)


def _softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _labelled(size: Size) -> Inputs:
    rng = np.random.default_rng(62)
    x = _rows(rng, size, 2.0)
    return {"x": x, "labels": rng.integers(0, x.shape[1], len(x)).astype(np.int32)}


def _cross_entropy_slope(given: Inputs) -> Sequence[Array]:
    found = _softmax(given["x"].astype(np.float64))
    found[np.arange(len(found)), given["labels"]] -= 1
    return [found / len(found)]


cross_entropy = Task(
    _labelled,
    lambda s, p: s.total(s.cross_entropy(p["labels"], p["x"])) * (1.0 / p["x"].shape[0]),
    ("x",),
    _cross_entropy_slope,
)


def _norm_inputs(size: Size) -> Inputs:
    rng = np.random.default_rng(63)
    x = _rows(rng, size, 1.0)
    n = x.shape[1]
    return {
        "x": x,
        "weights": _rows(rng, size, 1.0),
        "gamma": 1 + _normal(rng, n, scale=0.1),
        "beta": _normal(rng, n, scale=0.1),
    }


def _layer_norm(s: Spelling, p: Inputs) -> Any:
    centred = p["x"] - s.row_mean(p["x"])
    y = centred * s.rsqrt(s.row_mean(centred * centred) + EPSILON) * p["gamma"] + p["beta"]
    return s.total(y * p["weights"])


def _layer_norm_slopes(given: Inputs) -> Sequence[Array]:
    p = wide(given)
    centred = p["x"] - p["x"].mean(1, keepdims=True)
    r = 1 / np.sqrt((centred * centred).mean(1, keepdims=True) + EPSILON)
    n, g = centred * r, p["weights"] * p["gamma"]
    slope = r * (g - g.mean(1, keepdims=True) - n * (g * n).mean(1, keepdims=True))
    return [slope, (p["weights"] * n).sum(0), p["weights"].sum(0)]


layer_norm = Task(_norm_inputs, _layer_norm, ("x", "gamma", "beta"), _layer_norm_slopes)


def _weighted(size: Size) -> Inputs:
    rng = np.random.default_rng(64)
    x = _rows(rng, size, 2.0)
    return {"x": x, "weights": _normal(rng, len(x))}


logsumexp = Task(
    _weighted,
    lambda s, p: s.total(p["weights"] * s.logsumexp(p["x"])),
    ("x",),
    lambda given: [_softmax(given["x"].astype(np.float64)) * given["weights"].astype(np.float64)[:, None]],
)

# ------------------------------------------------------------------ many small operations


def _tiny(s: Spelling, p: Inputs) -> Any:
    y = p["x"]
    for _ in range(25):
        y = s.sin(y * 1.01 + 0.1) - 0.05
    return y


def _tiny_slope(given: Inputs) -> Sequence[Array]:
    y, slope = float(given["x"]), 1.0
    for _ in range(25):
        inner = 1.01 * y + 0.1
        slope *= 1.01 * np.cos(inner)
        y = np.sin(inner) - 0.05
    return [np.asarray(slope)]


tiny = Task(lambda size: {"x": np.asarray(0.7, np.float32)}, _tiny, ("x",), _tiny_slope)


def _third_slope(given: Inputs) -> Sequence[Array]:
    x = given["x"].astype(np.float64)
    t = np.tanh(x)
    first = 1 - t * t
    second = -2 * t * first
    third = -2 * first * first - 2 * t * second
    return [third * np.sin(x) + 3 * second * np.cos(x) - 3 * first * np.sin(x) - t * np.cos(x)]


third = Task(
    lambda size: {"x": _normal(np.random.default_rng(65), pick(size, 20, 1000))},
    lambda s, p: s.tanh(p["x"]) * s.sin(p["x"]),
    ("x",),
    _third_slope,
    "third",
)

# ------------------------------------------------------------------ x' = tanh(A x + b) - x by Runge and Kutta's method


def _system(size: Size) -> Inputs:
    rng, n = np.random.default_rng(66), pick(size, 3, 10)
    matrix = _normal(rng, n, n, scale=1.5 * n**-0.5)
    return {
        "x": _normal(rng, n),
        "A": matrix,
        "b": _normal(rng, n, scale=0.3),
        "rounds": np.asarray(pick(size, 4, 200)),
    }


def _solved(s: Spelling, p: Inputs) -> Any:
    def slope(x: Any) -> Any:
        return s.tanh(s.matvec(p["A"], x) + p["b"]) - x

    def step(x: Any) -> Any:
        k1 = slope(x)
        k2 = slope(x + k1 * (STEP / 2))
        k3 = slope(x + k2 * (STEP / 2))
        k4 = slope(x + k3 * STEP)
        return x + (k1 + (k2 + k3) * 2.0 + k4) * (STEP / 6)

    return s.loop(p["rounds"], step, p["x"])


def _flow(given: Inputs) -> tuple[Array, Array]:
    """The last point and its Jacobian by the first: the tangents of all directions go along."""
    p = wide(given)
    n = len(p["x"])

    def slope(z: Array) -> Array:
        inner = p["A"] @ z
        t = np.tanh(inner[:, 0] + p["b"])
        return np.column_stack([t, (1 - t * t)[:, None] * inner[:, 1:]]) - z

    z = np.column_stack([p["x"], np.eye(n)])
    for _ in range(int(given["rounds"])):
        k1 = slope(z)
        k2 = slope(z + STEP / 2 * k1)
        k3 = slope(z + STEP / 2 * k2)
        k4 = slope(z + STEP * k3)
        z = z + STEP / 6 * (k1 + 2 * (k2 + k3) + k4)
    return z[:, 0], z[:, 1:]


def _squared_slope(given: Inputs) -> Sequence[Array]:
    x, jacobian = _flow(given)
    return [2 * x @ jacobian]


def _squared(s: Spelling, p: Inputs) -> Any:
    x = _solved(s, p)
    return s.total(x * x)


flow_gradient = Task(_system, _squared, ("x",), _squared_slope)
flow_jacobian = Task(_system, _solved, ("x",), lambda given: [_flow(given)[1]], "jacobian")
