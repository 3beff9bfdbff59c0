"""Time gradtape against the peers that are installed: one process per number of threads, one table for all.

Each process is pinned to as many cores as it has threads. Every program's result is checked before it is timed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import machine, peers
from benchmarks.catalogue import ALL, GPU
from benchmarks.report import hand_out
from benchmarks.workload import Count, Race, Workload

ROOT = Path(__file__).parents[1]
SCHEMA = 1

# What the exit status says; argparse itself uses 2.
FAILED, PEERS_MISSING = 1, 3


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.list:
        print(listing())
        return 0
    strangers = [name for name in options.names if name not in ALL]
    if strangers:
        parser.error(f"no workload is called {', '.join(map(repr, strangers))}; there are: {', '.join(ALL)}")
    gpu = options.size == "gpu"
    sizeless = [name for name in options.names if gpu and name not in GPU]
    if sizeless:
        parser.error(f"{', '.join(sizeless)} has no size for GPUs; there are: {', '.join(GPU)}")
    names = options.names or (GPU if gpu else list(ALL))
    threads = options.threads or ([1] if gpu else [n for n in (1, 2) if n <= len(machine.available())])
    if max(threads) > len(machine.available()):
        parser.error(f"{max(threads)} threads are wanted, and there are {len(machine.available())} cores")
    wanted = sorted({p for name in names for p in ALL[name].peers}, key=peers.NAMES.index)
    absent = peers.missing(wanted)
    if absent and options.require_peers:
        print(f"missing peers: {', '.join(absent)}; install them with `pip install '.[bench]'`", file=sys.stderr)
        return PEERS_MISSING
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "quick": options.quick,
        "machine": machine.description(gpu),
        "settings": [measured(n, chosen, options.quick, gpu) for n, chosen in plan(names, threads)],
    }
    hand_out(data, options.json, options.markdown)
    return status(data, options.require_peers)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="workloads to run (default: all; see --list)")
    parser.add_argument("--threads", type=_counts, metavar="N,...", help="numbers of threads, one table row each (1,2)")
    parser.add_argument("--size", choices=("cpu", "gpu"), default="cpu", help="gpu: on a GPU, about 30 times as large")
    parser.add_argument("--require-peers", action="store_true", help="fail where a peer of these workloads is missing")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was measured")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table to a file too")
    parser.add_argument("--quick", action="store_true", help="small sizes and few slices: does it run at all?")
    parser.add_argument("--list", action="store_true", help="say what workloads there are")
    return parser


def _counts(text: str) -> list[int]:
    found = [int(part) for part in text.split(",")]
    if min(found) < 1:
        raise ValueError(text)
    return list(dict.fromkeys(found))


def listing() -> str:
    return "\n".join(f"{name:16} {_listed(w)}" for name, w in ALL.items())


def _listed(workload: Workload) -> str:
    if isinstance(workload, Count):
        return f"{workload.about} (counted)"
    targets = "; ".join(t.text(workload.unit) for t in workload.targets)
    return f"{workload.about} [{targets}] against {', '.join(workload.peers)}"


def plan(names: Sequence[str], threads: Sequence[int]) -> list[tuple[int, list[str]]]:
    """Which workloads share a process, and its number of threads. What does not depend on threads runs with the first
    number only; what is counted runs where no peer has been loaded."""
    rows = [
        (n, [name for name in names if isinstance(ALL[name], Race) and (k == 0 or _varies(ALL[name]))])
        for k, n in enumerate(threads)
    ]
    rows.append((threads[0], [name for name in names if isinstance(ALL[name], Count)]))
    return [(n, chosen) for n, chosen in rows if chosen]


def _varies(workload: Workload) -> bool:
    return isinstance(workload, Race) and not workload.alone


def measured(threads: int, names: Sequence[str], quick: bool, gpu: bool = False) -> dict[str, Any]:
    """The results of one measuring process."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "results.json"
        command = [sys.executable, "-m", "benchmarks.worker", *names, "--threads", str(threads), "--out", str(out)]
        command += ["--quick"] * quick + ["--gpu"] * gpu
        subprocess.run(command, cwd=ROOT, env=machine.environment(threads, gpu=gpu), check=True)
        found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
        return found


def status(data: dict[str, Any], require_peers: bool) -> int:
    """0, or what went wrong: a program that is wrong or broken, or a peer that could not be loaded though required."""
    states = {e["state"] for setting in data["settings"] for r in setting["races"] for e in r["programs"]}
    if states & {"refused", "failed"}:
        return FAILED
    return PEERS_MISSING if require_peers and "missing" in states else 0


if __name__ == "__main__":
    sys.exit(main())
