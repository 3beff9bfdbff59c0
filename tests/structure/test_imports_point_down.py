"""Imports point down: a module may use its own floor and those below it, and says so at its top.

The modules are read, not imported, so that an import that only one branch reaches counts too.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# From the bottom. Each name is a folder or a module directly under gradtape/ (`kernels` is the top-level folder).
# A new module gets its floor here, once; the test below fails until it has one.
FLOORS: list[set[str]] = [
    {"version"},
    {"ir"},
    {"kernels"},
    {"ops"},
    {"backends"},
    {"transforms"},
    {"runtime"},
    {"checkpoints", "recording", "tracing", "questions", "jacobians", "batch_jacobians", "hessians"}
    | {"tape", "module", "custom_rules", "rule_arguments", "forward", "functions", "caches", "overrides", "op_types"}
    | {"recomputation", "explanations", "evidence", "endings"},
    {"api", "kernel_ops"},
    {"keras"},
    {"saving"},
    {"__init__", "cli", "doctor", "__main__"},
]
RANK = {name: rank for rank, names in enumerate(FLOORS) for name in names}

# Libraries that are heavy or may be absent, and the only floors that may know them.
ROOMS = {"cupy": {"backends"}, "cupyx": {"backends"}, "numba": {"kernels"}, "llvmlite": {"kernels"}}


def module_files() -> dict[str, Path]:
    """Every module of the package by its full name; the link gradtape/kernels is not followed, its target is read."""
    files: dict[str, Path] = {}
    for folder, package in ((ROOT / "gradtape", "gradtape"), (ROOT / "kernels", "gradtape.kernels")):
        for file in sorted(folder.rglob("*.py")):
            relative = file.relative_to(folder)
            if package == "gradtape" and relative.parts[0] == "kernels":
                continue
            parts = [package, *relative.with_suffix("").parts]
            if parts[-1] == "__init__" and len(parts) > 2:
                parts.pop()
            files[".".join(parts)] = file
    return files


FILES = module_files()


def floor_of(module: str) -> str:
    """The name in FLOORS that a full module name belongs to; the package itself is `__init__`."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def absolute(node: ast.ImportFrom, module: str) -> str:
    """The full name that a `from … import` reads from, with leading dots resolved."""
    if not node.level:
        return node.module or ""
    is_package = FILES[module].name == "__init__.py"
    package = module.removesuffix(".__init__").split(".")
    if not is_package:
        package.pop()
    package = package[: len(package) - (node.level - 1)]
    return ".".join([*package, *([node.module] if node.module else [])])


def targets(node: ast.AST, module: str) -> list[str]:
    """The full names that one import statement (or `import_module` call) loads."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        source = absolute(node, module)
        if source == "gradtape":
            # `from gradtape import ir` loads the folder; `from gradtape import Tensor` asks the top floor for a name.
            return [f"gradtape.{alias.name}" if alias.name in RANK else "gradtape" for alias in node.names]
        return [source]
    if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called in {"import_module", "__import__"} and isinstance(node.args[0].value, str):
            return [node.args[0].value]
    return []


def imports(module: str) -> Iterator[tuple[int, str, bool]]:
    """Line, full name and whether it stands inside a function, for every import in a module."""

    def visit(node: ast.AST, inside: bool) -> Iterator[tuple[int, str, bool]]:
        for name in targets(node, module):
            yield node.lineno, name, inside  # type: ignore[attr-defined]
        inside = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, inside)

    return visit(ast.parse(FILES[module].read_text(encoding="utf-8")), False)


def is_own(name: str) -> bool:
    return name.split(".")[0] == "gradtape"


def test_every_module_stands_on_a_floor() -> None:
    homeless = sorted({floor_of(module) for module in FILES} - set(RANK))
    assert not homeless, f"give these a floor in FLOORS: {homeless}"


@pytest.mark.parametrize("module", FILES)
def test_imports_point_down(module: str) -> None:
    mine = floor_of(module)
    upwards = [
        f"{FILES[module].relative_to(ROOT)}:{line} imports `{name}`, which stands above `{mine}`"
        for line, name, _ in imports(module)
        if is_own(name) and RANK[floor_of(name)] > RANK[mine]
    ]
    assert not upwards, "\n".join(upwards)


@pytest.mark.parametrize("module", FILES)
def test_no_import_of_our_own_inside_a_function(module: str) -> None:
    hidden = [
        f"{FILES[module].relative_to(ROOT)}:{line} imports `{name}` inside a function; move it to the top of the module"
        for line, name, inside in imports(module)
        if inside and is_own(name)
    ]
    assert not hidden, "\n".join(hidden)


@pytest.mark.parametrize("module", FILES)
def test_heavy_libraries_stay_in_their_rooms(module: str) -> None:
    strays = [
        f"{FILES[module].relative_to(ROOT)}:{line} imports `{name}`; only {sorted(ROOMS[root])} may"
        for line, name, _ in imports(module)
        if (root := name.split(".")[0]) in ROOMS and floor_of(module) not in ROOMS[root]
    ]
    assert not strays, "\n".join(strays)


@pytest.mark.parametrize("module", FILES)
def test_kernels_are_imported_under_their_shipped_name(module: str) -> None:
    bare = [line for line, name, _ in imports(module) if name.split(".")[0] == "kernels"]
    assert not bare, f"{FILES[module].relative_to(ROOT)}: lines {bare} import `kernels`; write `gradtape.kernels`"


def test_something_was_checked() -> None:
    own = [name for module in FILES for _, name, _ in imports(module) if is_own(name)]
    assert {floor_of(module) for module in FILES} >= {"ir", "kernels", "ops", "backends", "transforms", "runtime"}
    assert len(own) >= len(FILES) // 2, f"{len(own)} imports of our own found in {len(FILES)} modules"


def test_faults_are_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The reader itself: each form of an import upwards or inside a function is found."""
    text = """\
import gradtape
from gradtape import runtime, Tensor
from gradtape.keras.layers import Dense
from . import shapes
from .. import tape
from ..ops.table import add
def late():
    from gradtape.ir import graph
    importlib.import_module("gradtape.api")
"""
    file = tmp_path / "planted.py"
    file.write_text(text)
    monkeypatch.setitem(FILES, "gradtape.ir.planted", file)
    assert list(imports("gradtape.ir.planted")) == [
        (1, "gradtape", False),
        (2, "gradtape.runtime", False),
        (2, "gradtape", False),
        (3, "gradtape.keras.layers", False),
        (4, "gradtape.ir", False),
        (5, "gradtape.tape", False),
        (6, "gradtape.ops.table", False),
        (8, "gradtape.ir", True),
        (9, "gradtape.api", True),
    ]
