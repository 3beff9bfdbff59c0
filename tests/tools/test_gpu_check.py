"""The check of a GPU's machine, in a dry run: each section passes on the emulated device and fails where something is
wrong, and the command tells what became of them."""

from __future__ import annotations

import dataclasses
import json
import os
import stat
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradtape.backends.cuda.blas import MATH, Blas
from gradtape.runtime.devices import DEVICES
from gradtape.tracing.replaying import POLICY
from tests.cuda_emulator.streams import Stream
from tools.gpu_check import __main__ as command
from tools.gpu_check import needs, plan, prepare, programs, recording, report, running
from tools.gpu_check.comparing import agree, apart
from tools.gpu_check.outcome import FAILED, NOT_RUN, PASSED, NotRun, Outcome
from tools.gpu_check.section import on_the_device, outcome
from tools.gpu_check.sections import convolutions, offsets, ops, peers, sanitizer, suite

FEW = ("moves", "jacobians")  # of the small programs


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Less to compile: parts of the tables that a dry run goes through."""
    monkeypatch.setattr(offsets, "FEW", ("bfloat16", "int8"))
    monkeypatch.setattr(peers, "RACES", ("mlp_batch_jac", "training"))
    monkeypatch.setattr(suite, "FEW", (("tape/test_connections.py",), 2))


@pytest.mark.parametrize("name", plan.NAMES)
def test_each_section_passes_on_the_emulated_device(name: str) -> None:
    before = DEVICES.device
    found = outcome(name, True, 60.0, programs=FEW)
    assert (found.state, found.log) == (PASSED, ""), found
    assert found.text and DEVICES.device is before


# ---- and fails where something is wrong


def always_tf32(patch: pytest.MonkeyPatch) -> None:
    gemm = Blas.gemm

    def wrong(self: Blas, *arguments: Any) -> None:
        before, MATH.tf32 = MATH.tf32, True
        gemm(self, *arguments)
        MATH.tf32 = before

    patch.setattr(Blas, "gemm", wrong)


def no_stream_waits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Stream, "wait_event", lambda self, event: None)


def other_numbers_each_time(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(programs.Drawn, "__init__", lambda self, seed: setattr(self, "rng", np.random.default_rng()))


def no_graphs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(POLICY, "capture", "never")


def plans_of_any_kind(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("gradtape.backends.cuda.convolution.notes", lambda dtype: ())


WRONG: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], str]] = {
    "tf32": (always_tf32, "without TF32 a product is off by"),
    "streams": (no_stream_waits, "unwritten"),
    "graphs": (no_graphs, "SGD: 0 launches of a graph, wanted 7"),
    "convolutions": (plans_of_any_kind, "apart by"),
    "repeats": (other_numbers_each_time, "other bits again: moves 0"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_section_fails_where_something_is_wrong(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil, words = WRONG[name]
    spoil(monkeypatch)
    found = outcome(name, True, 60.0, programs=FEW)
    assert found.state == FAILED and words in found.text and "Traceback" in found.log, found


def test_convolutions_without_cudnn_are_not_looked_at() -> None:
    with on_the_device(dry=True) as setting:
        on_a_gpu = dataclasses.replace(setting, emulated=False)
        with pytest.raises(NotRun, match=r"not installed, or not wanted.*gradtape\[cudnn-cu13\]"):
            convolutions.run(on_a_gpu)


def test_results_of_the_emulator_that_came_along_are_compared(tmp_path: Path) -> None:
    with on_the_device(dry=True) as setting:
        found = recording.recorded(setting.cuda, FEW)
    recording.write(tmp_path / recording.FILE, found)
    read = recording.read(tmp_path / recording.FILE)
    assert all(np.array_equal(read[name], a) and read[name].dtype == a.dtype for name, a in found.items())
    good = outcome("emulator", True, 60.0, tmp_path, FEW)
    assert good.state == PASSED and "recorded on the emulator" in good.text
    recording.write(tmp_path / recording.FILE, found | {"moves 0": found["moves 0"] + 1})
    bad = outcome("emulator", True, 60.0, tmp_path, FEW)
    assert bad.state == FAILED and "moves 0: apart by" in bad.text


def test_what_is_carried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    baked: list[tuple[list[str], list[int]]] = []
    recorded, results = recording.recorded, programs.results
    monkeypatch.setenv("GRADTAPE_CACHE", "")  # both are given back at the end
    monkeypatch.setenv("GRADTAPE_DEVICE", "cpu")
    monkeypatch.setattr(prepare, "SECTIONS", ("streams",))
    monkeypatch.setattr(prepare, "results", lambda n: results(n, FEW))
    monkeypatch.setattr(recording, "recorded", lambda cuda: recorded(cuda, FEW))
    monkeypatch.setattr(ops, "GROUPS", 2)
    monkeypatch.setattr(ops, "kernels", lambda group, groups: ([], [f"// group {group} of {groups}"]))
    monkeypatch.setattr(prepare, "bake", lambda texts, numbers: baked.append((texts, numbers)) or 1_000_000)
    prepare.main(["--folder", str(tmp_path), "--architectures", "80,90", "--without-wheels"])
    ((texts, numbers),) = baked
    assert numbers == [80, 90] and texts[-2:] == ["// group 0 of 2", "// group 1 of 2"]
    assert len(texts) == len(set(texts)) > 4 and all("__global__" in text for text in texts[:-2])
    found = recording.arrays(recording.read(tmp_path / recording.FILE))
    assert found and all(name.startswith(FEW) for name in found)
    assert f"modules of kernels: {len(texts)} for 2 architectures, 1.0 MB" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        prepare.main(["--folder", str(tmp_path), "--architectures", "80," * 400 + "90", "--without-wheels"])
    assert "architectures at most" in capsys.readouterr().err


# ---- numbers


def test_what_is_apart() -> None:
    ones = np.ones(3, np.float32)
    assert apart(ones, ones) == 0 and apart(ones * 1.5, ones) == 0.5
    odd = np.array([np.nan, np.inf, 2.0], np.float32)
    assert apart(odd, odd) == 0 and apart(odd, odd[::-1]) == np.inf
    assert apart(np.array([np.nan, 1, 1], np.float32), ones) == np.inf
    with pytest.raises(AssertionError, match="float64, wanted float32"):
        apart(ones.astype(np.float64), ones)
    with pytest.raises(AssertionError, match=r"a sum: apart by 0\.5"):
        agree("a sum", ones * 1.5, ones, 0.1)


# ---- compute-sanitizer


CLEAN = "========= ERROR SUMMARY: 0 errors"
SAID: list[tuple[str, int, type[Exception], str]] = [
    ("========= Invalid __global__ write\n========= ERROR SUMMARY: 3 errors", 77, AssertionError, "found 3 errors"),
    ("========= Error: Device not supported. See the notes", 1, NotRun, "does not run here: Error: Device"),
    ("Segmentation fault", 139, AssertionError, "and no summary"),
]


def tool_that_says(words: str, status: int, folder: Path) -> list[str]:
    tool = folder / "compute-sanitizer"
    tool.write_text(f"#!/bin/sh\necho '{words}'\nexit {status}\n")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    return [str(tool)]


@pytest.mark.parametrize("says, status, kind, wanted", SAID)
def test_what_the_sanitizer_finds(says: str, status: int, kind: type[Exception], wanted: str, tmp_path: Path) -> None:
    with pytest.raises(kind, match=wanted):
        sanitizer.looked_at(tool_that_says(says, status, tmp_path), 30.0)


def test_the_sanitizer_finds_nothing(tmp_path: Path) -> None:
    assert sanitizer.looked_at(tool_that_says(CLEAN, 0, tmp_path), 30.0).text.startswith("no error in")


# ---- processes


def test_a_section_that_hangs_or_dies_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = running.Runner(tmp_path, True, None, 60.0)
    died = runner.run(plan.Section("nonsense", "there is no such section", 60.0))
    assert died.state == FAILED and "ended with 2" in died.text and "invalid choice" in died.log
    monkeypatch.setattr(running, "GRACE", 0.0)
    hung = runner.run(plan.Section("device", "in no time", 0.01))
    assert hung.state == FAILED and "did not end within" in hung.text
    runner.end = 0.0
    late = runner.run(plan.Section("device", "too late", 60.0))
    assert (late.state, late.text) == (NOT_RUN, "the time for all sections is over")


def test_kernels_that_came_along_are_counted(tmp_path: Path) -> None:
    carried = tmp_path / "carried"
    (carried / "kernels").mkdir(parents=True)
    (carried / "kernels" / "cuda_1.code").write_bytes(b"code")
    folder = tmp_path / "run"
    folder.mkdir()
    runner = running.Runner(folder, True, carried, 60.0)
    (runner.cache / "cuda_2.code").write_bytes(b"code")
    assert runner.kernels() == {"carried": 1, "compiled": 1}


def test_the_command_runs_sections_and_writes_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "results.json"
    assert command.main(["--dry-run", "--only", "device,tf32", "--json", str(out)]) == 0
    found = json.loads(out.read_text(encoding="utf-8"))
    assert [(s["section"], s["state"]) for s in found["sections"]] == [("device", PASSED), ("tf32", PASSED)]
    assert found["dry_run"] and found["device"]["name"] == "emulated device"
    said = capsys.readouterr().out
    assert "nothing here is a GPU's time" in said and "2 passed, 0 failed, 0 not run" in said


def test_the_table_and_the_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [["program", "ms"], ["a sum", "0.120"]]
    outcomes = [
        Outcome("tf32", PASSED, "it is right", 1.0),
        Outcome("speed", PASSED, "fast", 2.0, {"table": rows}),
        Outcome("sanitizer", NOT_RUN, "it is not installed", 0.5),
    ]
    kernels = {"carried": 3, "compiled": 4}
    assert not report.written(outcomes, False, kernels, tmp_path / "r.json")
    said = capsys.readouterr().out
    assert "a sum    0.120" in said and "2 passed, 0 failed, 1 not run; 4 modules of kernels compiled here" in said
    outcomes.append(Outcome("rows", FAILED, "apart by 3", 1.0, log="Traceback of rows"))
    assert [o.section for o in report.written(outcomes, False, kernels, tmp_path / "r.json")] == ["rows"]
    assert "Traceback of rows" in capsys.readouterr().out


# ---- needs


def test_needs_are_those_of_the_project() -> None:
    names = {needs.name_of(r) for r in needs.wanted()}
    assert {"numpy", "optree", "diastatic-malt", "pytest", "hypothesis"} <= names
    assert not needs.missing(needs.wanted())
    assert needs.missing(["numpy<1", "no-such-package>=1", "numpy>=2"]) == ["numpy<1", "no-such-package>=1"]


def test_what_is_missing_is_named_at_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(needs, "wanted", lambda: ["no-such-package>=1", "nor-this", "numpy"])
    assert command.main(["--only", "device"]) == command.UNPREPARED
    said = capsys.readouterr().err
    assert "packages: no-such-package>=1, nor-this\n" in said and "make gpu-carry" in said
    assert "CuPy: pip install" in said or needs._installed("cupy-cuda13x")


def test_a_gpu_that_is_not_there_is_named_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # also on a machine that has one
    monkeypatch.setattr(needs, "missing_cuda", list)
    assert command.main(["--only", "device"]) == command.UNPREPARED
    said = capsys.readouterr().err
    assert "  - gpu: one is required" in said and "  - driver: " in said


def test_missing_packages_come_from_a_folder_of_wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    monkeypatch.setattr(needs, "wanted", lambda: ["brought-along>=1", "numpy>=2"])
    with pytest.raises(needs.Missing, match="has not all that is missing"):
        needs.environment(tmp_path / "venv", wheels)
    about = "brought_along-1.0.dist-info"
    with zipfile.ZipFile(wheels / "brought_along-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("brought_along.py", "HERE = True\n")
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: brought-along\nVersion: 1.0\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")
    python = needs.environment(tmp_path / "venv", wheels)
    program = "import brought_along, numpy; print(brought_along.HERE, numpy.__version__)"
    run = subprocess.run([str(python), "-c", program], capture_output=True, text=True, check=True, env=_plain())
    assert run.stdout.split() == ["True", np.__version__]


def _plain() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
