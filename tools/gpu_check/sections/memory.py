"""Out of memory under a limit of the pool: a Jacobian's chunks are halved until they fit, and what cannot fit is an
error."""

from __future__ import annotations

from typing import Any

import numpy as np

import gradtape as tf
from gradtape.runtime import chunks
from tools.gpu_check.comparing import agree
from tools.gpu_check.outcome import Found
from tools.gpu_check.setting import Setting


def run(s: Setting) -> Found:
    n, rng = s.size(4096, 48), np.random.default_rng(9)
    x = tf.constant(rng.standard_normal(n).astype(np.float32))
    weights = [tf.constant((rng.standard_normal((n, n)) / n**0.5).astype(np.float32)) for _ in range(2)]
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = x
        for w in weights:
            y = tf.tanh(tf.linalg.matvec(w, y)) * tf.exp(-y * y)
    wanted = tape.jacobian(y, x).numpy()
    counted, attempts = chunks.ChunkProgram.plan, []

    def noted(program: Any, count: int) -> Any:
        attempts.append(count)
        return counted(program, count)

    pool = s.xp.get_default_memory_pool()
    tape.jacobian(y, x, parallel_iterations=n // 8)  # what is made once does not count
    s.wait()
    pool.free_all_blocks()
    before = pool.get_limit()
    pool.set_limit(size=pool.used_bytes() + 2 * wanted.nbytes)
    chunks.ChunkProgram.plan = noted  # type: ignore[method-assign]
    try:
        found = tape.jacobian(y, x, parallel_iterations=n)
        refused = _refused(n)
    finally:
        chunks.ChunkProgram.plan = counted  # type: ignore[method-assign]
        pool.set_limit(size=before)
    agree("the Jacobian in chunks", found.numpy(), wanted, 1e-5)
    sizes = list(dict.fromkeys(attempts))
    assert sizes[:2] == [n, n // 2], f"the first chunks should be of {n} and {n // 2} rows, got {sizes}"
    after = tape.jacobian(y, x).numpy()
    agree("the Jacobian without a limit again", after, wanted, 1e-5)
    text = f"of {n} rows at once, {min(sizes)} fitted; then `{refused}`; without the limit all is as before"
    return Found(text, {"chunks": sizes})


def _refused(n: int) -> str:
    """The error of an array that cannot fit."""
    try:
        tf.zeros([8 * n, n]) + tf.random.uniform([8 * n, n])
    except tf.errors.ResourceExhaustedError as e:
        return type(e).__name__
    raise AssertionError("an array beyond the limit was made all the same")
