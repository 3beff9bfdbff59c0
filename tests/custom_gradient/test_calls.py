"""How often a rule runs, in which order, with which values: once per gradient, latest first, never from a cache."""

from typing import Any

import pytest

import gradtape as tf


def logging(log: list[str], name: str, factor: float = 1.0) -> Any:
    @tf.custom_gradient
    def f(x: Any) -> Any:
        def rule(up: Any) -> Any:
            log.append(name)
            return up * factor

        return x * 1.0, rule

    return f


def test_once_per_gradient_and_never_from_a_cache() -> None:
    log: list[str] = []
    f = logging(log, "f", 3.0)
    x = tf.constant(2.0)
    for k in range(1, 4):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = f(x) * f(x)
        assert float(tape.gradient(y, x)) == 12.0
        assert len(log) == 2 * k
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = f(x)
    log.clear()
    for k in range(1, 4):
        tape.gradient(y, x)
        assert len(log) == k


def test_a_rule_whose_answer_is_none_runs_too() -> None:
    log: list[int] = []

    @tf.custom_gradient
    def silent(x: Any) -> Any:
        return x * 1.0, log.append  # which answers None

    x = tf.constant(2.0)
    for k in range(1, 5):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = silent(x) + x
        assert float(tape.gradient(y, x)) == 1.0
        assert len(log) == k


def test_a_rule_that_changes_its_mind() -> None:
    asked: list[int] = []

    @tf.custom_gradient
    def moody(x: Any) -> Any:
        def rule(up: Any) -> Any:
            asked.append(1)
            return None if len(asked) % 2 else up * 10.0

        return x * 1.0, rule

    x, found = tf.constant(3.0), []
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = moody(x)
    for _ in range(5):
        g = tape.gradient(y, x)
        found.append(g if g is None else float(g))
    assert found == [None, 10.0, None, 10.0, None]
    assert len(asked) == 5


def test_latest_first() -> None:
    log: list[str] = []
    a, b, c, d = (logging(log, n) for n in "abcd")
    x = tf.constant(2.0)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = c(b(a(x))) + d(x)
    for _ in range(2):
        tape.gradient(y, x)
        assert log == ["d", "c", "b", "a"]
        log.clear()


def test_rules_off_the_way_do_not_run() -> None:
    log: list[str] = []
    x, z = tf.constant(2.0), tf.constant(3.0)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([x, z])
        on, off = logging(log, "on")(x), logging(log, "off")(z)
        logging(log, "unused")(x)
        stopped = tf.stop_gradient(logging(log, "stopped")(x))
        y = on * stopped
        both = y + off
    tape.gradient(y, x)
    assert log == ["on"]
    log.clear()
    assert tape.gradient(on, z) is None
    assert log == []
    tape.gradient(both, [x, z])
    assert log == ["off", "on"]


def test_rules_between_compiled_segments_see_values() -> None:
    seen: list[float] = []

    @tf.custom_gradient
    def bounded(x: Any) -> Any:
        def rule(up: Any) -> Any:
            size = float(tf.norm(up))
            seen.append(size)
            return up / size if size > 1.0 else up  # a branch on a value

        return x * 1.0, rule

    x = tf.constant([3.0, 4.0])
    for scale in (0.1, 10.0):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(bounded(tf.tanh(x * 0.0) + x) * x * scale)
        g = tape.gradient(y, x).numpy()
        up = x.numpy() * scale
        assert seen[-1] == pytest.approx(5.0 * scale)
        assert g == pytest.approx(up / max(1.0, 5.0 * scale) + x.numpy() * scale)


def test_the_rule_sees_its_closure_as_it_is_when_it_runs() -> None:
    strength = {"value": 1.0}

    @tf.custom_gradient
    def f(x: Any) -> Any:
        return x * 1.0, lambda up: up * strength["value"]

    x = tf.constant(2.0)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = f(x)
    for value in (1.0, -2.0, 0.0):
        strength["value"] = value
        assert float(tape.gradient(y, x)) == value


def test_the_function_runs_once_per_call() -> None:
    runs = []

    @tf.custom_gradient
    def f(x: Any) -> Any:
        runs.append(1)
        return x * 2.0, lambda up: up * 2.0

    x = tf.constant(2.0)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = f(x) + f(x)
    for _ in range(3):
        tape.gradient(y, x)
    assert len(runs) == 2


def test_each_call_has_a_rule_of_its_own() -> None:
    @tf.custom_gradient
    def power(x: Any, n: int) -> Any:
        return x**n, lambda up: (up * n * 100.0, None)

    x = tf.constant(2.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = power(x, 2) + power(x, 3) * 10.0
    assert float(tape.gradient(y, x)) == 200.0 + 3000.0


def test_each_tape_asks_for_itself() -> None:
    log: list[str] = []
    f = logging(log, "f", 5.0)
    x = tf.constant(2.0)
    with tf.GradientTape() as a, tf.GradientTape() as b:
        a.watch(x)
        b.watch(x)
        y = f(x)
    assert [float(t.gradient(y, x)) for t in (a, b)] == [5.0, 5.0]
    assert log == ["f", "f"]


def test_a_rule_that_fails_leaves_the_tape_as_it_was() -> None:
    failing = [True]

    @tf.custom_gradient
    def f(x: Any) -> Any:
        def rule(up: Any) -> Any:
            if failing[0]:
                raise ZeroDivisionError("in the rule")
            return up * 3.0

        return x * 1.0, rule

    x = tf.constant(2.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    with pytest.raises(ZeroDivisionError, match="in the rule"):
        tape.gradient(y, x)
    failing[0] = False
    assert float(tape.gradient(y, x)) == 3.0


def test_rules_are_freed_with_the_tapes_resources() -> None:
    import gc
    import weakref

    class Marker:
        pass

    def make() -> tuple[Any, Any]:
        marker = Marker()

        @tf.custom_gradient
        def f(x: Any) -> Any:
            return x * 1.0, lambda up: up if marker else None

        return f, weakref.ref(marker)

    x = tf.constant(2.0)
    f, marker = make()
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    del f
    gc.collect()
    assert marker() is not None
    tape.gradient(y, x)
    gc.collect()
    assert marker() is None
