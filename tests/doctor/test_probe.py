"""What is asked in processes of their own: of a driver built here, of modules that stand for CuPy and NVIDIA's, and of
gradtape itself."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gradtape.doctor import asking
from gradtape.doctor.asking import Question, Unanswered

PROBE = "gradtape.backends.cuda.probe"

DRIVER = r"""
#include <cstring>
extern "C" {
int cuInit(unsigned) { return STATUS; }
int cuDriverGetVersion(int *v) { *v = 13010; return 0; }
int cuGetErrorName(int, const char **name) { *name = "CUDA_ERROR_NO_DEVICE"; return 0; }
int cuDeviceGetCount(int *n) { *n = 2; return 0; }
int cuDeviceGet(int *device, int k) { *device = k + 40; return 0; }
int cuDeviceGetName(char *name, int, int device) { std::strcpy(name, device == 40 ? "First" : "Second"); return 0; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = size_t(device) << 30; return 0; }
int cuDeviceGetAttribute(int *v, int which, int) { *v = which == 75 ? 9 : which == 76 ? 0 : -1; return 0; }
}
"""


def driver(folder: Path, status: int) -> None:
    """A library that answers as NVIDIA's driver does."""
    compiler = shutil.which("g++")
    assert compiler is not None, "the tests want g++"
    (folder / "driver.cpp").write_text(DRIVER)
    command = [compiler, "-shared", "-fPIC", f"-DSTATUS={status}", "driver.cpp", "-o", "libcuda.so.1"]
    subprocess.run(command, cwd=folder, check=True)


def asked(monkeypatch: pytest.MonkeyPatch, folder: Path, section: str) -> Any:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=":")
    return Question([PROBE, section]).answer()


def test_a_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    driver(tmp_path, 0)
    assert asked(monkeypatch, tmp_path, "driver") == {
        "version": 13010,
        "gpus": [
            {"name": "First", "capability": [9, 0], "bytes": 40 << 30},
            {"name": "Second", "capability": [9, 0], "bytes": 41 << 30},
        ],
    }


def test_a_driver_without_a_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    driver(tmp_path, 100)
    found = asked(monkeypatch, tmp_path, "driver")
    assert found == {"version": 13010, "error": "CUDA_ERROR_NO_DEVICE (100) from cuInit"}


def test_a_file_that_is_no_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").write_text("nothing")
    assert "libcuda.so.1" in asked(monkeypatch, tmp_path, "driver")["error"]


@pytest.mark.parametrize("sees", [True, False])
def test_cupy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sees: bool) -> None:
    (tmp_path / "cupy.py").write_text(f"__version__ = '14.2.0'\ndef is_available(): return {sees}\n")
    assert asked(monkeypatch, tmp_path, "cupy") == {"version": "14.2.0", "gpu": sees}


@pytest.mark.parametrize(
    "module, text",
    [
        ("raise ImportError('libcublas.so.13: cannot open shared object file')", "ImportError: libcublas.so.13"),
        ("import os; os._exit(7)", "it ended with exit status 7"),
        ("import time; time.sleep(60)", "it did not answer within 0 s. Does `nvidia-smi` answer"),
        ("print('{', flush=True); import os; os._exit(0)", "it answered '{'"),
    ],
)
def test_a_cupy_that_does_not_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, module: str, text: str) -> None:
    (tmp_path / "cupy.py").write_text(module)
    if "sleep" in module:
        monkeypatch.setattr(asking, "SECONDS", 0.4)
    with pytest.raises(Unanswered) as stopped:
        asked(monkeypatch, tmp_path, "cupy")
    assert text in str(stopped.value)


PATHFINDER = """
class DynamicLibNotFoundError(RuntimeError): pass
class Found: abs_path = "/lib/x.so"
def load_nvidia_dynamic_lib(name):
    if name == "cudnn": raise DynamicLibNotFoundError('Failure finding "libcudnn.so"')
    return Found
def find_nvidia_header_directory(name): return {folder!r}
"""


@pytest.mark.parametrize("has_headers", [True, False])
def test_libraries_and_headers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, has_headers: bool) -> None:
    (tmp_path / "cuda").mkdir()
    (tmp_path / "cuda" / "pathfinder.py").write_text(PATHFINDER.format(folder=str(tmp_path)))
    if has_headers:
        (tmp_path / "vector_types.h").write_text("")
    found = asked(monkeypatch, tmp_path, "libraries")
    assert found["libraries"]["cublas"] == {"path": "/lib/x.so"}
    assert found["libraries"]["cudnn"] == {"error": 'DynamicLibNotFoundError: Failure finding "libcudnn.so"'}
    assert {"nvrtc", "cusolver", "nccl"} <= set(found["libraries"])
    headers = {"path": str(tmp_path)} if has_headers else {"error": 'cannot open source file "vector_types.h"'}
    assert found["headers"] == headers


FRONTENDS: dict[str, tuple[str | None, dict[str, str]]] = {
    "whole": (
        "__version__ = '1.32.0'\ndef backend_version(): return 92803",
        {"cudnn": "9.28.3", "frontend": "1.32.0"},
    ),
    "without a library": (
        "raise OSError('libcudnn.so: no such file')",
        {"error": "OSError: libcudnn.so: no such file"},
    ),
    "not wanted": (None, {"without": "GRADTAPE_CUDNN=never asks for it"}),
}


@pytest.mark.parametrize("name", FRONTENDS)
def test_convolutions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    module, wanted = FRONTENDS[name]
    if module is None:
        monkeypatch.setenv("GRADTAPE_CUDNN", "never")
    else:
        (tmp_path / "cudnn.py").write_text(module)
    assert asked(monkeypatch, tmp_path, "convolutions") == wanted


def test_the_trial_passes_here() -> None:
    found = Question(["gradtape.doctor.trial"]).answer()
    assert found["faults"] == [] and found["device"] and found["seconds"] > 0


def test_the_trial_sees_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a matrix product that is off, all three results are."""
    script = (
        "import json, gradtape as tf; from gradtape.doctor import trial;"
        "tf.tanh = lambda x: tf.sin(x) * 0.5; print(json.dumps(trial.run()[1]))"
    )
    (tmp_path / "script.py").write_text(script)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    faults = Question(["script"]).answer()
    assert [f.split(" is wrong")[0] for f in faults] == ["a gradient", "a batch Jacobian", "a traced step"]
    assert json.dumps(faults)
