"""The machine: its interpreter, its CPUs, and where compiled kernels are kept. Floor: top."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from gradtape.doctor.finding import Finding
from gradtape.kernels import disk


def python() -> Finding:
    """The interpreter and the machine it runs on."""
    version, kind = platform.python_version(), platform.python_implementation()
    return Finding("python", f"{version} ({kind}, {platform.system()} {platform.machine()})")


def cpu_count() -> int:
    """CPUs that this process may use; a container or `taskset` may allow fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cache() -> Finding:
    """Whether compiled kernels can be kept: what is written must come back."""
    folder = disk.cache_folder()
    name, content = f"doctor-{os.getpid()}", b"what is written comes back"
    if disk.write(name, content) and disk.read(name) == content:
        disk.forget(name)
        count = sum(1 for _ in folder.glob("*.code"))
        return Finding("cache", f"{folder} ({count} kernels)")
    text = f"{folder}: {_trouble(folder)}, so that each process compiles its kernels anew"
    return Finding("cache", f"{text}. Set GRADTAPE_CACHE to a folder of yours", fault=True)


def _trouble(folder: Path) -> str:
    """Why nothing can be kept in a folder."""
    nearest = next(p for p in (folder, *folder.parents) if p.exists())
    if not nearest.is_dir():
        return f"{nearest} is no folder"
    if not os.access(nearest, os.W_OK):
        return f"{nearest} cannot be written to"
    return f"{nearest} belongs to another user, or others may write to it"
