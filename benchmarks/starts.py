"""First calls: how long a plan takes to be there, in processes of their own."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import machine, peers
from benchmarks.harness import OURS, Program, own_cpu
from benchmarks.warming import until_ready
from benchmarks.workload import Count, Figure, Setting

ROOT = Path(__file__).parents[1]
TRIES = 3  # the fastest of them counts: other processes can only slow one down
SECOND_START = 0.2  # seconds that compiled kernels may cost a process that finds them on disk
EARLY = 10  # calls of a second start
FIRST_CALL = 5.0  # seconds, of loops as long as a solver's
LONG = ("ode_grad", "ode_grad_while", "ode_jac", "ode_jac_while")


def first_calls(names: Sequence[str]) -> Count:
    def counted(setting: Setting) -> list[Figure]:
        chosen = names[:1] if setting.quick else names
        return [f for name in chosen for f in _first(name, setting.quick)]

    about = (
        "seconds from a new function to its first results, nothing on disk, libraries loaded before; the limit is what "
        "torch.compile takes in the same run, and for long loops 5 s"
    )
    return Count("first_calls", about, counted, ("torch",))


def second_starts(names: Sequence[str]) -> Count:
    def counted(setting: Setting) -> list[Figure]:
        return [_second(name, setting.quick) for name in (names[:1] if setting.quick else names)]

    about = (
        f"seconds that a process with {EARLY} calls takes longer when it finds compiled kernels on disk than when it "
        "is told to compile none"
    )
    return Count("second_starts", about, counted)


def _first(name: str, quick: bool) -> list[Figure]:
    race = _race(name)
    compiled = next((v for v in ("compiled", "compiled step") if _has(race, "torch", v, quick)), None)
    found = []
    limit = None
    if compiled is not None and not quick:
        theirs = _fastest("torch", name, compiled, quick)
        limit = theirs["first"]
        found.append(Figure(f"{name}: torch {compiled}", limit, "s", None, f"{theirs['cpu']:.2f} s of processor time"))
    if name in LONG:
        limit = FIRST_CALL
    ours = _fastest(OURS, name, "", quick)
    note = f"{ours['cpu']:.2f} s of processor time; all kernels there after {ours['ready']:.2f} s"
    return [*found, Figure(f"{name}: {OURS}", ours["first"], "s", limit, note)]


def _second(name: str, quick: bool) -> Figure:
    with tempfile.TemporaryDirectory() as kept:
        own = {"GRADTAPE_CACHE": kept}
        _child(OURS, name, "", quick, own)  # fills the folder
        warm, without = [], []
        for _ in range(1 if quick else TRIES):
            warm.append(_child(OURS, name, "", quick, own, early=True)["process"])
            without.append(_child(OURS, name, "", quick, own | {"GRADTAPE_KERNELS": "never"}, early=True)["process"])
    note = f"{min(warm):.2f} s with kernels on disk, {min(without):.2f} s without compiling"
    return Figure(name, min(warm) - min(without), "s", SECOND_START, note)


def _race(name: str) -> Any:
    return importlib.import_module("benchmarks.catalogue").ALL[name]


def _has(race: Any, peer: str, variant: str, quick: bool) -> bool:
    """Whether a peer is there and has such a program; asking a process keeps the peer out of this one."""
    if peers.version(peer) is None or peer not in race.programs:
        return False
    return variant in json.loads(_run([peer, race.name, "--list", *["--quick"] * quick], {}))


def _fastest(peer: str, name: str, variant: str, quick: bool) -> dict[str, float]:
    """The try with the shortest first call, each with nothing on disk."""
    found = []
    for _ in range(1 if quick else TRIES):
        with tempfile.TemporaryDirectory() as empty:
            own = {"GRADTAPE_CACHE": empty, "TORCHINDUCTOR_CACHE_DIR": empty}
            found.append(_child(peer, name, variant, quick, own))
    return min(found, key=lambda times: times["first"])


def _child(
    peer: str, name: str, variant: str, quick: bool, own: Mapping[str, str], early: bool = False
) -> dict[str, float]:
    words = [peer, name, "--variant", variant, *["--quick"] * quick, *["--early"] * early]
    begin = time.perf_counter()
    answer = _run(words, own)
    found: dict[str, float] = json.loads(answer)
    return found | {"process": time.perf_counter() - begin}


def _run(words: Sequence[str], own: Mapping[str, str]) -> str:
    """The last line that a process prints."""
    command = [sys.executable, "-m", "benchmarks.starts", *words]
    env = machine.environment(1, os.environ | own)
    run = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    if run.returncode:
        raise RuntimeError(f"{' '.join(words)}: {run.stderr[-2000:]}")
    return run.stdout.splitlines()[-1]


# ------------------------------------------------------------------ in the process


def started(peer: str, name: str, variant: str, quick: bool, early: bool) -> dict[str, float]:
    """Seconds to the first results of a program, and of ours to the last kernel."""
    race = _race(name)
    program = _chosen(race.programs[peer](Setting(1, quick)), variant)
    program.start()
    cpu, begin = own_cpu(), time.perf_counter()
    program.call()
    found = {"first": time.perf_counter() - begin, "cpu": own_cpu() - cpu}
    if early:
        for _ in range(EARLY - 1):
            program.call()
    elif peer == OURS:
        until_ready(program.call)
        found["ready"] = time.perf_counter() - begin
    return found


def _chosen(programs: Sequence[Program], variant: str) -> Program:
    return next(p for p in programs if p.variant == variant) if variant else programs[0]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.starts", description=__doc__)
    parser.add_argument("peer")
    parser.add_argument("race")
    parser.add_argument("--variant", default="", help="a program of the peer; else its first one")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--early", action="store_true", help="a few calls only, whatever runs in the background")
    parser.add_argument("--list", action="store_true", help="the peer's variants")
    o = parser.parse_args()
    if o.list:
        print(json.dumps([p.variant for p in _race(o.race).programs[o.peer](Setting(1, o.quick))]))
    else:
        print(json.dumps(started(o.peer, o.race, o.variant, o.quick, o.early)))


if __name__ == "__main__":
    main()
