"""The test suite on the device: in an order that is the same each time and mixes all files, until the time is over."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.devices import ALIKE
from tools.gpu_check.needs import ROOT
from tools.gpu_check.outcome import Found
from tools.gpu_check.setting import Setting

FEW = (("tape",), 4)  # of a dry run: the folders, and how many tests
PROCESSES = 8
START = 15.0  # seconds for collecting, and for the tests that are running when the time is over
TAIL = 6000


def run(s: Setting) -> Found:
    folders, most = FEW if s.emulated else (_folders(), None)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "tests.json"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "tools.gpu_check.within", "-p", "no:cacheprovider"]
        command += ["--device", "emulated" if s.emulated else "cuda", "--within", f"{max(1.0, s.seconds - START):g}"]
        command += ["--told", str(out), *(["--at-most", str(most)] if most else []), *_processes(s)]
        command += [f"tests/{name}" for name in folders]
        child = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert out.exists(), f"pytest did not get to its end:\n{child.stdout[-TAIL:]}{child.stderr[-TAIL:]}"
        told = json.loads(out.read_text(encoding="utf-8"))
    counts = {state: len(told[state]) for state in ("passed", "failed", "skipped")}
    assert not told["failed"] and not child.returncode, _failures(told, child.stdout)
    assert counts["passed"], f"no test passed:\n{child.stdout[-TAIL:]}"
    text = (
        f"{counts['passed']} tests passed, {counts['skipped']} skipped, of {told['collected']}; the others had no time"
    )
    return Found(text, counts | {"collected": told["collected"]})


def _folders() -> list[str]:
    """Those whose tests depend on where tensors are."""
    found = {file.parent.name for file in (ROOT / "tests").glob("*/test_*.py")}
    return sorted(found - set(ALIKE))


def _processes(s: Setting) -> list[str]:
    """Several, where pytest-xdist is there: each compiles kernels of its own."""
    if s.emulated or importlib.util.find_spec("xdist") is None:
        return ["-p", "no:xdist"] if importlib.util.find_spec("xdist") else []
    return ["-n", str(max(1, min(PROCESSES, len(os.sched_getaffinity(0)) - 1)))]


def _failures(told: dict[str, list[str]], said: str) -> str:
    listed = "\n".join(told["failed"][:40])
    return f"{len(told['failed'])} tests failed, {len(told['passed'])} passed\n{listed}\n{said[-TAIL:]}"
