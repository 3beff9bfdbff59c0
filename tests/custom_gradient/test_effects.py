"""Rules that print, assert, assign and call Python in traced functions: once for each gradient, when it is computed."""

import numpy as np
import pytest

import gradtape as tf


@pytest.fixture
def count():
    return tf.Variable(0.0, trainable=False)


def counted(count):
    """A function whose rule counts."""

    @tf.custom_gradient
    def double(x):
        def rule(up):
            count.assign_add(1.0)
            return up * 2.0

        return x * 2.0, rule

    return double


def gradient_of(f, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    return tape.gradient(y, x)


X = tf.constant([1.0, 2.0])


def test_assigned_when_the_gradient_is_computed(count):
    f = tf.function(counted(count))
    f(X)
    assert float(count) == 0.0
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(X)
        y = f(X)
    assert float(count) == 0.0
    assert tape.gradient(y, X).numpy().tolist() == [2.0, 2.0]
    assert float(count) == 1.0
    tape.gradient(y, X)
    assert float(count) == 2.0


def test_with_the_tape_in_the_function(count):
    f = counted(count)
    g = tf.function(lambda x: gradient_of(f, x))
    for n in (1.0, 2.0):
        assert g(X).numpy().tolist() == [2.0, 2.0]
        assert float(count) == n


def test_with_the_tape_in_a_function_around_it(count):
    inner = tf.function(counted(count))

    @tf.function
    def outer(x):
        before = count.read_value()
        found = gradient_of(inner, x)
        return before, found, count.read_value()

    before, found, after = outer(X)
    assert (float(before), float(after), float(count)) == (0.0, 1.0, 1.0)
    assert found.numpy().tolist() == [2.0, 2.0]


@pytest.mark.parametrize("traced", [False, True])
def test_what_it_answers_depends_on_the_state(count, traced):
    @tf.custom_gradient
    def f(x):
        seen = count.read_value()
        return x * 1.0, lambda up: up * (count.assign_add(1.0) * 10.0 + seen)

    g = tf.function(f) if traced else f
    count.assign(5.0)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(X)
        y = g(X)
    count.assign(7.0)
    assert tape.gradient(y, X).numpy().tolist() == [85.0, 85.0]
    assert tape.gradient(y, X).numpy().tolist() == [95.0, 95.0]


@pytest.mark.parametrize("traced", [False, True])
def test_second_order(count, traced):
    @tf.custom_gradient
    def cube(x):
        def rule(up):
            return up * x * x * (3.0 + 0.0 * count.assign_add(1.0))

        return x * x * x, rule

    f = tf.function(cube) if traced else cube
    x = tf.constant(2.0)
    with tf.GradientTape() as outer:
        outer.watch(x)
        first = gradient_of(f, x)
    assert float(count) == 1.0
    assert float(first) == 12.0
    assert float(outer.gradient(first, x)) == 12.0


def test_after_an_assignment_of_the_function(count):
    double = counted(count)

    @tf.function
    def f(x):
        count.assign(10.0)
        y = double(x)
        count.assign_add(1.0)
        return y

    with tf.GradientTape() as tape:
        tape.watch(X)
        y = f(X)
    assert float(count) == 11.0
    tape.gradient(y, X)
    assert float(count) == 12.0


def test_two_rules_of_one_function_and_an_eager_one(count, capfd):
    def named(name):
        @tf.custom_gradient
        def f(x):
            def rule(up):
                tf.print(name)
                return up

            return x * 1.0, rule

        return f

    first, second, third = map(named, ("first", "second", "third"))
    f = tf.function(lambda x: second(first(x)))
    gradient_of(lambda x: third(f(x)) * 2.0, X)
    assert capfd.readouterr().err.split() == ["third", "second", "first"]
    gradient_of(lambda x: f(third(x)) + f(x), X)
    assert sorted(capfd.readouterr().err.split()) == ["first", "first", "second", "second", "third"]


@pytest.mark.parametrize("shape", [[2], [None]])
def test_printed_once_for_each_gradient(shape, capfd):
    @tf.custom_gradient
    def shown(x):
        def rule(up):
            tf.print("up", up)
            return up

        return x * 2.0, rule

    f = tf.function(lambda x: shown(x) * 3.0, input_signature=[tf.TensorSpec(shape, tf.float32)])
    f(X)
    assert capfd.readouterr().err == ""
    assert gradient_of(f, X).numpy().tolist() == [3.0, 3.0]
    assert capfd.readouterr().err == "up [3 3]\n"
    g = tf.function(lambda x: gradient_of(f, x))
    g(X), g(X)
    assert capfd.readouterr().err == "up [3 3]\n" * 2


def test_asserted_when_the_gradient_is_computed():
    @tf.custom_gradient
    def f(x):
        def rule(up):
            tf.debugging.assert_less(up, 5.0, message="steep")
            return up

        return x * 1.0, rule

    g = tf.function(f)
    assert gradient_of(lambda x: g(x) * 4.0, X).numpy().tolist() == [4.0, 4.0]
    with pytest.raises(tf.errors.InvalidArgumentError, match="steep"):
        gradient_of(lambda x: g(x) * 6.0, X)


@pytest.mark.parametrize("call", [tf.py_function, tf.numpy_function])
def test_python_in_a_rule(call):
    seen = []

    def note(up):
        seen.append(up.tolist() if call is tf.numpy_function else up.numpy().tolist())
        return up * 5.0

    @tf.custom_gradient
    def f(x):
        return x * 1.0, lambda up: call(note, [up], tf.float32)

    g = tf.function(f)
    with tf.GradientTape() as tape:
        tape.watch(X)
        y = g(X) * 3.0
    assert seen == []
    assert tape.gradient(y, X).numpy().tolist() == [15.0, 15.0]
    assert seen == [[3.0, 3.0]]


def test_python_in_a_rule_with_another_shape():
    @tf.custom_gradient
    def f(x):
        return x * 1.0, lambda up: up * tf.py_function(tf.reduce_sum, [up], tf.float32)

    with pytest.raises(tf.errors.InvalidArgumentError, match="the first of its arguments has"):
        gradient_of(tf.function(f), X)


def test_in_branches_and_loops(count):
    double = counted(count)

    @tf.function
    def f(x, n):
        for _ in tf.range(n):
            x = double(x)
        if n > 1:
            x = double(x)
        return x

    with tf.GradientTape() as tape:
        tape.watch(X)
        y = f(X, tf.constant(3))
    assert float(count) == 0.0
    assert tape.gradient(y, X).numpy().tolist() == [16.0, 16.0]
    assert float(count) == 4.0


def test_beside_a_jvp(count):
    def along(primals, tangents):
        return tangents[0] * 7.0

    @tf.custom_gradient(jvp=along)
    def f(x):
        def rule(up):
            count.assign_add(1.0)
            return up * 5.0

        return x * 1.0, rule

    g = tf.function(f)
    assert gradient_of(g, X).numpy().tolist() == [5.0, 5.0]
    assert float(count) == 1.0
    assert tf.jvp(g, [X], [tf.ones(2)])[1].numpy().tolist() == [7.0, 7.0]


def test_jacobians_are_taken_without_effects(count):
    f = tf.function(counted(count))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(X)
        y = f(X)
    for mode in ("reverse", "forward"):
        assert tape.jacobian(y, X, mode=mode).numpy().tolist() == [[2.0, 0.0], [0.0, 2.0]]
    assert float(count) == 0.0


def test_rows_in_a_function(count, capfd):
    @tf.custom_gradient
    def f(x):
        def rule(up):
            tf.print(up)
            return up * (2.0 + 0.0 * count.assign_add(1.0))

        return x * 1.0, rule

    @tf.function
    def jacobian(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
        return tape.jacobian(y, x)

    assert jacobian(X).numpy().tolist() == [[2.0, 0.0], [0.0, 2.0]]
    mapped = tf.function(lambda x: tf.vectorized_map(f, x))
    assert gradient_of(mapped, tf.ones([3, 2])).numpy().tolist() == [[2.0, 2.0]] * 3
    assert float(count) == 0.0
    assert capfd.readouterr().err == ""


def test_tapes_in_loops_and_rules_in_branches(count):
    inner = tf.function(counted(count))

    @tf.function
    def in_loop(x, n):
        total = tf.zeros_like(x)
        for _ in tf.range(n):
            total += gradient_of(inner, x)
        return total, count.read_value()

    total, seen = in_loop(X, tf.constant(3))
    assert total.numpy().tolist() == [6.0, 6.0]
    assert float(seen) == float(count) == 3.0

    @tf.function
    def in_branch(x, yes):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = counted(count)(x) if yes else x * 3.0
        return tape.gradient(y, x)

    with pytest.raises(tf.errors.UnimplementedError, match="`double` assigns `Variable:0`"):
        in_branch(X, tf.constant(True))


def test_a_compiled_step_of_training(count):
    w, double = tf.Variable([1.0, 2.0]), counted(count)

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(double(w * x))
        w.assign_sub(0.1 * tape.gradient(loss, w))

    for n in (1.0, 2.0):
        step(X)
        assert float(count) == n
    np.testing.assert_allclose(w.numpy(), [0.6, 1.2], rtol=1e-6)


def test_of_a_variable_that_is_only_read():
    w = tf.Variable(3.0)

    @tf.custom_gradient
    def f(x):
        return x * 1.0, lambda up: up * tf.square(w)

    g = tf.function(f)
    with tf.GradientTape() as tape:
        tape.watch(X)
        y = g(X)
    assert tape.gradient(y, X).numpy().tolist() == [9.0, 9.0]


def test_a_model_with_such_a_rule_is_not_saved(count, tmp_path):
    module = tf.Module()
    module.count = count
    module.f = tf.function(counted(count), input_signature=[tf.TensorSpec([2])])
    with pytest.raises(ValueError, match="`double`"):
        tf.saved_model.save(module, tmp_path)
