"""What the benchmarks of Jacobians compute: inputs, one function for all libraries, and results by hand in float64."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from benchmarks.sizes import Size, pick

Array = Any
Inputs = dict[str, Array]

# "jacobian" and "batch": of the target, "examples": of each example's own loss, "hessian": of a scalar, as one matrix
# over all of `by`, "third": the Jacobian of the Jacobian of the Jacobian.
Question = Literal["jacobian", "batch", "examples", "hessian", "third"]

EPSILON = 1e-3  # of batch norm


class Spelling(NamedTuple):
    """The functions of one library that the programs use; operators are the same everywhere."""

    tanh: Callable[[Any], Any]
    exp: Callable[[Any], Any]
    sigmoid: Callable[[Any], Any]
    elu: Callable[[Any], Any]
    relu: Callable[[Any], Any]
    matmul: Callable[[Any, Any], Any]
    reshape: Callable[[Any, tuple[int, ...]], Any]
    mean: Callable[[Any], Any]
    conv: Callable[[Any, Any, int], Any]  # images and kernels with channels last, no padding
    batch_norm: Callable[[Any, Any, Any], Any]  # over the first axis
    cross_entropy: Callable[[Any, Any], Any]  # labels, logits


@dataclass(frozen=True)
class Task:
    """Derivatives of `function(spelling, inputs)` by the inputs named in `by`. `examples`: inputs with a batch axis,
    over which the function works example by example, so that an expert maps the derivative of one example."""

    inputs: Callable[[Size], Inputs]
    function: Callable[[Spelling, Inputs], Any]
    by: tuple[str, ...]
    reference: Callable[[Inputs], Sequence[Array]]
    question: Question = "jacobian"
    examples: tuple[str, ...] = ()


def wide(given: Inputs) -> Inputs:
    return {k: v.astype(np.float64) if v.dtype == np.float32 else v for k, v in given.items()}


def _normal(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> Array:
    return (scale * rng.standard_normal(shape)).astype(np.float32)


def _layers(rng: np.random.Generator, *sizes: int) -> Inputs:
    found: Inputs = {}
    for k, (a, b) in enumerate(itertools.pairwise(sizes), 1):
        found[f"W{k}"] = _normal(rng, a, b, scale=a**-0.5)
        found[f"b{k}"] = _normal(rng, b, scale=0.1)
    return found


def _elu(z: Array) -> Array:
    return np.where(z > 0, z, np.expm1(np.minimum(z, 0)))


def _elu_slope(z: Array) -> Array:
    return np.where(z > 0, 1.0, np.exp(np.minimum(z, 0)))


# ------------------------------------------------------------------ elementwise


def scalar_source(n: int, gpu: int | None = None) -> Task:
    """A curve of n points by the one number that shifts it."""

    def reference(given: Inputs) -> Sequence[Array]:
        s = 1 / (1 + np.exp(-(given["x"].astype(np.float64) + float(given["shift"]))))
        return [s * (1 - s)]

    return Task(
        lambda size: {
            "x": np.linspace(-10, 10, pick(size, 20, n, gpu), dtype=np.float32),
            "shift": np.array(0.25, np.float32),
        },
        lambda s, p: s.sigmoid(p["x"] + p["shift"]),
        ("shift",),
        reference,
    )


def elementwise(n: int, gpu: int) -> Task:
    def reference(given: Inputs) -> Sequence[Array]:
        x = given["x"].astype(np.float64)
        t, e = np.tanh(x), np.exp(-x * x)
        return [np.diag((1 - t * t) * e - 2 * x * t * e)]

    return Task(
        lambda size: {"x": _normal(np.random.default_rng(40), pick(size, 12, n, gpu))},
        lambda s, p: s.tanh(p["x"]) * s.exp(-p["x"] * p["x"]),
        ("x",),
        reference,
    )


# ------------------------------------------------------------------ networks of dense layers


def _network(s: Spelling, p: Inputs) -> Any:
    """Dense layers, each followed by elu."""
    y = p["x"]
    for k in range(1, 1 + sum(name.startswith("W") for name in p)):
        y = s.elu(s.matmul(y, p[f"W{k}"]) + p[f"b{k}"])
    return y


def _network_inputs(batch: int, gpu: int, *sizes: int) -> Callable[[Size], Inputs]:
    """`gpu`: the batch on a GPU."""

    def inputs(size: Size) -> Inputs:
        rng = np.random.default_rng(41)
        widths = pick(size, (4, 6, 5, 3), sizes)
        return {"x": _normal(rng, pick(size, 3, batch, gpu), widths[0]), **_layers(rng, *widths)}

    return inputs


def _sums(p: Inputs) -> list[Array]:
    """What enters the activations of three layers."""
    z1 = p["x"] @ p["W1"] + p["b1"]
    z2 = _elu(z1) @ p["W2"] + p["b2"]
    return [z1, z2, _elu(z2) @ p["W3"] + p["b3"]]


def _slopes(p: Inputs) -> Array:
    """How each example's outputs depend on what enters its first activation: (batch, outputs, units)."""
    z1, z2, z3 = _sums(p)
    g = _elu_slope(z3)[:, :, None] * p["W3"].T * _elu_slope(z2)[:, None, :]
    return (g @ p["W2"].T) * _elu_slope(z1)[:, None, :]


def _network_blocks(given: Inputs) -> Sequence[Array]:
    p = wide(given)
    return [_slopes(p) @ p["W1"].T]


def _network_jacobian(given: Inputs) -> Sequence[Array]:
    (blocks,) = _network_blocks(given)
    batch, outputs, width = blocks.shape
    found = np.zeros((batch, outputs, batch, width))
    found[np.arange(batch), :, np.arange(batch)] = blocks
    return [found]


def _network_kernel(given: Inputs) -> Sequence[Array]:
    p = wide(given)
    return [p["x"][:, None, :, None] * _slopes(p)[:, :, None, :]]


def _layer_kernel(given: Inputs) -> Sequence[Array]:
    p = wide(given)
    active = (p["x"] @ p["W1"] + p["b1"] > 0).astype(np.float64)
    n = active.shape[1]
    return [np.einsum("bk,bi,ij->bikj", p["x"], active, np.eye(n))]


WIDTHS = (64, 256, 256, 32)
# On a GPU: a Jacobian by the input grows with the square of the batch, and one by the kernel takes 2 MB an example.
network_by_input = Task(_network_inputs(64, 360, *WIDTHS), _network, ("x",), _network_jacobian)
network_batch = Task(_network_inputs(512, 16_384, *WIDTHS), _network, ("x",), _network_blocks, "batch", examples=("x",))
network_by_kernel = Task(_network_inputs(64, 512, *WIDTHS), _network, ("W1",), _network_kernel, examples=("x",))


def _layer_inputs(size: Size) -> Inputs:
    rng = np.random.default_rng(42)
    n = pick(size, 5, 64)
    return {"x": _normal(rng, pick(size, 3, 32, 1024), n), **_layers(rng, n, n)}


def _layer(s: Spelling, p: Inputs) -> Any:
    return s.relu(s.matmul(p["x"], p["W1"]) + p["b1"])


layer_by_kernel = Task(_layer_inputs, _layer, ("W1",), _layer_kernel, examples=("x",))

# ------------------------------------------------------------------ Hessians


def _gradient_by_hand(p: Inputs) -> Inputs:
    """Of the mean of the squared outputs of a network of three layers."""
    z = _sums(p)
    entering = [p["x"], _elu(z[0]), _elu(z[1])]
    y = _elu(z[2])
    d = 2 / y.size * y * _elu_slope(z[2])
    found: Inputs = {}
    for k in (3, 2, 1):
        found[f"W{k}"], found[f"b{k}"] = entering[k - 1].T @ d, d.sum(0)
        if k > 1:
            d = (d @ p[f"W{k}"].T) * _elu_slope(z[k - 2])
    return found


def hessian(*by: str) -> Task:
    def reference(given: Inputs) -> Sequence[Array]:
        """Central differences of the gradient by hand."""
        p, step = wide(given), 1e-6

        def flat() -> Array:
            found = _gradient_by_hand(p)
            return np.concatenate([found[name].reshape(-1) for name in by])

        rows = []
        for name in by:
            elements = p[name].reshape(-1)  # a view
            for k, middle in enumerate(elements.copy()):
                elements[k] = middle + step
                above = flat()
                elements[k] = middle - step
                rows.append((above - flat()) / (2 * step))
                elements[k] = middle
        return [np.stack(rows)]

    def loss(s: Spelling, p: Inputs) -> Any:
        y = _network(s, p)
        return s.mean(y * y)

    return Task(_network_inputs(32, 1024, 28, 32, 28, 8), loss, by, reference, "hessian")


# ------------------------------------------------------------------ convolution, batch norm, per-example gradients


def _conv_inputs(size: Size) -> Inputs:
    rng = np.random.default_rng(43)
    batch, side, channels, classes = pick(size, (2, 8, 2, 3), (32, 16, 8, 10), (1024, 16, 8, 10))
    features = ((side - 2 - 3) // 2 + 1) ** 2 * channels
    return {
        "x": _normal(rng, batch, side, side, 1),
        "K1": _normal(rng, 3, 3, 1, channels, scale=1 / 3),
        "c1": _normal(rng, channels, scale=0.1),
        "K2": _normal(rng, 3, 3, channels, channels, scale=(9 * channels) ** -0.5),
        "c2": _normal(rng, channels, scale=0.1),
        "W": _normal(rng, features, classes, scale=features**-0.5),
        "b": _normal(rng, classes, scale=0.1),
    }


def _conv_network(s: Spelling, p: Inputs) -> Any:
    h = s.elu(s.conv(p["x"], p["K1"], 1) + p["c1"])
    h = s.elu(s.conv(h, p["K2"], 2) + p["c2"])
    return s.matmul(s.reshape(h, (-1, p["W"].shape[0])), p["W"]) + p["b"]


def _windows(x: Array, stride: int) -> Array:
    """Windows of 3 by 3: (batch, height, width, 3, 3, channels)."""
    found = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))[:, ::stride, ::stride]
    return found.transpose(0, 1, 2, 4, 5, 3)


def _conv_back(g: Array, kernel: Array, shape: tuple[int, ...], stride: int) -> Array:
    found = np.zeros(shape)
    height, width = g.shape[1:3]
    for a in range(3):
        for b in range(3):
            part = found[:, a : a + stride * height : stride, b : b + stride * width : stride]
            part += np.einsum("nhwo,io->nhwi", g, kernel[a, b], optimize=True)
    return found


def _conv_blocks(given: Inputs) -> Sequence[Array]:
    p = wide(given)
    batch, classes = len(p["x"]), p["W"].shape[1]
    z1 = np.einsum("nhwabi,abio->nhwo", _windows(p["x"], 1), p["K1"], optimize=True) + p["c1"]
    z2 = np.einsum("nhwabi,abio->nhwo", _windows(_elu(z1), 2), p["K2"], optimize=True) + p["c2"]
    g = p["W"].T.reshape(1, classes, *z2.shape[1:]) * _elu_slope(z2)[:, None]
    g = _conv_back(g.reshape(-1, *z2.shape[1:]), p["K2"], (batch * classes, *z1.shape[1:]), 2)
    g = g.reshape(batch, classes, *z1.shape[1:]) * _elu_slope(z1)[:, None]
    x = p["x"].shape[1:]
    return [_conv_back(g.reshape(-1, *z1.shape[1:]), p["K1"], (batch * classes, *x), 1).reshape(batch, classes, *x)]


conv_batch = Task(_conv_inputs, _conv_network, ("x",), _conv_blocks, "batch", examples=("x",))


def _norm_inputs(size: Size) -> Inputs:
    rng = np.random.default_rng(44)
    batch, width, units, outputs = pick(size, (4, 3, 5, 2), (64, 32, 64, 16), (360, 32, 64, 16))
    given = {"x": _normal(rng, batch, width), **_layers(rng, width, units, outputs)}
    return given | {"gamma": 1 + _normal(rng, units, scale=0.1), "beta": _normal(rng, units, scale=0.1)}


def _norm_network(s: Spelling, p: Inputs) -> Any:
    h = s.elu(s.matmul(p["x"], p["W1"]) + p["b1"])
    h = s.batch_norm(h, p["gamma"], p["beta"])
    return s.elu(s.matmul(h, p["W2"]) + p["b2"])


def _norm_jacobian(given: Inputs) -> Sequence[Array]:
    p = wide(given)
    z1 = p["x"] @ p["W1"] + p["b1"]
    h = _elu(z1)
    r = 1 / np.sqrt(h.var(0) + EPSILON)
    n = (h - h.mean(0)) * r
    z2 = (n * p["gamma"] + p["beta"]) @ p["W2"] + p["b2"]
    g = _elu_slope(z2)[:, :, None] * p["W2"].T * (p["gamma"] * r)
    batch = len(h)
    between = np.eye(batch)[:, :, None] - (1 + n[:, None] * n[None]) / batch
    inner = g[:, :, None] * between[:, None] * _elu_slope(z1)
    return [inner @ p["W1"].T]


batch_norm = Task(_norm_inputs, _norm_network, ("x",), _norm_jacobian)


def _loss_inputs(size: Size) -> Inputs:
    rng = np.random.default_rng(45)
    batch, sizes = pick(size, (3, (5, 4, 3)), (256, (784, 256, 10)), (2048, (784, 256, 10)))
    x = rng.random((batch, sizes[0]), np.float32)
    return {"x": x, "labels": rng.integers(0, sizes[-1], batch).astype(np.int32), **_layers(rng, *sizes)}


def _losses(s: Spelling, p: Inputs) -> Any:
    h = s.relu(s.matmul(p["x"], p["W1"]) + p["b1"])
    return s.cross_entropy(p["labels"], s.matmul(h, p["W2"]) + p["b2"])


def _loss_gradients(given: Inputs) -> Sequence[Array]:
    p = wide(given)
    z = p["x"] @ p["W1"] + p["b1"]
    h = np.maximum(z, 0)
    logits = h @ p["W2"] + p["b2"]
    e = np.exp(logits - logits.max(1, keepdims=True))
    d2 = e / e.sum(1, keepdims=True)
    d2[np.arange(len(d2)), p["labels"]] -= 1
    d1 = (d2 @ p["W2"].T) * (z > 0)
    return [p["x"][:, :, None] * d1[:, None], d1, h[:, :, None] * d2[:, None], d2]


WEIGHTS = ("W1", "b1", "W2", "b2")
example_gradients = Task(_loss_inputs, _losses, WEIGHTS, _loss_gradients, "examples", examples=("x", "labels"))

# ------------------------------------------------------------------ third order, growth


def _third_inputs(size: Size) -> Inputs:
    rng = np.random.default_rng(46)
    width, units, outputs = pick(size, (3, 4, 2), (16, 32, 8), (48, 128, 64))
    return {
        "x": _normal(rng, width, scale=0.5),
        "W1": _normal(rng, width, units, scale=width**-0.5),
        "W2": _normal(rng, units, outputs, scale=units**-0.5),
    }


def _third_derivatives(given: Inputs) -> Sequence[Array]:
    p = wide(given)
    t = np.tanh(p["x"] @ p["W1"])
    u = 1 - t * t
    third = p["W2"] * (4 * t * t * u - 2 * u * u)[:, None]
    return [np.einsum("jo,ij,kj,lj->oikl", third, p["W1"], p["W1"], p["W1"], optimize=True)]


third_order = Task(
    _third_inputs,
    lambda s, p: s.reshape(s.matmul(s.tanh(s.matmul(s.reshape(p["x"], (1, -1)), p["W1"])), p["W2"]), (-1,)),
    ("x",),
    _third_derivatives,
    "third",
)


def scaling(n: int) -> Task:
    """Three layers of n units on one example; on a GPU of four times as many."""

    def inputs(size: Size) -> Inputs:
        rng = np.random.default_rng(47)
        m = pick(size, 6, n, 4 * n)
        return {"x": _normal(rng, m), **{f"W{k}": _normal(rng, m, m, scale=m**-0.5) for k in (1, 2, 3)}}

    def function(s: Spelling, p: Inputs) -> Any:
        y = s.reshape(p["x"], (1, -1))
        for k in (1, 2, 3):
            y = s.tanh(s.matmul(y, p[f"W{k}"]))
        return s.reshape(y, (-1,))

    def reference(given: Inputs) -> Sequence[Array]:
        p = wide(given)
        h, found = p["x"], np.eye(len(p["x"]))
        for k in (1, 2, 3):
            h = np.tanh(h @ p[f"W{k}"])
            found = (found @ p[f"W{k}"]) * (1 - h * h)
        return [found.T]

    return Task(inputs, function, ("x",), reference)
