"""`tape.hessian` and `tf.hessian`: blocks, structures and the flat form, against nested tapes and differences."""

from typing import Any

import numpy as np
import pytest

import gradtape as tf
from tests.jacobian.programs import W33, W35, W53, by_rows, layer_norm, normal

X = normal(3)
BATCH = tf.constant(normal(6, 3))
LABELS = [0, 2, 1, 0, 2, 1]


def rosenbrock(x: Any) -> Any:
    return tf.reduce_sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


SCALARS: dict[str, tuple[Any, np.ndarray]] = {
    "cubes": (lambda x: tf.reduce_sum(x**3), X),
    "rosenbrock": (rosenbrock, normal(4)),
    "a quadratic form": (lambda x: tf.tensordot(x, tf.linalg.matvec(W33, x), 1), X),
    "logsumexp": (tf.reduce_logsumexp, X),
    "of a matrix": (lambda w: tf.reduce_sum(tf.tanh(tf.matmul(BATCH, w)) ** 2), normal(3, 2)),
    "cross entropy": (
        lambda w: tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(LABELS, tf.matmul(BATCH, w))),
        normal(3, 3),
    ),
    "two layers": (lambda w: tf.reduce_sum(tf.matmul(tf.tanh(tf.matmul(BATCH, w)), W53[:2]) ** 2), normal(3, 2)),
    "layer norm": (lambda x: tf.reduce_sum(layer_norm(x) ** 3), normal(2, 3)),
    "log determinant": (lambda a: tf.math.log(tf.linalg.det(a)), 2 * np.eye(2) + normal(2, 2) * 0.1),
    "a scalar": (lambda x: tf.sin(x) * x, np.array(0.4)),
    "linear": (lambda x: tf.reduce_sum(x * X), X),
    "gather": (lambda x: tf.reduce_sum(tf.gather(x, [0, 0, 2]) ** 3), X),
}


def nested(function: Any, x: Any) -> np.ndarray:
    """Rows of the gradient one by one."""
    with tf.GradientTape(persistent=True) as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = function(x)
        g = inner.gradient(y, x)
    return np.asarray(by_rows(outer, g, x).numpy())


@pytest.mark.parametrize("name", SCALARS)
def test_against_nested_tapes(name: str) -> None:
    function, at = SCALARS[name]
    x = tf.constant(at)
    want = nested(function, x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    found = tape.hessian(y, x)
    assert found.shape == at.shape + at.shape
    assert found.dtype == tf.float64
    np.testing.assert_allclose(found.numpy(), want, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(tf.hessian(function, x).numpy(), want, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", SCALARS)
def test_against_differences_of_gradients(name: str) -> None:
    function, at = SCALARS[name]

    def gradient(a: np.ndarray) -> np.ndarray:
        x = tf.constant(a)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
        return tf.convert_to_tensor(tape.gradient(y, x)).numpy()

    found = tf.hessian(function, tf.constant(at)).numpy().reshape(at.size, at.size)
    h = 1e-5
    for k in range(at.size):
        e = (np.eye(at.size)[k] * h).reshape(at.shape)
        with tf.device("/CPU:0"):  # wherever the Hessian is computed
            slope = (gradient(at + e) - gradient(at - e)).reshape(-1) / (2 * h)
        np.testing.assert_allclose(found[:, k], slope, rtol=1e-5, atol=1e-5)


# ------------------------------------------------------------------ several sources


def model() -> tuple[Any, dict[str, Any], Any]:
    """A network's loss on a persistent tape, and all second derivatives from nested tapes."""
    weights = {"w": tf.Variable(W35 * 0.5), "b": tf.Variable(normal(5)), "v": [tf.Variable(W53 * 0.5)]}
    flat = [weights["w"], weights["b"], weights["v"][0]]
    with tf.GradientTape(persistent=True) as outer:
        with tf.GradientTape(persistent=True) as tape:
            hidden = tf.tanh(tf.matmul(BATCH, weights["w"]) + weights["b"])
            logits = tf.matmul(hidden, weights["v"][0])
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(LABELS, logits))
        gradients = tape.gradient(loss, flat)
    want = [[outer.jacobian(g, s).numpy() for s in flat] for g in gradients]
    return (tape, loss), weights, want


def test_blocks_in_the_structure_of_the_sources_twice() -> None:
    (tape, loss), weights, want = model()
    found = tape.hessian(loss, weights)
    assert set(found) == {"w", "b", "v"}
    names = ["w", "b", "v"]

    def at(tree: Any, name: str) -> Any:
        return tree[name][0] if name == "v" else tree[name]

    for i, row in enumerate(names):
        for j, column in enumerate(names):
            block = at(at(found, row), column)
            np.testing.assert_allclose(block.numpy(), want[i][j], rtol=1e-9, atol=1e-11, err_msg=f"{row} {column}")


def test_one_flat_matrix() -> None:
    (tape, loss), weights, want = model()
    sources = [weights["w"], weights["b"], weights["v"][0]]
    sizes = [15, 5, 15]
    matrix, unflatten = tape.hessian(loss, sources, flat=True)
    full = np.block([[want[i][j].reshape(sizes[i], sizes[j]) for j in range(3)] for i in range(3)])
    np.testing.assert_allclose(matrix.numpy(), full, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(matrix.numpy(), matrix.numpy().T, rtol=1e-11, atol=1e-14)
    step = unflatten(np.arange(35.0))
    assert [tuple(s.shape) for s in step] == [(3, 5), (5,), (5, 3)]
    np.testing.assert_array_equal(np.concatenate([s.numpy().reshape(-1) for s in step]), np.arange(35.0))
    with pytest.raises(ValueError, match="35"):
        unflatten(np.arange(34.0))


def test_blocks_that_are_not_connected_are_zeros() -> None:
    x, z, lost = tf.constant(X), tf.constant([[1.0, 2.0]], tf.float64), tf.constant([1.0])
    with tf.GradientTape() as tape:
        tape.watch([x, z, lost])
        y = tf.reduce_sum(x**2) + tf.reduce_sum(z**3)
    found = tape.hessian(y, [x, z, lost])
    np.testing.assert_allclose(found[0][0].numpy(), 2 * np.eye(3))
    np.testing.assert_array_equal(found[0][1].numpy(), np.zeros((3, 1, 2)))
    np.testing.assert_array_equal(found[1][0].numpy(), np.zeros((1, 2, 3)))
    np.testing.assert_array_equal(found[2][2].numpy(), [[0.0]])
    np.testing.assert_allclose(found[1][1].numpy().reshape(2, 2), np.diag([6.0, 12.0]))


def test_one_source_twice() -> None:
    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(x**3)
    found = tape.hessian(y, (x, x))
    for row in found:
        for block in row:
            np.testing.assert_allclose(block.numpy(), np.diag(6 * X))


def test_complex_sources() -> None:
    """Among complex sources blocks are not each other's transposes: rows move along the real axis alone."""
    a, c, r = tf.constant(np.array([1 + 2j, 3 - 1j])), tf.constant(np.array([2 - 1j, 0.5 + 0.5j])), tf.constant(X)
    with tf.GradientTape(persistent=True) as outer:
        outer.watch([a, c, r])
        with tf.GradientTape(persistent=True) as tape:
            tape.watch([a, c, r])
            y = tf.reduce_sum(tf.abs(a * a * c) ** 2) * tf.reduce_sum(r * r)
        gradients = tape.gradient(y, [a, c, r])
    found = tape.hessian(y, [a, c, r])
    for i, g in enumerate(gradients):
        for j, s in enumerate((a, c, r)):
            want = by_rows(outer, g, s)
            assert found[i][j].dtype == want.dtype
            np.testing.assert_allclose(found[i][j].numpy(), want.numpy(), rtol=1e-12)


# ------------------------------------------------------------------ custom rules, outer tapes, errors


@tf.custom_gradient
def odd(x: Any) -> Any:
    """exp(x)² with a rule that is no gradient of it, but differentiable."""
    h = tf.exp(x)
    return h * h, lambda up: up * h * 3.0


@tf.custom_gradient
def cube(x: Any) -> Any:
    """A rule that computes with its argument, and not only with what the function made of it."""
    return x**3, lambda up: up * 3.0 * tf.square(x)


@tf.custom_gradient
def log1pexp(x: Any) -> Any:
    e = tf.exp(x)
    return tf.math.log(1 + e), lambda up: up * (1 - 1 / (1 + e))


def overridden(x: Any) -> Any:
    with tf.override_gradient({"sin": lambda op, up: up * tf.cos(op.inputs[0]) * op.inputs[0]}):
        return tf.sin(x)


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: tf.reduce_sum(cube(x)),
        lambda x: tf.reduce_sum(cube(cube(x) * x) * cube(x)),
        lambda x: tf.reduce_sum(log1pexp(x) * tf.exp(x)),
        lambda x: tf.reduce_sum(overridden(x) ** 2),
        lambda x: tf.reduce_sum(tf.recompute_grad(lambda v: tf.sin(v) * tf.exp(v))(x * x)),
    ],
)
def test_through_rules_that_compute_with_what_the_sources_made(function: Any, traced: bool) -> None:
    x = tf.constant(X)
    want = nested(function, x)
    assert want.any()
    found = tf.function(lambda x: tf.hessian(function, x))(x) if traced else tf.hessian(function, x)
    np.testing.assert_allclose(found.numpy(), want, rtol=1e-9)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: tf.reduce_sum(odd(x)),
        lambda x: tf.reduce_sum(odd(tf.sin(odd(x) * x)) * x),
        lambda x: tf.reduce_sum(tf.tanh(odd(x)) ** 2) * tf.reduce_sum(x),
    ],
)
def test_through_custom_rules(function: Any) -> None:
    x = tf.constant(X)
    want = nested(function, x)
    assert want.any()
    np.testing.assert_allclose(tf.hessian(function, x).numpy(), want, rtol=1e-9)


def test_through_a_custom_rule_that_reads_a_variable() -> None:
    x, v = tf.constant(X), tf.Variable(normal(3))

    @tf.custom_gradient
    def scaled(x: Any) -> Any:
        return v * x, lambda up, variables: (up * v**2 * x, [up * tf.square(x) * tf.exp(v)])

    with tf.GradientTape(persistent=True) as outer:
        outer.watch(x)
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = tf.reduce_sum(scaled(x) ** 2)
        gradients = tape.gradient(y, [x, v])
    found = tape.hessian(y, [x, v])
    for i, g in enumerate(gradients):
        for j, s in enumerate((x, v)):
            np.testing.assert_allclose(found[i][j].numpy(), outer.jacobian(g, s).numpy(), rtol=1e-10)


def test_a_hessian_in_an_outer_tape_gives_third_order() -> None:
    x = tf.constant(X)
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(x**4)
        h = tape.hessian(y, x)
    third = outer.jacobian(h, x).numpy()
    want = np.zeros((3, 3, 3))
    want[range(3), range(3), range(3)] = 24 * X
    np.testing.assert_allclose(third, want)


def test_functions_of_several_arguments() -> None:
    f = lambda a, b: tf.reduce_sum(a * a * b)  # noqa: E731
    w = tf.constant(X)
    found = tf.hessian(f, [w, w])
    np.testing.assert_allclose(found[0][0].numpy(), np.diag(2 * X))
    np.testing.assert_allclose(found[0][1].numpy(), np.diag(2 * X))
    np.testing.assert_array_equal(found[1][1].numpy(), np.zeros((3, 3)))


def test_what_a_function_closes_over_is_constant() -> None:
    w = tf.constant(X)
    np.testing.assert_allclose(tf.hessian(lambda a: tf.reduce_sum(a * a * w), w).numpy(), np.diag(2 * X))


def test_errors() -> None:
    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        tf.sin(x)
    with pytest.raises(ValueError, match="recorded"):
        tape.hessian(tf.constant(1.0), x)
    with pytest.raises(tf.errors.InvalidArgumentError, match="scalar"):
        tf.hessian(tf.sin, x)


# ------------------------------------------------------------------ one matrix, written once


def blocks_of(tape: Any, loss: Any, sources: list[Any]) -> np.ndarray:
    """The matrix from the blocks one by one."""
    found = tape.hessian(loss, sources)
    sizes = [int(np.prod(s.shape, dtype=int)) for s in sources]
    return np.block(
        [
            [b.numpy().reshape(m, n) for b, n in zip(row, sizes, strict=True)]
            for row, m in zip(found, sizes, strict=True)
        ]
    )


def test_a_matrix_of_all_kinds_of_parts() -> None:
    """Sources of several shapes, one that is empty, one twice, one that nothing depends on and one never seen."""
    w, b = tf.constant(W35), tf.constant(normal(5))
    none, lost, unseen = tf.zeros([0, 2], tf.float64), tf.constant(normal(2)), tf.constant(normal(3))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([w, b, none, lost])
        loss = tf.reduce_sum(tf.tanh(tf.matmul(BATCH, w) + b) ** 3) + tf.reduce_sum(none)
    for sources in ([w, b], [b, w], [w, none, b], [b, lost, w, unseen], [w, b, w], [lost], [unseen], [none]):
        matrix = tape.hessian(loss, sources, flat=True).matrix
        np.testing.assert_array_equal(matrix.numpy(), blocks_of(tape, loss, sources))


def test_a_matrix_over_a_custom_gradient_is_what_its_blocks_are() -> None:
    @tf.custom_gradient
    def doubled(x: Any) -> Any:
        return x**3, lambda g: g * 2.0 * x**2

    x, y = tf.constant(normal(3)), tf.constant(normal(2, 3))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([x, y])
        loss = tf.reduce_sum(doubled(x) * tf.sin(y))
    matrix = tape.hessian(loss, [x, y], flat=True).matrix
    np.testing.assert_allclose(matrix.numpy(), blocks_of(tape, loss, [x, y]), rtol=1e-12)


def test_a_matrix_under_another_tape() -> None:
    """Third derivatives: the matrix is recorded."""
    x, y = tf.constant(normal(3)), tf.constant(normal(2))

    def third(flat: bool) -> Any:
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as tape:
                tape.watch([x, y])
                loss = tf.reduce_sum(x**3) * tf.reduce_sum(y**2)
            found = tape.hessian(loss, [x, y], flat=flat)
            total = tf.reduce_sum(found.matrix**2) if flat else sum(tf.reduce_sum(b**2) for row in found for b in row)
        return outer.gradient(total, x).numpy()

    np.testing.assert_allclose(third(True), third(False), rtol=1e-12)


def test_a_matrix_wants_one_dtype() -> None:
    x, y = tf.constant(normal(3)), tf.constant([1.0])
    with tf.GradientTape() as tape:
        tape.watch([x, y])
        loss = tf.reduce_sum(x**3) * tf.cast(tf.reduce_sum(y**2), tf.float64)
    with pytest.raises(ValueError, match="float64 and float32"):
        tape.hessian(loss, [x, y], flat=True)
