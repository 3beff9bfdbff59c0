"""The machine, and the environment in which a measuring process starts."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
# Where the first two are preset to an older core, products of matrices take twice as long; with the third, a package
# that no installer has compiled is compiled again by each process that imports it.
UNSET = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "PYTHONDONTWRITEBYTECODE")
FIXED = {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
# Where the libraries of a process share a GPU, none may take all of its memory when it starts.
ON_GPU = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_CPP_MIN_LOG_LEVEL": "3"}


def environment(threads: int, base: Mapping[str, str] = os.environ, gpu: bool = False) -> dict[str, str]:
    """The environment of a measuring process: BLAS reads its number of threads when NumPy is imported. Beside a GPU the
    host computes references alone, with all its cores."""
    kept = {name: value for name, value in base.items() if name not in UNSET}
    many = len(available()) if gpu else threads
    return kept | (ON_GPU if gpu else FIXED) | dict.fromkeys(THREAD_VARIABLES, str(many))


def available() -> list[int]:
    return sorted(os.sched_getaffinity(0))


def quietest(count: int, seconds: float = 0.3) -> list[int]:
    """The cores on which least happened for a moment."""
    cpus = available()
    if count >= len(cpus):
        return cpus
    before = _idle()
    time.sleep(seconds)
    after = _idle()
    return sorted(sorted(cpus, key=lambda cpu: before.get(cpu, 0) - after.get(cpu, 0))[:count])


def _idle() -> dict[int, int]:
    """Idle ticks by core so far."""
    rows = [line.split() for line in Path("/proc/stat").read_text(encoding="ascii").splitlines()]
    return {int(r[0][3:]): int(r[4]) for r in rows if r[0].startswith("cpu") and r[0] != "cpu"}


def description(gpu: bool = False) -> dict[str, Any]:
    """Processor, cores and software, without anything that names this particular machine; the GPU, where programs run
    on it."""
    own = {"gpu": _gpu()} if gpu else {}
    return own | {
        "processor": _processor(),
        "cores": len(available()),
        "system": f"{platform.system()} {platform.machine()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "revision": _revision(),
        "date": time.strftime("%Y-%m-%d"),
    }


def _processor() -> str:
    """The model as the kernel names it, with family and model number: virtual machines name many alike."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    flags = fields.get("flags", "").split()
    vector = next((name for flag, name in (("avx512f", "AVX-512"), ("avx2", "AVX2")) if flag in flags), "")
    numbers = f"family {fields['cpu family']} model {fields['model']}" if "cpu family" in fields else ""
    return ", ".join(part for part in (fields.get("model name", platform.machine()), numbers, vector) if part)


def _gpu() -> str:
    """The first GPU and its driver, as the driver's own program names them."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        return "a GPU that `nvidia-smi` does not name"
    name, driver = found[0].rsplit(", ", 1)
    return f"{name}, driver {driver}"


def _revision() -> str | None:
    """The commit that is checked out, with a mark where the package has changes; None where there is no git."""
    root = Path(__file__).parents[1]

    def git(*words: str) -> str:
        run = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=True)
        return run.stdout.strip()

    try:
        changed = git("status", "--porcelain", "--", "gradtape", "kernels")
        return git("rev-parse", "--short=10", "HEAD") + (" with changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return None
