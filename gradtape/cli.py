"""The `gradtape` command. Top floor: it asks the floors below what they found and prints it.

`gradtape doctor` says which backend is in use and why, and which versions are installed.
"""

from __future__ import annotations

import argparse
import difflib
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import NamedTuple, NoReturn

from gradtape import backends
from gradtape.version import __version__

# What the package cannot do without, under the names that pip knows.
REQUIRED = ("numpy", "numba", "llvmlite", "optree", "opt_einsum", "ml_dtypes", "safetensors", "tqdm", "diastatic-malt")
# CuPy is one package for each CUDA version; `cupy` is the one built from source.
CUPY_PACKAGES = ("cupy-cuda13x", "cupy-cuda12x", "cupy")
# Longer than any healthy start of CUDA, shorter than anyone's patience.
PROBE_SECONDS = 60.0


class Finding(NamedTuple):
    """One line of the report: what was looked at, what was found, and whether it must be mended."""

    name: str
    text: str
    fault: bool = False


def installed(package: str) -> str | None:
    """The installed version of a package, read from its metadata without importing it."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def cpu_count() -> int:
    """CPUs that this process may use; a container or `taskset` may allow fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def backend_finding() -> Finding:
    """The backend that tensors live on in this process, with its reason."""
    choice = backends.choice()
    return Finding("backend", f"{choice.name} ({choice.reason})")


def requirement_findings() -> list[Finding]:
    """A line for each package that gradtape cannot do without."""
    findings = []
    for package in REQUIRED:
        version = installed(package)
        text = version or f"not installed. Install it: {sys.executable} -m pip install {package}"
        findings.append(Finding(package, text, fault=version is None))
    return findings


def cupy_finding() -> Finding:
    """Whether CuPy is installed, once only, and sees a GPU."""
    found = [(package, version) for package in CUPY_PACKAGES if (version := installed(package))]
    if not found:
        return Finding("cupy", "not installed. On a machine with an NVIDIA GPU: pip install 'gradtape[cu13]'")
    named = ", ".join(f"{package} {version}" for package, version in found)
    if len(found) > 1:
        surplus = " ".join(package for package, _ in found[1:])
        return Finding("cupy", f"{named}: they overwrite each other. Keep one: pip uninstall {surplus}", fault=True)
    text, fault = probe_cupy()
    return Finding("cupy", f"{named}: {text}", fault)


def probe_cupy() -> tuple[str, bool]:
    """Ask CuPy for a usable GPU, in a process of its own, since a broken driver can hang or end the one that asks.

    Only `is_available()` is asked: it never raises, while everything else in CuPy that touches a device does on a
    machine without a driver, with a message that misleads.
    """
    question = "import cupy; print('gpu' if cupy.is_available() else 'none')"
    try:
        answer = subprocess.run(
            [sys.executable, "-c", question], capture_output=True, text=True, timeout=PROBE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"it did not answer within {PROBE_SECONDS:.0f} s. Does `nvidia-smi` answer?", True
    if answer.returncode != 0:
        lines = answer.stderr.strip().splitlines() or [f"it ended with exit status {answer.returncode}"]
        return f"it cannot be imported ({lines[-1]})", True
    if answer.stdout.strip() == "gpu":
        return "it sees a GPU", False
    return "it sees no usable GPU; without an NVIDIA driver tensors live on NumPy arrays", False


def python_finding() -> Finding:
    """The interpreter and the machine it runs on."""
    return Finding(
        "python",
        f"{platform.python_version()} ({platform.python_implementation()}, {platform.system()} {platform.machine()})",
    )


def doctor(arguments: argparse.Namespace) -> int:
    """Print what gradtape found on this machine; 1 if something must be mended, else 0."""
    findings = [Finding("gradtape", __version__), backend_finding(), python_finding()]
    if not arguments.quick:
        findings += [Finding("cpus", str(cpu_count())), *requirement_findings(), cupy_finding()]
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        mark = "!" if finding.fault else " "
        print(f"{mark} {finding.name:<{width}}  {finding.text}")
    faults = [finding.name for finding in findings if finding.fault]
    if faults:
        print(f"\nTo mend: {', '.join(faults)}.")
    return 1 if faults else 0


class Parser(argparse.ArgumentParser):
    """argparse, with errors that end in the way out."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(2, f"{self.prog}: {message}\nSee `{self.prog} --help`.\n")


def parser() -> tuple[Parser, dict[str, Callable[[argparse.Namespace], int]]]:
    """The command line and what each command calls."""
    top = Parser(prog="gradtape", description="Automatic differentiation with GradientTape, on CuPy or NumPy arrays.")
    top.add_argument("--version", action="version", version=f"gradtape {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    check = commands.add_parser(
        "doctor",
        help="say which backend is used and why, and which versions are installed",
        description="Say which backend is used and why, and which versions are installed. "
        "Exit status 1 if something must be mended.",
    )
    check.add_argument("--quick", action="store_true", help="only the backend and the versions of gradtape and Python")
    return top, {"doctor": doctor}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name and return its exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    top, commands = parser()
    # argparse would list the choices only; a slip of the finger deserves its correction.
    if words and not words[0].startswith("-") and words[0] not in commands:
        near = difflib.get_close_matches(words[0], commands, n=1)
        hint = f" Did you mean `{near[0]}`?" if near else f" There is: {', '.join(f'`{name}`' for name in commands)}."
        top.error(f"there is no command `{words[0]}`.{hint}")
    arguments = top.parse_args(words)
    if arguments.command is None:
        top.print_help(sys.stderr)
        return 2
    return commands[arguments.command](arguments)
