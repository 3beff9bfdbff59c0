"""Plans of backward passes: built once per structure, found afterwards, bounded in number, never mixed up."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from gradtape.runtime import backward, trie
from gradtape.transforms import differentiate


@pytest.fixture
def built() -> Callable[[], tuple[int, int]]:
    """How many plans were built, and how often graphs were differentiated, since the last question."""

    def since() -> tuple[int, int]:
        now = backward.COUNTS["built"], differentiate.COUNTS["pull_back"]
        answer = now[0] - seen[0], now[1] - seen[1]
        seen[:] = now
        return answer

    trie.TRIE.clear()
    seen = [0, 0]
    since()
    return since


def gradient(f: Callable[[Any], Any], v: Any) -> Any:
    with tf.GradientTape() as tape:
        y = f(v)
    return tf.convert_to_tensor(tape.gradient(y, v))


def test_the_second_gradient_of_a_structure_differentiates_nothing(built: Any) -> None:
    v = tf.Variable([1.0, 2.0, 3.0])
    gradient(lambda x: tf.reduce_sum(tf.tanh(x * 2.0)), v)
    plans, passes = built()
    assert plans == 1
    assert passes >= 1
    for k in range(5):
        v.assign_add([1.0, 1.0, 1.0])
        w = tf.Variable([1.0, 2.0, float(k)])
        found = gradient(lambda x: tf.reduce_sum(tf.tanh(x * 2.0)), w)
        assert np.allclose(found, 2 * (1 - np.tanh(2 * w.numpy()) ** 2))
    assert built() == (0, 0)


def test_nor_does_a_structure_with_gradients_inside(built: Any) -> None:
    v = tf.Variable([1.0, 2.0, 3.0])

    def penalty(x: Any) -> Any:
        with tf.GradientTape() as inner:
            y = tf.reduce_sum(x**3)
        return tf.reduce_sum(inner.gradient(y, x) ** 2)

    first = gradient(penalty, v)
    built()
    for _ in range(5):
        assert np.array_equal(gradient(penalty, v), first)
    assert built() == (0, 0)


NUMBERS: dict[str, Callable[[Any, int], Any]] = {
    "a factor": lambda v, k: v * (0.1 * k + 0.05),
    "an integer factor": lambda v, k: v * (k + 2),
    "a summand and a divisor": lambda v, k: (v + 0.5 * k) / (k + 1.5),
    "an exponent": lambda v, k: v ** (k + 0.25),
    "the start of a window": lambda v, k: v[k : k + 4],
    "an index": lambda v, k: v[k],
    "an index from the end": lambda v, k: v[-1 - k],
    "a gather": lambda v, k: tf.gather(v, [k, k + 1]),
    "tf.slice": lambda v, k: tf.slice(v, [k], [3]),
    "a tensor as a bound": lambda v, k: v[tf.constant(k) : tf.constant(k) + 3],
    "a bound of clipping": lambda v, k: tf.clip_by_value(v, 0.01 * k, 50.0 + k),
    "a slope": lambda v, k: tf.nn.leaky_relu(v - 2.0, 0.01 * (k + 1)),
    "a cotangent": lambda v, k: v * tf.constant(0.3 * k),
    "one hot": lambda v, k: v * tf.one_hot(k, 20),
}


@pytest.mark.parametrize("what", NUMBERS)
def test_numbers_that_change_from_step_to_step_are_no_structure(what: str, built: Any) -> None:
    v = tf.Variable(np.linspace(1.0, 3.0, 20).astype("float32"))
    gradient(lambda x: tf.reduce_sum(NUMBERS[what](x, 3)), v)
    built()
    for k in range(4, 14):
        found = gradient(lambda x, k=k: tf.reduce_sum(NUMBERS[what](x, k)), v)  # type: ignore[misc]
        h = np.float32(1e-2)
        j = np.argmax(np.abs(found.numpy()))
        step = np.zeros(20, "float32")
        step[j] = h
        ahead, behind = (float(tf.reduce_sum(NUMBERS[what](tf.constant(v.numpy() + s), k))) for s in (step, -step))
        assert float(found[int(j)]) == pytest.approx((ahead - behind) / (2 * h), rel=2e-2)
    assert built() == (0, 0)


X = np.array([[1.0, 2.0], [3.0, 4.0]])
# Functions that differ in one thing only, next to one another, and their gradients at X.
NEIGHBOURS: list[tuple[Callable[[Any], Any], Any]] = [
    (lambda t: tf.reduce_sum(t, axis=0)[0], [[1, 0], [1, 0]]),
    (lambda t: tf.reduce_sum(t, axis=1)[0], [[1, 1], [0, 0]]),
    (lambda t: (t * t)[1, 0], [[0, 0], [6, 0]]),
    (lambda t: (t * tf.stop_gradient(t))[1, 0], [[0, 0], [3, 0]]),
    (lambda t: (t * tf.constant(X))[1, 0], [[0, 0], [3, 0]]),
    (lambda t: (t * 2.0 * 2.0)[0, 0], [[4, 0], [0, 0]]),
    (lambda t: (t * 2.0 * 3.0)[0, 0], [[6, 0], [0, 0]]),
    (lambda t: (t - t[0])[1, 0], [[-1, 0], [1, 0]]),
    (lambda t: (t - X[0])[1, 0], [[0, 0], [1, 0]]),
    (lambda t: tf.reshape(t, [4])[1], [[0, 1], [0, 0]]),
    (lambda t: tf.reshape(tf.transpose(t), [4])[1], [[0, 0], [1, 0]]),
    (lambda t: tf.matmul(t, t)[0, 1], [[2, 5], [0, 2]]),
    (lambda t: tf.matmul(t, t, transpose_a=True)[0, 1], [[2, 1], [4, 3]]),
    (lambda t: t[0, 0] / t[1, 1], [[0.25, 0], [0, -0.0625]]),
    (lambda t: t[1, 1] / t[0, 0], [[-4, 0], [0, 1]]),
    (lambda t: tf.cast(tf.cast(t, tf.int32), tf.float64)[0, 0] * t[0, 0], [[1, 0], [0, 0]]),
    (lambda t: tf.cast(tf.cast(t, tf.float32), tf.float64)[0, 0] * t[0, 0], [[2, 0], [0, 0]]),
    (lambda t: t[0:1, 0][0] ** 2, [[2, 0], [0, 0]]),
    (lambda t: t[0:2, 0][1] ** 2, [[0, 0], [6, 0]]),
    (lambda t: t[0, ::-1][0] ** 2, [[0, 4], [0, 0]]),
    (lambda t: tf.where(t > 1.5, t * 5.0, t)[0, 0], [[1, 0], [0, 0]]),
    (lambda t: tf.where(t > 0.5, t * 5.0, t)[0, 0], [[5, 0], [0, 0]]),
]


def test_neighbours_are_never_mixed_up() -> None:
    for _ in range(2):  # at the second turn all plans are there
        for k, (f, want) in enumerate(NEIGHBOURS):
            assert np.allclose(gradient(f, tf.Variable(X)), want), k


def test_which_sources_targets_and_cotangents_are_asked_for_is_structure() -> None:
    a, b = tf.Variable(2.0), tf.Variable(3.0)
    for _ in range(2):
        with tf.GradientTape(persistent=True) as tape:
            y, z = a * b, a * a
        assert float(tape.gradient(y, a)) == 3.0
        assert float(tape.gradient(z, a)) == 4.0
        assert float(tape.gradient([y, z], a)) == 7.0
        assert [float(g) for g in tape.gradient(y, [b, a])] == [2.0, 3.0]
        assert [float(g) for g in tape.gradient(y, [a, b])] == [3.0, 2.0]
        assert float(tape.gradient([y, z], a, [tf.constant(10.0), None])) == 34.0
        assert float(tape.gradient([y, z], a, [None, tf.constant(10.0)])) == 43.0
        assert float(tape.gradient([z, y], a, [None, tf.constant(10.0)])) == 34.0


def test_shapes_and_dtypes_are_structure() -> None:
    for _ in range(2):
        for shape in ((), (1,), (3,), (2, 3), (0,)):
            for dtype in ("float32", "float64"):
                v = tf.Variable(np.full(shape, 2.0, dtype))
                g = gradient(lambda x: tf.reduce_sum(x * x), v)
                assert (g.shape, g.dtype) == (v.shape, v.dtype)
                assert np.array_equal(g, np.full(shape, 4.0))


def power(n: int) -> Any:
    v = tf.Variable(1.01, dtype=tf.float64)

    def f(x: Any) -> Any:
        y = tf.identity(x)
        for _ in range(n - 1):
            y = y * x
        return y

    return float(gradient(f, v)), pytest.approx(n * 1.01 ** (n - 1))


def test_a_bound_on_plans_keeps_the_answers_right(monkeypatch: pytest.MonkeyPatch, built: Any) -> None:
    monkeypatch.setattr(backward, "MAX_PROGRAMS", 4)
    backward.PROGRAMS.clear()
    for _ in range(2):
        for n in range(1, 12):
            got, want = power(n)
            assert got == want
            assert len(backward.PROGRAMS.recent) <= 4
    assert built()[0] == 22  # always the one that was dropped


def test_a_plan_in_use_outlives_others(monkeypatch: pytest.MonkeyPatch, built: Any) -> None:
    monkeypatch.setattr(backward, "MAX_PROGRAMS", 4)
    backward.PROGRAMS.clear()
    power(1)
    for n in range(2, 12):
        power(n)
        built()
        power(1)
        assert built()[0] == 0, f"dropped though it was used after each other plan, at {n}"


def test_a_trie_that_starts_anew_keeps_the_answers_right(monkeypatch: pytest.MonkeyPatch) -> None:
    trie.TRIE.clear()
    monkeypatch.setattr(trie, "MAX_NODES", 10)
    for n in (3, 5, 9, 30, 5, 3, 30):
        got, want = power(n)
        assert got == want
        assert trie.TRIE.size <= 10


def test_clearing_while_tapes_record_is_no_harm() -> None:
    v = tf.Variable(2.0)
    with tf.GradientTape(persistent=True) as tape:
        y = v * v
        trie.TRIE.clear()
        backward.PROGRAMS.clear()
        z = y * v
        first = tape.gradient(z, v)
        backward.PROGRAMS.clear()
        second = tape.gradient(first, v)
    assert (float(first), float(second)) == (12.0, 12.0)
