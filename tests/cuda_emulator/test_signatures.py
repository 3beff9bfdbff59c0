"""The stand-ins' functions take what those of CuPy and of cuDNN's frontend take: a file for each says what that is, and
the package confirms it where it is installed."""

from __future__ import annotations

import inspect
import itertools
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cuda_emulator import cudnn_stand_in, cupy_stand_in

# One line for each: the name, and its parameters. From CuPy 14.2 and nvidia-cudnn-frontend 1.32; where another one is
# installed, `python -m tests.cuda_emulator.test_signatures cupy|cudnn` writes its file anew.
FOLDER = Path(__file__).parent
RECORDS = {"cupy": FOLDER / "signatures.txt", "cudnn": FOLDER / "cudnn_signatures.txt"}
STAND_INS: dict[str, Any] = {"cupy": cupy_stand_in, "cudnn": cudnn_stand_in}


def parameters(function: Any) -> list[str]:
    """Names of a function's parameters; of one that was compiled from the first lines of its docstring, the last of its
    overloads."""
    try:
        return [name for name in inspect.signature(function).parameters if name != "self"]
    except ValueError:
        lines = function.__doc__.strip().splitlines()
        overloads = list(itertools.takewhile(lambda line: line.startswith(lines[0].partition("(")[0] + "("), lines))
        inside = re.search(r"\((.*?)\)(?: ->.*)?$", overloads[-1])
        assert inside
        parts = re.sub(r"\[[^]]*\]", "", inside[1]).replace("=()", "").split(",")
        names = [part.split("=")[0].split(":")[0].split()[-1].lstrip("*") for part in parts if part]
        return [name for name in names if name not in ("self", "")]


def member(module: Any, path: str) -> Any:
    for name in path.split("."):
        module = getattr(module, name)
    return module


def of_package(module: Any, path: str) -> list[str]:
    """What the package's function takes. Those that add to a graph of cuDNN's hand on what they are given."""
    found = parameters(member(module, path))
    if path.startswith("pygraph.") and found[:1] == ["args"]:
        compiled = getattr(module._pybind_module.backend_graph, path.removeprefix("pygraph."), None)
        return found if compiled is None else parameters(compiled)
    return found


def recorded(package: str) -> dict[str, list[str]]:
    lines = RECORDS[package].read_text(encoding="utf-8").splitlines()
    return {path: names.split() for path, _, names in (line.partition(":") for line in lines)}


@pytest.mark.parametrize(("package", "path"), [(package, path) for package in RECORDS for path in recorded(package)])
def test_the_stand_in_takes_what_is_recorded(package: str, path: str) -> None:
    assert parameters(member(STAND_INS[package], path)) == recorded(package)[path]


@pytest.mark.parametrize("package", RECORDS)
def test_what_is_recorded_is_what_the_package_takes(package: str) -> None:
    module = pytest.importorskip(
        package, reason=f"{package} is not installed: the recorded signatures stay as they are"
    )
    assert {path: of_package(module, path) for path in recorded(package)} == recorded(package)


if __name__ == "__main__":
    import importlib
    import sys

    (package,) = sys.argv[1:]
    module = importlib.import_module(package)
    lines = [f"{path}: {' '.join(of_package(module, path))}".rstrip() for path in recorded(package)]
    RECORDS[package].write_text("\n".join(lines) + "\n", encoding="utf-8")
