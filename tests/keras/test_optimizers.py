"""Optimizers against NumPy in float64 over several steps, and what surrounds an update."""

from __future__ import annotations

import copy
import gc
import pickle
import warnings
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from gradtape.keras.optimizers import stepping
from gradtape.runtime.backward import COUNTS
from tests.keras import references as r

optimizers = tf.keras.optimizers
STEPS = stepping.OFTEN + 6  # on the host, the last ones as one function
START = {"a": np.array([1.0, -2.0, 0.5]), "b": np.array([[0.1, 0.2]])}

# The learning rate is kept in float32, so that rates below are exact there.
CASES: dict[str, tuple[Callable[..., Any], dict[str, Any], Callable[..., Any]]] = {
    "sgd": (optimizers.SGD, {}, r.sgd),
    "momentum": (optimizers.SGD, {"momentum": 0.9}, r.sgd),
    "nesterov": (optimizers.SGD, {"momentum": 0.8, "nesterov": True}, r.sgd),
    "adam": (optimizers.Adam, {}, r.adam),
    "adam with other betas": (optimizers.Adam, {"beta_1": 0.5, "beta_2": 0.8, "epsilon": 1e-2}, r.adam),
    "amsgrad": (optimizers.Adam, {"amsgrad": True, "beta_2": 0.5}, r.adam),
    "rmsprop": (optimizers.RMSprop, {}, r.rmsprop),
    "rmsprop with momentum": (optimizers.RMSprop, {"momentum": 0.9, "rho": 0.5}, r.rmsprop),
    "centered rmsprop": (optimizers.RMSprop, {"centered": True, "epsilon": 1e-3}, r.rmsprop),
    "centered rmsprop with momentum": (
        optimizers.RMSprop,
        {"centered": True, "momentum": 0.5, "epsilon": 1e-3},
        r.rmsprop,
    ),
    "adamw": (optimizers.AdamW, {"weight_decay": 0.25}, partial(r.decayed, rule=r.adam)),
    "momentum with decay": (optimizers.SGD, {"weight_decay": 0.5, "momentum": 0.9}, partial(r.decayed, rule=r.sgd)),
    "rmsprop with decay": (optimizers.RMSprop, {"weight_decay": 0.5}, partial(r.decayed, rule=r.rmsprop)),
}


def gradients(step: int) -> dict[str, Any]:
    rng = np.random.default_rng(step)
    return {k: rng.normal(size=v.shape) * 10.0 ** rng.uniform(-3, 1) for k, v in START.items()}


@pytest.mark.parametrize("dtype, rtol", [("float64", 1e-12), ("float32", 2e-5)])
@pytest.mark.parametrize("case", CASES)
def test_updates(case: str, dtype: str, rtol: float) -> None:
    kind, options, reference = CASES[case]
    rates = [0.25 if k < 5 else 0.0625 for k in range(STEPS)]
    wanted = {k: reference(v, rates, **options) for k, v in START.items()}
    for generator in wanted.values():
        next(generator)
    optimizer, variables = kind(rates[0], **options), {k: tf.Variable(v, dtype=dtype) for k, v in START.items()}
    for step, rate in enumerate(rates):
        optimizer.learning_rate = rate
        given = gradients(step)
        optimizer.apply_gradients([(tf.constant(given[k], dtype), v) for k, v in variables.items()])
        for k, v in variables.items():
            np.testing.assert_allclose(v.numpy(), wanted[k].send(given[k]), rtol=rtol, atol=rtol)
    assert int(optimizer.iterations) == STEPS


def clipped(kind: str, limit: float, parts: dict[str, Any]) -> dict[str, Any]:
    if kind == "clipvalue":
        return {k: np.clip(g, -limit, limit) for k, g in parts.items()}
    norms = {k: np.linalg.norm(g) for k, g in parts.items()}
    if kind == "global_clipnorm":
        norms = dict.fromkeys(parts, np.sqrt(sum(n**2 for n in norms.values())))
    return {k: g * min(1.0, limit / norms[k]) for k, g in parts.items()}


@pytest.mark.parametrize("kind", ["clipnorm", "clipvalue", "global_clipnorm"])
def test_clipping(kind: str) -> None:
    optimizer = optimizers.SGD(1.0, **{kind: 0.5})
    variables = {k: tf.Variable(v) for k, v in START.items()}
    values = dict(START)
    for step in range(STEPS):
        given = gradients(step)
        optimizer.apply([tf.constant(g) for g in given.values()], list(variables.values()))
        values = {k: v - clipped(kind, 0.5, given)[k] for k, v in values.items()}
    for k, v in variables.items():
        np.testing.assert_allclose(v.numpy(), values[k], rtol=1e-12)


def test_clipping_of_zeros_and_of_what_is_not_finite() -> None:
    v = tf.Variable([1.0, 2.0])
    optimizers.SGD(1.0, clipnorm=1.0).apply([tf.zeros([2])], [v])
    optimizers.SGD(1.0, global_clipnorm=1.0).apply([tf.zeros([2])], [v])
    assert v.numpy().tolist() == [1.0, 2.0]
    optimizers.SGD(1.0, global_clipnorm=1.0).apply([tf.constant([np.inf, 0.0])], [v])
    assert np.isnan(v.numpy()).all()


# ------------------------------------------------------------------ decay, averages, a constant scale


def test_variables_that_do_not_decay() -> None:
    variables = [tf.Variable(1.0, name=name) for name in ("kernel", "a_bias", "gamma", "beta")]
    optimizer = optimizers.SGD(0.5, weight_decay=0.5)
    optimizer.exclude_from_weight_decay(var_list=variables[2:3], var_names=["bias", "bet"])
    optimizer.apply([tf.constant(0.0)] * 4, variables)
    assert [float(v) for v in variables] == [0.75, 1.0, 1.0, 1.0]
    with pytest.raises(ValueError, match=r"before optimizer .* is built"):
        optimizer.exclude_from_weight_decay(var_names=["kernel"])


def test_decay_of_half_variables() -> None:
    v = tf.Variable([1.0], dtype=tf.float16)
    optimizers.AdamW(1e-3, weight_decay=0.5).apply([tf.zeros([1], tf.float16)], [v])
    assert v.numpy()[0] == np.float16(1 - 0.5e-3)


@pytest.mark.parametrize("traced", [False, True], ids=["eager", "traced"])
@pytest.mark.parametrize("every", [None, 3])
def test_moving_averages(every: int | None, traced: bool) -> None:
    optimizer = optimizers.SGD(0.5, use_ema=True, ema_momentum=0.75, ema_overwrite_frequency=every, name="s")
    v = tf.Variable([1.0, 2.0], dtype=tf.float64)
    still = tf.Variable(3.0)
    optimizer.build([v, still])
    assert [x.path for x in optimizer.variables[2:]] == ["s/Variable_0_average"] * 2

    def step(g: Any) -> None:
        optimizer.apply([g], [v])

    run = tf.function(step) if traced else step
    value, average = v.numpy(), None
    for k in range(8):
        g = np.random.default_rng(k).normal(size=2)
        run(tf.constant(g))
        value = value - 0.5 * g
        average = value if average is None else 0.75 * average + 0.25 * value
        if every and (k + 1) % every == 0:
            value = average
        np.testing.assert_allclose(v.numpy(), value, rtol=1e-12)
    np.testing.assert_allclose(optimizer.variables[2].numpy(), average, rtol=1e-12)
    optimizer.finalize_variable_values([v])
    assert v.numpy().tolist() == optimizer.variables[2].numpy().tolist() and float(still) == 3.0
    with pytest.raises(ValueError, match="Only variables that the optimizer was built with"):
        optimizer.finalize_variable_values([tf.Variable(1.0)])


def test_a_constant_scale_of_the_loss() -> None:
    optimizer, v = optimizers.SGD(1.0, loss_scale_factor=8.0, clipvalue=2.0), tf.Variable(3.0)
    with tf.GradientTape() as tape:
        scaled = optimizer.scale_loss(v)
    assert float(scaled) == 24.0 and optimizers.SGD().scale_loss(scaled) is scaled
    optimizer.apply([tape.gradient(scaled, v)], [v])
    assert float(v) == 2.0


def test_state_of_rmsprop_by_kind() -> None:
    optimizer = optimizers.RMSprop(momentum=0.5, centered=True, name="r")
    optimizer.build([tf.Variable(1.0, name="a"), tf.Variable(1.0, name="b")])
    kinds = ("velocity", "momentum", "average_gradient")
    wanted = [f"r/{name}_0_{kind}" for kind in kinds for name in "ab"]
    assert [v.path for v in optimizer.variables[2:]] == wanted


# ------------------------------------------------------------------ the learning rate


def test_learning_rate_can_be_read_and_assigned() -> None:
    optimizer = optimizers.SGD(0.5)
    v = tf.Variable(8.0)
    optimizer.apply([tf.constant(1.0)], [v])
    assert float(optimizer.learning_rate) == 0.5 and optimizer.learning_rate.name == "learning_rate"
    optimizer.learning_rate = 2
    optimizer.apply([tf.constant(1.0)], [v])
    optimizer.learning_rate.assign(4.0)
    optimizer.apply([tf.constant(1.0)], [v])
    assert float(v) == 8.0 - 0.5 - 2.0 - 4.0


def test_learning_rate_in_a_variable_of_ones_own() -> None:
    rate, v = tf.Variable(0.5), tf.Variable(8.0)
    optimizer = optimizers.SGD(rate)
    optimizer.apply([tf.constant(1.0)], [v])
    rate.assign(4.0)
    optimizer.apply([tf.constant(1.0)], [v])
    assert float(v) == 3.5 and optimizer.learning_rate is rate


@pytest.mark.parametrize(
    "schedule",
    [
        lambda step: 1.0 / (1.0 + step),
        lambda step: tf.constant([1.0, 0.5, 1 / 3])[tf.cast(step, tf.int32)],
        lambda step: 1.0 / (int(step) + 1),
    ],
    ids=["arithmetic", "tensor", "number"],
)
def test_learning_rate_from_a_schedule(schedule: Any) -> None:
    optimizer, v = optimizers.SGD(schedule), tf.Variable(0.0)
    for _ in range(3):
        optimizer.apply([tf.constant(1.0)], [v])
    assert float(v) == pytest.approx(-(1 + 1 / 2 + 1 / 3), rel=1e-6)
    assert [x.name for x in optimizer.variables] == ["iteration"]


def test_a_schedule_of_nothing_and_a_schedule_replaced() -> None:
    rates = iter([1.0, 3.0])
    optimizer, v = optimizers.SGD(lambda: next(rates)), tf.Variable(0.0)
    optimizer.apply([tf.constant(1.0)], [v])
    optimizer.apply([tf.constant(1.0)], [v])
    optimizer.learning_rate = 0.5
    optimizer.apply([tf.constant(1.0)], [v])
    assert float(v) == -4.5 and [x.name for x in optimizer.variables] == ["iteration", "learning_rate"]


def test_a_changed_learning_rate_builds_no_new_plan() -> None:
    optimizer, v = optimizers.Adam(0.5), tf.Variable([1.0, 2.0])
    built = []
    for rate in (0.5, 0.25, 0.125):
        optimizer.learning_rate = rate
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(v**2)
        optimizer.apply([tape.gradient(loss, v)], [v])
        built.append(COUNTS["built"])
    assert built[0] == built[1] == built[2]


# ------------------------------------------------------------------ state and tapes


@pytest.mark.host("steps on a device are traced at once")
def test_steps_that_come_again_run_as_one_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """A set of variables that is seen a few times, and numbers that stay, are worth a trace; nothing else is."""
    monkeypatch.setattr(stepping, "OFTEN", 3)
    a, b = tf.Variable([1.0, -2.0]), tf.Variable([[3.0]])
    optimizer = optimizers.SGD(0.5, momentum=0.5)
    optimizer.build([a, b])
    kept = optimizer._steps.functions

    def step(*variables: Any) -> None:
        optimizer.apply([tf.ones_like(v) for v in variables], list(variables))

    step(a, b)
    step(a)
    step(a, b)
    assert len(kept) == 0
    step(a, b)
    assert len(kept) == 1
    step(a, b)
    optimizer.momentum = 0.0
    step(a, b)
    assert len(kept) == 1
    # 0.5 times a momentum that begins with 1 and is 1.5, 1.75, 1.875 after it, and 1 once there is none
    np.testing.assert_allclose(b, [[3.0 - 0.5 * (1 + 1.5 + 1.75 + 1.875 + 1)]], rtol=1e-6)
    np.testing.assert_allclose(a[0], 1.0 - 0.5 * (1 + 1.5 + 1.75 + 1.875 + 1.9375 + 1), rtol=1e-6)
    assert int(optimizer.iterations) == 6


@pytest.mark.host("steps on a device are traced at once")
def test_steps_of_many_variables_are_not_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stepping, "FEW", 2)
    variables = [tf.Variable(float(k)) for k in range(3)]
    optimizer = optimizers.SGD(1.0)
    for _ in range(2 * stepping.OFTEN):
        optimizer.apply([tf.constant(1.0)] * 3, variables)
    assert len(optimizer._steps.functions) == 0 and float(variables[2]) == 2.0 - 2 * stepping.OFTEN


def _ran(change: Callable[[Any, Any], Any], make: Callable[[], Any] | None = None) -> Any:
    """A variable after four steps, what `change` does to the optimizer, and four more."""
    v, optimizer = tf.Variable([1.0, -2.0]), make() if make else optimizers.SGD(0.25, momentum=0.5)
    for k in range(8):
        if k == 4:
            optimizer = change(optimizer, v) or optimizer
        optimizer.apply([tf.sin(v * (k + 1))], [v])
    return v.numpy()


def _set(**values: Any) -> Callable[[Any, Any], None]:
    def change(optimizer: Any, v: Any) -> None:
        for name, value in values.items():
            setattr(optimizer, name, value)

    return change


def _replace_state(optimizer: Any, v: Any) -> None:
    optimizer.momentums[0] = tf.Variable([100.0, -100.0])


def _changed_copy(optimizer: Any, v: Any) -> Any:
    copied = copy.copy(optimizer)
    copied.momentum = 0.125
    return copied


CHANGES: dict[str, tuple[Callable[[Any, Any], Any], Callable[[], Any] | None]] = {
    "a number": (_set(momentum=0.125), None),
    "a number of NumPy's": (_set(momentum=np.float32(0.125)), None),
    "a choice of NumPy's": (_set(nesterov=np.bool_(True)), None),
    "a tensor": (lambda o, v: _set(momentum=tf.constant(0.125))(o, v), None),
    "a variable": (lambda o, v: _set(momentum=tf.Variable(0.125))(o, v), None),
    "decay": (_set(weight_decay=np.float32(0.5)), None),
    "a limit": (_set(clipvalue=1e-3), None),
    "no limit": (_set(clipnorm=None), lambda: optimizers.SGD(0.25, momentum=0.5, clipnorm=1e-3)),
    "state": (_replace_state, None),
    "a copy": (_changed_copy, None),
    "betas": (_set(beta_1=np.float32(0.25), beta_2=0.5), lambda: optimizers.Adam(0.25)),
    "a beta in a variable": (lambda o, v: _set(beta_1=tf.Variable(0.25))(o, v), lambda: optimizers.Adam(0.25)),
    "rho": (_set(rho=np.float64(0.25)), lambda: optimizers.RMSprop(0.25)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_changed_between_steps_counts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As much where steps run as one function, before and after, as where none does; and it does count."""
    change, make = CHANGES[name]
    monkeypatch.setattr(stepping, "FEW", 0)
    wanted, unchanged = _ran(change, make), _ran(lambda o, v: None, make)
    assert not np.allclose(wanted, unchanged)
    monkeypatch.setattr(stepping, "FEW", 9)
    monkeypatch.setattr(stepping, "OFTEN", 1)
    np.testing.assert_allclose(_ran(change, make), wanted, rtol=1e-6)


def test_a_subclass_may_work_its_numbers_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stepping, "OFTEN", 1)
    now = [0.5]

    class Own(tf.keras.optimizers.SGD):
        @property
        def momentum(self) -> float:  # type: ignore[override]
            return now[0]

        @momentum.setter
        def momentum(self, value: float) -> None:
            pass

    found = _ran(lambda o, v: now.__setitem__(0, 0.125), lambda: Own(0.25, momentum=0.5))
    np.testing.assert_allclose(found, _ran(_set(momentum=0.125)), rtol=1e-6)


def test_a_subclass_with_nothing_but_arguments_of_its_own_runs_as_its_base(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stepping, "OFTEN", 1)

    class Usual(tf.keras.optimizers.SGD):
        """With the numbers that somebody likes."""

        def __init__(self) -> None:
            super().__init__(0.25, momentum=0.5)

    v, optimizer = tf.Variable([1.0]), Usual()
    optimizer.apply([tf.constant([1.0])], [v])
    assert len(optimizer._steps.functions) == 1 and float(v[0]) == 0.75


def test_a_rule_that_is_replaced_on_one_optimizer_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stepping, "OFTEN", 1)
    v, optimizer, seen = tf.Variable([1.0]), optimizers.SGD(0.5), []
    optimizer.apply([tf.constant([1.0])], [v])
    optimizer.update_step = lambda gradient, variable, rate: seen.append(float(rate))
    for _ in range(3):
        optimizer.apply([tf.constant([1.0])], [v])
    assert seen == [0.5] * 3 and float(v[0]) == 0.5


def test_averages_follow_as_they_are_told_now() -> None:
    v = tf.Variable([1.0])
    optimizer = optimizers.SGD(1.0, use_ema=True, ema_momentum=0.5)
    for _ in range(2):
        optimizer.apply([tf.constant([1.0])], [v])  # 0, -1; averages 0, -0.5
    optimizer.ema_momentum, optimizer.ema_overwrite_frequency = 0.25, 3
    optimizer.apply([tf.constant([1.0])], [v])  # -2; -0.5 / 4 - 2 · 3 / 4, in the variable's place
    assert float(v[0]) == -1.625
    optimizer.ema_momentum = 2.0
    with pytest.raises(ValueError, match=r"`ema_momentum` should be a number from 0 to 1, got 2\.0"):
        optimizer.apply([tf.constant([1.0])], [v])


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))], ids=["deep", "pickle"]
)
@pytest.mark.parametrize("steps", [0, 3])
def test_copies_with_their_variables_go_on_alone(
    copied: Callable[[Any], Any], steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stepping, "OFTEN", 2)
    v = tf.Variable([1.0, -2.0], name="v")
    rate = tf.keras.optimizers.schedules.ExponentialDecay(0.5, 2, 0.5)
    optimizer = optimizers.AdamW(rate, weight_decay=0.5, use_ema=True)
    optimizer.exclude_from_weight_decay([v])

    def go(variable: Any, by: Any, count: int) -> Any:
        for _ in range(count):
            by.apply([tf.sin(variable)], [variable])
        return variable.numpy()

    go(v, optimizer, steps)
    other, its = copied((v, optimizer))
    before, found = v.numpy(), go(other, its, 3)
    np.testing.assert_array_equal(v, before)
    assert int(optimizer.iterations) == steps and int(its.iterations) == steps + 3
    np.testing.assert_allclose(found, go(v, optimizer, 3), rtol=1e-6)


def test_a_variable_may_change_its_length() -> None:
    v = tf.Variable([1.0, 2.0], shape=tf.TensorShape([None]))
    optimizer = optimizers.SGD(0.5)
    for n in (2, 3, 4):
        v.assign(tf.ones(n))
        optimizer.apply([tf.ones(n)], [v])
        np.testing.assert_array_equal(v, np.full(n, 0.5))


def test_an_optimizer_ends_with_its_last_name() -> None:
    """It is no part of a cycle, so that its state is let go at once."""
    optimizer, v = optimizers.Adam(), tf.Variable([1.0])
    optimizer.apply([tf.constant([1.0])], [v])
    gone = weakref.ref(optimizer)
    gc.disable()
    try:
        del optimizer
        assert gone() is None
    finally:
        gc.enable()


def test_a_step_of_ones_own_is_not_traced() -> None:
    seen = []

    class Own(tf.keras.optimizers.SGD):
        def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
            seen.append(float(learning_rate))
            super().update_step(gradient, variable, learning_rate)

    v, optimizer = tf.Variable([1.0]), Own(0.25)
    for _ in range(5):
        optimizer.apply([tf.constant([1.0])], [v])
    assert seen == [0.25] * 5 and float(v[0]) == -0.25


def test_state_is_named_after_the_variables() -> None:
    layer, optimizer = tf.keras.layers.Dense(2, name="first"), optimizers.Adam(name="adam")
    layer.build((None, 3))
    optimizer.build(layer.trainable_variables)
    assert [v.path for v in optimizer.variables] == [
        "adam/iteration",
        "adam/learning_rate",
        "adam/first_kernel_momentum",
        "adam/first_kernel_velocity",
        "adam/first_bias_momentum",
        "adam/first_bias_velocity",
    ]
    assert optimizer.iterations.dtype == tf.int64 and not any(v.trainable for v in optimizer.variables)
    assert [v.shape for v in optimizer.variables[2:]] == [(3, 2), (3, 2), (2,), (2,)]


@pytest.mark.parametrize("kind", [optimizers.SGD, optimizers.RMSprop, optimizers.Adam, optimizers.AdamW])
def test_state_is_made_once(kind: Any) -> None:
    v, options = tf.Variable([1.0, 2.0]), {} if kind in (optimizers.Adam, optimizers.AdamW) else {"momentum": 0.9}
    values = []
    for builds in (1, 2):
        optimizer = kind(0.1, use_ema=True, **options)
        v.assign([1.0, 2.0])
        for _ in range(2):
            for _ in range(builds):
                optimizer.build([v])
            optimizer.apply_gradients([(tf.ones([2]), v)])
        values.append((len(optimizer.variables), v.numpy().tolist()))
    assert values[0] == values[1]


def test_updates_are_not_recorded_by_an_active_tape() -> None:
    optimizer, v = optimizers.Adam(0.5), tf.Variable(3.0)
    with tf.GradientTape() as tape:
        optimizer.apply([tf.constant(1.0)], [v])
        assert tape.watched_variables() == ()
        y = v * v
    assert float(tape.gradient(y, v)) == pytest.approx(2 * 2.5, rel=1e-5)


def test_a_tensor_read_before_an_update_keeps_its_value() -> None:
    v = tf.Variable([1.0, 2.0])
    before = v.read_value()
    optimizer = optimizers.Adam(0.5)
    for _ in range(2):
        optimizer.apply([tf.constant([1.0, 1.0])], [v])
    assert before.numpy().tolist() == [1.0, 2.0]


def test_gradients_of_a_tape_that_is_kept_see_the_old_value() -> None:
    v = tf.Variable([1.0, 2.0])
    with tf.GradientTape(persistent=True) as tape:
        y = v**2
    optimizers.SGD(1.0).apply([tf.constant([1.0, 1.0])], [v])
    assert tape.gradient(y, v).numpy().tolist() == [2.0, 4.0] and v.numpy().tolist() == [0.0, 1.0]


def test_constraints_are_applied_after_the_update() -> None:
    v = tf.Variable([1.0, -1.0], constraint=lambda x: tf.maximum(x, 0.0))
    optimizers.SGD(1.0).apply([tf.constant([0.5, 0.5])], [v])
    assert v.numpy().tolist() == [0.5, 0.0]


def test_gradients_of_another_dtype_are_cast() -> None:
    v = tf.Variable([1.0], dtype=tf.float64)
    optimizers.SGD(0.5).apply([np.array([1.0], np.float32)], [v])
    assert v.numpy().tolist() == [0.5]


def test_half_and_single_variables_in_one_step() -> None:
    variables = [tf.Variable([1.0, 2.0], dtype=dtype) for dtype in ("float16", "float32", "float64")]
    optimizers.Adam(0.5).apply([tf.ones([2], v.dtype) for v in variables], variables)
    for v in variables:
        np.testing.assert_allclose(v.numpy().astype(float), [0.5, 1.5], rtol=2e-3)


# ------------------------------------------------------------------ wrong use


def test_missing_gradients() -> None:
    a, b = tf.Variable(1.0, name="a"), tf.Variable(2.0, name="b")
    optimizer = optimizers.SGD(0.5)
    with pytest.warns(UserWarning, match=r"Gradients do not exist for variables \['b:0'\]"):
        optimizer.apply_gradients([(tf.constant(1.0), a), (None, b)])
    assert (float(a), float(b)) == (0.5, 2.0)
    with pytest.raises(ValueError, match="No gradients provided for any variable"):
        optimizer.apply_gradients([(None, a), (None, b)])
    assert int(optimizer.iterations) == 1


def test_nothing_to_do_is_silent() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizers.SGD().apply([], [])


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: optimizers.SGD(momentum=2.0), "`momentum` should be a number from 0 to 1, got 2.0"),
        (lambda: optimizers.SGD(learning_rate="fast"), "`learning_rate` should be a number.*got 'fast'"),
        (lambda: optimizers.SGD(learning_rate=None), "`learning_rate` should be a number"),
        (lambda: optimizers.Adam(beta_1=1.0), "`beta_1` should be"),
        (lambda: optimizers.Adam(beta_2="slow"), "`beta_2` should be a number from 0 to 1, got 'slow'"),
        (lambda: optimizers.Adam(epsilon=None), "`epsilon` should be a number that is not negative, got None"),
        (lambda: optimizers.Adam(weight_decay="x"), "`weight_decay` should be a number or None, got 'x'"),
        (lambda: optimizers.SGD(nonsense=1), "`SGD` has no argument 'nonsense'"),
        (lambda: optimizers.SGD(clipnorm="a"), "`clipnorm` should be a positive number, got a"),
        (lambda: optimizers.SGD().apply_gradients(3), r"zip\(gradients, variables\)"),
        (lambda: optimizers.RMSprop(rho=1.5), "`rho` should be a number from 0 to 1, got 1.5"),
        (lambda: optimizers.RMSprop(momentum=-1), "`momentum` should be a number from 0 to 1, got -1"),
        (lambda: optimizers.AdamW(weight_decay=None), "`weight_decay` of `AdamW` should be a number"),
        (lambda: optimizers.SGD(use_ema=True, ema_momentum=2), "`ema_momentum` should be a number from 0 to 1, got 2"),
        (lambda: optimizers.SGD(use_ema=True, ema_overwrite_frequency=0), "should be a positive integer or None"),
        (lambda: optimizers.Adam(clipnorm=1.0, clipvalue=2.0), "Only one of"),
        (lambda: optimizers.Adam(clipnorm=-1.0), "`clipnorm` should be a positive number"),
        (lambda: optimizers.get("adamm"), "Known names: adam, adamw, rmsprop, sgd"),
        (lambda: optimizers.SGD().apply([tf.constant(1.0)]), "optimizer.build"),
        (lambda: optimizers.SGD().apply_gradients([tf.constant(1.0)]), r"zip\(gradients, variables\)"),
        (lambda: optimizers.SGD().apply_gradients([]), r"zip\(gradients, variables\)"),
        (
            lambda: optimizers.SGD().apply([tf.ones([2])], [tf.Variable([1.0])]),
            r"should have its shape \(1,\), got \(2,\)",
        ),
        (lambda: optimizers.SGD().apply([tf.ones([1])] * 2, [tf.Variable([1.0])]), "got 2 for 1 variables"),
    ],
)
def test_wrong_use_is_explained(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_numbers_of_numpy_are_numbers() -> None:
    optimizer = optimizers.Adam(
        np.float32(0.5), beta_1=np.float32(0.5), epsilon=np.float64(1e-3), clipvalue=np.float32(1)
    )
    assert (optimizer.beta_1, optimizer.epsilon, float(optimizer.learning_rate)) == (0.5, 1e-3, 0.5)


def test_new_variables_want_a_new_optimizer() -> None:
    optimizer = optimizers.SGD(0.5)
    optimizer.apply([tf.constant(1.0)], [tf.Variable(1.0)])
    with pytest.raises(ValueError, match="Unknown variable"):
        optimizer.apply([tf.constant(1.0)], [tf.Variable(1.0)])
    with pytest.raises(TypeError, match="changes variables"):
        (other := optimizers.SGD()).build([tf.Variable(1.0), tf.constant(1.0)])
    assert not other.built and not other._order, "nothing is left of a build that failed"


MAKERS = {
    "adam": lambda: tf.keras.optimizers.Adam(0.1),
    "amsgrad": lambda: tf.keras.optimizers.Adam(0.1, amsgrad=True),
    "rmsprop": lambda: tf.keras.optimizers.RMSprop(0.1, rho=0.5, momentum=0.5, centered=True),
    "sgd": lambda: tf.keras.optimizers.SGD(0.1, momentum=0.5),
}


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("traced", [False, True])
def test_means_that_fade_become_zero(name: str, traced: bool) -> None:
    """Numbers with fewer digits than others are slow to compute with."""
    v, optimizer = tf.Variable([1.0, 1.0, 1.0]), MAKERS[name]()
    tiny = float(np.finfo(np.float32).smallest_normal)
    optimizer.build([v])
    state = [s for s in optimizer.variables if s.shape == v.shape and s is not v]
    for s in state:
        s.assign([tiny * 1.01, 1.0, np.nan])
    apply = tf.function(optimizer.apply) if traced else optimizer.apply
    for _ in range(3):
        apply([tf.constant([0.0, 0.0, 0.0])], [v])
    for s in state:
        found = s.numpy()
        assert found[0] == 0 or found[0] >= tiny
        assert found[1] > 0.1 and np.isnan(found[2])
    assert any(s.numpy()[0] == 0 for s in state)


def test_means_of_halves_keep_small_numbers() -> None:
    tiny = float(np.finfo(np.float16).smallest_normal)
    v, optimizer = tf.Variable([1.0], dtype=tf.float16), tf.keras.optimizers.SGD(0.0, momentum=0.5)
    optimizer.build([v])
    [m] = [s for s in optimizer.variables if s.dtype == tf.float16 and s is not v and s.shape == v.shape]
    m.assign([tiny])
    optimizer.apply([tf.constant([0.0], tf.float16)], [v])
    assert float(m.numpy()[0]) == tiny / 2
