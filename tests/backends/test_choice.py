"""Which device a process takes, and that it says so in one line where somebody may have expected another: in processes
of their own, with modules that stand for CuPy on machines without a driver."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gradtape.backends import choice
from gradtape.backends.cuda import nvidia

ROOT = Path(__file__).parents[2]
MISLEADING = "cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime version"
NO_GPU = "def is_available(): return False\n"
RAISES = f"def is_available(): raise RuntimeError({MISLEADING!r})\n"
BROKEN = "raise ImportError('libcublas.so.13: cannot open shared object file')\n"
NOT_ASKED = "raise SystemExit('somebody imported CuPy')\n"
PROGRAM = """
import gradtape as tf
x = tf.constant([1.0, 2.0])
with tf.GradientTape() as tape:
    tape.watch(x)
    y = x * x
print(tape.gradient(y, x).numpy(), x.device[-5:], len(tf.config.list_physical_devices()), tf.zeros([100]).device[-5:])
"""
ANSWER = "[2. 4.] CPU:0 1 CPU:0\n"


def ran(folder: Path, cupy: str | None, way: str = "auto") -> subprocess.CompletedProcess[str]:
    """The program with a module that stands for CuPy (None: without one)."""
    if cupy is not None:
        (folder / "cupy.py").write_text(cupy)
    hidden = "import sys; sys.modules['cupy'] = None\n" if cupy is None else ""
    environment = os.environ | {"PYTHONPATH": f"{folder}:{ROOT}", "GRADTAPE_DEVICE": way, "GRADTAPE_CACHE": str(folder)}
    command = [sys.executable, "-c", hidden + PROGRAM]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "cupy, words",
    [
        (NO_GPU, "CuPy found no NVIDIA driver that it can use, or no GPU. Install the driver (in a container: "),
        (RAISES, "CuPy found no NVIDIA driver that it can use, or no GPU. Install the driver (in a container: "),
        (BROKEN, "CuPy is installed but cannot be loaded (libcublas.so.13: cannot open shared object file). Install"),
    ],
    ids=["no GPU", "an error of CUDA's", "a library is missing"],
)
def test_without_a_usable_gpu_one_line_says_so(tmp_path: Path, cupy: str, words: str) -> None:
    run = ran(tmp_path, cupy)
    assert (run.returncode, run.stdout) == (0, ANSWER), run.stderr
    (line,) = run.stderr.splitlines()
    assert line.startswith(f"gradtape:1: RuntimeWarning: gradtape runs on the CPU: {words}")
    assert line.endswith("tensors are NumPy arrays.") and "insufficient" not in line


@pytest.mark.parametrize(
    "cupy, way", [(None, "auto"), (NOT_ASKED, "cpu"), (NOT_ASKED, "CPU")], ids=["no CuPy", "cpu", "capitals"]
)
def test_who_expects_no_gpu_is_told_nothing(tmp_path: Path, cupy: str | None, way: str) -> None:
    run = ran(tmp_path, cupy, way)
    assert (run.returncode, run.stdout, run.stderr) == (0, ANSWER, "")


@pytest.mark.parametrize(
    "cupy, way, words",
    [
        (NO_GPU, "gpu", "RuntimeError: GRADTAPE_DEVICE=gpu asks for a GPU, but CuPy found no NVIDIA driver"),
        (RAISES, "gpu", "RuntimeError: GRADTAPE_DEVICE=gpu asks for a GPU, but CuPy found no NVIDIA driver"),
        (None, "gpu", "RuntimeError: GRADTAPE_DEVICE=gpu asks for a GPU, but CuPy is not installed. Install it: `pip"),
        (NOT_ASKED, "tpu", "ValueError: GRADTAPE_DEVICE should be one of auto, cpu, gpu, got 'tpu'."),
    ],
    ids=["no GPU", "an error of CUDA's", "no CuPy", "nonsense"],
)
def test_what_was_asked_for_and_cannot_be_is_an_error(tmp_path: Path, cupy: str | None, way: str, words: str) -> None:
    run = ran(tmp_path, cupy, way)
    assert run.returncode == 1 and run.stderr.splitlines()[-1].startswith(words), run.stderr


def test_a_gpu_is_taken_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    device = object()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    monkeypatch.setattr(nvidia, "device", lambda: device)
    for way in ("auto", "gpu"):
        monkeypatch.setenv("GRADTAPE_DEVICE", way)
        assert choice()[:3] == ("cuda", "CuPy found a GPU", device)
