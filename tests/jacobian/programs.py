"""Programs of which Jacobians are asked, and the ways to ask: what all tests of this folder share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import gradtape as tf

RNG = np.random.default_rng(20)


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape)


W35, W53, W33 = (tf.constant(normal(*s)) for s in ((3, 5), (5, 3), (3, 3)))
KERNEL = tf.constant(normal(2, 2, 2, 3))
SPD = normal(3, 3) @ np.eye(3) * 0.3 + 2 * np.eye(3)


def layer_norm(x: Any) -> Any:
    mean = tf.reduce_mean(x, axis=-1, keepdims=True)
    return (x - mean) * tf.math.rsqrt(tf.math.reduce_variance(x, axis=-1, keepdims=True) + 0.1)


def batch_norm(x: Any) -> Any:
    return (x - tf.reduce_mean(x, 0)) * tf.math.rsqrt(tf.math.reduce_variance(x, 0) + 0.1)


def attention(x: Any) -> Any:
    return tf.matmul(tf.nn.softmax(tf.matmul(x, x, transpose_b=True)), x)


def recurrent(x: Any) -> Any:
    """A recurrent net over the middle axis."""
    state = tf.zeros([x.shape[0], 3], tf.float64)
    for step in range(x.shape[1]):
        state = tf.tanh(tf.matmul(state, W33) + x[:, step])
    return state


class Program(NamedTuple):
    function: Callable[[Any], Any]
    at: np.ndarray


PROGRAMS: dict[str, Program] = {
    "square": Program(lambda x: x * x, normal(4)),
    "scalar to scalar": Program(lambda x: tf.sin(x) * x, np.array(0.7)),
    "scalar to many": Program(lambda x: tf.exp(x * W35[0]), np.array(0.3)),
    "many to scalar": Program(lambda x: tf.reduce_sum(tf.tanh(x) ** 2), normal(3, 2)),
    "one element": Program(lambda x: tf.exp(x), normal(1, 1)),
    "network": Program(lambda x: tf.matmul(tf.tanh(tf.matmul(x, W35)), W53), normal(4, 3)),
    "residual network": Program(lambda x: x + tf.matmul(tf.tanh(tf.matmul(layer_norm(x), W35)), W53), normal(4, 3)),
    "layer norm": Program(layer_norm, normal(3, 4)),
    "batch norm": Program(batch_norm, normal(5, 3)),
    "batch norm in a network": Program(lambda x: tf.nn.relu(batch_norm(tf.matmul(x, W35))), normal(5, 3)),
    "softmax": Program(tf.nn.softmax, normal(3, 4)),
    "softmax over the batch": Program(lambda x: tf.nn.softmax(x, axis=0), normal(3, 4)),
    "log softmax": Program(tf.nn.log_softmax, normal(3, 4)),
    "attention": Program(attention, normal(2, 4, 3)),
    "recurrent": Program(recurrent, normal(2, 4, 3)),
    "convolution": Program(lambda x: tf.nn.conv2d(x, KERNEL, 1, "SAME"), normal(2, 3, 3, 2)),
    "strided convolution": Program(lambda x: tf.nn.conv2d(x, KERNEL, 2, "VALID"), normal(2, 4, 4, 2)),
    "max pooling": Program(lambda x: tf.nn.max_pool2d(x, 2, 2, "VALID"), normal(2, 4, 4, 1)),
    "average pooling": Program(lambda x: tf.nn.avg_pool2d(x, 2, 1, "SAME"), normal(2, 3, 3, 2)),
    "matmul with itself": Program(lambda x: tf.matmul(x, x, transpose_b=True), normal(3, 4)),
    "outer product": Program(lambda x: x[:, None] * x[None, :], normal(4)),
    "gather": Program(lambda x: tf.gather(x, [2, 0, 2, 1], axis=1), normal(2, 3)),
    "gather per example": Program(lambda x: tf.gather(x, [[0, 0], [2, 1]], batch_dims=1), normal(2, 3)),
    "slices": Program(lambda x: x[1:, ::-1] * x[:-1, :], normal(3, 4)),
    "strides": Program(lambda x: x[::2] + x[1::2], normal(6)),
    "concat": Program(lambda x: tf.concat([x, x * x, tf.sin(x)], axis=1), normal(2, 3)),
    "stack and unstack": Program(lambda x: tf.stack(tf.unstack(x, axis=1)[::-1]), normal(2, 3)),
    "tile and repeat": Program(lambda x: tf.tile(x, [2, 1]) * tf.repeat(x, 2, axis=0), normal(2, 3)),
    "pad and roll": Program(lambda x: tf.roll(tf.pad(x, [[1, 0], [0, 2]]), 1, axis=1) ** 2, normal(2, 3)),
    "merge and split": Program(lambda x: tf.reshape(tf.sin(tf.reshape(x, [-1, 2])), [3, 4]), normal(2, 3, 2)),
    "transpose": Program(lambda x: tf.transpose(x, [2, 0, 1]) * tf.reduce_sum(x), normal(2, 3, 2)),
    "segments": Program(lambda x: tf.math.segment_sum(tf.matmul(x, W35), [0, 0, 1, 1, 1]), normal(5, 3)),
    "scatter": Program(lambda x: tf.scatter_nd([[1], [4], [1]], x, [5, 2]), normal(3, 2)),
    "cumsum": Program(lambda x: tf.cumsum(x, axis=1) * x, normal(2, 4)),
    "cumprod": Program(lambda x: tf.math.cumprod(x, axis=1), normal(2, 4)),
    "sort": Program(lambda x: tf.sort(x, axis=1), normal(2, 4)),
    "top k": Program(lambda x: tf.math.top_k(x, 2)[0], normal(2, 4)),
    "where": Program(lambda x: tf.where(x > 0, tf.exp(x), x * x), normal(2, 4)),
    "norm": Program(lambda x: tf.norm(x, axis=1), normal(3, 4)),
    "normalize": Program(lambda x: x / tf.norm(x, axis=1, keepdims=True), normal(3, 4)),
    "inverse": Program(tf.linalg.inv, SPD),
    "inverses": Program(tf.linalg.inv, np.stack([SPD, SPD.T + np.eye(3)])),
    "solve": Program(lambda x: tf.linalg.solve(tf.constant(SPD), x), normal(3, 2)),
    "determinant": Program(tf.linalg.det, SPD),
    "cholesky": Program(lambda x: tf.linalg.cholesky(x @ tf.transpose(x) + tf.eye(3, dtype=tf.float64)), normal(3, 3)),
    "trace and diagonal": Program(lambda x: tf.linalg.diag_part(x) * tf.linalg.trace(x), normal(3, 3)),
    "einsum": Program(lambda x: tf.einsum("bik,bjk->bij", x, tf.sin(x)), normal(2, 3, 2)),
    "cross entropy": Program(
        lambda x: tf.nn.sparse_softmax_cross_entropy_with_logits(labels=[1, 0, 2], logits=x), normal(3, 4)
    ),
    "reduce prod": Program(lambda x: tf.reduce_prod(x, axis=0), normal(3, 2)),
    "reduce max": Program(lambda x: tf.reduce_max(x, axis=1), normal(3, 4)),
    "logsumexp": Program(lambda x: tf.reduce_logsumexp(x, axis=0), normal(3, 4)),
    "polynomial of many terms": Program(lambda x: x**3 - 2.0 * x**2 + x[::-1] * x + tf.reduce_sum(x) * x, normal(5)),
}


def tape_of(program: Program) -> tuple[Any, Any, Any]:
    """A persistent tape with the program recorded; its result and its source."""
    x = tf.constant(program.at)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = program.function(x)
    return tape, y, x


def by_rows(tape: Any, y: Any, x: Any) -> Any:
    """The Jacobian from one gradient per element of the target: what all others are compared with."""
    ones = np.eye(int(np.prod(y.shape, dtype=int)), dtype=y.dtype.as_numpy_dtype)
    seeds = [tf.constant(one.reshape(tuple(y.shape))) for one in ones]
    rows = [tape.gradient(y, x, output_gradients=seed, unconnected_gradients="zero") for seed in seeds]
    return tf.reshape(tf.stack([tf.convert_to_tensor(r) for r in rows]), [*y.shape, *x.shape])


def jacobian_by_rows(function: Callable[[Any], Any], at: Any) -> Any:
    tape, y, x = tape_of(Program(function, at))
    return by_rows(tape, y, x)


def jacobian(function: Callable[[Any], Any], at: Any, **how: Any) -> Any:
    tape, y, x = tape_of(Program(function, at))
    return tape.jacobian(y, x, **how)


def by_differences(program: Program) -> np.ndarray:
    """The Jacobian by central differences of fourth order."""
    h = 1e-4

    def run(at: np.ndarray) -> np.ndarray:
        with tf.device("/CPU:0"):  # wherever Jacobians are computed
            return np.asarray(program.function(tf.constant(at)).numpy())

    columns = []
    for k in range(program.at.size):
        e = np.zeros(program.at.size)
        e[k] = h
        step = e.reshape(program.at.shape)
        near = run(program.at + step) - run(program.at - step)
        far = run(program.at + 2 * step) - run(program.at - 2 * step)
        columns.append((8 * near - far) / (12 * h))
    return np.stack(columns, axis=-1).reshape((*columns[0].shape, *program.at.shape))
