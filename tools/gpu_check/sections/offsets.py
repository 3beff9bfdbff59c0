"""Slices that begin one element after an aligned address, in every dtype: results on the device against the host's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import gradtape as tf
from tools.gpu_check.comparing import agree
from tools.gpu_check.outcome import Found
from tools.gpu_check.setting import Setting

FLOATS = ("float16", "bfloat16", "float32", "float64")
COMPLEX = ("complex64", "complex128")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
DTYPES = (*FLOATS, *COMPLEX, *INTEGERS, "bool")
FEW = ("float16", "bfloat16", "float32", "complex64", "int8", "int64", "bool")  # of a dry run
COLUMNS = 7
# How far results may be apart from the host's, which adds in another order and rounds after each op.
DIGITS = {"float16": 5e-3, "bfloat16": 4e-2, "float32": 1e-5, "float64": 1e-13, "complex64": 1e-5, "complex128": 1e-13}

Function = Callable[[Any], Any]


def _table(x: Any) -> Any:
    return tf.reshape(x, [-1, COLUMNS])


def _cubed(x: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x * x * x
    return tape.gradient(y, x)


MOVES: dict[str, Function] = {
    "reverse": lambda x: tf.reverse(x, [0]),
    "transpose": lambda x: tf.transpose(_table(x)),
    "gather": lambda x: tf.gather(_table(x), np.arange(100) % 3),
    "concat": lambda x: tf.concat([x[3:], x[:3]], 0),
    "pad": lambda x: tf.pad(x, [[1, 1]]),
}
NUMBERS: dict[str, Function] = {
    "add": lambda x: x + x,
    "where": lambda x: tf.where(tf.range(x.shape[0]) % 2 == 0, x, x + x),
}
WHOLE: dict[str, Function] = {
    "sum": tf.reduce_sum,
    "sums of columns": lambda x: tf.reduce_sum(_table(x), axis=0),
}
ORDERED: dict[str, Function] = {
    "largest": lambda x: tf.reduce_max(_table(x), axis=1),
    "sort": lambda x: tf.sort(_table(x)),
    "cumsum": lambda x: tf.cumsum(_table(x), axis=1),
}
INEXACT: dict[str, Function] = {
    "mean": tf.reduce_mean,
    "means of columns": lambda x: tf.reduce_mean(_table(x), axis=0),
    "chain": lambda x: x * x + x,
    "gradient": _cubed,
    "product": lambda x: tf.matmul(_table(x)[:64], _table(x)[:64], transpose_b=True),
}
EXACT = {*MOVES, "where", "largest", "sort"}  # besides all that is whole


def functions(dtype: str) -> dict[str, Function]:
    """What a dtype takes."""
    found = dict(MOVES)
    if dtype == "bool":
        return found | {"not": tf.logical_not}
    found |= NUMBERS
    if dtype not in COMPLEX:
        found |= ORDERED
    return found | (INEXACT if dtype in DIGITS else WHOLE)


def drawn(dtype: str, n: int) -> Any:
    """Numbers of a dtype, on the host."""
    rng = np.random.default_rng(n)
    wanted = tf.as_dtype(dtype).as_numpy_dtype
    if dtype == "bool":
        return rng.integers(0, 2, n).astype(bool)
    if dtype in INTEGERS:
        return rng.integers(0, 100, n).astype(wanted)
    real = rng.uniform(-1, 2, n)  # whose mean is not near 0
    return (real + 1j * rng.uniform(-1, 2, n) if dtype in COMPLEX else real).astype(wanted)


def _at_once(dtype: str) -> Function:
    """All functions of a dtype as one, whose kernels are compiled together."""
    named = functions(dtype)
    return tf.function(lambda x: {name: f(x) for name, f in named.items()})  # type: ignore[no-any-return]


def run(s: Setting) -> Found:
    n, checks, worst = s.size(1_000_000, 500) // COLUMNS * COLUMNS, 0, 0.0
    dtypes = FEW if s.emulated else DTYPES
    for dtype in dtypes:
        host = drawn(dtype, n + 1)
        with tf.device("/GPU:0"):
            whole = tf.constant(host)
            shifted = whole[1:]
            where = [t.__cuda_array_interface__["data"][0] for t in (shifted, whole)]
            assert where[0] - where[1] == host.itemsize, f"{dtype}: the slice is a copy, so that nothing is shifted"
            found = {name: y.numpy() for name, y in _at_once(dtype)(shifted).items()}
        with tf.device("/CPU:0"):
            aligned = tf.constant(host[1:].copy())
            wanted = {name: f(aligned).numpy() for name, f in functions(dtype).items()}
        for name in found:
            allowed = 0.0 if name in EXACT or dtype not in DIGITS else DIGITS[dtype]
            worst = max(worst, agree(f"{name} of {dtype}", found[name], wanted[name], allowed))
            checks += 1
    text = f"{checks} results of {len(dtypes)} dtypes, {n:,} elements, are the host's"
    return Found(text, {"checks": checks, "apart": worst})
