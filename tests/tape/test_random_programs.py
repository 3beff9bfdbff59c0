"""Random programs over shared intermediates: first and second order against differences, twice with equal bits."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import gradtape as tf
from tests.devices import examples

SHAPES: tuple[tuple[int, ...], ...] = ((), (3,), (2, 1), (2, 3))

STEPS: dict[str, Callable[[Any, Any, float], Any]] = {
    "add": lambda a, b, c: a + b,
    "subtract": lambda a, b, c: a - b * c,
    "multiply": lambda a, b, c: a * b,
    "divide": lambda a, b, c: a / (b * b + 1.5),
    "tanh": lambda a, b, c: tf.tanh(a),
    "sin": lambda a, b, c: tf.sin(a + c),
    "exp": lambda a, b, c: tf.exp(a * 0.3),
    "square": lambda a, b, c: tf.square(a) * 0.3,
    "softmax": lambda a, b, c: tf.nn.softmax(a) if a.ndim else a * c,
    "sum": lambda a, b, c: tf.reduce_sum(a),
    "mean of rows": lambda a, b, c: tf.reduce_mean(a, axis=-1, keepdims=True) if a.ndim else a * 2.0,
    "transpose": lambda a, b, c: tf.transpose(a),
    "slice": lambda a, b, c: a[..., :1] if a.ndim else a + c,
    "reverse": lambda a, b, c: a[::-1] if a.ndim else -a,
    "select": lambda a, b, c: tf.where(tf.constant(c > 0.5), a, b),
    "concat": lambda a, b, c: tf.concat([a, a * c], 0) if a.ndim else a - c,
    "flatten": lambda a, b, c: tf.reshape(a, [-1]),
    "gather": lambda a, b, c: tf.gather(a, [0, a.shape[0] - 1, 0]) if a.ndim else a,
    "products of rows": lambda a, b, c: tf.matmul(a, a, transpose_b=True) if a.ndim == 2 else a * c,
}
Program = list[tuple[str, int, int, float]]
PROGRAMS = st.lists(
    st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 15), st.integers(0, 15), st.sampled_from([0.3, 0.7])),
    min_size=1,
    max_size=10,
)


def run(program: Program, inputs: Sequence[Any]) -> Any:
    """A scalar of the last values; steps whose shapes do not fit, or that grow too large, are left out."""
    values = list(inputs)
    for name, i, j, c in program:
        a, b = values[i % len(values)], values[j % len(values)]
        try:
            v = STEPS[name](a, b, c)
        except tf.errors.InvalidArgumentError:
            continue
        if v.shape.num_elements() <= 64:
            values.append(v)
    return tf.add_n([tf.reduce_sum(tf.tanh(v)) for v in values[-4:]])


def dense(gradients: list[Any]) -> list[Any]:
    """Those of what was only looked up are rows and positions."""
    return [tf.convert_to_tensor(g) for g in gradients]


def first(program: Program, arrays: Sequence[Any]) -> tuple[Any, list[Any]]:
    xs = [tf.constant(a) for a in arrays]
    with tf.GradientTape() as tape:
        tape.watch(xs)
        y = run(program, xs)
    return y, dense(tape.gradient(y, xs, unconnected_gradients="zero"))


def second(program: Program, arrays: Sequence[Any]) -> tuple[Any, list[Any]]:
    xs = [tf.Variable(a) for a in arrays]
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            y = run(program, [tf.identity(x) for x in xs])
        gs = dense(inner.gradient(y, xs, unconnected_gradients="zero"))
        s = tf.add_n([tf.reduce_sum(tf.sin(g)) for g in gs])
    return s, dense(outer.gradient(s, xs, unconnected_gradients="zero"))


@settings(max_examples=examples(60))
@given(PROGRAMS, st.integers(0, 2**32 - 1))
def test_gradients_of_random_programs(program: Program, seed: int) -> None:
    rng = np.random.default_rng(seed)
    arrays = [rng.normal(size=s) for s in SHAPES]
    direction = [rng.normal(size=s) for s in SHAPES]
    h = 1e-5
    ahead = [a + h * d for a, d in zip(arrays, direction, strict=True)]
    behind = [a - h * d for a, d in zip(arrays, direction, strict=True)]
    for order in (first, second):
        _, gradients = order(program, arrays)
        again = order(program, arrays)[1]
        for g, k in zip(gradients, again, strict=True):
            assert np.array_equal(g, k), "the same program gave other numbers the second time"
        slope = sum(float((g.numpy() * d).sum()) for g, d in zip(gradients, direction, strict=True))
        with tf.device("/CPU:0"):  # wherever gradients are computed
            differences = (float(order(program, ahead)[0]) - float(order(program, behind)[0])) / (2 * h)
        assert abs(slope - differences) <= 1e-5 * (1 + abs(slope)), (order.__name__, slope, differences)
