"""Sources and targets in any structure; what the gradient of several, of none and of the same twice is."""

import collections
from dataclasses import dataclass
from typing import Any

import numpy as np
import optree
import pytest
from optree.registry import __GLOBAL_NAMESPACE as GLOBAL_NAMESPACE

import gradtape as tf

Pair = collections.namedtuple("Pair", "left right")


@dataclass
class Box:
    weight: Any
    label: str


register: Any = optree.register_pytree_node
register(Box, lambda b: ((b.weight,), b.label), lambda label, c: Box(c[0], label), namespace=GLOBAL_NAMESPACE)


def plain(structure: Any) -> Any:
    """Tensors in a structure as Python numbers."""
    return optree.tree_map(lambda t: None if t is None else t.numpy().tolist(), structure, none_is_leaf=True)


@pytest.fixture
def recorded() -> tuple[tf.GradientTape, Any, Any, Any, Any]:
    a, b, c = tf.Variable(1.0), tf.Variable([2.0, 3.0]), tf.constant(4.0)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(c)
        y = a * tf.reduce_sum(b) * c
    return tape, y, a, b, c


def test_the_result_has_the_structure_of_the_sources(recorded: Any) -> None:
    tape, y, a, b, c = recorded
    assert plain(tape.gradient(y, a)) == 20.0
    assert plain(tape.gradient(y, [a, b])) == [20.0, [4.0, 4.0]]
    assert plain(tape.gradient(y, (a, b))) == (20.0, [4.0, 4.0])
    assert plain(tape.gradient(y, {"z": a, "a": b})) == {"z": 20.0, "a": [4.0, 4.0]}
    assert plain(tape.gradient(y, Pair(b, c))) == Pair([4.0, 4.0], 5.0)
    assert plain(tape.gradient(y, [a, {"k": (b, [c])}, (a,)])) == [20.0, {"k": ([4.0, 4.0], [5.0])}, (20.0,)]
    assert isinstance(tape.gradient(y, Pair(a, b)), Pair)


def test_dictionaries_keep_their_own_order(recorded: Any) -> None:
    tape, y, a, b, _ = recorded
    assert list(tape.gradient(y, {"z": a, "a": b})) == ["z", "a"]
    ordered = tape.gradient(y, collections.OrderedDict([("z", a), ("a", b)]))
    assert isinstance(ordered, collections.OrderedDict)
    assert list(ordered) == ["z", "a"]


def test_registered_containers_are_structures(recorded: Any) -> None:
    tape, y, a, _, _ = recorded
    found = tape.gradient(y, [Box(a, "first")])
    assert isinstance(found[0], Box)
    assert (float(found[0].weight), found[0].label) == (20.0, "first")


@pytest.mark.parametrize("empty", [[], (), {}])
def test_no_sources_no_gradients(recorded: Any, empty: Any) -> None:
    tape, y, *_ = recorded
    assert tape.gradient(y, empty) == empty


def test_a_source_may_be_named_twice(recorded: Any) -> None:
    tape, y, a, _, c = recorded
    assert plain(tape.gradient(y, [c, a, c])) == [5.0, 20.0, 5.0]


def test_targets_add_up_in_any_structure() -> None:
    x = tf.constant(2.0)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        a, b = x * 3.0, x * x
    assert float(tape.gradient([a, b], x)) == 7.0
    assert float(tape.gradient({"p": a, "q": (b, [a])}, x)) == 10.0
    assert float(tape.gradient(Pair(a, b), x)) == 7.0
    assert float(tape.gradient([b, b], x)) == 8.0
    assert float(tape.gradient(Box(b, "target"), x)) == 4.0
    assert tape.gradient([], x) is None


def test_a_source_may_be_a_target() -> None:
    x, v = tf.constant([2.0, 3.0]), tf.Variable(5.0)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        b = x * x * v
    assert plain(tape.gradient(x, x)) == [1.0, 1.0]
    assert plain(tape.gradient([x, b], x)) == [21.0, 31.0]
    assert plain(tape.gradient(v, v)) == 1.0
    assert plain(tape.gradient([v, b], [v, x])) == [14.0, [20.0, 30.0]]


def test_a_source_may_be_a_target_that_the_tape_never_saw() -> None:
    x = tf.constant([2.0, 3.0])
    n = tf.constant([1, 2])
    with tf.GradientTape(persistent=True) as tape:
        pass
    assert plain(tape.gradient(x, x)) == [1.0, 1.0]
    assert plain(tape.gradient([x, x], [x])) == [[2.0, 2.0]]
    assert plain(tape.gradient(x, x, output_gradients=tf.constant([5.0, 7.0]))) == [5.0, 7.0]
    assert tape.gradient(n, n) is None


def test_results_on_the_way_are_sources_too() -> None:
    x = tf.constant(3.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x * x
        z = y * y + x
    assert plain(tape.gradient(z, [x, y])) == [109.0, 18.0]


def test_every_result_of_an_operation_is_a_source() -> None:
    x = tf.constant([1.0, 2.0, 3.0, 4.0])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        parts = tf.split(x * x, 2)
        y = tf.reduce_sum(parts[0] * parts[1])
    assert plain(tape.gradient(y, parts)) == [[9.0, 16.0], [1.0, 4.0]]
    assert plain(tape.gradient(parts[1], parts)) == [None, [1.0, 1.0]]


def test_no_gradient_flows_against_the_order_of_computation() -> None:
    x = tf.constant(3.0)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = x * x
        z = y + 1.0
    assert tape.gradient(y, z) is None
    assert tape.gradient(x, y) is None


def test_a_target_made_outside_has_no_gradient() -> None:
    x = tf.constant(2.0)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        a = x * 3.0
    assert tape.gradient(tf.stack([a, a]), x) is None
    assert float(tape.gradient([tf.stack([a, a]), a], x)) == 3.0


def test_gradients_have_the_shape_and_dtype_of_their_sources() -> None:
    shapes: list[tuple[tuple[int, ...], str]] = [
        ((), "float32"),
        ((1,), "float64"),
        ((2, 0), "float32"),
        ((2, 1, 3), "float16"),
        ((3,), "bfloat16"),
    ]
    for shape, dtype in shapes:
        x = tf.ones(shape, dtype)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.cast(tf.reduce_sum(x * x), tf.float64) * 2.0
        g = tape.gradient(y, x)
        assert (g.shape, g.dtype) == (x.shape, x.dtype)
        assert np.array_equal(tf.cast(g, tf.float32), np.full(shape, 4.0, "float32"))


def test_sources_of_one_value_and_different_names_are_different() -> None:
    x = tf.constant(3.0)
    y = tf.identity(x)
    with tf.GradientTape() as tape:
        tape.watch([x, y])
        z = x * 2.0 + y * 5.0
    assert plain(tape.gradient(z, [x, y])) == [2.0, 5.0]
