"""Scalar functions as people write them, with the intervals in which their operands are drawn."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import gradtape as tf

COEFFICIENTS = (0.5, -1.0, 0.25)
WEIGHTS = np.array([0.3, 0.1])


def arithmetic(x, y):
    return (x + 2 * y - 1) * x / (3 + y**2) - -(x**3) + (+y) ** 4


def powers(x, y):
    return x**y + x**-1.5 + pow(x, 0.5) + 2**y


def of_math(x):
    return math.exp(-x) + math.sin(x) * math.cos(x) + math.tanh(x) + math.log1p(x * x) + math.expm1(x) + math.erf(x)


def more_of_math(x):
    return math.log(x) + math.log(x, 3) + math.log2(x) + math.log10(x) + math.sqrt(x) + math.lgamma(x) + math.exp2(x)


def of_numpy(x):
    return np.arctan(x) + np.sinh(x) + np.clip(x, -1.0, 0.5) + np.where(x > 0, np.square(x), np.abs(x)) + np.exp2(x)


def of_builtins(x, y):
    return max(x, y, 0.1) + min([x, y]) * abs(x - y) + sum([x, y, 1.0]) + float(x)


def remainders(x, y):
    return x % y + x // y + math.fmod(x, y) + math.floor(x) + math.ceil(y) + round(x)


def branches(x, y):
    if x > 1 and y > 0:
        return x * y
    scale = 2.0
    if not x < -1:
        scale = x
    elif y < -0.5 or x == 0:
        return y
    else:
        x = x * y
    return scale * x + y


def guarded(x):
    return math.log(x) if x > 0 else 0.0


def nested_choices(x, y):
    inside = -1 < x < 1
    return (1.0 if inside else 2.0) * y + (x if inside and y > 0 else -x) + inside


def loops(x):
    total, term = 0.0, 1.0
    for k in range(1, 6):
        if k == 4:
            continue
        term = term * x / k
        total += term
    n = 3
    while n > 0:
        total *= 0.9
        n -= 1
        if n == 1:
            break
    return total


def horner(x):
    return sum(c * x**k for k, c in enumerate(COEFFICIENTS) if c) + WEIGHTS[0] * x


def smooth(x, sharpness=2.0):
    return math.log(1 + math.exp(sharpness * x)) / sharpness


def calls(x):
    def inner(a, b=2.0):
        return a * b

    twice = lambda v: 2 * v  # noqa: E731
    return smooth(x) + smooth(x, sharpness=3.0) + inner(x) + inner(twice(x), b=x)


def of_tensors(x, y):
    return tf.math.softplus(x) + tf.where(x > 0, tf.sigmoid(y), tf.nn.relu(-x)) + tf.clip_by_value(y, -0.5, 0.5)


def unpacked(x, y):
    (a, b), c = (x, y), x * y
    a, b = b, a
    d: float = (e := a - b) + c
    return d * e


def of_either_kind(x):
    assert len(COEFFICIENTS) == 3, "known numbers"
    return x if x else 1.0


def one_of_them(x, y):
    kept = max(x, 0.0)
    return (kept or y) + (kept and 2 * y) + ((x > 1 and y) or 0.5) + (y > 0 and kept > 1 and 3.0) + (0 or (x and y))


def of_its_own_result(x):
    for _ in range(40):
        x = max(x * (1.0 - x), 0.3 * x)
    return x


FUNCTIONS: dict[Callable[..., Any], tuple[float, float]] = {
    arithmetic: (-2.0, 2.0),
    powers: (0.3, 2.0),
    of_math: (-2.0, 2.0),
    more_of_math: (0.3, 3.0),
    of_numpy: (-2.0, 2.0),
    of_builtins: (-2.0, 2.0),
    remainders: (0.6, 3.0),
    branches: (-3.0, 3.0),
    guarded: (-1.0, 1.0),
    nested_choices: (-2.0, 2.0),
    loops: (-2.0, 2.0),
    horner: (-2.0, 2.0),
    smooth: (-2.0, 2.0),
    calls: (-2.0, 2.0),
    of_tensors: (-2.0, 2.0),
    unpacked: (-2.0, 2.0),
    of_either_kind: (-2.0, 2.0),
    one_of_them: (-2.0, 2.0),
    of_its_own_result: (0.1, 0.9),
}
