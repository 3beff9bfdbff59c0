"""What the check needs of the machine, and how missing packages come from a folder of wheels. Needs nothing but Python.

What is needed is read from pyproject.toml."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Of the extra `dev`: what tests import, and what pytest's settings name. Without xdist they run in one process.
TESTING = ("pytest", "pytest-timeout", "hypothesis", "mpmath")
CUPY = ("cupy-cuda13x", "cupy-cuda12x", "cupy")
CUDA = {  # modules of the extras cu12 and cu13, with the packages that hold them
    "cuda.bindings.nvrtc": "cuda-bindings",
    "cuda.pathfinder": "cuda-pathfinder",
}


class Missing(Exception):
    """What the check cannot do without is not there; the message names all of it."""


def project() -> dict[str, list[str]]:
    """The requirements of the package, and of its extra `dev` those that tests need."""
    read = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    dev = [r for r in read["optional-dependencies"]["dev"] if name_of(r) in TESTING]
    return {"gradtape": read["dependencies"], "tests": dev}


def name_of(requirement: str) -> str:
    """The name in a requirement such as `numpy>=2.0,<2.6`."""
    found = re.match(r"[\w.-]+", requirement)
    assert found, requirement
    return found[0]


def wanted() -> list[str]:
    """All requirements of packages that a GPU's image may lack and a wheel can bring."""
    return [r for some in project().values() for r in some]


def missing(requirements: Sequence[str]) -> list[str]:
    """Those that this interpreter has not, or in another version."""
    return [r for r in requirements if not _is_there(r)]


def _is_there(requirement: str) -> bool:
    try:
        version = importlib.metadata.version(name_of(requirement))
    except importlib.metadata.PackageNotFoundError:
        return False
    bounds = re.findall(r"(>=|<=|==|<|>)\s*([\d.]+)", requirement)
    return all(_holds(version, sign, bound) for sign, bound in bounds)


def _holds(version: str, sign: str, bound: str) -> bool:
    """Whether `2.5.1 < 2.6` and its like; letters end a version, since releases are meant."""
    a, b = ([int(n) for n in re.findall(r"\d+", re.split(r"[a-z+]", text)[0])] for text in (version, bound))
    length = max(len(a), len(b))
    a, b = a + [0] * (length - len(a)), b + [0] * (length - len(b))
    return {">=": a >= b, "<=": a <= b, "==": a == b, "<": a < b, ">": a > b}[sign]


def missing_cuda() -> list[str]:
    """What of CUDA's packages is not there."""
    found = []
    if not any(_installed(name) for name in CUPY):
        found.append("CuPy: pip install 'gradtape[cu13]' ('gradtape[cu12]' for a driver of CUDA 12)")
    for module, package in CUDA.items():
        if not _can_be_found(module):
            found.append(f"{package}, for `{module}`: pip install 'gradtape[cu13]'")
    return found


def without_gpu() -> list[str]:
    """What `gradtape doctor` says against the GPU of this machine."""
    command = [sys.executable, "-m", "gradtape", "doctor", "--quick", "--require-gpu", "--json"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if not run.stdout:
        return [f"a `gradtape doctor` that runs: {run.stderr.strip().splitlines()[-1]}"]
    found = json.loads(run.stdout)
    shown = {*found["faults"], *(("driver", "cupy") if found["faults"] else ())}  # whose lines say why
    return [f"{f['name']}: {f['text']}" for f in found["findings"] if f["name"] in shown]


def _installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _can_be_found(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of the package around it
        return False


def checked(dry: bool) -> None:
    """Nothing, where all is there.

    Raises:
      Missing: what is not, all of it at once.
    """
    lines = [f"Python 3.11 or newer (this is {sys.version.split()[0]})"] if sys.version_info < (3, 11) else []
    absent = missing(wanted())
    if absent:
        lines.append(f"packages: {', '.join(absent)}")
    if dry and shutil.which("g++") is None:
        lines.append("g++, which compiles kernels for the emulated device")
    if not dry:
        lines += missing_cuda()
    if not dry and not lines:
        lines += without_gpu()
    if lines:
        listed = "\n".join(f"  - {line}" for line in lines)
        raise Missing(
            f"The check needs what is not there:\n{listed}\n"
            "Packages may come as wheels: `make gpu-carry` on a machine with a network fills a folder with them, and "
            "`--wheels FOLDER` (make gpu-check WHEELS=FOLDER) installs from it."
        )


def environment(folder: Path, wheels: Path) -> Path:
    """The interpreter of a virtual environment that has all that this interpreter has, and from the wheels what that
    lacks.

    Raises:
      Missing: the folder is not there, or wheels are missing in it; the message is pip's.
    """
    if not wheels.is_dir():
        raise Missing(f"{wheels} is no folder. `make gpu-carry` on a machine with a network fills one.")
    venv.create(folder, system_site_packages=True, clear=True, symlinks=True, with_pip=False)
    python = folder / "bin" / "python"
    site = next((folder / "lib").glob("python*")) / "site-packages"
    # `system_site_packages` means those of the interpreter that an environment was made from; this one may be an
    # environment itself.
    own = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    (site / "packages-of-the-interpreter.pth").write_text("\n".join(own) + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "install"]
    command += ["--quiet", "--no-index", "--find-links", str(wheels.resolve()), *missing(wanted())]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        raise Missing(f"{wheels} has not all that is missing ({', '.join(missing(wanted()))}):\n{run.stderr.strip()}")
    return python
