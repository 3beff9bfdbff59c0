"""Traced functions: what is traced, when again, and what a tape sees of them."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import numpy as np
import pytest

import gradtape as tf


def test_one_trace_for_each_signature() -> None:
    traces = []

    @tf.function
    def f(x: Any, power: int) -> Any:
        traces.append(x.shape)
        return x**power

    for value in (1.0, 2.0, 3.0):
        assert float(f(tf.constant(value), 2)) == value**2
    assert len(traces) == 1
    f(tf.constant(1.0), 3)  # another Python value
    f(tf.constant([1.0, 2.0]), 3)  # another shape
    f(tf.constant([1.0, 2.0], tf.float64), 3)  # another dtype
    assert len(traces) == f.experimental_get_tracing_count() == 4


def test_calls_with_tensors_alone_are_told_apart_from_others() -> None:
    """They find their trace without binding arguments."""
    scaled = tf.function(lambda x, by=2.0: x * by)
    x, y = tf.constant(3.0), tf.constant(5.0)
    for _ in range(2):
        assert [float(scaled(*given)) for given in ((x,), (x, 7.0), (x, y), (y,), (y, x))] == [6, 21, 15, 10, 15]
    assert float(scaled(x, by=y)) == 15 and scaled.experimental_get_tracing_count() == 3

    nothing = tf.function(lambda: tf.constant(4.0))
    product = tf.function(lambda *factors: tf.reduce_prod(tf.stack(factors)))
    difference = tf.function(lambda a, b: a - b)
    for _ in range(2):
        assert float(nothing()) == 4
        assert [float(product(*[x] * n)) for n in (1, 2, 3)] == [3, 9, 27]
        assert float(difference(x, y)) == -2 and float(difference(b=x, a=y)) == 2
        assert difference(tf.constant([1, 2]), tf.constant([[1], [2]])).shape == (2, 2)
        with pytest.raises(TypeError, match="missing"):
            difference(x)


def test_traces_that_are_dropped_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradtape.functions.MAX_TRACES", 2)
    f = tf.function(lambda x: x + 1)
    given = [tf.zeros(n) for n in range(1, 5)]
    for x in (*given, *given):
        assert f(x).shape == x.shape
    assert f.experimental_get_tracing_count() == 8
    f(given[-1])
    assert f.experimental_get_tracing_count() == 8


def test_gradients_to_second_order_are_those_of_the_function() -> None:
    @tf.function
    def f(x: Any) -> Any:
        return tf.reduce_sum(tf.sin(x) * x)

    x = tf.constant([0.5, -1.5, 2.0], tf.float64)
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
        g = tape.gradient(y, x)
    a = x.numpy()
    np.testing.assert_allclose(g.numpy(), np.cos(a) * a + np.sin(a), 1e-12)
    np.testing.assert_allclose(outer.jacobian(g, x).numpy(), np.diag(2 * np.cos(a) - a * np.sin(a)), 1e-12, 1e-15)


def test_a_training_step_inside_reads_and_assigns_variables() -> None:
    w, steps = tf.Variable([1.0, -2.0]), tf.Variable(0, dtype=tf.int64)

    @tf.function
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(w * x))
        w.assign_sub(0.1 * tape.gradient(loss, w))
        steps.assign_add(1)
        return loss

    x = np.array([1.0, 0.5])
    expected = np.array([1.0, -2.0])
    for _ in range(5):
        assert float(step(tf.constant(x, tf.float32))) == pytest.approx(float(((expected * x) ** 2).sum()), rel=1e-5)
        expected = expected - 0.2 * expected * x**2
    np.testing.assert_allclose(w.numpy(), expected, 1e-5)
    assert steps.numpy() == 5 and step.experimental_get_tracing_count() == 1


def test_a_variable_that_is_assigned_between_calls_is_read_anew() -> None:
    w = tf.Variable(2.0)

    @tf.function
    def f(x: Any) -> Any:
        return w * x

    x = tf.constant(3.0)
    assert float(f(x)) == 6
    w.assign(5.0)
    with tf.GradientTape() as tape:
        y = f(x)
    assert float(y) == 15 and float(tape.gradient(y, w)) == 3
    assert [v is w for v in tape.watched_variables()] == [True]


def test_a_function_of_values_runs_op_by_op_and_says_where() -> None:
    @tf.function
    def f(x: Any) -> Any:
        return tf.reduce_sum(tf.unique(x)[0] ** 2)

    x = tf.constant([3.0, 3.0, 2.0])
    with pytest.warns(UserWarning, match=r"in `unique` at .*test_function.py:\d+, so it runs as Python, op by op"):
        assert float(f(x)) == 13
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert float(f(tf.constant([1.0, 1.0, 1.0]))) == 1


@pytest.mark.filterwarnings("ignore:.*(op by op|for each shape):UserWarning")
def test_arguments_and_results_of_a_function_that_runs_op_by_op_are_tensors() -> None:
    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
    def f(x: Any) -> Any:
        return {"twice": x * 2, "distinct": tf.size(tf.unique(x)[0]), "number": 1.5, "none": None}

    for _ in range(2):
        found = f([3.0, 3.0])  # of a list, x * 2 would be another list
        assert found["twice"].numpy().tolist() == [6.0, 6.0]
        assert int(found["distinct"]) == 1
        assert found["number"].dtype is tf.float32
        assert found["none"] is None


def test_a_negative_zero_is_a_number_of_its_own() -> None:
    x = tf.constant([-1.0, 2.0])
    for zero in (0.0, -0.0, 0.0):
        made = tf.function(lambda x, zero=zero: x * zero)(x)
        np.testing.assert_array_equal(np.signbit(made.numpy()), np.signbit(x.numpy() * zero))


def test_an_input_signature_converts_and_checks() -> None:
    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32)])
    def f(x: Any) -> Any:
        return tf.reduce_sum(x, axis=1)

    assert f([[1.0, 2.0]]).numpy().tolist() == [3.0]
    assert f(tf.ones([3, 2])).numpy().tolist() == [2.0] * 3
    with pytest.raises((TypeError, ValueError), match="2"):
        f(tf.ones([3, 5]))


def test_structures_go_in_and_come_out() -> None:
    @tf.function
    def f(d: dict[str, Any], pair: tuple[Any, Any]) -> dict[str, Any]:
        return {"sum": d["a"] + pair[0], "both": [pair[1], d["a"]]}

    out = f({"a": tf.constant(1.0)}, (tf.constant(2.0), tf.constant(3.0)))
    assert float(out["sum"]) == 3 and [float(x) for x in out["both"]] == [3, 1]


def test_a_method_keeps_a_trace_for_each_object() -> None:
    class Scale(tf.Module):
        def __init__(self, by: float) -> None:
            super().__init__()
            self.by = tf.Variable(by)

        @tf.function
        def __call__(self, x: Any) -> Any:
            return self.by * x

    two, three = Scale(2.0), Scale(3.0)
    assert [float(m(tf.constant(1.0))) for m in (two, three, two)] == [2, 3, 2]


def test_a_method_is_made_a_function_again() -> None:
    class Scale:
        by = 3.0

        @tf.function
        def of(self, x: Any, more: float = 1.0) -> Any:
            return self.by * x + more

    scale = Scale()
    again = tf.function(scale.of)
    assert list(inspect.signature(scale.of).parameters) == ["x", "more"]
    assert [float(again(2.0)), float(again(2.0, more=0.0)), float(Scale.of(scale, 2.0))] == [7, 6, 7]


@pytest.mark.parametrize("unknown", [False, True])
@pytest.mark.parametrize(
    "wrong", [lambda x: x + tf.ones([3]), lambda x: x + tf.constant([1, 2]), lambda x: tf.matmul(x, x)]
)
def test_what_is_wrong_while_traced_is_a_value_error_too(wrong: Any, unknown: bool) -> None:
    x = tf.ones([2])
    with pytest.raises(tf.errors.InvalidArgumentError) as alone:
        wrong(x)
    assert not isinstance(alone.value, ValueError | TypeError)
    f = tf.function(wrong, input_signature=[tf.TensorSpec([None])] if unknown else None)
    for call in (f, tf.function(lambda v: f(v))):
        for kind in (ValueError, TypeError, tf.errors.InvalidArgumentError):
            with pytest.raises(kind) as traced:
                call(x)
            assert str(traced.value) == str(alone.value)


def test_functions_in_functions_in_jacobians() -> None:
    @tf.function
    def inner(x: Any) -> Any:
        return x * x

    @tf.function
    def outer(x: Any) -> Any:
        return inner(x) + tf.reverse(inner(x), [0])

    x = tf.constant([1.0, 2.0, 3.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = outer(x)
    expected = np.diag([2.0, 4.0, 6.0]) + np.diag([2.0, 4.0, 6.0])[::-1]
    np.testing.assert_allclose(tape.jacobian(y, x).numpy(), expected)


def test_arguments_without_a_hash_are_told_apart() -> None:
    class Unhashable:
        __hash__ = None  # type: ignore[assignment]

        def __init__(self, factor: float) -> None:
            self.factor = factor

    @tf.function
    def f(x: Any, how: Any) -> Any:
        return x * (len(how) if isinstance(how, set) else how.factor)

    x = tf.constant(1.0)
    for n in range(20):
        assert float(f(x, Unhashable(n))) == n  # each is gone before the next is made
    numbers = {1, 2}
    assert float(f(x, numbers)) == 2
    numbers.add(3)
    assert float(f(x, numbers)) == 3


def _on_kinks(x: Any) -> Any:
    return tf.reduce_sum(tf.nn.relu(x) ** 2) + tf.reduce_max(x) ** 2 + tf.norm(x) + tf.reduce_sum(tf.nn.softmax(x) ** 2)


INSIDE: dict[str, Any] = {
    "tape": lambda x: _slope(_on_kinks, x),
    "power": lambda x: _slope(lambda v: tf.reduce_sum(v**3), x),
    "hessian": lambda x: tf.hessian(_on_kinks, x),
    "jvp": lambda x: tf.jvp(_on_kinks, [x], [x])[1],
    "map": lambda x: tf.vectorized_map(lambda r: _on_kinks(x * r), tf.constant([1.0, 2.0], tf.float64)),
    "function": lambda x: tf.function(lambda q: tf.where(q > 0, q**3, q) * x)(x),
}


def _slope(f: Any, x: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    return tape.gradient(y, x)


@pytest.mark.parametrize("name", INSIDE)
def test_what_is_differentiated_inside_is_differentiated_again_outside(name: str) -> None:
    f = INSIDE[name]
    x = tf.constant([[0.5, -1.5], [2.0, 0.25]], tf.float64)
    np.testing.assert_allclose(_slope(tf.function(f), x).numpy(), _slope(f, x).numpy(), 1e-10, 1e-12)


def test_concrete_functions_say_what_they_give() -> None:
    w = tf.Variable([[1.0], [2.0]])

    @tf.function
    def f(x: Any, scale: Any = 2) -> Any:
        return {"a": x @ w * scale, "b": (None, tf.reduce_sum(x)), "n": tf.shape(x)}

    known, open_ = (f.get_concrete_function(tf.TensorSpec([n, 2])) for n in (3, None))
    for concrete, n in ((open_, None), (known, 3)):
        assert concrete.structured_outputs == {
            "a": tf.TensorSpec([n, 1]),
            "b": (None, tf.TensorSpec([])),
            "n": tf.TensorSpec([2], tf.int32),
        }
        assert concrete.outputs == [tf.TensorSpec([n, 1]), tf.TensorSpec([]), tf.TensorSpec([2], tf.int32)]
        assert concrete.output_shapes["a"].as_list() == [n, 1]
        assert concrete.output_dtypes == {"a": tf.float32, "b": (None, tf.float32), "n": tf.int32}
        assert concrete.inputs[:2] == [tf.TensorSpec([n, 2]), tf.TensorSpec([2, 1])]
