"""A kernel that cannot be made is no reason to lose a result, and none to be silent."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from gradtape.backends import clusters
from gradtape.backends.clusters import POLICY
from gradtape.kernels import programs


@pytest.fixture
def background(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are asked for at once and made in the background, and every one of them is broken."""
    monkeypatch.setattr(POLICY, "compile", "background")
    monkeypatch.setattr(clusters, "PATIENCE", -1.0)
    monkeypatch.setattr("gradtape.backends.small.PATIENCE", -1.0)
    for module in (clusters, programs):
        monkeypatch.setattr(module, "render", refuse)


def refuse(*_: Any, **__: Any) -> Any:
    raise KeyError("no such name")


def pointwise(x: Any) -> Any:
    return tf.tanh(x) * tf.exp(-x)


def steps(x: Any) -> Any:
    for _ in range(3):
        x = tf.tanh(tf.matmul(x, x) + x)
    return x


@pytest.mark.parametrize("f", [pointwise, steps])
def test_one_warning_and_the_numbers(background: None, f: Callable[[Any], Any]) -> None:
    x = tf.constant(np.random.default_rng(0).normal(size=(5, 5)))
    traced = tf.function(f)
    said = []
    for _ in range(20):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = traced(x)
        said += [w for w in caught if issubclass(w.category, RuntimeWarning)]
        np.testing.assert_allclose(found.numpy(), f(x).numpy(), rtol=1e-12)
        time.sleep(0.01)
    texts = [str(w.message) for w in said]
    assert texts and len(texts) <= 4, "once for each step and each program"
    assert all("no such name" in t and "GRADTAPE_KERNELS=now" in t for t in texts)


def test_who_wants_kernels_now_sees_the_error(background: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(POLICY, "compile", "now")
    with pytest.raises(KeyError, match="no such name"):
        tf.function(pointwise)(tf.ones([5, 5]))
