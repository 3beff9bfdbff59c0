"""Subscripts as NumPy's, where TensorFlow has them too; the others are refused with the way out."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gradtape as tf

X = np.arange(60.0).reshape(4, 5, 3)
KEYS: list[Any] = [
    1,
    -1,
    (1, 2, 0),
    (-1, -5, -3),
    np.int64(2),
    slice(None),
    slice(1, 3),
    slice(None, None, 2),
    slice(None, None, -1),
    slice(3, 0, -2),
    slice(10, -10, -1),
    slice(2, 2),
    slice(3, 1),
    slice(-3, -1),
    slice(-100, 100),
    (slice(1, 3), slice(None, None, 2)),
    (slice(None, None, -1), slice(4, 0, -2)),
    (slice(None), -1),
    (slice(None), 2, slice(0, 2)),
    Ellipsis,
    (Ellipsis, 1),
    (0, Ellipsis),
    (0, Ellipsis, slice(None, None, -1)),
    (1, 2, 0, Ellipsis),
    None,
    (None, 1),
    (slice(None), None, 0),
    (Ellipsis, None),
    (None, Ellipsis, None, 0),
    (),
]


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_like_numpy(key: Any) -> None:
    for x in (tf.constant(X), tf.Variable(X)):
        got = x[key]
        assert isinstance(got, tf.Tensor)
        assert got.shape == X[key].shape
        assert np.array_equal(got, X[key])


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_gradients_go_to_where_the_elements_came_from(key: Any) -> None:
    v = tf.Variable(X)
    w = np.cos(np.arange(X[key].size)).reshape(X[key].shape)
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(v[key] * w)
    want = np.zeros_like(X)
    want[key] += w
    assert np.array_equal(tape.gradient(y, v), want)


def test_tensors_as_indices_and_bounds() -> None:
    x = tf.constant(X)
    one, two = tf.constant(1), tf.constant(2, tf.int64)
    assert np.array_equal(x[one, two], X[1, 2])
    assert np.array_equal(x[one : one + 2, ::two], X[1:3, ::2])
    assert np.array_equal(x[tf.Variable(1) :], X[1:])
    assert np.array_equal(x[tf.newaxis, one], X[None, 1])
    assert np.array_equal(x[np.int32(1) : np.int64(3)], X[1:3])


def test_elements_are_values_and_not_views_of_what_changes() -> None:
    v = tf.Variable([1.0, 2.0, 3.0])
    part = v[1:]
    v.assign([7.0, 8.0, 9.0])
    assert part.numpy().tolist() == [2.0, 3.0]


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (4, r"slice index 4 of dimension 0 out of bounds"),
        (-5, r"slice index -5 of dimension 0 out of bounds"),
        ((0, 5), r"slice index 5 of dimension 1 out of bounds"),
        ((0, 0, 0, 0), r"Too many indices.*\(4, 5, 3\).*3 axes"),
        ((Ellipsis, 0, Ellipsis), "Multiple ellipses"),
        (slice(None, None, 0), "step"),
    ],
)
def test_out_of_range(key: Any, words: str) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=words):
        tf.constant(X)[key]


def test_nothing_in_a_scalar() -> None:
    x = tf.constant(1.0)
    assert float(x[...]) == 1.0
    assert x[tf.newaxis].shape == [1]
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"Too many indices.*\(\)"):
        x[0]


@pytest.mark.parametrize(
    ("key", "way"),
    [
        (([0, 1], [0, 1]), "tf.gather"),
        (np.array([0, 1]), "tf.gather"),
        (tf.constant([0, 1]), "tf.gather"),
        (1.0, "tf.gather"),
        (tf.constant(1.0), "tf.gather"),
        ("a", "tf.gather"),
        (slice(0.5, 2.0), "tf.gather"),
        ((True, 0), "tf.boolean_mask"),
        ((slice(None), X[0, :, 0] > 3.0), "tf.boolean_mask"),
        ((X[:, 0, 0] > 3.0, 0), "tf.boolean_mask"),
        ((tf.constant(X[:, 0, 0]) > 3.0, ...), "tf.boolean_mask"),
        ([True, 0], "tf.boolean_mask"),
    ],
    ids=lambda v: repr(v)[:24],
)
def test_what_subscripts_do_not_take(key: Any, way: str) -> None:
    with pytest.raises(TypeError, match=rf"got .*{way}"):
        tf.constant(X)[key]


MASKS = [
    X[:, 0, 0] > 20.0,
    X[..., 0] % 2 == 0,
    X > 7.0,
    X < 0.0,
    np.zeros((4, 5), bool),
    [True, False, False, True],
    [np.True_, np.False_, np.False_, np.True_],
    [[True, False, True, False, True]] * 4,
]


@pytest.mark.parametrize("mask", MASKS, ids=lambda m: str(np.shape(m)))
def test_masks_pick_what_numpys_do_and_hand_the_gradient_back(mask: Any) -> None:
    want = X[np.array(mask)]
    kinds = [mask, tf.constant(mask), tf.Variable(mask), np.array(mask)]
    for key in kinds:
        for x in (tf.constant(X), tf.Variable(X)):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = x[key]
                z = tf.reduce_sum(y**2)
            assert y.shape == want.shape and np.array_equal(y, want)
            grad = np.zeros_like(X)
            grad[np.array(mask)] = 2 * want
            assert np.array_equal(tf.convert_to_tensor(tape.gradient(z, x)), grad)


def test_jacobians_and_second_derivatives_through_masks() -> None:
    x = tf.constant(X[0])
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = (x**3)[x > 5.0]
        g = tape.gradient(y, x)
    rows = tape.jacobian(y, x, experimental_use_pfor=False)
    assert np.array_equal(tape.jacobian(y, x), rows)
    assert rows.shape == [9, 5, 3]
    assert np.array_equal(outer.gradient(g, x), np.where(X[0] > 5.0, 6 * X[0], 0.0))


def test_masks_of_traced_functions() -> None:
    kept = tf.constant([True, False, True])
    pick = tf.function(lambda x: x[kept] * 2.0)
    assert pick(tf.constant([1.0, 2.0, 3.0])).numpy().tolist() == [2.0, 6.0]
    assert tf.vectorized_map(lambda x: x[kept], tf.constant([[1.0, 2.0, 3.0]])).numpy().tolist() == [[1.0, 3.0]]
    with pytest.raises(TypeError, match=r"picks is not known.*tf\.where\(mask"):
        tf.vectorized_map(lambda x: x[x > 1.0], tf.constant([[1.0, 2.0, 3.0]]))


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (True, "cannot be scalar"),
        (np.True_, "cannot be scalar"),
        (tf.constant(False), "cannot be scalar"),
        (np.array(True), "cannot be scalar"),
        (np.ones(3, bool), r"\(4,\) and \(3,\) are incompatible"),
        (np.ones((4, 1), bool), r"\(4, 5\) and \(4, 1\) are incompatible"),
        (np.ones((4, 5, 3, 1), bool), "incompatible"),
        ([[True, False], [True]], "non-rectangular"),
    ],
    ids=lambda v: repr(v)[:24],
)
def test_masks_that_do_not_fit(mask: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        tf.constant(X)[mask]


def test_lists_are_read_as_tuples() -> None:
    x = tf.constant(X)
    assert np.array_equal(x[[1, 2]], X[1, 2])
    assert np.array_equal(x[[1, slice(None, 2)]], X[1, :2])
    assert np.array_equal(x[[]], X)


INDEX = st.integers(-7, 7)
SLICE = st.builds(slice, st.none() | INDEX, st.none() | INDEX, st.none() | st.integers(-3, 3).filter(bool))
PART = INDEX | SLICE | st.just(None)
KEY = st.lists(PART, max_size=4).flatmap(
    lambda parts: st.integers(0, len(parts)).map(lambda i: (*parts[:i], Ellipsis, *parts[i:])) | st.just(tuple(parts))
)


@given(KEY)
def test_any_subscript_is_numpys_or_an_error_of_both(key: Any) -> None:
    try:
        want = X[key]
    except IndexError:
        with pytest.raises(tf.errors.InvalidArgumentError):
            tf.constant(X)[key]
        return
    got = tf.constant(X)[key]
    assert got.shape == want.shape
    assert np.array_equal(got, want)
