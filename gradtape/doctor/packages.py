"""Which packages are installed, and in which versions. Floor: top."""

from __future__ import annotations

import sys
from importlib import metadata

from gradtape.doctor.finding import Finding

# What gradtape cannot do without, under the names that pip knows.
REQUIRED = (
    "numpy",
    "numba",
    "llvmlite",
    "optree",
    "opt_einsum",
    "ml_dtypes",
    "safetensors",
    "tqdm",
    "threadpoolctl",
    "diastatic-malt",
)
# CuPy is one package for each CUDA version; `cupy` is the one built from source.
CUPY_PACKAGES = ("cupy-cuda13x", "cupy-cuda12x", "cupy")
# What the CUDA extras bring beside CuPy and NVIDIA's libraries.
BINDINGS = ("cuda-core", "cuda-bindings", "cuda-pathfinder")


def installed(package: str) -> str | None:
    """The installed version of a package, read from its metadata without importing it."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def required() -> list[Finding]:
    """A line for each package that gradtape cannot do without."""
    findings = []
    for package in REQUIRED:
        version = installed(package)
        text = version or f"not installed. Install it: {sys.executable} -m pip install {package}"
        findings.append(Finding(package, text, fault=version is None))
    return findings


def cupy_packages() -> list[tuple[str, str]]:
    """The packages of CuPy that are installed, with their versions."""
    return [(package, version) for package in CUPY_PACKAGES if (version := installed(package))]


def cuda_wheels() -> Finding:
    """The packages of CUDA's libraries and of NVIDIA's bindings."""
    names = {d.name for d in metadata.distributions() if d.name and d.name.startswith(("nvidia-", *BINDINGS))}
    found = [f"{name} {installed(name)}" for name in sorted(names)]
    return Finding("cuda wheels", ", ".join(found) or "none are installed")
