"""Other gradients for built-in ops: registered, in scopes, in traced functions, and in programs of TensorFlow 1."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as tf

X = [-1.0, 2.0, 3.0]


def five(op: Any, grad: Any) -> Any:
    """A rule with a slope of its own."""
    return grad * 5.0


def registered(rule: Callable[..., Any]) -> str:
    name = f"Rule{uuid.uuid4().hex}"
    assert tf.RegisterGradient(name)(rule) is rule
    return name


def slope(f: Callable[[Any], Any], x: Any = X) -> Any:
    x = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    return tape.gradient(y, x).numpy()


def scoped(f: Callable[[Any], Any], **rules: Any) -> Callable[[Any], Any]:
    def inside(x: Any) -> Any:
        with tf.override_gradient(rules or {"square": five}):
            return f(x)

    return inside


def test_only_what_is_recorded_in_the_scope_has_the_rule() -> None:
    def f(x: Any) -> Any:
        y = tf.square(x)
        with tf.override_gradient({"square": five}):
            y += tf.square(x) + tf.sin(x)
        return y + tf.square(x)

    np.testing.assert_allclose(slope(f), 4 * np.array(X) + 5 + np.cos(X), rtol=1e-6)
    np.testing.assert_allclose(slope(tf.square), 2 * np.array(X))


def test_values_and_operators_are_what_they_were() -> None:
    x = tf.constant(X)
    with tf.override_gradient({"multiply": five, "add": five}):
        np.testing.assert_array_equal((x * 2.0 + 1.0).numpy(), np.array(X) * 2 + 1)
        assert tf.square(tf.constant([[2]])).dtype == tf.int32


@pytest.mark.parametrize("name", ["Square", "square"])
def test_registered_rules_by_both_names_of_an_op(name: str) -> None:
    rule = registered(five)

    def f(x: Any) -> Any:
        with tf.gradient_override_map({name: rule}):
            return tf.square(x)

    np.testing.assert_array_equal(slope(f), [5.0, 5.0, 5.0])


@pytest.mark.parametrize(
    ("name", "f"),
    [
        ("Neg", lambda x: -x),
        ("Mul", lambda x: x * 2.0),
        ("AddV2", lambda x: x + 2.0),
        ("RealDiv", lambda x: x / 2.0),
        ("Sub", lambda x: x - 2.0),
        ("Sigmoid", tf.sigmoid),
        ("Log1p", lambda x: tf.math.log1p(tf.stop_gradient(tf.abs(x)) + x * 0.0)),
        ("Round", tf.round),
        ("Sum", tf.reduce_sum),
        ("Softmax", tf.nn.softmax),
        ("Reshape", lambda x: tf.reshape(x, [3, 1])),
        ("convolve", lambda x: tf.nn.conv2d(tf.reshape(x, [1, 3, 1, 1]), tf.ones([1, 1, 1, 1]), 1, "SAME")),
    ],
)
def test_ops_of_every_kind_by_tensorflows_types(name: str, f: Callable[[Any], Any]) -> None:
    def seven(op: Any, *grads: Any) -> Any:
        return [tf.ones_like(x) * 7.0 for x in op.inputs]

    found = slope(scoped(f, **{name: seven}))
    if name == "Log1p":
        np.testing.assert_array_equal(found, 0.0 * np.array(X))
    else:
        assert found.shape == (3,) and set(found.reshape(-1)) == {7.0}


def test_a_rule_sees_the_operation() -> None:
    seen = []

    def rule(op: Any, grad: Any) -> Any:
        seen.append(op)
        return grad * op.inputs[0] + op.outputs[0]

    found = slope(scoped(lambda x: tf.reduce_sum(x, axis=0, keepdims=True), Sum=rule), [[1.0], [2.0]])
    np.testing.assert_array_equal(found, [[1.0 + 3.0], [2.0 + 3.0]])
    (op,) = seen
    assert (op.type, op.get_attr("axes"), op.get_attr("keepdims")) == ("Sum", (0,), True)
    with pytest.raises(ValueError, match=r"no attr named 'T'.*'axes'"):
        op.get_attr("T")


def test_gradients_are_cast_and_broadcast_and_those_of_tensorflows_further_operands_are_none() -> None:
    np.testing.assert_array_equal(slope(scoped(tf.square, square=lambda op, g: tf.constant(0))), [0.0, 0.0, 0.0])
    np.testing.assert_array_equal(slope(scoped(tf.reduce_sum, Sum=lambda op, g: [g * 2.0, None])), [2.0, 2.0, 2.0])
    assert slope_or_none(scoped(tf.square, square=lambda op, g: None)) is None


def slope_or_none(f: Callable[[Any], Any]) -> Any:
    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    return tape.gradient(y, x)


@pytest.mark.parametrize("answer", [lambda op, g: [g, g], lambda op, g: []])
def test_a_wrong_number_of_gradients(answer: Any) -> None:
    with pytest.raises(ValueError, match="gradients for 1 operands"):
        slope(scoped(tf.square, square=answer))


def test_a_gradient_of_a_wrong_shape() -> None:
    with pytest.raises(ValueError, match=r"shape \(2,\) for operand 0"):
        slope(scoped(tf.square, square=lambda op, g: tf.ones([2])))


def test_scopes_within_scopes() -> None:
    def f(x: Any) -> Any:
        with tf.override_gradient({"square": five, "sin": five}):
            with tf.override_gradient({"square": lambda op, g: g * 3.0}):
                y = tf.square(x) + tf.sin(x)
            return y + tf.square(x)

    np.testing.assert_array_equal(slope(f), [13.0, 13.0, 13.0])


def test_a_scope_ends_with_an_error_and_belongs_to_one_thread() -> None:
    with pytest.raises(KeyError), tf.override_gradient({"square": five}):
        raise KeyError("x")
    found: list[Any] = []
    with tf.override_gradient({"square": five}):
        thread = threading.Thread(target=lambda: found.append(slope(tf.square)))
        thread.start()
        thread.join()
    np.testing.assert_allclose(found[0], 2 * np.array(X))
    np.testing.assert_allclose(slope(tf.square), 2 * np.array(X))


def test_higher_orders_go_through_the_rule() -> None:
    cubes = scoped(tf.square, square=lambda op, g: g * op.inputs[0] ** 3)
    x = tf.constant(2.0)
    with tf.GradientTape() as third:
        third.watch(x)
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = cubes(x)
            first = inner.gradient(y, x)
        second = outer.gradient(first, x)
    assert (float(first), float(second), float(third.gradient(second, x))) == (8.0, 12.0, 12.0)


def test_jacobians_batches_and_maps() -> None:
    f = scoped(lambda x: tf.square(x) * [1.0, 2.0, 3.0])
    x = tf.constant([X, X])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = f(x)
    rows = np.diag([5.0, 10.0, 15.0])
    np.testing.assert_array_equal(tape.batch_jacobian(y, x, on_dependence="ignore").numpy(), [rows, rows])
    np.testing.assert_array_equal(tape.jacobian(y, x).numpy()[0, :, 0], rows)
    np.testing.assert_array_equal(slope(lambda x: tf.vectorized_map(f, tf.stack([x, x]))), 2 * rows.diagonal())


def test_forward_mode_takes_a_linear_rule_and_refuses_another() -> None:
    x = tf.constant(X)
    with tf.autodiff.ForwardAccumulator(x, tf.ones([3])) as forward:
        y = scoped(tf.square)(x)
    np.testing.assert_array_equal(forward.jvp(y).numpy(), [5.0, 5.0, 5.0])
    with pytest.raises(ValueError, match="Forward mode"):
        tf.jvp(scoped(tf.square, square=lambda op, g: g * g), (x,), (tf.ones([3]),))


def test_functions_have_traces_of_their_own_in_a_scope() -> None:
    runs = []

    @tf.function
    def f(x: Any) -> Any:
        runs.append(1)
        return tf.square(x)

    inside = scoped(f)
    for _ in range(2):
        np.testing.assert_allclose(slope(f), 2 * np.array(X))
        np.testing.assert_array_equal(slope(inside), [5.0, 5.0, 5.0])
    assert len(runs) == 2
    np.testing.assert_array_equal(slope(tf.function(lambda x: inside(x) + f(x))), 5.0 + 2 * np.array(X))


def test_a_tape_in_a_traced_function_in_a_scope() -> None:
    @tf.function
    def f(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.square(x)
        return tape.gradient(y, x)

    with tf.override_gradient({"square": five}):
        np.testing.assert_array_equal(f(tf.constant(X)).numpy(), [5.0, 5.0, 5.0])
    np.testing.assert_allclose(f(tf.constant(X)).numpy(), 2 * np.array(X))


def test_guided_backpropagation_through_a_network_that_is_there() -> None:
    model = tf.keras.Sequential([tf.keras.layers.Dense(8, activation="relu"), tf.keras.layers.Dense(1)])
    x = tf.constant(np.random.default_rng(3).normal(size=(4, 5)).astype(np.float32))
    model(x)

    def guided(op: Any, grad: Any) -> Any:
        return tf.where((op.outputs[0] > 0) & (grad > 0), grad, 0.0)

    with tf.override_gradient({"relu": guided}), tf.GradientTape() as tape:
        tape.watch(x)
        y = model(x)
    first, second = model.layers
    w, b, v = (t.numpy() for t in (first.kernel, first.bias, second.kernel))
    passed = ((x.numpy() @ w + b > 0) & (v.T > 0)) * v.T
    np.testing.assert_allclose(tape.gradient(y, x).numpy(), passed @ w.T, rtol=1e-5, atol=1e-6)


# ------------------------------------------------------------------ wrong calls


def test_names_are_checked_when_a_scope_begins() -> None:
    rule = registered(five)
    for wrong, says in [
        ({"Sqare": rule}, r"No op is called 'Sqare'\. Did you mean 'Square'\? docs"),
        ({"FusedBatchNormV9": rule}, r"No op is called 'FusedBatchNormV9'\. docs"),
        ({"Fil": rule}, r"No op is called 'Fil'\. docs"),
        ({"Fill": rule}, "`broadcast_to`"),
        ({"Tile": rule}, "`broadcast_to`"),
        ({"Pack": rule}, "`concat`"),
        ({"IdentityN": rule}, "`identity`"),
        ({"relu_with_a_typo": rule}, "No op is called"),
        ({"MatMul": rule}, "`contract`"),
    ]:
        with pytest.raises(ValueError, match=says), tf.gradient_override_map(wrong):
            pass
    with pytest.raises(LookupError, match=f"Did you mean '{rule}'"), tf.gradient_override_map({"Relu": rule + "x"}):
        pass


@pytest.mark.parametrize("name", ["Round", "Sign", "Floor"])
def test_the_gradient_of_another_op_by_its_name(name: str) -> None:
    f = {"Round": tf.round, "Sign": tf.sign, "Floor": tf.floor}[name]
    x = tf.constant([0.4, -1.2])
    with tf.GradientTape() as tape, tf.gradient_override_map({name: "Identity"}):
        tape.watch(x)
        y = f(x) * [3.0, 5.0]
    assert tape.gradient(y, x).numpy().tolist() == [3.0, 5.0]


def test_the_gradient_of_another_op_reads_operands_and_results() -> None:
    x = tf.constant([0.4, -1.2])

    @tf.function
    def f(x: Any) -> Any:
        return tf.sign(x) * 3.0

    for rule, slope in [("Sin", np.cos([0.4, -1.2])), ("Exp", np.sign([0.4, -1.2])), ("Relu", [1.0, 0.0])]:
        with tf.GradientTape(persistent=True) as tape, tf.gradient_override_map({"Sign": rule}):
            tape.watch(x)
            y = f(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                z = tf.sign(x) * 3.0
            first = inner.gradient(z, x)
        np.testing.assert_allclose(tape.gradient(y, x).numpy(), 3.0 * np.asarray(slope), rtol=1e-6)
        np.testing.assert_allclose(np.diag(tape.jacobian(y, x).numpy()), 3.0 * np.asarray(slope), rtol=1e-6)
        if rule == "Sin":
            np.testing.assert_allclose(tape.gradient(first, x).numpy(), -3.0 * np.sin([0.4, -1.2]), rtol=1e-6)


def test_the_gradient_of_an_op_by_its_own_name() -> None:
    x = tf.constant([[0.4, -1.2]])
    with tf.GradientTape() as tape, tf.gradient_override_map({"Mul": "Mul", "Sum": "Sum"}):
        tape.watch(x)
        y = tf.reduce_sum(x * x * 2.0, axis=1)
    np.testing.assert_allclose(tape.gradient(y, x).numpy(), 4.0 * x.numpy(), rtol=1e-6)
    with pytest.raises(LookupError, match="as many operands"), tf.gradient_override_map({"Sign": "Mul"}):
        pass
    with pytest.raises(LookupError, match="elementwise"), tf.gradient_override_map({"Sign": "Sum"}):
        pass


def seven_fold(op: Any, up: Any) -> list[Any]:
    return [op.inputs[0] * 7.0, *[None] * (len(op.inputs) - 1)]


@pytest.mark.parametrize(
    ("name", "f"),
    [
        ("GatherV2", lambda x: tf.gather(x, [0])),
        ("StridedSlice", lambda x: x[::2]),
        ("MatrixInverse", tf.linalg.inv),
        ("MatrixSolve", lambda x: tf.linalg.solve(x, x)),
        ("MatrixDeterminant", tf.linalg.det),
    ],
)
def test_other_names_of_tensorflow(name: str, f: Any) -> None:
    x = tf.constant([[2.0, 1.0], [0.5, 3.0]])
    with tf.GradientTape() as tape, tf.gradient_override_map({name: registered(seven_fold)}):
        tape.watch(x)
        y = f(x)
    np.testing.assert_allclose(np.ravel(tape.gradient(y, x))[:2], 7.0 * np.ravel(x)[:2])


def test_mappings_of_other_things() -> None:
    for wrong in (["Square"], {1: "x"}, {"Square": five}):
        with pytest.raises(TypeError), tf.gradient_override_map(wrong):  # type: ignore[arg-type]
            pass
    with pytest.raises(TypeError, match="gradient_override_map"), tf.override_gradient({"square": "x"}):  # type: ignore[dict-item]
        pass


def test_names_of_rules_are_taken_once() -> None:
    rule = registered(five)
    with pytest.raises(KeyError, match=r"two gradients.*`five`"):
        tf.RegisterGradient(rule)(five)
    with pytest.raises(KeyError, match="the op itself"):
        tf.RegisterGradient("Square")(five)
    with pytest.raises(TypeError, match="string"):
        tf.RegisterGradient(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="function"):
        tf.RegisterGradient("NoFunctionAtAll")(5)  # type: ignore[arg-type]


# ------------------------------------------------------------------ programs of TensorFlow 1


def test_a_graph_with_an_override() -> None:
    rule = registered(lambda op, grad: tf.constant(0))
    with tf.Graph().as_default() as g:
        assert tf.compat.v1.get_default_graph() is g
        x = tf.Variable(5.0)
        with g.gradient_override_map({"Square": rule}), tf.GradientTape() as tape:
            y = tf.square(x, name="Square")
        with tf.compat.v1.Session() as session:
            assert session.run(tf.compat.v1.global_variables_initializer()) is None
            assert session.run({"g": tape.gradient(y, x), "x": (x, y)}) == {"g": 0.0, "x": (5.0, 25.0)}
    assert tf.compat.v1.get_default_graph() is not g


def test_what_a_session_refuses() -> None:
    with tf.compat.v1.Session() as session:
        with pytest.raises(TypeError, match="unconnected"):
            session.run(None)
        with pytest.raises(ValueError, match="feed_dict"):
            session.run(tf.constant(1.0), feed_dict={"x": 1.0})
    with pytest.raises(RuntimeError, match="closed"):
        session.run(tf.constant(1.0))
