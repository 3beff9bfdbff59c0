"""How many launches there are; what they move is in `test_bytes`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from gradtape.ir.graph import Graph
from gradtape.kernels.cuda_render import render_cuda
from gradtape.kernels.cuda_spelling import spells_cuda
from gradtape.transforms.fuse import fuse
from gradtape.transforms.simplify import flattened, simplify
from tests.kernels.cuda.running import Emulated
from tests.kernels.cuda.table import kernels
from tests.kernels.cuda.test_run import assert_near
from tests.op_table.running import node_by_node

Shape = tuple[int, ...] | tf.TensorSpec


def on_device(graph: Graph) -> Graph:
    """The graph as a device with kernels for everything runs it."""
    return fuse(graph, spells_cuda, 1, siblings=True)


def spec(shape: Shape) -> tf.TensorSpec:
    return shape if isinstance(shape, tf.TensorSpec) else tf.TensorSpec(shape)


def plain(f: Callable[..., Any], *shapes: Shape) -> Graph:
    """The graph of a function of tensors, op by op."""
    return simplify(flattened(tf.function(f).get_concrete_function(*map(spec, shapes)).graph))


def slope_of_chain(x: Any, up: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.sin(tf.exp(tf.tanh(x)) * x) / (1 + tf.square(x))
    return tape.gradient(y, x, output_gradients=up)


def slope_of_chain_with_broadcast_operands(x: Any, bias: Any, scale: Any, up: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch([x, bias, scale])
        y = tf.sin(tf.exp(tf.tanh(x + bias)) * scale)
    return tape.gradient(y, [x, bias, scale], output_gradients=up)


def cross_entropy_and_its_slope(logits: Any, labels: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    return loss, tape.gradient(loss, logits)


def sparse_cross_entropy_and_its_slope(logits: Any, labels: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    return loss, tape.gradient(loss, logits)


def sparse_loss_and_its_slope(logits: Any, labels: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)(labels, logits)
    return loss, tape.gradient(loss, logits)


def reward_of_actions_and_its_slope(logits: Any, actions: Any, rewards: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(logits)
        chosen = tf.gather(tf.nn.log_softmax(logits), actions[:, tf.newaxis], batch_dims=1)
        gain = tf.reduce_sum(tf.squeeze(chosen, 1) * rewards)
    return gain, tape.gradient(gain, logits)


def layer_norm(x: Any, scale: Any, shift: Any) -> Any:
    mean, variance = tf.nn.moments(x, [1], keepdims=True)
    return (x - mean) * tf.math.rsqrt(variance + 1e-3) * scale + shift


def slope_of_layer_norm(x: Any, scale: Any, shift: Any, up: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch([x, scale, shift])
        y = layer_norm(x, scale, shift)
    return tape.gradient(y, [x, scale, shift], output_gradients=up)


def batch_norm(x: Any, scale: Any, shift: Any) -> Any:
    mean, variance = tf.nn.moments(x, [0])
    return (x - mean) * tf.math.rsqrt(variance + 1e-3) * scale + shift


def slope_of_batch_norm(x: Any, mean: Any, inverse: Any, scale: Any, up: Any) -> Any:
    """With mean and variance as the forward pass left them."""
    ready = (x - mean) * inverse
    shift_slope, scale_slope = tf.reduce_sum(up, 0), tf.reduce_sum(up * ready, 0)
    slope = scale * inverse * (up - (shift_slope + ready * scale_slope) / 4096.0)
    return slope, scale_slope, shift_slope


X, ROW = (4096, 768), (768,)
LABELS, WIDE_LABELS = tf.TensorSpec((4096,), tf.int32), tf.TensorSpec((4096,), tf.int64)
LAUNCHES: list[tuple[Callable[..., Any], Sequence[Shape], int]] = [
    (slope_of_chain, (X, X), 1),
    (slope_of_chain_with_broadcast_operands, (X, ROW, (), X), 2),
    (cross_entropy_and_its_slope, (X, X), 2),
    (sparse_cross_entropy_and_its_slope, (X, LABELS), 2),
    (sparse_cross_entropy_and_its_slope, (X, WIDE_LABELS), 2),
    (reward_of_actions_and_its_slope, (X, LABELS, (4096,)), 2),
    (layer_norm, (X, ROW, ROW), 1),
    (slope_of_layer_norm, (X, ROW, ROW, X), 2),
    (slope_of_batch_norm, (X, ROW, ROW, ROW, X), 2),
]


def drawn_for(f: Callable[..., Any], shapes: Sequence[Shape]) -> tuple[Graph, list[Any]]:
    """The graph of a function op by op, and operands: positive numbers, and labels that exist."""
    rng = np.random.default_rng(0)
    specs = list(map(spec, shapes))
    concrete = tf.function(f).get_concrete_function(*specs)
    classes = min(n for s in specs for n in s.shape)
    arrays = [
        rng.integers(0, classes, s.shape).astype(s.dtype.as_numpy_dtype)
        if s.dtype.is_integer
        else rng.uniform(0.1, 1, s.shape).astype(s.dtype.as_numpy_dtype)
        for s in specs
    ]
    return simplify(flattened(concrete.graph)), [*arrays, *(t.numpy() for t in concrete.captured_inputs)]


@pytest.mark.parametrize("f, shapes, most", LAUNCHES, ids=lambda x: getattr(x, "__name__", None))
def test_launches(f: Callable[..., Any], shapes: Sequence[Shape], most: int) -> None:
    graph = on_device(plain(f, *shapes))
    fused = kernels(graph)
    views = {"reshape", "transpose", "broadcast_to", "constant"}
    assert all(n.step.op.kind == "fused" or n.step.name in views for n in graph.nodes), graph
    launches = [launch for n in fused for launch in render_cuda(n.step.params["cluster"]).launches]
    assert 1 <= len(launches) <= most, [launch.kernel for launch in launches]


def test_what_traced_functions_give() -> None:
    """The same functions, smaller, give the numbers of the CPU."""
    emulated = Emulated()
    for f, shapes, _ in LAUNCHES:
        small = [tf.TensorSpec([n // 64 if n > 1000 else n for n in s.shape], s.dtype) for s in map(spec, shapes)]
        graph, arrays = drawn_for(f, small)
        found, wanted = emulated.graph(on_device(graph), arrays), node_by_node(graph, arrays)
        for a, b in zip(found, wanted, strict=True):
            assert_near(a, b, f.__name__, 500)
