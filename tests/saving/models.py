"""A model of many parts, for tests of files: containers, aliases, custom gradients, branches, loops, unknown sizes."""

from __future__ import annotations

from typing import Any

import numpy as np

import gradtape as tf


@tf.custom_gradient
def clipped(x: Any) -> Any:
    return tf.identity(x), lambda up: tf.clip_by_norm(up, 0.5)


class Parts(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = tf.Variable(np.linspace(-1.0, 1.0, 9, dtype=np.float32).reshape(3, 3), name="weights")
        self.nested = [tf.Variable(1.0), {"a": tf.Variable([1, 2])}]
        self.pair = (self.w, tf.Variable([0.5], dtype=tf.bfloat16))
        self.count = tf.Variable(0, trainable=False, name="count")
        self.text = tf.Variable(["one", "two"])
        self.size = 3
        self.table = tf.constant([1.0, 2.0, 3.0])

    @tf.function(input_signature=[tf.TensorSpec([None, 3])])
    def f(self, x: Any) -> Any:
        y = tf.tanh(clipped(x) @ self.w) * self.table
        if tf.reduce_sum(y) > 0:
            y = tf.sin(y) * 2.0 + self.nested[0]
        return {"y": tf.nn.softmax(y), "twice": [tf.concat([x[::-1], x], 0), None]}

    @tf.function(input_signature=[tf.TensorSpec([None, 3])])
    def loop(self, x: Any) -> Any:
        y = x * self.w[0]
        for k in tf.range(3):
            if tf.reduce_max(y) < 10.0:
                y = tf.sin(y) + self.nested[0] * tf.cast(k, tf.float32)
        return y

    @tf.function
    def g(self, x: Any, scale: float = 1.0) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.nn.relu(x @ self.w)
        self.count.assign_add(1)
        return tape.batch_jacobian(y, x) * scale, tf.argsort(x), tf.gather(x, [1, 0, 1])


def parts() -> Parts:
    """The model, traced for what files hold of it."""
    made = Parts()
    made.g(tf.ones([2, 3]))
    made.g(tf.ones([2, 3]), scale=2.0)
    made.count.assign(0)
    return made
