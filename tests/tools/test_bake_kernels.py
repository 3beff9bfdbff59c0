"""Kernels that are compiled beforehand are those that the program loads later."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import gradtape as tf
from gradtape.backends.cuda import nvidia
from gradtape.kernels import disk
from gradtape.runtime.devices import DEVICES
from tools import bake_kernels

PROGRAM = """
import sys
import gradtape as tf
assert sys.argv[1] == "--size" and __name__ == "__main__"
x = tf.Variable([[1.0, 2.0, 3.0]] * int(sys.argv[2]))
with tf.GradientTape() as tape:
    y = tf.reduce_sum(tf.tanh(x) * 2.0)
print(x.device, tape.gradient(y, x).numpy().sum())
"""


class Noted:
    """A compiler that notes what it is asked for, and compiles nothing."""

    asked: list[tuple[str, str]]

    def __init__(self, cupy: Any, architecture: str) -> None:
        assert cupy is None
        self.architecture = architecture

    def code(self, text: str) -> bytes:
        self.asked.append((self.architecture, text))
        return b"code"


def test_texts_are_what_the_program_launches(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    before, path = DEVICES.device, list(sys.path)
    texts = bake_kernels.texts_of(bake_kernels.as_a_program(file, ["--size", "5"]))
    assert texts and all("__global__" in text for text in texts) and len(set(texts)) == len(texts)
    assert "GPU:0" in capsys.readouterr().out and DEVICES.device is before and sys.path == path
    Noted.asked = []
    assert bake_kernels.bake(texts, [80, 90], Noted) == 2 * 4 * len(texts)  # type: ignore[arg-type]
    assert Noted.asked == [(f"sm_{n}", text) for n in (80, 90) for text in texts]


def test_a_program_that_fails_leaves_no_device_behind() -> None:
    def fails() -> None:
        tf.exp([1.0, 2.0]).numpy()
        raise RuntimeError("halfway")

    with pytest.raises(RuntimeError, match="halfway"):
        bake_kernels.texts_of(fails)
    assert tf.exp([1.0, 2.0]).device.endswith("CPU:0")


def test_what_was_baked_is_not_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVIDIA's compiler is not installed: the extra `nvrtc` or `dev`")
    file, folder = tmp_path / "program.py", tmp_path / "kernels"
    file.write_text(PROGRAM)
    monkeypatch.setenv("GRADTAPE_CACHE", "")  # is given back at the end
    texts: list[str] = []
    compiled = nvidia.Compiler.compiled
    monkeypatch.setattr(nvidia.Compiler, "compiled", lambda self, text: texts.append(text) or compiled(self, text))
    bake_kernels.main(["--folder", str(folder), "--architectures", "80,90", str(file), "--size", "6"])
    assert "for 2 architectures: " in capsys.readouterr().out and disk.cache_folder() == folder
    assert len(list(folder.glob("cuda_*.code"))) == len(texts) == 2 * len(set(texts)) > 0
    monkeypatch.setattr(nvidia.Compiler, "compiled", lambda self, text: pytest.fail("it is compiled again"))
    for text in texts:
        for architecture in ("sm_80", "sm_90"):
            assert nvidia.Compiler(None, architecture).code(text).startswith(b"\x7fELF")
