"""Functions traced once for all shapes: each program against itself run with values, for several shapes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import optree
import pytest

import gradtape as tf

W = tf.Variable([[1.0, -1.0], [0.5, 2.0]])
B = tf.Variable(0.5)
SPEC = [tf.TensorSpec([None, 2], tf.float32)]
SHAPES = [[[1.0, 2.0], [0.5, -1.0], [3.0, 1.0]], [[1.0, -2.5]], [[0.1, 0.2], [0.3, 0.4], [0.5, 0.6], [0.7, 1.8]]]


def gradients(x: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(tf.tanh(x @ W) ** 2)
    return tape.gradient(y, [x, W])


def second_order(x: Any) -> Any:
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(tf.tanh(x @ W) ** 2)
        g = tape.gradient(y, x)
    return outer.jacobian(g, x)


def per_example(x: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.sin(x @ W)
    return tape.batch_jacobian(y, x)


def branch(x: Any) -> Any:
    s = tf.reduce_sum(x)
    if s > 0 and not tf.reduce_max(x) > 2.5:
        y = x * 2.0
    else:
        y = -x
    return y + B


def loop(x: Any) -> Any:
    y = tf.zeros_like(x)
    for i in tf.range(tf.shape(x)[0]):
        y += x * tf.cast(i, x.dtype)
        if i > 1:
            break
    return y


def rows(x: Any) -> Any:
    s = tf.zeros([2])
    for r in x:
        s = tf.sin(s) + r
    return s


def repeated(x: Any) -> Any:
    n = 0
    while tf.reduce_max(x) < 100.0 and n < 20:
        x = x * x + 1.0
        n += 1
    return x, n


def variables(x: Any) -> Any:
    B.assign_add(tf.reduce_sum(x) * 0.1)
    c = B * 2.0
    B.assign(1.0)
    return c, B.read_value()


def maps(x: Any) -> Any:
    squares = tf.map_fn(lambda r: r * r if tf.reduce_sum(r) > 0 else -r, x)
    return squares, tf.vectorized_map(lambda r: tf.reduce_sum(r * W[0]), x)


@tf.custom_gradient
def doubled_slope(x: Any) -> Any:
    y = tf.exp(x)
    return y, lambda up: up * y * 2.0


def custom(x: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(doubled_slope(x) * x)
    return tape.gradient(y, x)


@tf.function
def inner(x: Any) -> Any:
    return tf.reduce_sum(x, 0) * x


def nested(x: Any) -> Any:
    return inner(x) + inner(x * 2)


def choices(x: Any) -> Any:
    positive = tf.reduce_sum(x) > 0
    by_api = tf.cond(positive, lambda: x * B, lambda: x)
    powers = tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * x), (0, x))
    return (x if positive or tf.reduce_max(x) > 1 else -x), not positive, by_api, powers


def early(x: Any) -> Any:
    if tf.reduce_sum(x) > 5:
        return x * 2.0
    return x[:, ::-1]


def statistics(x: Any) -> Any:
    centred = (x - tf.reduce_mean(x, 0)) / (tf.math.reduce_std(x, 0) + 1.0)
    share = x / tf.cast(tf.shape(x)[0], tf.float32)
    return centred, tf.einsum("bi,ij->bj", x, W), tf.matmul(x, x, transpose_b=True), share, tf.nn.softmax(x)


def structures(x: Any) -> Any:
    return {"a": [x, (x * 2,)], "none": None, "number": 3}


def python_function(x: Any) -> Any:
    return tf.py_function(lambda a: a * 2.0, [x], tf.float32)


PROGRAMS = [
    gradients,
    second_order,
    per_example,
    branch,
    loop,
    rows,
    repeated,
    variables,
    maps,
    custom,
    nested,
    choices,
    early,
    statistics,
    structures,
    python_function,
]


def arrays(result: Any) -> list[Any]:
    return [np.asarray(x) for x in optree.tree_leaves(result)]


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_one_trace_serves_all_shapes(f: Callable[[Any], Any]) -> None:
    traced = tf.function(f, input_signature=SPEC)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for values in SHAPES:
            x = tf.constant(values)
            found, after = [], []
            for g in (traced, f):
                B.assign(0.5)
                found.append(arrays(g(x)))
                after.append(float(B))
            assert after[0] == pytest.approx(after[1])
            for a, b in zip(*found, strict=True):
                np.testing.assert_allclose(a, b, 1e-5, 1e-6)
    assert traced.experimental_get_tracing_count() == 1


def test_python_sees_what_is_known_of_shapes() -> None:
    seen: dict[str, Any] = {}

    @tf.function(input_signature=[tf.TensorSpec([None, 2]), tf.TensorSpec(None)])
    def f(x: Any, y: Any) -> Any:
        flat = tf.reshape(x, [-1])
        seen.update(
            x=x.shape,
            flat=flat.shape,
            cut=tf.reshape(x, [tf.shape(x)[0], 1, 2]).shape,
            pairs=tf.matmul(x, x, transpose_b=True).shape,
            weights=(x @ W).shape,
            size=tf.shape(x).shape,
            constant=(W * 2.0).shape,
            y=y.shape,
        )
        return flat

    f(tf.ones([3, 2]), tf.ones([2, 2]))
    shapes = {k: None if s.rank is None else s.as_list() for k, s in seen.items() if k != "pairs"}
    assert shapes["x"] == [None, 2] and shapes["constant"] == [2, 2] and shapes["y"] is None

    @tf.function(input_signature=SPEC)
    def g(x: Any) -> Any:
        flat = tf.reshape(x, [-1])
        seen.update(
            flat=flat.shape,
            cut=tf.reshape(x, [tf.shape(x)[0], 1, 2]).shape,
            pairs=tf.matmul(x, x, transpose_b=True).shape,
            weights=(x @ W).shape,
            size=tf.shape(x).shape,
        )
        assert len(x.shape) == 2 and x.ndim == 2
        return flat

    g(tf.ones([3, 2]))
    found = {k: seen[k].as_list() for k in ("flat", "cut", "pairs", "weights", "size")}
    expected = {"flat": [None], "cut": [None, 1, 2], "pairs": [None, None], "weights": [None, 2], "size": [2]}
    assert found == expected


def test_a_tape_outside_and_third_order() -> None:
    traced = tf.function(lambda x: tf.reduce_sum(rows(x) * tf.reduce_sum(x)), input_signature=SPEC)

    def derivatives(f: Any, x: Any) -> list[Any]:
        with tf.GradientTape() as third:
            third.watch(x)
            with tf.GradientTape() as second:
                second.watch(x)
                with tf.GradientTape() as first:
                    first.watch(x)
                    y = f(x)
                g = tf.reduce_sum(tf.sin(first.gradient(y, x)))
            h = tf.reduce_sum(tf.sin(second.gradient(g, x)))
        return [y.numpy(), g.numpy(), h.numpy(), third.gradient(h, x).numpy()]

    for values in SHAPES:
        x = tf.constant(values)
        plain = derivatives(lambda x: tf.reduce_sum(rows(x) * tf.reduce_sum(x)), x)
        for a, b in zip(derivatives(traced, x), plain):
            np.testing.assert_allclose(a, b, 1e-4, 1e-5)


class Net(tf.keras.Model):
    def __init__(self) -> None:
        super().__init__()
        seeded = tf.keras.initializers.GlorotUniform
        self.hidden = tf.keras.layers.Dense(4, activation="tanh", kernel_initializer=seeded(seed=1))
        self.out = tf.keras.layers.Dense(1, kernel_initializer=seeded(seed=2))
        self.runs = 0

    def call(self, x: Any) -> Any:
        self.runs += 1
        h = self.hidden(x)
        if tf.reduce_mean(h) > 0:
            h = h * 1.5
        return self.out(h)


def trainer() -> tuple[Net, Any, Callable[[Any, Any], Any]]:
    net, optimizer = Net(), tf.keras.optimizers.Adam(0.05)

    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((net(x) - y) ** 2)
        optimizer.apply_gradients(zip(tape.gradient(loss, net.trainable_variables), net.trainable_variables))
        return loss

    return net, optimizer, step


def test_a_training_step_for_any_batch() -> None:
    net, optimizer, step = trainer()
    _, _, plain = trainer()
    traced = tf.function(step, input_signature=[*SPEC, tf.TensorSpec([None, 1])])
    losses = []
    for k in range(30):
        x = tf.random.normal([8 + k % 5, 2], seed=k)
        y = tf.reduce_sum(x, 1, keepdims=True)
        losses.append([float(f(x, y)) for f in (traced, plain)])
    np.testing.assert_allclose(*zip(*losses), 2e-4)
    assert losses[-1][0] < losses[0][0]
    assert int(optimizer.iterations) == 30 and net.runs == traced.experimental_get_tracing_count() == 2


def test_what_cannot_be_traced_for_all_shapes_says_so_and_runs() -> None:
    runs = []

    @tf.function(input_signature=SPEC, autograph=False)
    def f(x: Any) -> Any:
        runs.append(x.shape.as_list())
        return tf.reduce_sum(tf.reshape(x, [-1]) ** 2)

    with pytest.warns(UserWarning, match=r"cannot be traced for unknown dimensions in `reshape` at .*test_unknown"):
        assert float(f(tf.ones([3, 2]))) == 6
    assert float(f(tf.ones([4, 2]))) == 8
    assert runs == [[None, 2], [3, 2], [4, 2]]
    assert f(tf.zeros([0, 2])).numpy() == 0


def test_elementwise_functions_need_no_conversion() -> None:
    f = tf.function(lambda x: tf.sin(x) * 2.0 + W[0], input_signature=SPEC, autograph=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for values in SHAPES:
            np.testing.assert_allclose(f(tf.constant(values)).numpy(), np.sin(values) * 2 + [1, -1], 1e-6)
    assert f.experimental_get_tracing_count() == 1


def test_pythons_functions_of_tensors_without_values() -> None:
    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32), tf.TensorSpec([], tf.float32)])
    def f(x: Any, y: Any) -> Any:
        total = 0.0
        for i in range(len(x)):
            total += x[i] * float(i)
        return total, len(x), int(y), sorted(x, reverse=True)

    for values in ([1.0, 3.0, 2.0], [5.0, 7.0]):
        total, size, whole, ordered = f(values, -2.75)
        assert float(total) == np.dot(values, np.arange(len(values)))
        assert (int(size), int(whole), whole.dtype) == (len(values), -2, tf.int32)
        assert ordered.numpy().tolist() == sorted(values, reverse=True)
    assert f.experimental_get_tracing_count() == 1


def test_a_scalar_without_a_value_has_no_length() -> None:
    with pytest.raises(ValueError, match="`len` wants a tensor with dimensions"):
        tf.function(lambda x: len(x))(tf.constant(1.0))
