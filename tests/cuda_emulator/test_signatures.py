"""The stand-in's functions take what CuPy's take: `signatures.txt` says what that is, and CuPy confirms it."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cuda_emulator import cupy_stand_in

# One line for each: the name, and its parameters. From CuPy 14.2; where another one is installed,
# `python -m tests.cuda_emulator.test_signatures` writes it anew.
RECORD = Path(__file__).parent / "signatures.txt"


def parameters(function: Any) -> list[str]:
    """Names of a function's parameters; of one that Cython compiled from the first line of its docstring."""
    try:
        return [name for name in inspect.signature(function).parameters if name != "self"]
    except ValueError:
        inside = re.search(r"\((.*?)\)(?: ->.*)?$", function.__doc__.strip().splitlines()[0])
        assert inside
        names = [part.split("=")[0].split()[-1].lstrip("*") for part in inside[1].replace("=()", "").split(",") if part]
        return [name for name in names if name not in ("self", "")]


def member(module: Any, path: str) -> Any:
    for name in path.split("."):
        module = getattr(module, name)
    return module


def recorded() -> dict[str, list[str]]:
    lines = RECORD.read_text(encoding="utf-8").splitlines()
    return {path: names.split() for path, _, names in (line.partition(":") for line in lines)}


@pytest.mark.parametrize("path", recorded())
def test_the_stand_in_takes_what_is_recorded(path: str) -> None:
    assert parameters(member(cupy_stand_in, path)) == recorded()[path]


def test_what_is_recorded_is_what_cupy_takes() -> None:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed, so the recorded signatures stay as they are")
    assert {path: parameters(member(cupy, path)) for path in recorded()} == recorded()


if __name__ == "__main__":
    import cupy

    lines = [f"{path}: {' '.join(parameters(member(cupy, path)))}".rstrip() for path in recorded()]
    RECORD.write_text("\n".join(lines) + "\n", encoding="utf-8")
