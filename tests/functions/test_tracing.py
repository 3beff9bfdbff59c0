"""When Python is traced, and what a function may make of its arguments; the counts are TensorFlow's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import gradtape as tf


def counts(f: Any, calls: Sequence[Sequence[Any]]) -> list[int]:
    """How often Python was traced after each call."""
    found = []
    for arguments in calls:
        f(*arguments)
        found.append(f.experimental_get_tracing_count())
    return found


def ones(*shapes: Sequence[int]) -> list[list[Any]]:
    return [[tf.ones(s)] for s in shapes]


def test_new_shapes_dtypes_numbers_and_values() -> None:
    f = tf.function(lambda x: x * 1)
    calls: list[list[Any]] = ones([2], [2], [3], [4])
    calls += [[tf.ones([2], tf.float64)], [1], [2], [1], [1.5], [np.ones(2)], [np.zeros(2)]]
    assert counts(f, calls) == [1, 1, 2, 3, 4, 5, 6, 6, 7, 7, 7]


def test_reduce_retracing() -> None:
    f = tf.function(lambda x: x * 1, reduce_retracing=True)
    shapes = ([2], [2], [3], [4], [5], [2, 2], [3, 3], [3, 4], [7, 8], [1, 1, 1], [])
    assert counts(f, ones(*shapes)) == [1, 1, 2, 2, 2, 3, 3, 3, 3, 3, 3]
    assert counts(f, [[tf.ones([n], tf.float64)] for n in (2, 3, 4)]) == [4, 5, 5]
    g = tf.function(lambda x, n: x * n, reduce_retracing=True)
    calls = [[tf.ones([2]), n] for n in (1, 2, 3)] + [[tf.ones([n]), 3] for n in (3, 4, 5)]
    assert counts(g, calls) == [1, 2, 3, 4, 4, 4]


def test_an_input_signature_is_traced_once() -> None:
    seen = []

    @tf.function(input_signature=[tf.TensorSpec([None, 2]), tf.TensorSpec(None)])
    def f(x: Any, y: Any) -> Any:
        seen.append((x.shape.as_list(), y.shape.rank))
        return tf.shape(x), tf.shape(y), tf.reduce_mean(x, 0)

    for x, y in ((tf.ones([1, 2]), 1.0), (tf.ones([3, 2]), tf.ones([3, 3])), ([[1.0, 2.0]], [4.0])):
        a, b, mean = f(x, y)
        assert (a.numpy().tolist(), b.numpy().tolist()) == (list(np.shape(x)), list(np.shape(y)))
        np.testing.assert_allclose(mean.numpy(), np.mean(x, 0))
    assert seen == [([None, 2], None)] and f.experimental_get_tracing_count() == 1


def test_an_input_signature_of_structures() -> None:
    spec = {"a": tf.TensorSpec([None]), "b": [tf.TensorSpec([], tf.int32)]}
    f = tf.function(lambda d, scale=2.0: d["a"] * scale, input_signature=[spec])
    assert f({"a": [1.0, 2.0], "b": [3]}).numpy().tolist() == [2, 4]
    assert f({"a": tf.ones([3]), "b": [tf.constant(1)]}, scale=3.0).numpy().tolist() == [3, 3, 3]
    with pytest.raises(TypeError, match="structure"):
        f({"a": [1.0]})
    with pytest.raises(TypeError, match="should be TensorSpec"):
        f({"a": tf.ones([3], tf.float64), "b": [1]})


def test_methods_of_two_objects_and_a_created_variable() -> None:
    class Scale(tf.Module):
        v: Any = None

        @tf.function
        def f(self, x: Any) -> Any:
            if self.v is None:
                self.v = tf.Variable(2.0)
            return self.v * x

    a, b = Scale(), Scale()
    assert [float(m.f(tf.constant(3.0))) for m in (a, a, b)] == [6, 6, 6]
    assert [m.f.experimental_get_tracing_count() for m in (a, b)] == [2, 2]
    assert Scale.f.experimental_get_tracing_count() == 0
    a.f(tf.ones([2]))
    assert a.f.experimental_get_tracing_count() == 3


def test_variables_are_created_on_the_first_call_alone() -> None:
    held: dict[str, Any] = {}
    runs = []

    @tf.function
    def f(x: Any, late: bool = False) -> Any:
        runs.append(1)
        if "v" not in held:
            held["v"] = tf.Variable(x)  # the value of the first call
        if late:
            held["w"] = tf.Variable(1.0)
        held["v"].assign_add(1.0)
        return held["v"] * x

    assert [float(f(tf.constant(3.0))), len(runs), float(f(tf.constant(3.0)))] == [12, 2, 15]
    with pytest.raises(ValueError, match=r"test_tracing.py:\d+: Creating variables on a non-first call"):
        f(tf.constant(3.0), True)

    @tf.function
    def g(x: Any) -> Any:
        return tf.Variable(1.0) * x

    with pytest.raises(ValueError, match=r"only supports singleton tf\.Variables created on the first call"):
        g(tf.constant(1.0))


def test_keyword_arguments_defaults_and_dictionaries() -> None:
    @tf.function
    def f(x: Any, y: int = 2, *, z: int = 3) -> Any:
        return x * y * z

    x = tf.constant(1.0)
    assert [float(v) for v in (f(x), f(x, 2), f(x, y=2), f(x, z=3))] == [6] * 4
    assert f.experimental_get_tracing_count() == 1 and float(f(x, z=4)) == 8

    g = tf.function(lambda d: d["a"])
    a, b = tf.constant(1.0), tf.constant(2.0)
    assert counts(g, [[{"a": a, "b": b}], [{"b": a, "a": b}], [{"a": a}]]) == [1, 1, 2]


def test_objects_are_told_apart() -> None:
    class Held:
        def __init__(self, value: float) -> None:
            self.value = value

    f = tf.function(lambda h, x: h.value * x)
    h, x = Held(2.0), tf.constant(1.0)
    assert float(f(h, x)) == 2
    h.value = 5.0
    assert float(f(h, x)) == 2  # Python runs while tracing only
    assert float(f(Held(5.0), x)) == 5 and f.experimental_get_tracing_count() == 2


def test_nested_functions_are_traced_once() -> None:
    runs = []

    @tf.function
    def inner(x: Any) -> Any:
        runs.append("inner")
        return x * x

    @tf.function
    def outer(x: Any) -> Any:
        runs.append("outer")
        return inner(x) + inner(x + 1.0)

    assert [float(outer(tf.constant(v))) for v in (1.0, 2.0)] == [5, 13]
    assert runs == ["outer", "inner"]


def test_results_of_any_structure() -> None:
    @tf.function
    def f(x: Any) -> Any:
        return {"a": (x, [x + 1]), "none": None, "number": 3, "text": "s"}

    out = f(tf.constant(1.0))
    assert float(out["a"][1][0]) == 2 and out["none"] is None and int(out["number"]) == 3
    assert out["text"].numpy() == b"s" and isinstance(out["a"], tuple)
    assert tf.function(lambda: None)() is None


def test_concrete_functions() -> None:
    v = tf.Variable(3.0)

    @tf.function
    def f(x: Any, n: int = 2) -> Any:
        return {"a": x * v * n}

    c = f.get_concrete_function(tf.TensorSpec([None], tf.float32))
    assert c(tf.constant([1.0, 2.0]))["a"].numpy().tolist() == [6, 12]
    assert c([1.0])["a"].numpy().tolist() == [6]
    assert f(tf.ones([5]))["a"].shape == (5,) and f.experimental_get_tracing_count() == 1
    assert [x is v for x in c.variables] == [True] and [x is v for x in c.trainable_variables] == [True]
    (spec, n), _ = c.structured_input_signature
    assert spec == tf.TensorSpec([None], tf.float32) and n == 2
    with pytest.raises(TypeError, match="TensorSpec"):
        c(tf.ones([2, 2]))
    with pytest.raises(TypeError, match="1 tensors"):
        c(1.0, 2.0, 3.0)
    g = tf.function(lambda x: x + 1.0, input_signature=[tf.TensorSpec([2])])
    assert g.get_concrete_function()([1.0, 2.0]).numpy().tolist() == [2, 3]
    h = f.get_concrete_function(tf.ones([3]), 5)
    assert h(tf.ones([3]))["a"].numpy().tolist() == [15] * 3 and len(h.graph.nodes) > 0


def test_variables_in_the_order_of_the_program() -> None:
    v = tf.Variable(1.0)

    @tf.function
    def f() -> Any:
        a = v.read_value()
        v.assign(5.0)
        b = v.read_value()
        v.assign_add(2.0)
        return a, b, v * 1.0

    assert [float(x) for x in f()] == [1, 5, 7] and v.numpy() == 7


def _assigned_once(v: Any, w: Any) -> Any:
    y = v * w
    v.assign_add(w * w)
    return y + 10.0 * v * w


def _assigned_in_a_branch(v: Any, w: Any) -> Any:
    if w > 0:
        v.assign(w * w)
    else:
        v.assign_sub(w)
    return v * w


def _assigned_in_a_loop(v: Any, w: Any) -> Any:
    y = w * 1.0
    for _ in tf.range(3):
        v.assign_add(w)
        y = y * tf.sin(v)
    return y


@pytest.mark.parametrize("f", [_assigned_once, _assigned_in_a_branch, _assigned_in_a_loop])
@pytest.mark.parametrize("inside", [False, True])
def test_no_gradient_flows_through_an_assignment(f: Any, inside: bool) -> None:
    """What was assigned depends on `w`, what is read afterwards on `v` alone: as op by op, to the second order."""

    def derivatives(f: Any, v: Any, w: Any) -> list[Any]:
        with tf.GradientTape(persistent=True) as outer:
            with tf.GradientTape() as tape:
                y = f(v, w)
            slopes = tape.gradient(y, [v, w])
        return [y, *slopes, *(outer.gradient(s, [v, w]) for s in slopes)]

    def numbers(ways: Any) -> list[float]:
        v, w = tf.Variable(0.3, dtype=tf.float64), tf.Variable(0.2, dtype=tf.float64)
        found = tf.nest.flatten(ways(v, w))
        return [math.nan if x is None else float(x) for x in [*found, v]]

    plain = numbers(lambda v, w: derivatives(f, v, w))
    whole = tf.function(lambda v, w: derivatives(f, v, w))
    got = numbers(whole if inside else lambda v, w: derivatives(tf.function(f), v, w))
    np.testing.assert_allclose(got, plain, 1e-12)


def test_rows_of_variables_are_assigned() -> None:
    v = tf.Variable([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    rows = tf.IndexedSlices(tf.constant([[10.0, 10.0], [2.0, 3.0]]), tf.constant([2, 0]))
    plain = tf.Variable(v)

    @tf.function
    def f(s: Any) -> None:
        v.scatter_add(s)
        v.scatter_mul(s)
        v.scatter_update(s)

    for _ in range(2):
        f(rows)
        for step in (plain.scatter_add, plain.scatter_mul, plain.scatter_update):
            step(rows)
        np.testing.assert_allclose(v.numpy(), plain.numpy())


def test_a_read_outside_of_a_tape_is_a_constant_of_it() -> None:
    v = tf.Variable(3.0)

    def f(x: Any) -> Any:
        before = v.read_value()
        with tf.GradientTape() as tape:
            y = before * v * x
        return tape.gradient(y, v)

    assert float(f(tf.constant(2.0))) == float(tf.function(f)(tf.constant(2.0))) == 6


def test_errors_say_where() -> None:
    def numpy(x: Any) -> Any:
        return x.numpy()

    def iterate(x: Any) -> Any:
        a, b = x
        return a + b

    def number(x: Any) -> Any:
        return complex(x[0])

    def array(x: Any) -> Any:
        return np.sin(x)

    kinds = {
        numpy: AttributeError,
        iterate: tf.errors.OperatorNotAllowedInGraphError,
        number: TypeError,
        array: NotImplementedError,
    }
    for f, error in kinds.items():
        with pytest.raises(error, match=rf"test_tracing.py:{f.__code__.co_firstlineno + 1} asks for"):
            tf.function(f)(tf.ones([2]))
    assert not bool(tf.function(lambda x: hasattr(x, "numpy"))(tf.ones([])))


def test_tensors_that_escape_are_out_of_scope() -> None:
    kept: list[Any] = []

    @tf.function
    def f(x: Any) -> Any:
        kept.append(x * 2.0)
        for i in tf.range(2):
            kept.append(i)
        return x

    f(tf.constant(1.0))
    line = f.python_function.__code__.co_firstlineno + 2
    with pytest.raises(TypeError, match=rf"made at .*test_tracing.py:{line}, is out of scope at .*test_tracing.py"):
        kept[0] + 1.0

    @tf.function
    def g(x: Any) -> Any:
        for i in tf.range(2):
            kept.append(i)
        return x + tf.cast(kept[-1], tf.float32)

    with pytest.raises(TypeError, match="out of scope"):
        g(tf.constant(1.0))
    with pytest.raises(TypeError, match="out of scope"):
        tf.function(lambda x: x + kept[0])(tf.constant(1.0))


def test_numbers_of_the_program_are_in_the_graph_and_tensors_from_outside_are_operands() -> None:
    outside = tf.constant(3.0)

    @tf.function
    def f(x: Any) -> Any:
        return (x * 0.7 + tf.constant(0.2)) * outside + tf.constant([1.0, 2.0]), 5.0, True

    x = tf.constant([1.0, -1.0])
    with tf.GradientTape() as tape:
        tape.watch(outside)
        y = f(x)[0]
    np.testing.assert_allclose(y.numpy(), [3.7, 0.5], 1e-6)
    np.testing.assert_allclose(tape.gradient(y, outside).numpy(), 0.4, 1e-6)
    concrete = f.get_concrete_function(x)
    assert [t.shape for t in concrete.captured_inputs] == [(), (2,)]
    numbers = {n.step.params["value"] for n in concrete.graph.nodes if n.step.op.kind == "constant"}
    assert {float(np.float32(0.7)), float(np.float32(0.2))} <= numbers
    assert [np.asarray(v).item() for v in f(x)[1:]] == [5.0, True]
