"""Fused kernels in terms of the device's own copies: the bytes that a program has to read and write, by the time it
takes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import gradtape as tf
from tools.gpu_check.meter import Meter
from tools.gpu_check.outcome import Found
from tools.gpu_check.setting import Setting

MIB = 1 << 20
SIZES = (256, 1024)  # MiB of one array
COLUMNS = 1024
ROOM = 12  # arrays that may be there at a time
WANTED = 0.85  # of the copies' rate


class Race(NamedTuple):
    """A program that is called, and how many whole arrays it has to read and write."""

    call: Callable[[], Any]
    arrays: float


def _drawn(rows: int, seed: int) -> Any:
    return tf.random.stateless_normal([rows, COLUMNS], [seed, 0])


def _pullback(f: Callable[..., Any], up: Any, *sources: Any) -> Callable[[], Any]:
    """A function's gradient of a cotangent that is given, traced: its values are computed on the way, and not kept."""

    @tf.function
    def pulled(up: Any, *sources: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(sources)
            y = f(*sources)
        return tape.gradient(y, sources, output_gradients=up)

    return lambda: pulled(up, *sources)


def _chain(x: Any) -> Any:
    return tf.exp(tf.sin(x) * x) / (1.0 + tf.square(tf.tanh(x))) - tf.math.log1p(x * x)


def _normalized(x: Any, gain: Any, bias: Any) -> Any:
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    return (x - mean) * tf.math.rsqrt(variance + 1e-5) * gain + bias


def races(rows: int) -> dict[str, Race]:
    """Programs of arrays with so many rows."""
    x, up = _drawn(rows, 1), _drawn(rows, 2)
    gain, bias = tf.ones([COLUMNS]), tf.zeros([COLUMNS])
    labels = tf.constant(np.arange(rows) % COLUMNS, tf.int32)

    @tf.function
    def cross_entropy(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=x))
        return loss, tape.gradient(loss, x)

    return {
        "VJP of 8 pointwise ops": Race(_pullback(_chain, up, x), 3),
        "VJP of a bias": Race(_pullback(lambda x, b: tf.tanh(x + b), up, x, bias), 3),
        "cross-entropy, with gradient": Race(lambda: cross_entropy(x), 2),
        "VJP of layer norm": Race(_pullback(_normalized, up, x, gain, bias), 3),
        "sum of all": Race(lambda: tf.reduce_sum(x), 1),
        "sums of columns": Race(lambda: tf.reduce_sum(x, axis=0), 1),
        "sums of rows": Race(lambda: tf.reduce_sum(x, axis=1), 1),
    }


def run(s: Setting) -> Found:
    return _counted(s) if s.emulated else _timed(s)


def _timed(s: Setting) -> Found:
    meter = Meter(s)
    rows: list[list[str]] = [["program", "MiB", "ms", "GB/s", "of a copy's"]]
    figures: dict[str, Any] = {}
    below = []
    for size in SIZES:
        if s.free() < ROOM * size * MIB:
            below.append(f"no room for arrays of {size} MiB")
            continue
        count = size * MIB // (4 * COLUMNS)
        time = meter.cost(functools.partial(s.cuda.copy, _drawn(count, 3)._array))
        rate = 2 * size * MIB / time / 1e6
        rows.append(["copy", str(size), f"{time:.3f}", f"{rate:,.0f}", ""])
        figures[f"copy, {size} MiB"] = {"ms": time, "GB/s": rate}
        for name, race in races(count).items():
            time = meter.cost(race.call)
            own = race.arrays * size * MIB / time / 1e6
            rows.append([name, str(size), f"{time:.3f}", f"{own:,.0f}", f"{own / rate:.0%}"])
            figures[f"{name}, {size} MiB"] = {"ms": time, "GB/s": own, "of a copy's": own / rate}
            if own < WANTED * rate:
                below.append(f"{name} ({size} MiB): {own / rate:.0%}")
    told = f"below {WANTED:.0%} of a copy's rate: {', '.join(below)}" if below else f"all at {WANTED:.0%} or more"
    return Found(told, {"table": rows, "programs": figures, "wanted": WANTED})


def _counted(s: Setting) -> Found:
    """In a dry run: launches, and the bytes that they moved in terms of those that have to be."""
    meter, count = Meter(s), 6
    rows: list[list[str]] = [["program", "launches", "bytes", "needed"]]
    for name, race in races(count).items():
        moved, launches = meter.cost(race.call), meter.launches(race.call)
        needed = race.arrays * count * COLUMNS * 4
        rows.append([name, str(launches), f"{moved:,.0f}", f"{needed:,.0f}"])
    return Found(f"{len(rows) - 1} programs were launched, and their bytes counted; no time was taken", {"table": rows})
