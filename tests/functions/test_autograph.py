"""Python's statements on tensors without values: what they compute, their gradients, and what cannot be converted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as tf

# ------------------------------------------------------------------ programs, as they run with values too


def branch(x: Any, n: Any) -> Any:
    if x > 0:
        y = x * x
    elif x > -1:
        y = -x
    else:
        y = x * 0.5
    return y


def early_return(x: Any, n: Any) -> Any:
    if x > 2:
        return x * x
    if x > 0:
        return x * 3.0
    return -x


def ternary(x: Any, n: Any) -> Any:
    return x * x if x > 0 else -x


def logic(x: Any, n: Any) -> Any:
    if n > 1 and not (x < 0 or x > 2):
        return x * 2.0
    return x * 3.0


def counting(x: Any, n: Any) -> Any:
    total = x * 0.0
    for i in tf.range(n):
        total += x * tf.cast(i, x.dtype)
    return total


def skipping(x: Any, n: Any) -> Any:
    total = x * 0.0
    for i in tf.range(n):
        if i == 1:
            continue
        if i > 3:
            break
        total += x ** tf.cast(i, x.dtype)
    return total


def halving(x: Any, n: Any) -> Any:
    k = 0
    while x > 1.0 and k < n:
        x = x / 2
        k += 1
    return x * tf.cast(k, x.dtype)


def stopping(x: Any, n: Any) -> Any:
    y = x
    while True:
        y = y * x
        if y > 5.0 or n > 0:
            break
    return y


def over_rows(x: Any, n: Any) -> Any:
    total = x * 0.0
    for row in tf.stack([x, x * 2.0, -x]):
        if row > 0:
            total = total + row * x
    return total


def returning_from_a_loop(x: Any, n: Any) -> Any:
    for row in tf.stack([x, x * 2.0, x * 4.0]):
        if row > 3.0:
            return row * x
    return x * 0.5


def python_loop_that_breaks(x: Any, n: Any) -> Any:
    for factor in [1.5, 2.0, 2.5]:
        if x > 4.0:
            break
        x = x * factor
    return x


def loops_in_loops(x: Any, n: Any) -> Any:
    total = x * 0.0
    for i in tf.range(n):
        y = x
        for _ in tf.range(i):
            y = tf.sin(y) * x
        total += y
    return total


def helper(x: Any) -> Any:
    while x < 3.0:
        x = x * 2.0
    return x


def calls(x: Any, n: Any) -> Any:
    parts = {"a": helper(tf.abs(x) + 0.5), "b": (x, [x])}
    if n > 2:
        parts["a"] = parts["a"] * x
    return parts["a"] + parts["b"][1][0]


def callbacks(x: Any, n: Any) -> Any:
    return tf.reduce_sum(tf.map_fn(lambda r: r * r if r > 0 else -r, tf.stack([x, -x])))


def over_pythons_range(x: Any, n: Any) -> Any:
    total = x * 0.0
    for i in range(1, n + 1):
        for _ in range(i):
            total = total * x + tf.cast(i, x.dtype)
    return total * sorted(tf.stack([x, x * 2.0]))[0]


PROGRAMS: list[Callable[[Any, Any], Any]] = [
    branch,
    early_return,
    ternary,
    logic,
    counting,
    skipping,
    halving,
    stopping,
    over_rows,
    returning_from_a_loop,
    python_loop_that_breaks,
    loops_in_loops,
    over_pythons_range,
    calls,
    callbacks,
]
POINTS = [(1.75, 3), (-0.6, 2), (-2.5, 0), (3.2, 6)]


def derivatives(f: Callable[[Any, Any], Any], x: Any, n: Any) -> list[float]:
    """The value and three derivatives."""
    with tf.GradientTape() as third:
        third.watch(x)
        with tf.GradientTape() as second:
            second.watch(x)
            with tf.GradientTape() as first:
                first.watch(x)
                y = f(x, n)
            g = first.gradient(y, x, unconnected_gradients="zero")
        h = second.gradient(g, x, unconnected_gradients="zero")
    return [float(v) for v in (y, g, h, third.gradient(h, x, unconnected_gradients="zero"))]


def differentiates_inside(f: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A function that gives the third derivative of f from tapes inside of it."""

    def g(x: Any, n: Any) -> Any:
        with tf.GradientTape() as second:
            second.watch(x)
            with tf.GradientTape() as first:
                first.watch(x)
                y = f(x, n)
            g = first.gradient(y, x, unconnected_gradients="zero")
        return second.gradient(g, x, unconnected_gradients="zero")

    return g


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_vjp_of_vjp_of_vjp_of_a_converted_function(f: Callable[[Any, Any], Any]) -> None:
    traced = tf.function(f)
    for x, n in POINTS:
        point = tf.constant(x, tf.float64), tf.constant(n)
        np.testing.assert_allclose(derivatives(traced, *point), derivatives(f, *point), 1e-9, 1e-12)
    assert traced.experimental_get_tracing_count() == 1


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_function_of_vjp_of_vjp(f: Callable[[Any, Any], Any]) -> None:
    inside = differentiates_inside(f)
    traced = tf.function(inside)
    for x, n in POINTS:
        point = tf.constant(x, tf.float64), tf.constant(n)
        np.testing.assert_allclose(float(traced(*point)), float(inside(*point)), 1e-9, 1e-12)


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_function_of_vjp_in_vjp(f: Callable[[Any, Any], Any]) -> None:
    """A function in a function in a tape in a function, differentiated from outside: three orders in all."""
    inner = tf.function(f)
    inside = differentiates_inside(lambda x, n: inner(x, n) * x)
    plain = differentiates_inside(lambda x, n: f(x, n) * x)
    traced = tf.function(inside)
    for x, n in POINTS[:2]:
        t, k = tf.constant(x, tf.float64), tf.constant(n)
        found = []
        for g in (traced, plain):
            with tf.GradientTape() as tape:
                tape.watch(t)
                y = g(t, k)
            found.append(float(tape.gradient(y, t, unconnected_gradients="zero")))
        np.testing.assert_allclose(*found, 1e-9, 1e-12)


def test_values_stay_python() -> None:
    seen = []

    @tf.function
    def f(x: Any, flag: bool, times: int) -> Any:
        if flag:
            seen.append("flag")
        for k in range(times):
            seen.append(k)
            x = x + 1.0
        return x

    assert [float(f(tf.constant(v), True, 2)) for v in (0.0, 5.0)] == [2, 7]
    assert seen == ["flag", 0, 1]


def test_variables_in_branches_and_loops() -> None:
    v = tf.Variable(1.0)

    @tf.function
    def f(n: Any) -> Any:
        before = v.read_value()
        for i in tf.range(n):
            v.assign_add(tf.cast(i, tf.float32))
            if v > 3.0:
                v.assign(v * 10.0)
        return before, v.read_value()

    assert [float(x) for x in f(tf.constant(3))] == [1.0, 40.0] and v.numpy() == 40
    v.assign(0.0)
    assert [float(x) for x in f(tf.constant(1))] == [0.0, 0.0] and v.numpy() == 0


def test_methods_and_super() -> None:
    class Base(tf.Module):
        def __call__(self, x: Any) -> Any:
            return x * 2.0 if x > 0 else x

    class Child(Base):
        def __init__(self) -> None:
            super().__init__()
            self.w = tf.Variable(3.0)

        @tf.function
        def __call__(self, x: Any) -> Any:
            if x > 10:
                return x
            return super().__call__(x) * self.w

    m = Child()
    assert [float(m(tf.constant(v))) for v in (1.0, -1.0, 20.0)] == [6, -3, 20]


def test_layers_that_users_write_are_converted() -> None:
    class Net(tf.keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = tf.keras.layers.Dense(2, kernel_initializer="ones")

        def call(self, x: Any) -> Any:
            h = self.dense(x)
            if tf.reduce_sum(h) > 0:
                h = h * 2.0
            return h

    net = Net()
    f = tf.function(lambda x: net(x))
    assert f(tf.constant([[1.0, 1.0]])).numpy().tolist() == [[4.0, 4.0]]
    assert f(tf.constant([[-1.0, -1.0]])).numpy().tolist() == [[-2.0, -2.0]]


def test_a_name_that_is_set_in_a_loop_is_there_behind_it() -> None:
    @tf.function
    def f(n: Any) -> Any:
        for i in tf.range(n):
            last = i * 10
        return last

    assert int(f(tf.constant(4))) == 30 and int(f(tf.constant(1))) == 0


def test_a_loop_index_picks_rows() -> None:
    @tf.function
    def f(x: Any) -> Any:
        total = tf.zeros([2])
        for i in tf.range(3):
            total += x[i] * x[-1 - i, ::-1] + x[0, i - 1]
        return total

    a = np.arange(6.0, dtype=np.float32).reshape(3, 2)
    expected = sum(a[i] * a[-1 - i, ::-1] + a[0, (i - 1) % 2] for i in range(3))
    x = tf.constant(a)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(f(x))
    np.testing.assert_allclose(f(x).numpy(), expected)

    def plain(x: Any) -> Any:
        return sum(x[i] * x[-1 - i, ::-1] + x[0, (i - 1) % 2] for i in range(3))

    with tf.GradientTape() as eager:
        eager.watch(x)
        z = tf.reduce_sum(plain(x))
    np.testing.assert_allclose(tape.gradient(y, x).numpy(), eager.gradient(z, x).numpy())


@pytest.mark.host("nobody waits for a position that a device has computed")
def test_an_index_that_is_too_large() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="index 7"):
        tf.function(lambda x, i: x[i])(tf.ones([3, 2]), tf.constant(7))


# ------------------------------------------------------------------ rows


def in_a_loop(x: Any) -> Any:
    y = x
    for _ in tf.range(3):
        y = tf.sin(y) * x
    return y


def unrolled(x: Any) -> Any:
    y = x
    for _ in range(3):
        y = tf.sin(y) * x
    return y


def test_jacobians_of_loops_inside_and_outside() -> None:
    x = tf.constant([[0.4, -1.2, 2.0], [1.0, 0.1, -0.5]], tf.float64)

    def full(f: Any, x: Any) -> Any:
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = f(x)
        return tape.jacobian(y, x), tape.batch_jacobian(y, x)

    traced = tf.function(in_a_loop)
    inside = tf.function(lambda x: full(in_a_loop, x))
    expected = full(unrolled, x)
    for found in (full(traced, x), inside(x)):
        for a, b in zip(found, expected):
            np.testing.assert_allclose(a.numpy(), b.numpy(), 1e-12, 1e-14)
    np.testing.assert_allclose(
        tf.hessian(lambda v: tf.reduce_sum(traced(v)), x).numpy(),
        tf.hessian(lambda v: tf.reduce_sum(unrolled(v)), x).numpy(),
        1e-11,
        1e-13,
    )


def doubling(x: Any) -> Any:
    """As often as the row needs."""
    (y,) = tf.while_loop(lambda y: y < 10.0, lambda y: (y * y + 1.0,), (x,))
    return y


def guarded(x: Any) -> Any:
    return tf.cond(x > 2.0, lambda: tf.sqrt(x - 2.0), lambda: x * x)


def slope(x: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = doubling(x) * guarded(x)
    return tape.gradient(y, x)


@pytest.mark.parametrize("f", [doubling, guarded, slope], ids=lambda f: f.__name__)
def test_vjp_of_vectorize_where_rows_part_ways(f: Callable[[Any], Any]) -> None:
    z = tf.constant([1.1, 3.0, 20.0, 2.0, -0.5], tf.float64)
    for mapped in (tf.vectorized_map, tf.function(lambda g, z: tf.vectorized_map(f, z))):
        with tf.GradientTape() as tape:
            tape.watch(z)
            y = mapped(f, z)
        rows = []
        for k in range(5):
            one = z[k]
            with tf.GradientTape() as eager:
                eager.watch(one)
                value = f(one)
            rows.append((float(value), float(eager.gradient(value, one, unconnected_gradients="zero"))))
        np.testing.assert_allclose(y.numpy(), [v for v, _ in rows], 1e-12)
        np.testing.assert_allclose(tape.gradient(y, z).numpy(), [g for _, g in rows], 1e-12)


@tf.function
def powers(n: Any, x: Any) -> Any:
    total = tf.ones([], tf.float64)
    for k in tf.range(n):
        if k == 3:
            break
        total = total * x
    return total


@tf.function
def every_other(first: Any, last: Any) -> Any:
    total = 0
    for k in tf.range(first, last, 2):
        total += k
    return total


def test_ranges_that_differ_between_rows() -> None:
    counts, x = tf.constant([1, 2, 0, 5]), tf.constant([2.0, 3.0, 4.0, 2.0], tf.float64)
    w = tf.Variable(tf.ones([], tf.float64))
    mapped = lambda: tf.vectorized_map(lambda a: powers(a[0], w * a[1]), (counts, x))  # noqa: E731
    np.testing.assert_array_equal(mapped(), [2.0, 9.0, 1.0, 8.0])
    np.testing.assert_array_equal(tf.function(mapped)(), [2.0, 9.0, 1.0, 8.0])
    slopes = tf.per_example_gradients(lambda a: powers(a[0], w * a[1]), w, (counts, x))
    np.testing.assert_array_equal(slopes, [2.0, 18.0, 0.0, 24.0])
    bounds = (tf.constant([1, 2, 0, 5, 4]), tf.constant([2, 3, 8, 9, 1]))
    np.testing.assert_array_equal(tf.vectorized_map(lambda a: every_other(*a), bounds), [1, 2, 12, 12, 0])


# ------------------------------------------------------------------ what is refused


def test_what_branches_and_loops_must_agree_on() -> None:
    @tf.function
    def unset(x: Any) -> Any:
        if x > 0:
            y = x
        return y

    with pytest.raises(ValueError, match=r"test_autograph.py:\d+: 'y' must also be initialized in the else branch"):
        unset(tf.constant(1.0))

    @tf.function
    def two_dtypes(x: Any) -> Any:
        if x > 0:
            y = tf.constant(1)
        else:
            y = tf.constant(1.0)
        return y

    with pytest.raises(TypeError, match=r"int32.*float32"):
        two_dtypes(tf.constant(1.0))

    @tf.function
    def growing(x: Any) -> Any:
        for _ in tf.range(3):
            x = tf.concat([x, x], 0)
        return x

    with pytest.raises(ValueError, match=r"'x' has shape \(1,\) before the loop, but shape \(2,\) after one iteration"):
        growing(tf.constant([1.0]))

    @tf.function
    def changing(x: Any) -> Any:
        y = tf.constant(0)
        for _ in tf.range(3):
            y = x
        return y

    with pytest.raises(TypeError, match="'y' has dtype int32 before the loop, but dtype float32"):
        changing(tf.constant(1.0))

    @tf.function
    def sometimes(x: Any) -> Any:
        for _ in tf.range(3):
            if x > 0:
                return x

    with pytest.raises(ValueError, match="Return one in every case"):
        sometimes(tf.constant(1.0))

    @tf.function
    def text(x: Any) -> Any:
        if x > 0:
            name = "a"
        else:
            name = "b"
        return tf.constant(len(name))

    with pytest.raises(TypeError, match="'name' is 'a' in one branch and 'b' in the other"):
        text(tf.constant(1.0))


def test_without_conversion_python_asks_for_values() -> None:
    def f(x: Any) -> Any:
        if x > 0:
            return x
        return -x

    for unconverted in (tf.function(f, autograph=False), tf.function(tf.autograph.experimental.do_not_convert(f))):
        with pytest.raises(tf.errors.OperatorNotAllowedInGraphError, match=r"test_autograph.py:\d+ asks for a truth"):
            unconverted(tf.constant(1.0))


def test_without_source_the_error_says_what_to_use() -> None:
    names: dict[str, Any] = {}
    exec(compile("def f(x):\n  y = x\n  if x > 0: return y\n  return -y", "made_up.py", "exec"), names)
    with pytest.raises(tf.errors.OperatorNotAllowedInGraphError) as e:
        tf.function(names["f"])(tf.constant(1.0))
    assert "made_up.py:3" in str(e.value) and "source of `f` is not available" in str(e.value)


def test_what_a_function_without_source_calls_says_why_it_is_python_too() -> None:
    def helper(x: Any) -> Any:
        return x if x > 0 else -x

    names: dict[str, Any] = {"helper": helper}
    exec(compile("def f(x):\n  return helper(x)", "made_up.py", "exec"), names)
    with pytest.raises(tf.errors.OperatorNotAllowedInGraphError) as e:
        tf.function(names["f"])(tf.constant(1.0))
    assert "test_autograph.py" in str(e.value) and "source of `f` is not available" in str(e.value)
    assert "tf.cond" in str(e.value)


def test_to_graph_and_to_code() -> None:
    def f(x: Any) -> Any:
        return x * 2.0 if x > 0 else x

    assert tf.autograph.to_graph(f)(3.0) == 6.0
    assert "if_exp" in tf.autograph.to_code(f)
    with pytest.raises(ValueError, match="Python function"):
        tf.autograph.to_graph(tf.function(f))
    tf.autograph.experimental.set_loop_options(parallel_iterations=3)
