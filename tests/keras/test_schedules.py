"""Learning-rate schedules against their formulas, and optimizers that follow them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as tf

schedules = tf.keras.optimizers.schedules


def _wave(share: float) -> float:
    return (1 + math.cos(math.pi * min(share, 1.0))) / 2


FORMULAS: dict[str, tuple[Any, Callable[[int], float]]] = {
    "exponential": (schedules.ExponentialDecay(0.5, 3, 0.8), lambda k: 0.5 * 0.8 ** (k / 3)),
    "exponential stairs": (schedules.ExponentialDecay(0.5, 3, 0.8, staircase=True), lambda k: 0.5 * 0.8 ** (k // 3)),
    "inverse": (schedules.InverseTimeDecay(0.5, 3, 0.8), lambda k: 0.5 / (1 + 0.8 * k / 3)),
    "inverse stairs": (schedules.InverseTimeDecay(0.5, 3, 0.8, True), lambda k: 0.5 / (1 + 0.8 * (k // 3))),
    "polynomial": (
        schedules.PolynomialDecay(0.5, 4, 0.1, power=2.0),
        lambda k: 0.4 * (1 - min(k / 4, 1)) ** 2 + 0.1,
    ),
    "cycles": (
        schedules.PolynomialDecay(0.5, 4, 0.1, cycle=True),
        lambda k: 0.4 * (1 - k / (4 * max(math.ceil(k / 4), 1))) + 0.1,
    ),
    "cosine": (schedules.CosineDecay(0.5, 5, alpha=0.2), lambda k: 0.5 * (0.8 * _wave(k / 5) + 0.2)),
    "warm-up": (
        schedules.CosineDecay(0.1, 5, warmup_target=0.5, warmup_steps=3),
        lambda k: 0.1 + 0.4 * k / 3 if k < 3 else 0.5 * _wave((k - 3) / 5),
    ),
    "no warm-up": (schedules.CosineDecay(0.1, 5, warmup_target=0.5), lambda k: 0.5 * _wave(k / 5)),
    "piecewise": (
        schedules.PiecewiseConstantDecay([2, 4], [0.5, 0.25, 0.125]),
        lambda k: 0.5 if k <= 2 else 0.25 if k <= 4 else 0.125,
    ),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_rates_of_steps(name: str) -> None:
    schedule, formula = FORMULAS[name]
    traced = tf.function(schedule)
    for step in range(11):
        for rate in (schedule(step), schedule(tf.constant(step, tf.int64)), traced(tf.constant(step))):
            assert rate.dtype == tf.float32
            np.testing.assert_allclose(float(rate), formula(step), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("traced", [False, True])
def test_an_optimizer_takes_the_rate_of_its_step(name: str, traced: bool) -> None:
    schedule, formula = FORMULAS[name]
    optimizer, v, wanted = tf.keras.optimizers.SGD(schedule), tf.Variable(0.0), 0.0

    def step() -> None:
        optimizer.apply_gradients([(tf.constant(1.0), v)])

    run = tf.function(step) if traced else step
    for k in range(6):
        assert float(optimizer.learning_rate) == pytest.approx(formula(k), rel=1e-5)
        run()
        wanted -= formula(k)
        assert float(v) == pytest.approx(wanted, rel=1e-5)


def test_a_schedule_of_ones_own() -> None:
    class Twice(schedules.LearningRateSchedule):
        def __call__(self, step: Any) -> Any:
            return 2.0 * (tf.cast(step, tf.float32) + 1.0)

    optimizer, v = tf.keras.optimizers.SGD(Twice()), tf.Variable(0.0)
    for _ in range(2):
        optimizer.apply_gradients([(tf.constant(1.0), v)])
    assert float(v) == -6.0


def test_wrong_schedules() -> None:
    for kind, rest in ((schedules.ExponentialDecay, (0.5,)), (schedules.CosineDecay, ())):
        with pytest.raises(ValueError, match="`decay_steps` should be more than 0, got 0"):
            kind(0.1, 0, *rest)
    with pytest.raises(ValueError, match="one value more than boundaries, got 1 boundaries and 1 values"):
        schedules.PiecewiseConstantDecay([1], [0.1])
    with pytest.raises(NotImplementedError, match="should define `__call__"):
        schedules.LearningRateSchedule()(0)


@pytest.mark.parametrize("steps", ["10", None])
def test_steps_that_are_no_number(steps: Any) -> None:
    with pytest.raises(TypeError, match="`decay_steps` should be a number of steps, more than 0, got"):
        tf.keras.optimizers.schedules.ExponentialDecay(0.1, steps, 0.5)
