"""What launches move, and how many there are: counted by the emulated device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from gradtape.ir.dtypes import float32
from gradtape.ir.graph import Graph
from gradtape.kernels.cuda_render import render_cuda
from gradtape.kernels.cuda_spelling import spells_cuda
from gradtape.ops.op import emit
from gradtape.transforms.fuse import fuse
from gradtape.transforms.simplify import flattened, simplify
from tests.kernels.cuda.running import Emulated
from tests.kernels.cuda.table import kernels
from tests.kernels.cuda.test_run import assert_near
from tests.kernels.steps import drawn, given_of, wide
from tests.op_table.running import node_by_node

ROOM = 1.1  # of what has to be read and written at least
SECTOR = 32  # bytes that move together
WHOLE_SECTORS = 1.15  # of the bytes moved: a few rows do not begin where a sector does


def on_device(graph: Graph) -> Graph:
    """The graph as a device with kernels for everything runs it."""
    return fuse(graph, spells_cuda, 1, siblings=True)


def traced(f: Callable[..., Any], *shapes: tuple[int, ...]) -> Graph:
    """The graph of a function of tensors."""
    concrete = tf.function(f).get_concrete_function(*(tf.TensorSpec(s) for s in shapes))
    return on_device(simplify(flattened(concrete.graph)))


def moved(graph: Graph) -> tuple[float, float]:
    """Bytes that the launches of a graph of one kernel read and wrote, each time counted; and each byte once. Both as
    multiples of its operands and results. Warps touch whole sectors, and each bank of shared memory once for each word
    of a pack."""
    emulated = Emulated(watch_warps=True)
    arrays = drawn(graph)
    (node,) = kernels(on_device(graph))
    outputs = [(v.aval.dims, v.aval.dtype.numpy_dtype) for v in node.outputs]
    program = render_cuda(node.step.params["cluster"])
    found = emulated.run(program, arrays, outputs)
    for a, b in zip(found, node_by_node(graph, arrays), strict=True):
        assert_near(a, b, "counted")
    least = sum(a.nbytes for a in (*arrays, *found))
    traffic = [t for launch in emulated.device.counts.launches for t in launch.traffic.values()]
    total = sum(t.bytes_read + t.bytes_written for t in traffic)
    once = sum(t.unique_bytes_read + t.unique_bytes_written for t in traffic)
    assert once == sum(launch.bytes for launch in program.launches), "a plan's own figures are not what was counted"
    for launch, plan in zip(emulated.device.counts.launches, program.launches, strict=True):
        sectors = sum(sum(launch.sectors(name)) for name in launch.traffic)
        passes, instructions = launch.bank_passes
        assert sectors * SECTOR <= WHOLE_SECTORS * plan.bytes and passes <= 4 * instructions, launch
    return total / least, once / least


# ------------------------------------------------------------------ bytes


def normalised(shape: tuple[int, int]) -> Graph:
    """Rows of mean 0 and variance 1, scaled and shifted."""
    x, scale, shift = given_of(shape, shape[1:], shape[1:], dtype=float32)
    centred = emit("subtract", x, emit("reduce_mean", x, axes=(1,), keepdims=True))
    variance = emit("reduce_mean", emit("square", centred), axes=(1,), keepdims=True)
    y = emit("multiply", emit("multiply", centred, emit("rsqrt", variance)), scale)
    return Graph([x, scale, shift], [emit("add", y, shift)])


def sums(shape: tuple[int, ...], axes: tuple[int, ...]) -> Graph:
    (x,) = given_of(shape, dtype=float32)
    return Graph([x], [emit("reduce_sum", emit("square", x), axes=axes, keepdims=False)])


MOVED: dict[str, Graph] = {
    "a chain": Graph([v := given_of((250_000,), dtype=float32)[0]], [emit("tanh", emit("exp", v))]),
    "a chain with a bias": wide((4096, 512))["pointwise"],
    "softmax of rows": wide((17_000, 100))["rows"],
    "layer norm": normalised((17_000, 100)),
    "rows and a sum": wide((5000, 256))["sinks"],
    "columns on the chip": wide((128, 1024))["columns"],
    "a sum of all": sums((400_000,), (0,)),
    "sums of inner axes": sums((300, 1000), (1,)),
    "sums of outer axes": sums((1000, 300), (0,)),
    "sums of middle axes": sums((20, 500, 40), (1,)),
}


@pytest.mark.parametrize("name", MOVED)
def test_bytes_moved(name: str) -> None:
    total, once = moved(MOVED[name])
    assert 0.99 <= once <= ROOM and total <= ROOM, (total, once)


# ------------------------------------------------------------------ launches


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


def layer_norm(x: Any, scale: Any, shift: Any) -> Any:
    mean, variance = tf.nn.moments(x, [1], keepdims=True)
    return (x - mean) * tf.math.rsqrt(variance + 1e-3) * scale + shift


def slope_of_layer_norm(x: Any, scale: Any, shift: Any, up: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch([x, scale, shift])
        y = layer_norm(x, scale, shift)
    return tape.gradient(y, [x, scale, shift], output_gradients=up)


def slope_of_batch_norm(x: Any, mean: Any, inverse: Any, scale: Any, up: Any) -> Any:
    """With mean and variance as the forward pass left them."""
    ready = (x - mean) * inverse
    shift_slope, scale_slope = tf.reduce_sum(up, 0), tf.reduce_sum(up * ready, 0)
    slope = scale * inverse * (up - (shift_slope + ready * scale_slope) / 4096.0)
    return slope, scale_slope, shift_slope


X, ROW = (4096, 768), (768,)
LAUNCHES: list[tuple[Callable[..., Any], Sequence[tuple[int, ...]], int]] = [
    (slope_of_chain, (X, X), 1),
    (slope_of_chain_with_broadcast_operands, (X, ROW, (), X), 2),
    (cross_entropy_and_its_slope, (X, X), 2),
    (layer_norm, (X, ROW, ROW), 1),
    (slope_of_layer_norm, (X, ROW, ROW, X), 2),
    (slope_of_batch_norm, (X, ROW, ROW, ROW, X), 2),
]


@pytest.mark.parametrize("f, shapes, most", LAUNCHES, ids=lambda x: getattr(x, "__name__", None))
def test_launches(f: Callable[..., Any], shapes: Sequence[tuple[int, ...]], most: int) -> None:
    graph = traced(f, *shapes)
    fused = kernels(graph)
    views = {"reshape", "transpose", "broadcast_to", "constant"}
    assert all(n.step.op.kind == "fused" or n.step.name in views for n in graph.nodes), graph
    launches = [launch for n in fused for launch in render_cuda(n.step.params["cluster"]).launches]
    assert 1 <= len(launches) <= most, [launch.kernel for launch in launches]


def test_what_traced_functions_give() -> None:
    """The same functions, smaller, give the numbers of the CPU."""
    rng = np.random.default_rng(0)
    emulated = Emulated()
    for f, shapes, _ in LAUNCHES:
        small = [tuple(n // 64 if n > 1000 else n for n in s) for s in shapes]
        concrete = tf.function(f).get_concrete_function(*(tf.TensorSpec(s) for s in small))
        plain = simplify(flattened(concrete.graph))
        arrays = [rng.uniform(0.1, 1, s).astype(np.float32) for s in small]
        arrays += [t.numpy() for t in concrete.captured_inputs]  # numbers
        found, wanted = emulated.graph(on_device(plain), arrays), node_by_node(plain, arrays)
        for a, b in zip(found, wanted, strict=True):
            assert_near(a, b, f.__name__, 500)
