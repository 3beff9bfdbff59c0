"""What a tape records: what is watched, when it records, and what ends a recording."""

import gc

import pytest

import gradtape as tf


def names(tape: tf.GradientTape) -> list[str]:
    return [v.name.removesuffix(":0") for v in tape.watched_variables()]


def test_a_constant_is_followed_from_the_moment_it_is_watched() -> None:
    x = tf.constant(3.0)
    with tf.GradientTape() as tape:
        before = x * 10.0
        tape.watch(x)
        y = before + x * 2.0
    assert float(tape.gradient(y, x)) == 2.0


def test_a_result_that_is_watched_keeps_its_history() -> None:
    x = tf.constant(3.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x * x
        tape.watch(y)
        z = y * 5.0
    gx, gy = tape.gradient(z, [x, y])
    assert (float(gx), float(gy)) == (30.0, 5.0)


def test_watching_twice_is_watching_once() -> None:
    x = tf.constant(3.0)
    with tf.GradientTape() as tape:
        tape.watch([x, x])
        tape.watch(x)
        y = x * x
    assert float(tape.gradient(y, x)) == 6.0


def test_watch_wants_a_tape_that_has_been_entered() -> None:
    x = tf.constant(3.0)
    tape = tf.GradientTape()
    with pytest.raises(AttributeError, match="enter it first"):
        tape.watch(x)
    with tape:
        tape.watch(x)
        y = x * x
    assert float(tape.gradient(y, x)) == 6.0


def test_a_variable_that_is_not_trainable_must_be_watched() -> None:
    v = tf.Variable(2.0, trainable=False)
    with tf.GradientTape(persistent=True) as tape:
        early = v * v
        tape.watch(v)
        late = v * v * v
    assert tape.gradient(early, v) is None
    assert float(tape.gradient(late, v)) == 12.0


def test_a_read_before_the_watch_stays_a_constant() -> None:
    v = tf.Variable(2.0, trainable=False)
    with tf.GradientTape() as tape:
        early = v.read_value()
        tape.watch(v)
        y = v * 3.0 + early * 5.0 + early * v
    assert float(tape.gradient(y, v)) == 3.0 + 2.0


def test_variables_are_left_alone_where_asked() -> None:
    a, b = tf.Variable(2.0), tf.Variable(5.0)
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(b)
        y = a * b
    assert [g if g is None else float(g) for g in tape.gradient(y, [a, b])] == [None, 2.0]


def test_watched_variables_come_in_order_of_construction_and_outlive_the_use() -> None:
    a, b, c = (tf.Variable(float(k), name=n) for k, n in enumerate("abc"))
    frozen = tf.Variable(7.0, trainable=False, name="frozen")
    with tf.GradientTape() as tape:
        assert names(tape) == []
        y = c * frozen
        y = y + a
        assert names(tape) == ["a", "c"]
        tape.watch(frozen)
        with tape.stop_recording():
            y = y + b
        assert names(tape) == ["a", "c", "frozen"]
    assert isinstance(tape.watched_variables(), tuple)
    assert tape.gradient(y, b) is None
    assert names(tape) == ["a", "c", "frozen"]
    assert tape.watched_variables()[0] is a


def test_watched_variables_start_anew_with_reset_and_with_a_new_recording() -> None:
    a, b = tf.Variable(1.0, name="a"), tf.Variable(2.0, name="b")
    with tf.GradientTape() as tape:
        y = a * a
        tape.reset()
        assert names(tape) == []
        y = y * b
    assert names(tape) == ["b"]
    tape.gradient(y, b)
    with tape:
        a + 1.0
    assert names(tape) == ["a"]


def test_stop_recording_stops_one_tape_only() -> None:
    x = tf.Variable(2.0)
    with tf.GradientTape() as a, tf.GradientTape() as b:
        with a.stop_recording():
            y = x**3
        z = y * x
    assert float(a.gradient(z, x)) == 8.0
    assert float(b.gradient(z, x)) == 32.0


def test_an_exception_ends_stop_recording_and_recording_goes_on() -> None:
    x = tf.Variable(2.0)
    with tf.GradientTape() as tape:
        with pytest.raises(KeyError), tape.stop_recording():
            raise KeyError("inside")
        y = x * x
    assert float(tape.gradient(y, x)) == 4.0


def test_a_gradient_while_stopped() -> None:
    v = tf.Variable(3.0)
    with tf.GradientTape() as tape:
        y = v * v
        with tape.stop_recording():
            assert float(tape.gradient(y, v)) == 6.0
        z = v * v * v  # a tape that was used up records anew
    assert float(tape.gradient(z, v)) == 27.0


def test_a_gradient_while_a_persistent_tape_is_stopped_is_not_recorded() -> None:
    v = tf.Variable(3.0)
    with tf.GradientTape(persistent=True) as tape:
        y = v**3
        with tape.stop_recording():
            quiet = tape.gradient(y, v)
        loud = tape.gradient(y, v)
        total = quiet * v + loud * v
    # quiet is the constant 27; d(loud · v)/dv = 6v · v + loud
    assert float(tape.gradient(total, v)) == 27.0 + 54.0 + 27.0
    assert tape.gradient(quiet, v) is None


def test_reset_forgets_operations_and_watches() -> None:
    x, v = tf.constant(3.0), tf.Variable(2.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x * v
        tape.reset()
        z = y + x * v
    gx, gv = tape.gradient(z, [x, v])
    assert gx is None
    assert float(gv) == 3.0


def test_reset_keeps_the_tapes_around_it_recording() -> None:
    v = tf.Variable(2.0)
    with tf.GradientTape() as outer, tf.GradientTape() as inner:
        y = v * v
        inner.reset()
        y = y * v
    assert float(inner.gradient(y, v)) == 4.0
    assert float(outer.gradient(y, v)) == 12.0


def test_entering_again_goes_on_with_the_recording() -> None:
    tape, x = tf.GradientTape(), tf.constant(3.0)
    with tape:
        tape.watch(x)
        y = 2.0 * x
    lost = y * 5.0
    with tape:
        z = y * y + lost
    gx, gl = tape.gradient(z, [x, lost])
    assert float(gx) == 24.0
    assert gl is None


def test_a_tape_that_was_used_up_can_record_again() -> None:
    v = tf.Variable(3.0)
    tape = tf.GradientTape()
    for power in (2, 3):
        with tape:
            y = v**power
        assert float(tape.gradient(y, v)) == power * 3.0 ** (power - 1)


def test_interleaved_blocks_record_what_is_inside_each() -> None:
    v = tf.Variable(2.0)
    a, b = tf.GradientTape(), tf.GradientTape()
    a.__enter__()
    y = v * v
    b.__enter__()
    y = y * v
    a.__exit__(None, None, None)
    z = y * v
    b.__exit__(None, None, None)
    assert float(a.gradient(y, v)) == 12.0
    assert a._recorder is None
    assert float(b.gradient(z, v)) == 4.0 * 2.0 + 8.0  # y = (v · v as a constant) · v, z = y · v


def test_an_exception_in_the_block_ends_the_recording() -> None:
    v, tape = tf.Variable(2.0), tf.GradientTape()
    made = []

    def fail() -> None:
        with tape:
            made.append(v * v)
            raise KeyError("inside")

    with pytest.raises(KeyError):
        fail()
    z = made[0] * v
    assert tape.gradient(z, v) is None
    with tape:
        y = v * v
    assert float(tape.gradient(y, v)) == 4.0


def test_enter_and_exit_by_hand() -> None:
    tape, x = tf.GradientTape(), tf.constant(2.0)
    assert tape.__enter__() is tape
    tape.watch(x)
    y = x**3
    tape.__exit__(None, None, None)
    z = y * y
    assert tape.gradient([y, z], x).numpy() == 12.0


def test_recording_costs_nothing_for_what_nobody_watches() -> None:
    x = tf.constant(3.0)
    with tf.GradientTape() as tape:
        y = x * x + 1.0
    assert tape.gradient(y, x) is None
    with tf.GradientTape() as tape:
        for _ in range(10):
            x = x * 2.0
        assert tape._recorder is not None
        assert not tape._recorder.slots
        assert not tape._recorder.saved


def test_a_tape_that_is_dropped_while_recording_is_no_harm() -> None:
    v = tf.Variable(2.0)

    def leave() -> None:
        with tf.GradientTape():
            v * v

    leave()
    gc.collect()
    with tf.GradientTape() as tape:
        y = v * v
    assert float(tape.gradient(y, v)) == 4.0


def test_autodiff_names_the_same_class() -> None:
    assert tf.autodiff.GradientTape is tf.GradientTape
