"""DLPack to a consumer on a second stream, which must wait for what the first one has still to do; and our own work on
a second stream."""

from __future__ import annotations

from typing import Any

import numpy as np

import gradtape as tf
from tools.gpu_check.comparing import agree
from tools.gpu_check.outcome import Found
from tools.gpu_check.setting import Setting

LONG, TURNS = 4096, 40  # products that keep the first stream busy for long enough that a consumer would be early


class Handed:
    """A tensor as a library takes it that works on another stream: it says on which, and we make that wait."""

    def __init__(self, tensor: Any, stream: int) -> None:
        self.tensor, self.stream = tensor, stream

    def __dlpack_device__(self) -> Any:
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, *, stream: Any = None, **options: Any) -> Any:
        return self.tensor.__dlpack__(stream=self.stream, **options)


def run(s: Setting) -> Found:
    n, turns, rng = s.size(LONG, 16), s.size(TURNS, 3), np.random.default_rng(10)
    start, w = (tf.constant((rng.standard_normal((n, n)) / n**0.5).astype(np.float32)) for _ in range(2))

    def chain() -> Any:
        y = start
        for _ in range(turns):
            y = tf.sin(tf.matmul(y, w) + start)
        return y

    wanted = chain().numpy()
    second = s.xp.cuda.Stream(non_blocking=True)
    y = chain()
    taken = s.xp.from_dlpack(Handed(y, second.ptr))
    with second:
        copied = taken.copy()
    second.synchronize()
    assert taken.data.ptr == y.__cuda_array_interface__["data"][0], "DLPack gave a copy"
    with second:
        found = s.xp.asnumpy(copied)
    agree("what a second stream took by DLPack", found, wanted, 0.0)
    agree("a tensor of what was taken", tf.constant(taken).numpy(), wanted, 0.0)
    s.wait()
    with second:
        elsewhere = chain().numpy()
    agree("the same work on a second stream", elsewhere, wanted, 0.0)
    return Found(f"{turns} products of {n} by {n} arrive whole on a second stream, and are the same there")
