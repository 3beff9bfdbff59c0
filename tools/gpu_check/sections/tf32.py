"""Products of float32 with TF32, and without."""

from __future__ import annotations

import numpy as np

import gradtape as tf
from tools.gpu_check.outcome import Found, NotRun
from tools.gpu_check.setting import Setting

ALL_BITS = 2e-6  # relative to the norm of the product; a float's rounding is 6e-8
TEN_BITS = (2e-5, 5e-3)
FIRST = 80  # the first architecture with units for it, A100's


def run(s: Setting) -> Found:
    n, rng = s.size(2048, 24), np.random.default_rng(8)
    a, b = (rng.standard_normal((n, n)).astype(np.float32) for _ in range(2))
    exact = a.astype(np.float64) @ b.astype(np.float64)
    set_tf32 = tf.config.experimental.enable_tensor_float_32_execution
    before = tf.config.experimental.tensor_float_32_execution_enabled()
    errors = {}
    try:
        for on in (False, True):
            set_tf32(on)
            found = tf.matmul(tf.constant(a), tf.constant(b)).numpy()
            errors[on] = float(np.linalg.norm(found - exact) / np.linalg.norm(exact))
    finally:
        set_tf32(before)
    assert errors[False] <= ALL_BITS, f"without TF32 a product is off by {errors[False]:.2g}"
    number = int(s.xp.cuda.Device().compute_capability)
    if number < FIRST:
        raise NotRun(
            f"sm_{number} has no units for TF32; without it a product is off by {errors[False]:.2g}, as it may"
        )
    least, most = TEN_BITS
    assert least <= errors[True] <= most, f"with TF32 a product is off by {errors[True]:.2g}: {least:g} to {most:g}"
    text = f"a product of {n} by {n} is off by {errors[True]:.1e} with TF32, and by {errors[False]:.1e} without"
    return Found(text, {"with": errors[True], "without": errors[False]})
