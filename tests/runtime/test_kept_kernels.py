"""Compiled kernels on disk: found by the next compiler, whatever else the process has loaded."""

from __future__ import annotations

import builtins
import datetime
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gradtape as tf
from gradtape.backends import clusters
from gradtape.kernels.compiled import Compiler

ROOT = Path(__file__).parents[2]


def compiled(monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """How many kernels a new compiler makes, and how many it finds."""
    compiler = Compiler()
    monkeypatch.setattr(clusters.POLICY, "compile", "now")
    monkeypatch.setattr(clusters, "COMPILER", compiler)
    x = tf.constant(np.linspace(-1, 1, 7 * 11, dtype=np.float32).reshape(7, 11))
    y = tf.function(lambda x: tf.exp(tf.sin(x) * 1.625) - x)(x)
    np.testing.assert_allclose(y, np.exp(np.sin(x.numpy()) * 1.625) - x.numpy(), rtol=1e-5)
    return compiler.compiled, compiler.loaded


@pytest.mark.host("kernels of the host")
def test_kernels_are_found_on_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GRADTAPE_CACHE", str(tmp_path))
    assert compiled(monkeypatch) == (1, 0)
    assert compiled(monkeypatch) == (0, 1)


@pytest.mark.host("kernels of the host")
def test_they_are_kept_where_others_have_put_things_among_the_built_in_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Some libraries keep a pointer there, which cannot be written to a file."""
    monkeypatch.setenv("GRADTAPE_CACHE", str(tmp_path))
    monkeypatch.setattr(builtins, "__pointer__", datetime.datetime_CAPI, raising=False)  # type: ignore[attr-defined]
    assert compiled(monkeypatch) == (1, 0)
    assert compiled(monkeypatch) == (0, 1)


PROGRAM = """
import gradtape as tf
x = tf.reshape(tf.range(24.0), (6, 4))
y = tf.function(lambda x: tf.reduce_sum(tf.exp(tf.sin(x) * 1.625) - x, axis=1))(x)
print(tf.cache_info().kernels[:2])
"""


def test_another_process_finds_them(tmp_path: Path) -> None:
    own = {"GRADTAPE_KERNELS": "now", "GRADTAPE_CACHE": str(tmp_path), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", PROGRAM]
    runs = [subprocess.run(command, env=os.environ | own, capture_output=True, text=True, check=True) for _ in range(2)]
    assert [run.stdout.strip() for run in runs] == ["(1, 0)", "(0, 1)"]
