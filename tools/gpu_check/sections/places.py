"""Arrays of more than 2³¹ elements, whose places do not fit 32 bits: windows at their ends and beyond 2³¹."""

from __future__ import annotations

from typing import Any

import numpy as np

import gradtape as tf
from gradtape.kernels import cuda_body
from tools.gpu_check.comparing import agree
from tools.gpu_check.outcome import Found, NotRun
from tools.gpu_check.setting import Setting

BEYOND = 1 << 31
MORE = 4099
WINDOW = 1000
ROOM = 6  # arrays that are there at a time


def run(s: Setting) -> Found:
    limit = s.size(BEYOND, 1024)
    n = limit + MORE if not s.emulated else limit + 51
    n -= n % 3
    dtype = next((d for d in ("float32", "float16") if s.free() > ROOM * n * np.dtype(d).itemsize), None)
    if dtype is None:
        need = ROOM * n * 2
        raise NotRun(f"{need / 2**30:.0f} GiB of free memory are wanted, there are {s.free() / 2**30:.0f}")
    before, cuda_body.LONG = cuda_body.LONG, limit  # on the emulator, small arrays take the same kernels
    try:
        checks = _checked(n, limit, dtype)
    finally:
        cuda_body.LONG = before
    return Found(f"{checks} programs of {n:,} {dtype} numbers are right at both ends and around 2³¹", {"elements": n})


def _checked(n: int, limit: int, dtype: str) -> int:
    width = min(WINDOW, n // 8)
    begins = (0, limit - width // 2, n - width)
    x = tf.cast(tf.random.uniform([n], seed=1), dtype)
    digits = 1e-6 if dtype == "float32" else 2e-3

    def windows(t: Any) -> list[Any]:
        return [t[k : k + width].numpy() for k in begins]

    given = windows(x)
    checks = 0

    def same(what: str, t: Any, wanted: list[Any], tolerance: float = 0.0) -> None:
        nonlocal checks
        for k, found, want in zip(begins, windows(t), wanted):
            agree(f"{what}, from {k:,} on", found, want, tolerance)
        checks += 1

    assert all(w.min() >= 0 and w.max() <= 1 and w.std() > 0.1 for w in given), "the numbers are not drawn evenly"
    assert not np.array_equal(given[0], given[2]), "numbers beyond 2³¹ repeat the first ones"
    same("x + x", x + x, [w + w for w in given])
    same("the gradient of a sum of squares", _slope(x), [w + w for w in given])
    same("reverse, twice", tf.reverse(tf.reverse(x, [0]), [0]), given)
    same("concat", tf.concat([x[: n // 2], x[n // 2 :]], 0), given)
    table = tf.reshape(x, [n // 3, 3])
    same("transpose, twice", tf.reshape(tf.transpose(tf.transpose(table)), [n]), given)
    planted = n - 5
    y = tf.tensor_scatter_nd_update(x, [[planted]], tf.constant([2.0], dtype))
    largest = int(tf.argmax(y, output_type=tf.int64))
    assert largest == planted, f"argmax is {largest:,}, wanted {planted:,}"
    assert float(tf.gather(y, [planted])[0]) == 2.0, "gather beyond 2³¹ reads another element"
    del y
    sums = tf.reduce_sum(tf.cast(table, "float64") if dtype == "float16" else table, axis=0).numpy()
    parts = [float(tf.reduce_sum(tf.cast(p, "float64"))) for p in _parts(x, limit)]
    agree("sums of columns and of parts", np.float64(sums.sum(dtype="float64")), np.float64(sum(parts)), digits)
    agree("the sum of all", np.float64(tf.reduce_sum(x)), np.float64(sum(parts)), digits * 10)
    return checks + 4


def _slope(x: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(x * x)
    return tape.gradient(y, x)


def _parts(x: Any, limit: int) -> list[Any]:
    """Pieces that are short enough for 32 bits."""
    step = limit // 4
    return [x[k : k + step] for k in range(0, x.shape[0], step)]
