"""`batch_jacobian`: its numbers, its batch axes, and whether examples depend on each other."""

import re
import warnings
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from gradtape.batch_jacobians import BatchDependenceWarning
from tests.jacobian.programs import (
    KERNEL,
    PROGRAMS,
    W35,
    W53,
    Program,
    attention,
    batch_norm,
    layer_norm,
    normal,
    recurrent,
    tape_of,
)

X = normal(4, 3)
IMAGES = normal(3, 4, 4, 2)
SEQUENCES = normal(3, 4, 2)


def batched(name: str) -> bool:
    program = PROGRAMS[name]
    if program.at.ndim < 2:
        return False
    y = program.function(tf.constant(program.at))
    return y.ndim >= 2 and y.shape[0] == program.at.shape[0]


BATCHED = [name for name in PROGRAMS if batched(name)]


@pytest.mark.parametrize("name", BATCHED)
def test_the_numbers_are_tensorflows(name: str) -> None:
    """The sum over the batch of the whole Jacobian's blocks, whether or not examples are independent."""
    tape, y, x = tape_of(PROGRAMS[name])
    full = tape.jacobian(y, x).numpy()
    want = np.moveaxis(full.sum(0), y.ndim - 1, 0)
    found = tape.batch_jacobian(y, x, on_dependence="ignore")
    loop = tape.batch_jacobian(y, x, on_dependence="ignore", experimental_use_pfor=False)
    assert found.shape == (*y.shape, *x.shape[1:])
    np.testing.assert_allclose(found.numpy(), want, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(loop.numpy(), want, rtol=1e-9, atol=1e-11)


def test_enough_programs_have_batches() -> None:
    assert len(BATCHED) >= 25


# ------------------------------------------------------------------ independence


def slopes_of(f: Any, x: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    return tape.batch_jacobian(y, x)


PROVED = {
    "elementwise": (tf.tanh, X),
    "dense": (lambda x: tf.matmul(tf.nn.relu(tf.matmul(x, W35)), W53), X),
    "residual": (lambda x: x + tf.matmul(tf.tanh(tf.matmul(x, W35)), W53), X),
    "layer norm": (layer_norm, X),
    "softmax over features": (tf.nn.softmax, X),
    "log softmax": (tf.nn.log_softmax, X),
    "convolution": (lambda x: tf.nn.conv2d(x, KERNEL, 1, "SAME"), IMAGES),
    "max pooling": (lambda x: tf.nn.max_pool2d(x, 2, 2, "VALID"), IMAGES),
    "average pooling": (lambda x: tf.nn.avg_pool2d(x, 2, 2, "SAME"), IMAGES),
    "flattened": (lambda x: tf.matmul(tf.reshape(x, [3, 32]), tf.constant(normal(32, 2))), IMAGES),
    "merged with the next axis and split": (
        lambda x: tf.reshape(tf.matmul(tf.reshape(x, [-1, 2]), tf.constant(normal(2, 5))), [3, 4, 5]),
        SEQUENCES,
    ),
    "attention within an example": (attention, SEQUENCES),
    "a recurrent net": (recurrent, normal(2, 4, 3)),
    "products within an example": (lambda x: tf.einsum("bti,bsi->bts", x, x), SEQUENCES),
    "sort within an example": (lambda x: tf.sort(x, axis=1), X),
    "top k": (lambda x: tf.math.top_k(x, 2)[0], X),
    "gather of features": (lambda x: tf.gather(x, [2, 0, 2], axis=1), X),
    "gather per example": (lambda x: tf.gather(x, [[0], [1], [2], [0]], batch_dims=1), X),
    "roll of features": (lambda x: tf.roll(x, 1, axis=1), X),
    "reverse of features": (lambda x: x[:, ::-1], X),
    "tile of features": (lambda x: tf.tile(x, [1, 2]), X),
    "pad of features": (lambda x: tf.pad(x, [[0, 0], [1, 1]]), X),
    "concat of features": (lambda x: tf.concat([x, x * x], axis=1), X),
    "cumsum of features": (lambda x: tf.cumsum(x, axis=1), X),
    "matrices": (tf.linalg.inv, np.stack([np.eye(2) * 2 + normal(2, 2) * 0.1] * 3)),
    "there and back": (lambda x: tf.transpose(tf.sin(tf.transpose(x))), X),
    "a product of examples' own matrices": (lambda x: tf.matmul(x, x, transpose_b=True), SEQUENCES),
    "a weight per example": (lambda x: x * tf.constant(normal(4, 1)), X),
    "dropout": (lambda x: tf.nn.dropout(x, 0.5, seed=1), X),
    "a batch of one": (lambda x: tf.nn.softmax(tf.sort(x, axis=0), axis=0), X[:1]),
    "vectorized_map": (lambda x: tf.vectorized_map(tf.nn.softmax, x), X),
    "cut and joined": (lambda x: tf.concat([x[:1], x[1:]], axis=0), X),
    "one by one": (lambda x: tf.stack([tf.tanh(r) for r in tf.unstack(x)]), X),
    "gather of all examples": (lambda x: tf.gather(x, [0, 1, 2, 3]), X),
    "scatter of all examples": (lambda x: tf.scatter_nd([[0], [1], [2], [3]], x, [4, 3]), X),
    "reversed twice": (lambda x: x[::-1][::-1], X),
    "a constant of the batch": (lambda x: x - tf.stop_gradient(tf.reduce_mean(x, 0)), X),
    "chosen by a constant of the batch": (lambda x: tf.where(x > tf.reduce_mean(x, 0), x, -x), X),
    "a Jacobian": (lambda x: slopes_of(tf.tanh, x), X),
}

MIXED = {
    "batch norm": (batch_norm, X, "reduce_mean"),
    "softmax over the batch": (lambda x: tf.nn.softmax(x, axis=0), X, "softmax"),
    "sort of the batch": (lambda x: tf.sort(x, axis=0), X, "gather"),
    "reverse of the batch": (lambda x: tf.reverse(x, [0]), X, "reverse"),
    "matmul over the batch": (lambda x: tf.matmul(x, x, transpose_b=True), X, "contract"),
    "a matrix on the left": (lambda x: tf.matmul(tf.constant(normal(4, 4)), x), X, "contract"),
    "cumsum of the batch": (lambda x: tf.cumsum(x, axis=0), X, "cumsum"),
    "a sum of all": (lambda x: x * tf.reduce_sum(x), X, "reduce_sum"),
    "attention across examples": (lambda x: attention(tf.transpose(x, [1, 0, 2])), normal(3, 3, 2), "softmax"),
    "cumprod of the batch": (lambda x: tf.math.cumprod(x, axis=0), X, "cumprod"),
    "inverse of the batch": (tf.linalg.inv, np.eye(3) * 2 + normal(3, 3) * 0.1, "inverse"),
    "transposed": (lambda x: tf.transpose(x) * 2.0, normal(3, 3), "transpose"),
    "roll of the batch": (lambda x: tf.roll(x, 1, axis=0), X, "slice"),
    "reversed by a subscript": (lambda x: x[::-1], X, "slice"),
    "stacked in another order": (lambda x: tf.stack(tf.unstack(x)[::-1]), X, "slice"),
    "gather of other examples": (lambda x: tf.gather(x, [1, 0, 3, 2]), X, "gather_rows"),
    "segments of examples": (lambda x: tf.math.unsorted_segment_sum(x, [0, 0, 1, 2], 4), X, "scatter_add"),
    "minus the first": (lambda x: x - x[:1], X, "subtract"),
    "a roll in a function": (lambda x: tf.function(lambda v: tf.roll(v, 1, axis=0))(x), X, "slice"),
    "vectors that several results share": (
        lambda x: x * tf.reduce_sum(tf.linalg.svd(x)[1], 0)[..., :1],
        SEQUENCES,
        "reduce_sum",
    ),
}

UNKNOWN = {
    "a custom gradient": (tf.custom_gradient(lambda x: (x * x, lambda up: up)), X, "a custom gradient"),
}


def reported(function: Any, at: np.ndarray, **how: Any) -> list[warnings.WarningMessage]:
    tape, y, x = tape_of(Program(function, at))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        tape.batch_jacobian(y, x, **how)
    return [w for w in found if issubclass(w.category, BatchDependenceWarning)]


@pytest.mark.parametrize("name", PROVED)
def test_independent_examples_are_silent(name: str) -> None:
    function, at = PROVED[name]
    assert not [str(w.message) for w in reported(function, at)]
    tape, y, x = tape_of(Program(function, at))
    tape.batch_jacobian(y, x, on_dependence="error")
    if len(at) > 1:
        full = tape.jacobian(y, x).numpy()
        for i in range(len(at)):
            others = np.delete(full[i], i, axis=y.ndim - 1)
            assert not others.any(), "the verdict is wrong"


@pytest.mark.parametrize("name", MIXED)
def test_mixed_examples_name_the_op(name: str) -> None:
    function, at, op = MIXED[name]
    (warning,) = reported(function, at)
    assert f"mixed at op `{op}`" in str(warning.message)
    assert warning.filename == __file__, "the warning should point to the caller"
    tape, y, x = tape_of(Program(function, at))
    with pytest.raises(ValueError, match=re.escape(f"`{op}`")):
        tape.batch_jacobian(y, x, on_dependence="error")


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_cannot_be_proved_says_so(name: str) -> None:
    function, at, op = UNKNOWN[name]
    (warning,) = reported(function, at)
    assert f"could not be proved because of op `{op}`" in str(warning.message)
    assert not reported(function, at, on_dependence="ignore")


def test_positions_that_are_not_known_yet() -> None:
    """While a function is traced, nobody knows which examples a gather takes."""
    x, ids = tf.constant(X), tf.constant([0, 1, 2, 3])

    @tf.function
    def traced(v: Any, positions: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(v)
            y = tf.gather(v, positions)
        return tape.batch_jacobian(y, v)

    with pytest.warns(BatchDependenceWarning, match="could not be proved because of op `gather_rows`"):
        traced(x, ids)


def test_positions_are_read_anew() -> None:
    """One structure, other positions: another verdict."""
    for _ in range(2):
        assert not reported(lambda x: tf.concat([x[:2], x[2:]], 0), X)
        assert reported(lambda x: tf.concat([x[2:], x[:2]], 0), X)


def test_where_the_op_was_called() -> None:
    def mixing(x: Any) -> Any:
        y = x * 1.25 - 0.75
        return tf.roll(y, 2, axis=0)

    line = mixing.__code__.co_firstlineno + 2
    (warning,) = reported(mixing, X)
    assert f"(`roll` called at {__file__}:{line})" in str(warning.message)

    def twin(x: Any) -> Any:
        y = x * 1.25 - 0.75
        return tf.roll(y, 2, axis=0)

    (warning,) = reported(twin, X)  # of the same structure
    assert f"(`roll` called at {__file__}:{twin.__code__.co_firstlineno + 2})" in str(warning.message)


def test_where_an_op_was_called_that_nobody_asked_for_before() -> None:
    def first(x: Any) -> Any:
        return tf.roll(x * 1.5 - 0.25, 3, axis=0)

    def second(x: Any) -> Any:
        return tf.roll(x * 1.5 - 0.25, 3, axis=0)

    tape, y, x = tape_of(Program(first, X))
    tape.gradient(y, x)
    (warning,) = reported(second, X)
    line = first.__code__.co_firstlineno + 1
    assert f"in the first program of this structure `roll` called at {__file__}:{line}" in str(warning.message)
    (warning,) = reported(second, X)
    assert f"(`roll` called at {__file__}:{line + 3})" in str(warning.message)


def test_what_was_recorded_beside_the_target_says_nothing() -> None:
    x = tf.constant(X)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = tf.tanh(x)
        tf.reduce_sum(y * batch_norm(x))
    tape.batch_jacobian(y, x, on_dependence="error")


def test_an_unknown_way_to_take_dependence() -> None:
    tape, y, x = tape_of(Program(tf.tanh, X))
    with pytest.raises(ValueError, match="'shout'"):
        tape.batch_jacobian(y, x, on_dependence="shout")


# ------------------------------------------------------------------ batch axes


@pytest.mark.parametrize("axes", [0, 1, -2, (0, 1), (1, 0)])
def test_other_batch_axes(axes: Any) -> None:
    x = normal(2, 3, 4)
    w = tf.constant(normal(4, 5))
    tape, y, source = tape_of(Program(lambda v: tf.tanh(v @ w), x))
    found = tape.batch_jacobian(y, source, batch_axes=axes, on_dependence="error").numpy()
    full = tape.jacobian(y, source).numpy()  # a b o c d i
    want = {
        0: np.einsum("aboadi->abodi", full),
        1: np.einsum("abocbi->baoci", full),
        -2: np.einsum("abocbi->baoci", full),
        (0, 1): np.einsum("aboabi->aboi", full),
        (1, 0): np.einsum("aboabi->baoi", full),
    }[axes]
    np.testing.assert_allclose(found, want, rtol=1e-12)
    loop = tape.batch_jacobian(y, source, batch_axes=axes, experimental_use_pfor=False)
    np.testing.assert_allclose(loop.numpy(), want, rtol=1e-12)


def test_a_batch_axis_that_mixes_is_found() -> None:
    tape, y, x = tape_of(Program(lambda v: tf.nn.softmax(v, axis=1), normal(2, 3, 4)))
    tape.batch_jacobian(y, x, on_dependence="error")
    tape.batch_jacobian(y, x, batch_axes=2, on_dependence="error")
    with pytest.raises(ValueError, match="mixed"):
        tape.batch_jacobian(y, x, batch_axes=1, on_dependence="error")
    with pytest.raises(ValueError, match="mixed"):
        tape.batch_jacobian(y, x, batch_axes=(0, 1), on_dependence="error")


@pytest.mark.parametrize("axes", [3, -4, (0, 0), (0, 3)])
def test_batch_axes_that_are_none(axes: Any) -> None:
    tape, y, x = tape_of(Program(tf.tanh, normal(2, 3, 4)))
    with pytest.raises(ValueError, match="batch_axes"):
        tape.batch_jacobian(y, x, batch_axes=axes)


# ------------------------------------------------------------------ structures, connections, errors


def test_a_structure_of_sources() -> None:
    x, w = tf.constant(X), tf.Variable(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x * w
    found = tape.batch_jacobian(y, {"x": x, "w": [w]})
    want = np.einsum("bi,ij->bij", X, np.eye(3))
    np.testing.assert_array_equal(found["x"].numpy(), want)
    np.testing.assert_array_equal(found["w"][0].numpy(), want)


def test_an_unconnected_source_gives_zeros() -> None:
    x, lost = tf.constant(X), tf.constant(normal(4, 2))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([x, lost])
        y = tf.tanh(x)
    np.testing.assert_array_equal(tape.batch_jacobian(y, lost).numpy(), np.zeros((4, 3, 2)))


@pytest.mark.parametrize("loop", [False, True])
def test_an_empty_batch(loop: bool) -> None:
    tape, y, x = tape_of(Program(lambda v: tf.tanh(tf.matmul(v, W35)), np.zeros((0, 3))))
    found = tape.batch_jacobian(y, x, experimental_use_pfor=not loop)
    assert found.shape == (0, 5, 3)
    assert found.dtype == tf.float64


def test_a_target_that_the_tape_never_saw() -> None:
    x = tf.constant(X)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        tf.tanh(x)
    late = tf.tanh(x)
    with pytest.raises(ValueError, match="has not recorded the target"):
        tape.batch_jacobian(late, x)


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda x: tf.concat([x, x], axis=0), "Need first dimension"),
        (lambda x: tf.reduce_sum(x, axis=1), "rank at least 2"),
    ],
)
def test_shapes_without_a_batch(function: Any, text: str) -> None:
    tape, y, x = tape_of(Program(function, X))
    with pytest.raises(ValueError, match=text):
        tape.batch_jacobian(y, x)


def test_in_an_outer_tape() -> None:
    x = tf.constant(X)
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = tf.tanh(tf.matmul(x, W35))
        j = inner.batch_jacobian(y, x)
        size = tf.reduce_sum(j * j)
    slope = outer.gradient(size, x).numpy()
    assert slope.shape == X.shape
    h = 1e-6
    value = lambda a: np.sum(((1 - np.tanh(a @ W35.numpy()) ** 2)[:, None, :] * W35.numpy()) ** 2)  # noqa: E731
    for at in np.ndindex(*X.shape):
        e = np.zeros_like(X)
        e[at] = h
        assert slope[at] == pytest.approx((value(X + e) - value(X - e)) / (2 * h), rel=1e-5, abs=1e-7)
