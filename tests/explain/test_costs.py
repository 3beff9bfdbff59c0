"""Explanations keep no tensors, and dispatch knows nothing of debugging."""

import dis
import gc
import inspect
import threading
import types
import weakref
from typing import Any

import gradtape as tf
from gradtape.runtime import dispatch, ledger, observing
from gradtape.runtime.state import STATE


def names_in(code: types.CodeType) -> set[str]:
    """Every global name and attribute that a function's code mentions, those of its inner functions included."""
    found = {i.argval for i in dis.get_instructions(code) if isinstance(i.argval, str)}
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            found |= names_in(inner)
    return found


def test_dispatch_is_the_same_code_with_and_without_debugging() -> None:
    def codes() -> dict[str, types.CodeType]:
        return {n: f.__code__ for n, f in vars(dispatch).items() if inspect.isfunction(f)}

    before = codes()
    words = {w for code in before.values() for w in names_in(code)}
    assert {"execute", "unary", "binary"} <= set(before)
    assert not {w for w in words if "debug" in w.lower() or "ledger" in w.lower() or w == "explain"}
    assert not {"ledger", "observing", "Observer"} & set(vars(dispatch))
    assert "detour" in words, "the one question that each op asks, of scopes and observers alike"
    tf.debugging.enable()
    try:
        assert codes() == before
        assert isinstance(STATE.overrides, observing.Observer)
    finally:
        tf.debugging.disable()
    assert STATE.overrides is None and STATE.detour is None and STATE.watchers == ()


def test_a_used_tape_keeps_no_tensor() -> None:
    x = tf.Variable(tf.ones([100]))
    with tf.GradientTape() as tape:
        h = tf.sin(x)
        y = tf.reduce_sum(h * h)
    array = weakref.ref(h._array)
    tape.gradient(y, x)
    del h, y
    gc.collect()
    assert array() is None
    assert [r.saved for r in tape._past] == [[]]


def test_a_reset_tape_keeps_no_tensor() -> None:
    x = tf.Variable(tf.ones([100]))
    with tf.GradientTape() as tape:
        h = tf.sin(x)
        h = h * h
        array = weakref.ref(h._array)
        tape.reset()
        del h
        gc.collect()
        assert array() is None


def test_a_ledger_is_bounded(monkeypatch: Any) -> None:
    monkeypatch.setattr(ledger, "MAX_ENTRIES", 10)
    x = tf.constant(1.0)
    with tf.GradientTape(debug=True) as tape:
        tape.watch(x)
        for _ in range(30):
            x = x * 1.5
    assert len(tape._ledger.entries) == 10


def test_debugging_reaches_threads_that_start_later() -> None:
    found: list[Any] = []

    def work() -> None:
        x = tf.Variable(2.0)
        with tf.GradientTape() as tape:
            y = tf.constant(1.0) * float(x * x)
        found.append(str(tape.explain(y, x)))

    tf.debugging.enable()
    try:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    finally:
        tf.debugging.disable()
    assert __file__ in found[0]


def test_scopes_and_functions_go_on_in_debugging() -> None:
    f = tf.function(lambda v: tf.square(v) * 1.0)
    x = tf.constant(3.0)

    def slopes(**how: Any) -> list[float]:
        found = []
        for scope in ({"square": lambda op, up: up * 7.0}, {}):
            with tf.GradientTape(persistent=True, **how) as tape, tf.override_gradient(scope):
                tape.watch(x)
                y, z = tf.square(x), f(x)
            found += [float(tape.gradient(t, x)) for t in (y, z)]
        return found

    assert slopes() == slopes(debug=True) == [7.0, 7.0, 6.0, 6.0]
    count = f.experimental_get_tracing_count()
    assert slopes(debug=True) == [7.0, 7.0, 6.0, 6.0]
    assert f.experimental_get_tracing_count() == count, "no trace is made anew because of debugging"
    assert STATE.overrides is None
    with tf.override_gradient({"square": lambda op, up: up * 7.0}), tf.GradientTape(debug=True) as tape:
        tape.watch(x)
        y = tf.square(x)
    assert float(tape.gradient(y, x)) == 7.0
