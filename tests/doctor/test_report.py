"""What the doctor reports of machines with and without a GPU: each line, what is a fault, and its cure."""

from __future__ import annotations

import os
import re
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest

from gradtape import backends
from gradtape.doctor import Finding, examine, gpu, machine, packages
from gradtape.doctor import report as reports
from gradtape.kernels import disk
from tests.doctor import answers as a

ROOT = Path(__file__).parents[2]


def lines(findings: list[Finding]) -> dict[str, Finding]:
    assert len({f.name for f in findings}) == len(findings)
    return {f.name: f for f in findings}


def faults(findings: list[Finding]) -> list[str]:
    return [f.name for f in findings if f.fault]


# ------------------------------------------------------------------ machines


def test_a_healthy_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    a.answering(monkeypatch)
    for required in (False, True):
        found = examine(require_gpu=required)
        assert faults(found) == [] and ("gpu" in lines(found)) is required
    assert lines(found)["driver"].text == "CUDA 13.0, NVIDIA H200 (sm_90, 139 GiB)"
    assert lines(found)["cupy"].text == "cupy-cuda13x 14.2.0: it sees a GPU"
    assert lines(found)["cublas"].text == "/somewhere/libcublas.so"
    assert lines(found)["cuda headers"].text == "/somewhere/include"
    assert lines(found)["convolutions"].text == "cuDNN 9.28.0, by nvidia-cudnn-frontend 1.32.0"
    assert lines(found)["trial"].text == "a gradient, a Jacobian and a traced step are right on GPU:0 (0.5 s)"


def test_a_machine_without_cupy_and_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    a.answering(monkeypatch, installed=(), driver=a.NO_LIBRARY)
    found = examine()
    assert faults(found) == []
    assert "no NVIDIA driver was found" in lines(found)["driver"].text
    assert lines(found)["cupy"].text == (
        "not installed; tensors live on NumPy arrays. On a machine with an NVIDIA GPU: pip install 'gradtape[cu13]'"
    )
    assert not {"cuda wheels", "cublas", "cuda headers"} & set(lines(found))
    found = examine(require_gpu=True)
    assert faults(found) == ["gpu"] and lines(found)["gpu"].text.endswith("see the lines above")


@pytest.mark.parametrize("version, extra", [(13010, "cu13"), (12080, "cu12")])
def test_a_gpu_without_cupy(monkeypatch: pytest.MonkeyPatch, version: int, extra: str) -> None:
    a.answering(monkeypatch, installed=(), driver={**a.DRIVER, "version": version})
    found = examine()
    assert faults(found) == []
    assert lines(found)["cupy"].text.endswith(f"For this GPU: pip install 'gradtape[{extra}]'")
    assert faults(examine(quick=True, require_gpu=True)) == ["gpu"]


def test_cupy_without_a_driver_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"libraries": {"cublas": {"error": "x"}, "cudnn": {"error": "x"}}, "headers": {"error": "x"}}
    a.answering(monkeypatch, driver=a.NO_LIBRARY, cupy={**a.CUPY, "gpu": False}, libraries=said)
    found = examine()
    assert faults(found) == []
    assert "it sees no usable GPU" in lines(found)["cupy"].text


BROKEN: list[tuple[dict[str, Any], list[str], str]] = [
    ({"driver": {**a.DRIVER, "gpus": []}}, ["driver"], "Does CUDA_VISIBLE_DEVICES hide it"),
    ({"driver": {"version": 13000, "error": "CUDA_ERROR_NO_DEVICE (100) from cuInit"}}, ["driver"], "shows no GPU"),
    ({"driver": {**a.DRIVER, "version": 11040}}, ["driver", "cupy"], "CUDA 11.4, .*older than CUDA 12"),
    ({"driver": "it did not answer within 60 s. Does `nvidia-smi` answer?"}, ["driver"], "within 60 s"),
    ({"driver": {**a.DRIVER, "version": 12080}}, ["cupy"], r"wants a driver of CUDA 13. .*'gradtape\[cu12\]'"),
    ({"cupy": {**a.CUPY, "gpu": False}}, ["cupy"], "it sees no usable GPU"),
    (
        {"cupy": "Traceback\nImportError: libcublas.so.13: cannot open shared object file"},
        ["cupy"],
        r"cupy-cuda13x 14.2.0: the library cublas of CUDA is missing.*pip install 'gradtape\[cu13\]'",
    ),
    (
        {"libraries": {**a.LIBRARIES, "libraries": {"cublas": {"error": 'Failure finding "libcublas.so.13"'}}}},
        ["cublas"],
        "the library cublas of CUDA is missing",
    ),
    (
        {"libraries": {**a.LIBRARIES, "headers": {"error": 'cannot open source file "vector_types.h"'}}},
        ["cuda headers"],
        r"headers \(vector_types.h\) are missing.*'cupy-cuda13x\[ctk\]'",
    ),
    (
        {"libraries": "ModuleNotFoundError: No module named 'cuda'"},
        ["cuda libraries"],
        "No module named 'cuda'",
    ),
    (
        {"gradtape.doctor.trial": {**a.TRIAL, "faults": ["a gradient is wrong by 1.0e+00 of its largest number"]}},
        ["trial"],
        "on GPU:0: a gradient is wrong .*Please report this",
    ),
    (
        {"gradtape.doctor.trial": "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 512 bytes"},
        ["trial"],
        "it failed: the GPU's memory is taken",
    ),
]


@pytest.mark.parametrize("said, wanted, text", BROKEN)
def test_what_is_broken_is_named_with_its_cure(
    monkeypatch: pytest.MonkeyPatch, said: dict[str, Any], wanted: list[str], text: str
) -> None:
    a.answering(monkeypatch, **said)
    found = examine()
    assert faults(found) == wanted
    assert any(re.search(text, lines(found)[name].text) for name in wanted)
    assert all("\n" not in f.text for f in found)
    if wanted != ["trial"]:
        assert "gpu" in faults(examine(require_gpu=True))


def test_what_few_programs_need_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = {name: {"error": f'Failure finding "lib{name}.so"'} for name in ("cusolver", "cudnn", "nccl")}
    a.answering(monkeypatch, libraries={**a.LIBRARIES, "libraries": missing})
    found = examine(require_gpu=True)
    assert faults(found) == []
    assert lines(found)["cudnn"].text == "not found. It is for faster convolutions only"
    assert lines(found)["nccl"].text == "not found. It is for several GPUs only"
    assert "the library cusolver of CUDA is missing" in lines(found)["cusolver"].text


@pytest.mark.parametrize(
    "said, text",
    [
        (
            {"without": "nvidia-cudnn-frontend is not installed"},
            "im2col and cuBLAS do them: nvidia-cudnn-frontend is not",
        ),
        (
            {"error": "OSError: libcudnn.so.9: cannot open shared object file"},
            "do them, since cuDNN cannot be loaded: the",
        ),
        ("Segmentation fault", "im2col and cuBLAS do them, since cuDNN does not answer: Segmentation fault"),
    ],
    ids=["not installed", "half installed", "broken"],
)
def test_convolutions_need_no_cudnn(monkeypatch: pytest.MonkeyPatch, said: Any, text: str) -> None:
    a.answering(monkeypatch, convolutions=said)
    found = examine(require_gpu=True)
    assert faults(found) == []
    assert text in lines(found)["convolutions"].text


def test_two_packages_of_cupy_are_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    a.answering(monkeypatch, installed=("cupy-cuda13x", "cupy-cuda12x"))
    found = examine()
    assert faults(found) == ["cupy"]
    assert lines(found)["cupy"].text.endswith("they overwrite each other. Keep one: pip uninstall cupy-cuda12x")


# ------------------------------------------------------------------ quick, backend, packages


def test_quick_asks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    a.answering(monkeypatch)

    def refuse(words: Any) -> None:
        raise AssertionError("--quick must start no process")

    for module in (reports, gpu):
        monkeypatch.setattr(module, "Question", refuse)
    assert [f.name for f in examine(quick=True)] == ["gradtape", "backend", "python"]


def test_quick_with_a_gpu_required_asks_for_no_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    a.answering(monkeypatch, libraries="nobody asked")
    found = examine(quick=True, require_gpu=True)
    assert [f.name for f in found] == ["gradtape", "backend", "python", "driver", "cupy", "gpu"]
    assert faults(found) == []


def test_a_backend_that_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    choice = backends.choice()
    assert reports.backend().text == f"{choice.name} ({choice.reason})"

    def refused() -> None:
        raise RuntimeError("a GPU was asked for, and there is none.")

    monkeypatch.setattr(backends, "choice", refused)
    assert reports.backend() == Finding("backend", "a GPU was asked for, and there is none.", True)


def test_requirements_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {line.split(">")[0].split("<")[0].strip() for line in project["dependencies"]}
    assert set(packages.REQUIRED) == declared


def test_a_missing_requirement_is_a_fault_with_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "installed", lambda package: None if package == "optree" else "1.0")
    found = packages.required()
    assert faults(found) == ["optree"] and "-m pip install optree" in lines(found)["optree"].text


def test_wheels_of_cuda_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("nvidia_cublas-13.1.0", "cuda_core-1.0.0", "unrelated-2.0"):
        project, version = name.replace("_", "-").rsplit("-", 1)
        (tmp_path / f"{name}.dist-info").mkdir()
        (tmp_path / f"{name}.dist-info" / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\n"
        )
    monkeypatch.syspath_prepend(str(tmp_path))
    text = packages.cuda_wheels().text
    assert "nvidia-cublas 13.1.0" in text and "cuda-core 1.0.0" in text and "unrelated" not in text


# ------------------------------------------------------------------ the cache


def test_a_cache_that_works(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GRADTAPE_CACHE", str(tmp_path / "new"))
    assert machine.cache() == Finding("cache", f"{tmp_path / 'new'} (0 kernels)")
    assert disk.write("one", b"content")
    assert machine.cache().text.endswith("(1 kernels)")


def test_a_cache_that_cannot_be(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("in the way")
    monkeypatch.setenv("GRADTAPE_CACHE", str(file / "kernels"))
    found = machine.cache()
    assert found.fault and f"{file} is no folder" in found.text and "Set GRADTAPE_CACHE" in found.text


def test_a_cache_that_others_may_write_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o777)
    monkeypatch.setenv("GRADTAPE_CACHE", str(folder))
    found = machine.cache()
    assert found.fault and "belongs to another user, or others may write to it" in found.text


@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may write to every folder")
def test_a_cache_that_cannot_be_written_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    monkeypatch.setenv("GRADTAPE_CACHE", str(tmp_path / "kernels"))
    found = machine.cache()
    tmp_path.chmod(stat.S_IRWXU)
    assert found.fault and "cannot be written to" in found.text
