"""The worked example of CONTRIBUTING.md: its diff applies to this tree, and the new op passes the table's tests."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = ("gradtape", "kernels", "tests", "conftest.py", "pyproject.toml")


def diff() -> str:
    found = re.search(r"```diff\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.S)
    assert found, "CONTRIBUTING.md shows no diff"
    return found[1]


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree with the diff applied."""
    copy = tmp_path_factory.mktemp("contribution")
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, copy / part, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, copy / part)
    result = subprocess.run(
        ["git", "apply", "-p1", "-"], input=diff(), cwd=copy, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return copy


def test_the_new_op_passes_the_tests_of_the_table(changed: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "mish", "tests/op_table"]
    result = subprocess.run(command, cwd=changed, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout[-3000:]
    assert re.search(r"^mish [1-9]\d+", result.stdout, re.M), result.stdout[-3000:]


def test_the_new_function_has_the_value_of_its_example(changed: Path) -> None:
    program = "import gradtape as tf; print(tf.nn.mish([0.0, 1.0]).numpy().round(4))"
    result = subprocess.run([sys.executable, "-c", program], cwd=changed, capture_output=True, text=True, check=False)
    assert result.stdout == "[0.     0.8651]\n", result.stderr
