"""What `import gradtape` costs on top of NumPy, in fresh processes, and which modules it loads."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks.harness import OURS, Pace, Program
from benchmarks.workload import Count, Figure, Race, Setting, Target

ROOT = Path(__file__).parents[1]

# Each takes longer to load than the whole package may, and is needed only when something is run or drawn.
HEAVY = ("cupy", "numba", "llvmlite", "matplotlib", "scipy", "sklearn", "pandas", *peers.NAMES)


def _python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)


def _importing(peer: str, statement: str) -> list[Program]:
    def call() -> Sequence[Any]:
        return [np.array(_python(statement).returncode)]

    return [Program(peer, call, "" if peer == OURS else "import")]


def _of_peer(name: str, setting: Setting) -> list[Program]:
    if peers.version(name) is None:
        raise ImportError(f"`{name}` is not installed")
    return [] if setting.quick else _importing(name, f"import {name}")


def loaded() -> dict[str, int]:
    """How many modules `import gradtape` loads, by top-level name, beyond those of an empty process."""
    code = (
        "import json, sys; before = set(sys.modules); import gradtape; print(json.dumps([*set(sys.modules) - before]))"
    )
    run = _python(code)
    if run.returncode:
        raise RuntimeError(f"`import gradtape` failed in a fresh process:\n{run.stderr}")
    roots = [name.split(".")[0] for name in json.loads(run.stdout)]
    return {root: roots.count(root) for root in sorted(set(roots))}


def _modules(setting: Setting) -> list[Figure]:
    roots = loaded()
    heavy = [name for name in HEAVY if name in roots]
    foreign = {n: k for n, k in roots.items() if n not in sys.stdlib_module_names and not n.startswith("_")}
    listed = ", ".join(f"{n} {k}" for n, k in sorted(foreign.items(), key=lambda item: -item[1]))
    return [
        Figure("heavy modules loaded", len(heavy), "", 0, ", ".join(heavy)),
        Figure("modules loaded", sum(roots.values()), "", None, f"outside the standard library: {listed}"),
    ]


WORKLOADS = [
    Race(
        "import",
        "`import gradtape` in a fresh process, less `import numpy` in another one",
        {
            OURS: lambda setting: _importing(OURS, "import gradtape"),
            "numpy": lambda setting: _importing("numpy", "import numpy"),
            "torch": lambda setting: _of_peer("torch", setting),
            "tensorflow": lambda setting: _of_peer("tensorflow", setting),
        },
        lambda setting: [[np.array(0)]],
        tolerance=0.0,
        unit="s",
        scale=1.0,
        targets=(Target(0.3),),
        baseline="numpy",
        alone=True,
        pace=Pace(seconds=0.001, enough=7, most=12, wake=False, waiting=0.08),
    ),
    Count("import_modules", "what `import gradtape` loads", _modules),
]
