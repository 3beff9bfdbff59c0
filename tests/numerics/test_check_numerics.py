"""NaN and infinity: the first op that makes them is named, with line, index and ranges; and nothing else changes."""

import re
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from gradtape.runtime.state import DEFAULT, STATE

BAD = tf.errors.InvalidArgumentError


@pytest.fixture
def watched() -> Iterator[None]:
    tf.debugging.enable_check_numerics()
    try:
        yield
    finally:
        tf.debugging.disable_check_numerics()


def told(f: Any) -> str:
    with pytest.raises(BAD) as caught:
        f()
    return str(caught.value)


def line_of(text: str) -> int:
    found = re.search(re.escape(__file__) + r":(\d+)", text)
    assert found, text
    return int(found[1])


def here(offset: int) -> int:
    import inspect

    frame = inspect.currentframe()
    assert frame is not None and frame.f_back is not None
    return frame.f_back.f_lineno + offset


# ------------------------------------------------------------------ one tensor


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ([1.0, np.nan], "weights : Tensor had NaN values: 1 of 2, first nan at [1]."),
        ([[1.0, 2.0], [np.inf, -np.inf]], "weights : Tensor had Inf values: 2 of 4, first inf at [1, 0]."),
        ([np.inf, np.nan, 1.0], "weights : Tensor had Inf and NaN values: 2 of 3, first inf at [0]."),
        (np.float64("nan"), "weights : Tensor had NaN values: 1 of 1, first nan at []."),
    ],
)
@pytest.mark.parametrize("how", ["eager", "function"])
def test_one_tensor(values: Any, says: str, how: str) -> None:
    check = lambda x: tf.debugging.check_numerics(x, "weights")  # noqa: E731
    f = check if how == "eager" else tf.function(check)
    assert told(lambda: f(tf.constant(values))) == says
    good = tf.constant(np.ones_like(values))
    assert f(good).numpy().tolist() == good.numpy().tolist()


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.complex64])
def test_dtypes(dtype: Any) -> None:
    tf.debugging.check_numerics(tf.cast([1.0, 2.0], dtype), "x")
    with pytest.raises(BAD, match="NaN"):
        tf.debugging.check_numerics(tf.cast([1.0, np.nan], dtype), "x")
    with pytest.raises(BAD, match="floating or complex"):
        tf.debugging.check_numerics(tf.constant([1, 2]), "x")


@pytest.mark.parametrize("how", ["eager", "function"])
def test_its_gradient_is_checked_too(how: str) -> None:
    def f(x: Any) -> Any:
        return tf.sqrt(tf.debugging.check_numerics(x, "under the root"))

    x = tf.constant([4.0, 0.0])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = (f if how == "eager" else tf.function(f))(x)
    says = r"^Not a number \(NaN\) or infinity \(Inf\) values detected in gradient. under the root : .*first inf at"
    with pytest.raises(BAD, match=says):
        tape.gradient(y, x)
    with pytest.raises(BAD, match=says):
        tape.jacobian(y, x, mode="reverse")


def test_jacobians_and_maps_go_through_it() -> None:
    x = tf.constant([4.0, 1.0])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = tf.debugging.check_numerics(x * x, "x") * 2.0
    np.testing.assert_allclose(tape.jacobian(y, x).numpy(), np.diag([16.0, 4.0]))
    np.testing.assert_allclose(tape.jacobian(y, x, mode="forward").numpy(), np.diag([16.0, 4.0]))
    found = tf.vectorized_map(lambda v: tf.debugging.check_numerics(tf.math.log(v), "log"), x)
    np.testing.assert_allclose(found.numpy(), np.log([4.0, 1.0]), rtol=1e-6)
    with pytest.raises(BAD, match=r"first -inf at \[1\]"):
        tf.vectorized_map(lambda v: tf.debugging.check_numerics(tf.math.log(v), "log"), x - 1.0)


@pytest.mark.parametrize("how", ["eager", "function"])
def test_gradients_in_jacobians(how: str) -> None:
    slope = lambda x: tf.sqrt(tf.debugging.check_numerics(x * 1.0, "of the root"))  # noqa: E731
    f = tf.function(slope) if how == "function" else slope
    x = tf.constant([0.0, 1.0])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = f(x)
    for mode in ("auto", "reverse"):
        with pytest.raises(BAD, match="of the root"):
            tape.jacobian(y, x, mode=mode)
    assert tape.jacobian(y, x, mode="forward").numpy().tolist() == [[np.inf, 0.0], [0.0, 0.5]]
    with pytest.raises(BAD, match="of the root"):
        tf.jvp(lambda x: tf.debugging.check_numerics(tf.sqrt(x), "of the root"), [x], [tf.ones(2)])


# ------------------------------------------------------------------ every op


def test_forwards(watched: None) -> None:
    text = told(lambda: tf.math.log(tf.constant([[1.0, 2.0], [3.0, -1.0]])) * 2.0)
    assert line_of(text) == here(-1)
    assert "Detected Infinity or NaN in output 0 of op `log`" in text
    assert "# of NaN elements: 1" in text and "first nan at [1, 1]" in text
    assert "operand 0: float32 (2, 2) from -1 to 3" in text


def test_backwards(watched: None) -> None:
    x = tf.Variable([0.0, 4.0])
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(tf.sqrt(x) * 3.0)
    line = here(-1)
    text = told(lambda: tape.gradient(y, x))
    assert "in the gradient of `sqrt`" in text
    assert "first inf at [0]" in text and "+Inf" in text
    assert line_of(text) == line


def test_traced_functions(watched: None) -> None:
    @tf.function
    def inner(v: Any) -> Any:
        return tf.exp(v * 100.0)

    f = tf.function(lambda v: inner(v) + 1.0)
    text = told(lambda: f(tf.constant([1.0])))
    assert "`exp`" in text and line_of(text) == here(-4)
    x = tf.constant([0.0])
    g = tf.function(lambda v: tf.sqrt(v) * 2.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = g(x)
    text = told(lambda: tape.gradient(y, x))
    assert "in the gradient of `sqrt`" in text and line_of(text) == here(-5)


def test_functions_that_were_traced_before() -> None:
    f = tf.function(lambda v: tf.math.log(v) * 2.0)
    concrete = f.get_concrete_function(tf.constant([1.0]))
    assert np.isinf(f(tf.constant([0.0])).numpy()).all()
    tf.debugging.enable_check_numerics()
    try:
        assert line_of(told(lambda: f(tf.constant([0.0])))) == here(-5)
        assert "in a compiled graph" in told(lambda: concrete(tf.constant([0.0])))
    finally:
        tf.debugging.disable_check_numerics()
    assert np.isinf(f(tf.constant([0.0])).numpy()).all()


@pytest.mark.parametrize("how", ["jacobian", "batch_jacobian", "hessian"])
def test_jacobians(watched: None, how: str) -> None:
    x = tf.constant([[0.0, 1.0]])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = tf.sqrt(x) * 3.0
        z = tf.reduce_sum(y)
    text = told(lambda: getattr(tape, how)(z if how == "hessian" else y, x))
    assert "inf" in text
    if how != "hessian":
        assert "in the gradient of `sqrt`" in text and line_of(text) == here(-5)


def test_rules_of_ones_own(watched: None) -> None:
    @tf.custom_gradient
    def f(x: Any) -> Any:
        return x * 1.0, lambda up: up / (x - x)

    x = tf.constant([1.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    text = told(lambda: tape.gradient(y, x))
    assert "`divide`" in text and "in the gradient of `f`" in text


def test_maps_and_forward_mode(watched: None) -> None:
    x = tf.constant([0.0, 1.0])
    assert "`log`" in told(lambda: tf.vectorized_map(tf.math.log, x))
    assert "sqrt" in told(lambda: tf.jvp(tf.sqrt, [x], [x]))


def test_infinities_that_were_there_before(watched: None) -> None:
    x = tf.constant([1.0, -np.inf])
    assert tf.reshape(x, [2, 1]).shape == [2, 1]  # nothing is computed
    assert tf.where(x > 0, x, 0.0).numpy().tolist() == [1.0, 0.0]
    assert float(tf.exp(x)[1]) == 0.0
    assert "operand 0: float32 (2,) from 1 to 1, 1 not finite" in told(lambda: x * 2.0)


def test_other_threads_that_start_later(watched: None) -> None:
    found = []

    def work() -> None:
        found.append(told(lambda: tf.math.log(tf.constant(-1.0))))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert "`log`" in found[0]


def test_on_and_off() -> None:
    tf.debugging.enable_check_numerics(stack_height_limit=5, path_length_limit=5)
    tf.debugging.enable_check_numerics()
    tf.debugging.disable_check_numerics()
    tf.debugging.disable_check_numerics()
    assert STATE.overrides is None and STATE.detour is None and STATE.watchers == ()
    assert DEFAULT.overrides is None and DEFAULT.watchers == ()
    assert np.isnan(tf.math.log(tf.constant(-1.0)).numpy())


# ------------------------------------------------------------------ nothing else changes


def attention(x: Any) -> Any:
    scores = tf.where(x > 0.1, x @ tf.transpose(x), tf.constant(-np.inf, tf.float64))
    return tf.nn.softmax(scores) @ x


PROGRAMS: dict[str, Any] = {
    "elementwise": lambda x: tf.sin(x) * tf.exp(x) + x,
    "where": lambda x: tf.where(x > 0.5, tf.sqrt(tf.where(x > 0.5, x, 1.0)), x * x),
    "pooled": lambda x: tf.nn.max_pool2d(x[None, :, :, None], 2, 1, "SAME"),
    "largest": lambda x: tf.reduce_max(x, axis=0) * tf.reduce_logsumexp(x),
    "rule": tf.custom_gradient(lambda x: (x * x, lambda up: tf.clip_by_norm(up, 0.5))),
    "None": lambda x: tf.custom_gradient(lambda a, b: (a * b, lambda up: (up * b, None)))(x, x * x) + x,
    "function": tf.function(lambda x: tf.tanh(x @ tf.transpose(x))),
    "gathered": lambda x: tf.gather(x, [2, 0, 2]) * x,
    "norm": lambda x: tf.norm(x, axis=1),
    "branches": lambda x: tf.cond(tf.reduce_sum(x) > 0.0, lambda: x * 2.0, lambda: x),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_the_same(name: str) -> None:
    x = tf.constant(np.random.default_rng(0).uniform(0.1, 1.0, (3, 3)))

    def everything() -> list[Any]:
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape(persistent=True) as tape:
                tape.watch(x)
                y = PROGRAMS[name](x)
            g = tape.gradient(y, x)
            total = tf.reduce_sum(tf.sin(g))
        return [y, g, tape.jacobian(y, x), outer.gradient(total, x, unconnected_gradients="zero")]

    want = everything()
    tf.debugging.enable_check_numerics()
    try:
        found = everything()
    finally:
        tf.debugging.disable_check_numerics()
    for a, b in zip(found, want, strict=True):
        np.testing.assert_allclose(tf.convert_to_tensor(a).numpy(), tf.convert_to_tensor(b).numpy(), rtol=1e-10)
