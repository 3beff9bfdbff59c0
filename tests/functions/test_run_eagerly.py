"""Functions that are not traced, since somebody wants to see what they do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import gradtape as tf


@pytest.fixture(autouse=True)
def back() -> Iterator[None]:
    yield
    tf.config.run_functions_eagerly(False)


def test_python_runs_for_each_call() -> None:
    seen = []

    @tf.function
    def f(x: Any, add: int = 1) -> Any:
        seen.append(x)
        return x * x + float(add)

    x = tf.constant(2.0)
    assert float(f(x)) == 5.0 and not hasattr(seen[0], "numpy")
    tf.config.run_functions_eagerly(True)
    assert tf.config.functions_run_eagerly()
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = f(x, add=2)
    assert float(y) == 6.0 and float(tape.gradient(y, x)) == 4.0
    assert float(f(x)) == 5.0 and seen[-1] is x and len(seen) == 3
    tf.config.run_functions_eagerly(False)
    assert float(f(x)) == 5.0 and len(seen) == 3, "the trace is still there"
    assert f.experimental_get_tracing_count() == 1


def test_methods_and_functions_inside_of_others() -> None:
    class Model(tf.Module):
        @tf.function
        def inner(self, x: Any) -> Any:
            return float(x) * 2.0  # no number, while it is traced

        @tf.function
        def __call__(self, x: Any) -> Any:
            return self.inner(x) + 1.0

    tf.config.run_functions_eagerly(True)
    assert Model()(tf.constant(3.0)) == 7.0
