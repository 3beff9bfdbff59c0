"""Peak memory of a program once it is warm, by library: each measured in a process of its own."""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import machine, peers
from benchmarks.growth import MEBI, REFS, resident, settled
from benchmarks.harness import OURS
from benchmarks.warming import until_ready
from benchmarks.workload import Count, Figure, Setting
from gradtape.backends.clusters import POLICY

ROOT = Path(__file__).parents[1]
SHARE = 1.1  # of the best peer's peak
NOISE = 2.0  # MiB: allocators take memory in steps, so that less says nothing
CALLS = 5


def count(names: Sequence[str], wanted: Sequence[str]) -> Count:
    about = (
        "how far resident memory is at most, while a warm program is called, above what it was before the program was "
        f"built (its libraries loaded and run once); the limit is the best peer's + 10 %, and {NOISE:g} MiB"
    )

    def counted(setting: Setting) -> list[Figure]:
        chosen = names[:1] if setting.quick else names
        return [f for name in chosen for f in _figures(name, () if setting.quick else wanted, setting.quick)]

    return Count("plan_memory", about, counted)


def _figures(name: str, wanted: Sequence[str], quick: bool) -> list[Figure]:
    there = [p for p in wanted if peers.version(p) is not None and p in _race(name).programs]
    theirs = {peer: best for peer in there if (best := min(_measured(peer, name, quick).values(), default=None))}
    own = _measured(OURS, name, quick)
    limit = SHARE * min(theirs.values()) + NOISE if theirs else None
    variant = min(own, key=lambda v: own[v])
    note = ", ".join(f"{v} {m:.1f}" for v, m in own.items())
    found = [Figure(f"{name}: {OURS}", own[variant], "MiB", limit, note)]
    return [*found, *(Figure(f"{name}: {peer}", value, "MiB") for peer, value in theirs.items())]


def _race(name: str) -> Any:
    return importlib.import_module("benchmarks.catalogue").ALL[name]


def _measured(peer: str, name: str, quick: bool) -> dict[str, float]:
    """The peak of each program of a library in MiB; of those that do not run none."""
    found: dict[str, float] = {}
    for k, variant in enumerate(json.loads(_run([peer, name, "--list"], quick, True) or "[]")):
        answer = _run([peer, name, "--which", str(k)], quick, peer != OURS)
        if answer is not None:
            found[variant] = json.loads(answer)
    return found


def _run(words: Sequence[str], quick: bool, may_fail: bool) -> str | None:
    command = [sys.executable, "-m", "benchmarks.peaks", *words, *["--quick"] * quick]
    run = subprocess.run(command, cwd=ROOT, env=machine.environment(1), capture_output=True, text=True, check=False)
    if run.returncode:
        if may_fail:
            return None
        raise RuntimeError(f"{' '.join(words)}: {run.stderr[-2000:]}")
    return run.stdout.splitlines()[-1]


def peak(peer: str, name: str, which: int, quick: bool) -> float:
    """In this process, in bytes. A small program of the same kind has loaded all that the library needs, compilers
    too."""
    race = _race(name)
    way, POLICY.compile = POLICY.compile, "now"
    small = race.programs[peer](Setting(1, quick=True))[which]
    small.start()
    small.call()
    POLICY.compile = way
    settled()
    before = resident("VmRSS")
    program = race.programs[peer](Setting(1, quick))[which]
    program.start()
    if peer == OURS:
        until_ready(program.call)
    else:
        for _ in range(CALLS):
            program.call()
    REFS.write_text("5", encoding="ascii")  # the highest so far is what is resident now
    for _ in range(CALLS):
        program.call()
    return max(0, resident("VmHWM") - before)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peaks", description=__doc__)
    parser.add_argument("peer")
    parser.add_argument("race")
    parser.add_argument("--which", type=int, default=0, help="the number of the peer's program")
    parser.add_argument("--list", action="store_true", help="the peer's variants")
    parser.add_argument("--quick", action="store_true")
    o = parser.parse_args()
    if o.list:
        print(json.dumps([p.variant for p in _race(o.race).programs[o.peer](Setting(1, quick=True))]))
    else:
        print(json.dumps(peak(o.peer, o.race, o.which, o.quick) / MEBI))


if __name__ == "__main__":
    main()
