"""Every public function has an example in its docstring, and doctest finds it."""

import doctest
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest

import gradtape

NAMESPACES = ("", "math", "nn", "linalg", "random", "signal", "bitwise", "autodiff")


def public_functions() -> Iterator[tuple[str, Any]]:
    for space in NAMESPACES:
        module = getattr(gradtape, space) if space else gradtape
        for name in module.__all__:
            member = getattr(module, name)
            if inspect.isfunction(member):
                yield f"{space}.{name}".lstrip("."), member


def found_examples() -> set[str]:
    """The docstrings that doctest would run, over all modules of the package."""
    finder = doctest.DocTestFinder()
    found: set[str] = set()
    for info in pkgutil.walk_packages(gradtape.__path__, "gradtape."):
        if info.name.endswith("__main__") or ".kernels" in info.name:
            continue
        for test in finder.find(importlib.import_module(info.name)):
            if test.examples:
                found.add(test.docstring)
    return found


FOUND = found_examples()


@pytest.mark.parametrize(("name", "function"), list(public_functions()), ids=lambda x: x if isinstance(x, str) else "")
def test_a_public_function_has_an_example_that_runs(name: str, function: Any) -> None:
    assert function.__doc__, f"{name} has no docstring"
    assert function.__doc__ in FOUND, f"doctest finds no example of {name}"
