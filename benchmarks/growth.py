"""Peak memory of one Jacobian against its size, by library: each measured in a process of its own."""

from __future__ import annotations

import argparse
import ctypes
import gc
import importlib
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import machine, peers
from benchmarks.harness import OURS
from benchmarks.workload import Count, Figure, Setting

ROOT = Path(__file__).parents[1]
STATUS = Path("/proc/self/status")
REFS = Path("/proc/self/clear_refs")
MEBI = 1 << 20


def resident(name: str) -> int:
    """A line of the kernel's account of this process, in bytes: "VmRSS" (now) or "VmHWM" (at most)."""
    for line in STATUS.read_text(encoding="ascii").splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"{STATUS} has no line {name}")


def settled() -> None:
    """Give back what is free: memory that is still ours would hide what calls take."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def rise(call: Callable[[], object]) -> int:
    """By how much two calls, the first ones of their size, raise the memory of this process at most: results, what is
    kept for the next call, and what compiling takes."""
    settled()
    REFS.write_text("5", encoding="ascii")  # the highest so far is what is resident now
    before = resident("VmRSS")
    for _ in range(2):
        call()
    return max(0, resident("VmHWM") - before)


def measured(peer: str, name: str, quick: bool) -> float:
    """The rise for the first program of a library that runs, in MiB; NaN where none does."""
    command = [sys.executable, "-m", "benchmarks.growth", peer, name, *["--quick"] * quick]
    run = subprocess.run(command, cwd=ROOT, env=machine.environment(1), capture_output=True, text=True, check=False)
    if run.returncode:
        raise RuntimeError(f"{peer} at {name}: {run.stderr[-2000:]}")
    found: float = json.loads(run.stdout.splitlines()[-1])
    return found


def figures(names: Sequence[str], wanted: Sequence[str], quick: bool) -> list[Figure]:
    there = [OURS, *(p for p in wanted if peers.version(p) is not None)]
    return [Figure(f"{peer} {name}", measured(peer, name, quick), "MiB") for name in names for peer in there]


def count(names: Sequence[str], wanted: Sequence[str]) -> Count:
    about = "how far the first calls raise resident memory at most, results included; by library and size"

    def counted(setting: Setting) -> list[Figure]:
        return figures(names[:1] if setting.quick else names, () if setting.quick else wanted, setting.quick)

    return Count("scaling_memory", about, counted)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument("peer")
    parser.add_argument("race")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    race = importlib.import_module("benchmarks.catalogue").ALL[options.race]
    race.programs[options.peer](Setting(1, quick=True))[0].call()  # a small one, so that all libraries are loaded
    program = race.programs[options.peer](Setting(1, options.quick))[0]
    print(json.dumps(rise(program.call) / MEBI))


if __name__ == "__main__":
    main()
