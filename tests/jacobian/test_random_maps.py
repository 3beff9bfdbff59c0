"""Random numbers in `tf.vectorized_map`: each slice draws its own, seeds of the stateless functions are shared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradtape as tf

X = np.ones((5, 8), np.float32)
WEIGHT = tf.Variable(tf.ones([8]))


@pytest.fixture(autouse=True)
def seed() -> None:
    tf.random.set_seed(5)


def assert_apart(*rows: Any) -> None:
    """No two slices, of one draw or of several, hold the same numbers."""
    found = np.concatenate([np.asarray(r).reshape(len(r), -1) for r in rows])
    assert len(np.unique(found, axis=0)) == len(found)


@tf.function
def noise(row: Any) -> Any:
    return row + tf.random.normal([8])


@tf.function
def noise_per_round(count: Any) -> Any:
    total = tf.zeros([8])
    k = 0
    while k < count:
        total = total + tf.random.uniform([8])
        k += 1
    if count > 2:
        total = total + tf.random.normal([8])
    return total


# What is mapped draws without a seed of its own; the last axis is long enough that equal rows are no chance.
DRAWS: dict[str, Any] = {
    "uniform": lambda row: tf.random.uniform([8]),
    "doubles": lambda row: tf.random.uniform([2, 4], dtype=tf.float64),
    "integers": lambda row: tf.random.uniform([8], 0, 1 << 30, tf.int32),
    "a seeded sequence": lambda row: tf.random.normal([8], seed=3),
    "truncated": lambda row: tf.random.truncated_normal([8]),
    "gamma, of the slice's own parameter": lambda row: tf.random.gamma([8], row[0]),
    "Poisson, of the slice's own rates": lambda row: tf.random.poisson([2], 1e6 * row),
    "categories": lambda row: tf.random.categorical([tf.zeros([1000])], 8),
    "an order": lambda row: tf.random.shuffle(tf.range(50)),
    "dropout": lambda row: tf.nn.dropout(tf.ones([64]), 0.5),
    "a traced function": noise,
    "a loop": lambda row: noise_per_round(tf.cast(3 * row[0], tf.int32)),
    "a tape inside": lambda row: tf.jvp(lambda r: r * tf.random.uniform([8]), [row], [row])[1],
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=list(DRAWS))
def test_slices_draw_their_own(draw: Any) -> None:
    assert_apart(tf.vectorized_map(draw, X), tf.vectorized_map(draw, X))
    traced = tf.function(lambda x: tf.vectorized_map(draw, x))
    assert_apart(traced(X), traced(X))


def test_draws_of_one_slice_differ() -> None:
    two = tf.vectorized_map(lambda row: [tf.random.uniform([8]), tf.random.uniform([8])], X)
    twice = tf.vectorized_map(lambda row: [noise(row), noise(row)], X)
    assert_apart(*two, *twice)


def test_seeds_repeat_what_is_drawn() -> None:
    first = tf.vectorized_map(DRAWS["uniform"], X)
    tf.random.set_seed(5)
    np.testing.assert_array_equal(first, tf.vectorized_map(DRAWS["uniform"], X))


def test_stateless_draws_are_one_for_all() -> None:
    found = tf.vectorized_map(lambda row: tf.random.stateless_uniform([8], seed=[1, 2]), X).numpy()
    np.testing.assert_array_equal(found, np.broadcast_to(tf.random.stateless_uniform([8], seed=[1, 2]), (5, 8)))
    with pytest.raises(tf.NotVectorizable, match="seeds differ"):
        tf.vectorized_map(lambda seed: tf.random.stateless_uniform([8], seed), np.ones((5, 2), np.int32))
    with pytest.raises(tf.NotVectorizable, match="the same for all slices"):
        tf.vectorized_map(lambda row: tf.random.stateless_gamma([8], [1, 2], row[0]), X)


def test_maps_of_maps() -> None:
    nested = tf.vectorized_map(lambda row: tf.vectorized_map(lambda e: tf.random.uniform([8]), row), X)
    assert_apart(tf.reshape(nested, [40, 8]))


def test_rounds_that_some_slices_do_not_run() -> None:
    """Each round's numbers are others, whoever is done."""
    counts = tf.constant([0, 1, 2, 1, 2])
    found = tf.vectorized_map(noise_per_round, counts).numpy()
    np.testing.assert_array_equal(found[0], np.zeros(8))
    assert_apart(found[1:])


def test_generators() -> None:
    generator = tf.random.Generator.from_seed(1)
    draw = lambda row: generator.normal([8])  # noqa: E731
    first, second = tf.vectorized_map(draw, X), tf.vectorized_map(draw, X)
    assert_apart(first, second, tf.function(lambda x: tf.vectorized_map(draw, x))(X))
    np.testing.assert_array_equal(
        generator.state, tf.random.Generator.from_seed(1).state + tf.constant([3, 0, 0], tf.int64)
    )


def test_variables_take_no_slices() -> None:
    """So numbers of a generator that would be the same for all slices are refused, too."""
    variable, generator = tf.Variable(0.0), tf.random.Generator.from_seed(1)
    drawn = tf.function(lambda: generator.normal([8]))

    def in_rounds(a: Any) -> Any:
        for _ in tf.range(3):
            a = a + generator.normal([])
        return a

    f = tf.function(in_rounds)
    for mapped in (variable.assign, variable.assign_add, tf.function(lambda a: drawn() + a), lambda a: drawn(), f):
        for run in (tf.vectorized_map, tf.function(lambda f, x: tf.vectorized_map(f, x))):
            with pytest.raises(TypeError, match=r"the variable `.*` would take what `tf\.vectorized_map` computes"):
                run(mapped, X[:, 0])
    with pytest.raises(TypeError, match=r"the variable `.*` would take what `tf\.vectorized_map` computes"):
        tf.function(lambda x: tf.vectorized_map(in_rounds, x))(X[:, 0])


def test_gradients_for_each_example_have_masks_of_their_own() -> None:
    found = tf.per_example_gradients(lambda x: tf.reduce_sum(tf.nn.dropout(x * WEIGHT, 0.5)), WEIGHT, tf.ones([30, 8]))
    assert len(np.unique(found, axis=0)) > 10
    assert set(np.unique(found)) == {0.0, 2.0}


def test_rows_of_a_jacobian_share_a_draw() -> None:
    x = tf.constant(X[0])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = noise_times(x)
        z = tf.vectorized_map(lambda a: a * tf.random.uniform([]), x)
    for found in (y, z):
        np.testing.assert_array_equal(tape.jacobian(found, x), np.diag(found))


def noise_times(x: Any) -> Any:
    return x * tf.random.uniform([8])


def test_moments_over_slices() -> None:
    """The numbers of all slices together are uniform, and those of two draws are not correlated."""
    n = 4000
    a, b = (
        np.asarray(t) - 0.5 for t in tf.vectorized_map(lambda e: [tf.random.uniform([]), noise_of(e)], tf.zeros([n]))
    )
    wide = 6 / np.sqrt(12 * n)
    assert abs(a.mean()) < wide and abs(b.mean()) < wide
    assert abs((a * b).mean()) < 6 / 12 / np.sqrt(n) and abs((a[1:] * a[:-1]).mean()) < 6 / 12 / np.sqrt(n)


@tf.function
def noise_of(e: Any) -> Any:
    return e + tf.random.uniform([])
