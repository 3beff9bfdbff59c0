"""Jacobians, Hessians and training steps at sizes for GPUs: ours are checked, and timed by CUDA events; then beside
PyTorch and JAX, where they are installed, by the benchmarks' own harness."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks import peers as libraries
from benchmarks.catalogue import ALL
from benchmarks.harness import OURS, check
from benchmarks.workload import Race, Setting
from tools.gpu_check import setting as places
from tools.gpu_check.meter import Meter
from tools.gpu_check.needs import ROOT
from tools.gpu_check.outcome import Found

RACES = ("mlp_batch_jac", "train_mlp_adam", "mlp_hessian_kernel", "conv_batch_jac", "training")
COMPARED = ("torch", "jax")
FIRST = 12.0  # seconds that a race beside peers takes at least: they compile


def run(s: places.Setting) -> Found:
    begin = time.monotonic()
    rows: list[list[str]] = [["race", "program", "launches" if s.emulated else "ms", "bytes" if s.emulated else "by"]]
    figures: dict[str, Any] = {}
    races = RACES[:-1] if s.emulated else RACES  # all kernels of an eager step would have to be compiled
    for name in races:
        for variant, cost in _ours(s, _race(name)).items():
            figures[f"{name}: {variant}"] = cost
            told = [f"{cost['launches']}", f"{cost['bytes']:,.0f}"] if s.emulated else [f"{cost['ms']:.3f}", "events"]
            rows.append([name, f"{OURS} {variant}", *told])
    if s.emulated:
        return Found(f"{len(races)} races gave right results; no time was taken", {"table": rows})
    there = [peer for peer in COMPARED if libraries.version(peer) is not None]
    left_out = []
    for name in races if there else ():
        left = s.seconds - (time.monotonic() - begin)
        found = _beside(name, left) if left > FIRST else None
        if found is None:
            left_out.append(name)
            continue
        figures[name] = found
        rows += [[name, who, ms, "device synchronisation"] for who, ms in _times(found)]
    text = f"{len(races)} races gave right results; beside {', '.join(there) or 'no peer, since none is installed'}"
    text += f"; no time for {', '.join(left_out)}" if left_out else ""
    return Found(text, {"table": rows, "races": figures})


def _race(name: str) -> Race:
    found = ALL[name]
    assert isinstance(found, Race)
    return found


def _ours(s: places.Setting, race: Race) -> dict[str, dict[str, float]]:
    """What each of our programs costs, once it is found to be right."""
    setting = Setting(quick=s.emulated, gpu=True)
    reference, meter = race.reference(setting), Meter(s)
    found = {}
    for program in race.programs[OURS](setting):
        if s.emulated and "function" not in program.variant:
            continue
        check(program, reference, race.tolerance)
        program.start()
        if s.emulated:
            found[program.variant] = {"launches": meter.launches(program.call), "bytes": meter.cost(program.call)}
        else:
            found[program.variant] = {"ms": meter.cost(program.call)}
    return found


def _beside(name: str, seconds: float) -> dict[str, Any] | None:
    """A race of all libraries, in a process of its own; None where the time did not suffice.

    Raises:
      AssertionError: our program was refused, or failed."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "results.json"
        command = [sys.executable, "-m", "benchmarks.worker", name, "--threads", "1", "--gpu", "--out", str(out)]
        try:
            child = subprocess.run(
                command,
                cwd=ROOT,
                env=machine.environment(1, gpu=True),
                capture_output=True,
                text=True,
                check=False,
                timeout=seconds,
            )
        except subprocess.TimeoutExpired:
            return None
        assert not child.returncode, child.stderr[-2000:]
        (found,) = json.loads(out.read_text(encoding="utf-8"))["races"]
    wrong = [e for e in found["programs"] if e["peer"] == OURS and e["state"] != "ran"]
    assert not wrong, f"{name}: {wrong}"
    return dict(found)


def _times(race: dict[str, Any]) -> list[tuple[str, str]]:
    """Each library's fastest program with its milliseconds, or what became of it."""
    found = []
    for peer in dict.fromkeys(e["peer"] for e in race["programs"]):
        entries = [e for e in race["programs"] if e["peer"] == peer]
        ran = [e for e in entries if e.get("median") is not None]
        if ran:
            best = min(ran, key=lambda e: e["median"])
            found.append((f"{peer} {best['variant']}", f"{best['median']:.3f}"))
        else:
            found.append((peer, f"{entries[0]['state']}: {entries[0]['note']}"[:60]))
    return found
