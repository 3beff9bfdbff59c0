"""What TensorFlow promises of `tape.jacobian`: structures, connections, dtypes, when it may be asked, and errors."""

import threading
from collections import Counter
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from gradtape.runtime.backward import COUNTS
from gradtape.transforms.differentiate import COUNTS as DIFFERENTIATED
from tests.jacobian.programs import PROGRAMS, jacobian, jacobian_by_rows, tape_of

X = np.array([1.0, 2.0, 3.0])


def square(x: Any) -> Any:
    return x * x


# ------------------------------------------------------------------ structures and connections


def test_the_result_has_the_structure_of_the_sources() -> None:
    x, w, lost = tf.constant(X), tf.Variable(X), tf.constant([1.0])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([x, lost])
        y = x * w
    by_x, by_w = np.diag(X), np.diag(X)
    found = tape.jacobian(y, {"x": x, "more": [w, (lost, x)]})
    assert set(found) == {"x", "more"}
    np.testing.assert_array_equal(found["x"].numpy(), by_x)
    np.testing.assert_array_equal(found["more"][0].numpy(), by_w)
    assert isinstance(found["more"][1], tuple)
    assert found["more"][1][0] is None
    np.testing.assert_array_equal(found["more"][1][1].numpy(), by_x)
    assert tape.jacobian(y, []) == []


def test_a_structure_of_targets_gives_that_structure() -> None:
    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        ys = {"a": x * x, "b": (tf.reduce_sum(x), x[0])}
    found = tape.jacobian(ys, [x])
    np.testing.assert_array_equal(found["a"][0].numpy(), np.diag(2 * X))
    np.testing.assert_array_equal(found["b"][0][0].numpy(), np.ones(3))
    np.testing.assert_array_equal(found["b"][1][0].numpy(), [1, 0, 0])


@pytest.mark.parametrize("zero", ["zero", tf.UnconnectedGradients.ZERO])
@pytest.mark.parametrize("loop", [False, True])
def test_unconnected_sources(zero: Any, loop: bool) -> None:
    x, lost = tf.constant(X), tf.constant(np.ones((2, 2)))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([x, lost])
        y = x * x
    how = {"experimental_use_pfor": not loop}
    assert tape.jacobian(y, lost, **how) is None
    found = tape.jacobian(y, [lost, x], unconnected_gradients=zero, **how)
    np.testing.assert_array_equal(found[0].numpy(), np.zeros((3, 2, 2)))
    np.testing.assert_array_equal(found[1].numpy(), np.diag(2 * X))


def test_an_integer_source_has_no_jacobian() -> None:
    assert jacobian(lambda x: tf.cast(x, tf.float64) ** 2, np.array([1, 2])) is None
    n = tf.constant([1, 2])
    x = tf.constant([1.0, 2.0])
    with tf.GradientTape() as tape:
        tape.watch([x])
        y = x * tf.cast(n, tf.float32)
    found = tape.jacobian(y, [n, x], unconnected_gradients="zero")
    assert found[0].shape == (2, 2)
    assert found[0].dtype == tf.int32


@pytest.mark.parametrize("loop", [False, True])
def test_a_source_is_its_own_identity(loop: bool) -> None:
    x = tf.constant(X)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
    np.testing.assert_array_equal(tape.jacobian(x, x, experimental_use_pfor=not loop).numpy(), np.eye(3))


def test_a_scalar_target_gives_a_gradient() -> None:
    found = jacobian(lambda x: tf.reduce_sum(x**3), X)
    assert found.shape == (3,)
    np.testing.assert_allclose(found.numpy(), 3 * X**2)


def test_variables_and_what_they_were() -> None:
    w = tf.Variable(X)
    with tf.GradientTape(persistent=True) as tape:
        y = w * w
    w.assign_add([5.0, 5.0, 5.0])
    np.testing.assert_array_equal(tape.jacobian(y, w).numpy(), np.diag(2 * X))


def test_intermediate_sources() -> None:
    x = tf.constant(X)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        h = tf.sin(x)
        y = h * h + x
    np.testing.assert_allclose(tape.jacobian(y, h).numpy(), np.diag(2 * np.sin(X)))
    by_h, by_x = tape.jacobian(y, [h, x])
    np.testing.assert_allclose(by_h.numpy(), np.diag(2 * np.sin(X)))
    np.testing.assert_allclose(by_x.numpy(), np.diag(2 * np.sin(X) * np.cos(X) + 1))


def test_one_source_twice() -> None:
    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x * x
    a, b = tape.jacobian(y, [x, x])
    np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_what_was_stopped_is_a_constant() -> None:
    found = jacobian(lambda x: tf.stop_gradient(x * x) * x, X)
    np.testing.assert_array_equal(found.numpy(), np.diag(X * X))
    assert jacobian(lambda x: tf.stop_gradient(x), X) is None


# ------------------------------------------------------------------ when it may be asked


def test_a_plain_tape_answers_once() -> None:
    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x * x
    tape.jacobian(y, x)
    with pytest.raises(RuntimeError, match="can only be used to compute one set"):
        tape.jacobian(y, x)


def test_a_persistent_tape_answers_many_questions() -> None:
    tape, y, x = tape_of(PROGRAMS["network"])
    first = tape.jacobian(y, x).numpy()
    gradient = tape.gradient(y, x).numpy()
    np.testing.assert_allclose(first.sum((0, 1)), gradient)
    np.testing.assert_array_equal(tape.jacobian(y, x).numpy(), first)
    np.testing.assert_allclose(np.einsum("bobi->boi", first), tape.batch_jacobian(y, x).numpy())


def test_it_may_be_asked_inside_the_block() -> None:
    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x**3
        j = tape.jacobian(y, x)
    np.testing.assert_allclose(j.numpy(), np.diag(3 * X**2))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = x**3
        h = tape.jacobian(tape.gradient(y, x), x)
    np.testing.assert_allclose(h.numpy(), np.diag(6 * X))


def test_a_jacobian_taken_inside_a_persistent_block_can_be_differentiated() -> None:
    x = tf.constant(X)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        j = tape.jacobian(x**3, x)
        again = tape.jacobian(j, x)
    want = np.zeros((3, 3, 3))
    want[range(3), range(3), range(3)] = 6 * X
    np.testing.assert_allclose(again.numpy(), want)


def test_the_loop_wants_a_persistent_tape() -> None:
    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x * x
    with pytest.raises(RuntimeError, match="persistent=True"):
        tape.jacobian(y, x, experimental_use_pfor=False)
    np.testing.assert_array_equal(tape.jacobian(y, x).numpy(), np.diag(2 * X))


# ------------------------------------------------------------------ sizes and dtypes

EMPTY = {
    "no elements": ((0,), lambda x: x * x, (0, 0)),
    "an empty batch": ((0, 3), lambda x: tf.matmul(x, tf.ones([3, 2], tf.float64)), (0, 2, 0, 3)),
    "no features": ((3, 0), lambda x: x + 1.0, (3, 0, 3, 0)),
    "a sum of nothing": ((0, 3), lambda x: tf.reduce_sum(x, axis=0), (3, 0, 3)),
    "nothing of something": ((3,), lambda x: x[:0], (0, 3)),
}


@pytest.mark.parametrize("name", EMPTY)
@pytest.mark.parametrize("how", [{}, {"mode": "forward"}, {"mode": "reverse"}, {"experimental_use_pfor": False}])
def test_nothing_has_a_jacobian_of_nothing(name: str, how: dict[str, Any]) -> None:
    shape, function, want = EMPTY[name]
    found = jacobian(function, np.zeros(shape), **how)
    assert found.shape == want
    assert found.dtype == tf.float64


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32, tf.float64])
@pytest.mark.parametrize("mode", ["reverse", "forward", "auto"])
def test_real_dtypes(dtype: Any, mode: str) -> None:
    at = np.array([[1.0, -0.5], [0.25, 2.0]])
    want = jacobian(lambda x: tf.nn.softmax(tf.tanh(x) * x), at)
    x = tf.cast(at, dtype)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.nn.softmax(tf.tanh(x) * x)
    found = tape.jacobian(y, x, mode=mode)
    assert found.dtype == dtype
    tolerance = {tf.float64: 1e-12, tf.float32: 1e-6, tf.float16: 2e-3}.get(dtype, 2e-2)
    np.testing.assert_allclose(tf.cast(found, tf.float64).numpy(), want.numpy(), atol=tolerance)


COMPLEX = {
    "holomorphic": lambda z: z * z * z,
    "a product with a constant": lambda z: z * tf.constant([1 + 2j, 0.5j, -1j]),
    "absolute value": tf.abs,
    "real part": lambda z: tf.math.real(z) ** 2,
    "imaginary part": lambda z: tf.math.imag(z * z),
    "conjugate": lambda z: tf.math.conj(z) * z,
    "angle of a sum": lambda z: tf.math.imag(z) / tf.abs(z) * tf.math.real(tf.reduce_sum(z)),
    "mixed axes": lambda z: tf.linalg.matvec(tf.constant([[1j, 2.0, 0.5], [1.0, -1j, 1 + 1j]]), z),
    "transform": tf.signal.fft,
}


@pytest.mark.parametrize("name", COMPLEX)
@pytest.mark.parametrize("mode", ["reverse", "forward", "auto"])
def test_complex_sources(name: str, mode: str) -> None:
    """A row is the gradient of the element's real part: the slope along the real axis plus i times the other."""
    at = np.array([1 + 2j, 3 - 1j, 0.5 + 0.5j])
    want = jacobian_by_rows(COMPLEX[name], at)
    found = jacobian(COMPLEX[name], at, mode=mode)
    assert found.dtype == want.dtype == tf.complex128
    np.testing.assert_allclose(found.numpy(), want.numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("mode", ["reverse", "forward", "auto"])
def test_real_sources_of_complex_programs(mode: str) -> None:
    for f in (
        lambda x: tf.cast(x, tf.complex128) * (1 + 2j),
        lambda x: tf.abs(tf.signal.fft(tf.cast(x, tf.complex128))),
        lambda x: tf.complex(x, x * x) ** 2,
    ):
        want = jacobian_by_rows(f, X)
        found = jacobian(f, X, mode=mode)
        assert found.dtype == want.dtype == tf.float64
        np.testing.assert_allclose(found.numpy(), want.numpy(), rtol=1e-12, atol=1e-12)


# ------------------------------------------------------------------ errors

ERRORS = {
    "no target": (lambda t, y, x: t.jacobian(None, x), TypeError, "target"),
    "a number for a target": (lambda t, y, x: t.jacobian(1.0, x), TypeError, "target"),
    "a number for a source": (lambda t, y, x: t.jacobian(y, 1.0), TypeError, "sources"),
    "an unknown mode": (lambda t, y, x: t.jacobian(y, x, mode="up"), ValueError, "'up'"),
    "no rows at a time": (lambda t, y, x: t.jacobian(y, x, parallel_iterations=0), ValueError, "positive"),
    "an unknown connection": (lambda t, y, x: t.jacobian(y, x, unconnected_gradients="nil"), ValueError, "nil"),
    "a plan of nothing": (lambda t, y, x: t.plan_jacobian(tf.constant(1.0), x), ValueError, "recorded"),
    "a Hessian of a vector": (lambda t, y, x: t.hessian(y, x), ValueError, "scalar"),
    "out for two sources": (lambda t, y, x: t.jacobian(y, [x, x], out=np.zeros((3, 3))), ValueError, "out"),
    "out of another shape": (lambda t, y, x: t.jacobian(y, x, out=np.zeros((3, 2))), ValueError, "(3, 3)"),
    "memory of nothing": (lambda t, y, x: t.jacobian(y, x, memory=0), ValueError, "memory"),
    "memory in words": (lambda t, y, x: t.jacobian(y, x, memory="much"), ValueError, "much"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_say_what_was_wanted(name: str) -> None:
    ask, kind, text = ERRORS[name]
    x = tf.constant(X)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = x * x
    with pytest.raises(kind) as e:
        ask(tape, y, x)
    assert text in str(e.value)


# ------------------------------------------------------------------ what is kept between calls


def built() -> Counter[str]:
    return Counter(programs=COUNTS["built"], graphs=DIFFERENTIATED["pull_back"])


@pytest.mark.parametrize("ask", ["jacobian", "batch_jacobian", "hessian", "structured", "plan"])
def test_a_question_of_known_structure_builds_nothing(ask: str) -> None:
    def once(seed: int) -> None:
        x = tf.constant(np.random.default_rng(seed).normal(size=(3, 2)))
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = tf.tanh(x) * x
            loss = tf.reduce_sum(y * y)
        if ask == "hessian":
            tape.hessian(loss, x)
        elif ask == "structured":
            s = tape.jacobian(y, x, structured=True)
            s.diagonal(), s @ x, s.T @ x, s.row_norms(), s.dense()
        elif ask == "plan":
            tape.plan_jacobian(y, x)
        else:
            getattr(tape, ask)(y, x)

    once(0)
    before = built()
    for seed in (1, 2, 3):
        once(seed)
    assert built() == before


def test_the_counters_count() -> None:
    before = built()
    jacobian(lambda x: tf.sin(tf.cos(tf.tanh(x))) * 1.2345, X)
    assert built() != before


def test_threads_have_tapes_of_their_own() -> None:
    found: dict[int, np.ndarray] = {}

    def work(k: int) -> None:
        for _ in range(20):
            found[k] = jacobian(lambda x: x ** (2 + k % 3), X + k).numpy()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(found) == 8
    for k, j in found.items():
        p = 2 + k % 3
        np.testing.assert_allclose(j, np.diag(p * (X + k) ** (p - 1)))


def test_requests_that_contradict_each_other_are_refused() -> None:
    x = tf.constant([1.0, 2.0])

    def ask(**how: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x * x
        return tape.jacobian(y, x, **how)

    for refused in ({"memory": "1MiB"}, {"parallel_iterations": 1}, {"progress": True}):
        with pytest.raises(ValueError, match="reverse"):
            ask(mode="forward", **refused)
        with pytest.raises(ValueError, match="structured"):
            ask(structured=True, **refused)
    with pytest.raises(ValueError, match="structured"):
        ask(structured=True, unconnected_gradients="zero")
    with tf.GradientTape(), pytest.raises(ValueError, match="outside of the other tape"):
        ask(memory="1MiB")


def test_a_bar_alone_shows_steps(capsys: pytest.CaptureFixture[str]) -> None:
    x = tf.constant(np.arange(64.0))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.cumsum(x)
    found = tape.jacobian(y, x, progress=True)
    np.testing.assert_array_equal(found.numpy(), np.tril(np.ones((64, 64))))
    assert "64/64" in capsys.readouterr().err


@pytest.mark.parametrize("mode", ["auto", "reverse", "forward"])
@pytest.mark.parametrize(
    "f",
    [
        lambda z: tf.saturate_cast(z, tf.float32),
        lambda z: tf.reduce_max(tf.cast(z, tf.float32), 1, keepdims=True),
        lambda z: tf.cast(z, tf.float32) * 3,
        lambda z: tf.cast(z, tf.complex64),
    ],
)
def test_a_jacobian_has_the_dtype_of_its_source(f: Any, mode: str) -> None:
    x = tf.constant([[1.0, 2.0], [3.0, 4.0]], tf.float64)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = f(x)
    found = tape.jacobian(y, x, mode=mode)
    assert found.dtype == tf.float64
    np.testing.assert_array_equal(found.numpy(), tape.jacobian(y, x, experimental_use_pfor=False).numpy())


def test_parts_in_a_traced_function(recwarn: pytest.WarningsRecorder) -> None:
    """How many rows are computed at a time is a hint, a budget of memory is a loop; what another array asks for, no
    graph does."""
    x = tf.constant([1.0, 2.0])

    def function(**how: Any) -> Any:
        @tf.function(jit_compile=False)
        def squares(x: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = x * x
            return tape.jacobian(y, x, **how)

        return squares

    for traced in ({"parallel_iterations": 1}, {"progress": True}, {"memory": "1MiB"}, {"memory": 1}):
        f = function(**traced)
        for _ in range(2):
            np.testing.assert_array_equal(f(x), [[2, 0], [0, 4]])
        assert f.experimental_get_tracing_count() == 1 and f.get_concrete_function(x).graph.nodes
    assert not [str(w.message) for w in recwarn.list]
    out = np.zeros((2, 2), np.float32)
    with pytest.warns(UserWarning, match="`squares` asks for a Jacobian in parts in `jacobian`.* op by op"):
        np.testing.assert_array_equal(function(out=out)(x), [[2, 0], [0, 4]])
    np.testing.assert_array_equal(out, [[2, 0], [0, 4]])
