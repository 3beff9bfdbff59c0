"""Compiled kernels on disk: found by other processes, believed only where they are what was compiled; and forks."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

from gradtape.backends import clusters
from gradtape.ir.dtypes import float32
from gradtape.ir.graph import Graph
from gradtape.kernels import disk as on_disk
from gradtape.kernels import entries, objects
from gradtape.kernels.compiled import Compiler
from gradtape.kernels.objects import ObjectCode
from gradtape.ops.op import emit
from tests.kernels.steps import drawn, given_of, kernel_of, wide

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.usefixtures("strict")


def compile_one(extent: int = 7) -> tuple[int, int]:
    """How many kernels a new compiler makes for one step, and how many it finds."""
    compiler = Compiler()
    before, clusters.COMPILER = clusters.COMPILER, compiler
    try:
        (x,) = given_of((extent, 3), dtype=float32)
        graph = Graph([x], [emit("exp", emit("tanh", x))])
        arrays = drawn(graph)
        (found,) = kernel_of(graph)(*arrays)
    finally:
        clusters.COMPILER = before
    np.testing.assert_allclose(found, np.exp(np.tanh(arrays[0])), rtol=1e-5)
    return compiler.compiled, compiler.loaded


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GRADTAPE_CACHE", str(tmp_path / "kept"))
    return tmp_path / "kept"


def code(disk: Path) -> list[Path]:
    return sorted(disk.glob("*.code"))


def test_the_next_compiler_finds_it(disk: Path) -> None:
    assert compile_one() == (1, 0)
    assert disk.stat().st_mode & 0o777 == 0o700
    assert compile_one() == (0, 1)
    assert compile_one(13) == (0, 1), "other extents, the same kernel"


SECOND = """
import sys, numpy as np, gradtape as tf
from gradtape.kernels.compiled import COMPILER
f = tf.function(lambda x: tf.exp(tf.tanh(x)) * 3.25 - x)
x = np.linspace(-1, 1, 60, dtype=np.float32).reshape(5, 12)
np.testing.assert_allclose(f(tf.constant(x)), np.exp(np.tanh(x)) * 3.25 - x, rtol=1e-5)
print(COMPILER.compiled, COMPILER.loaded, "numba" in sys.modules)
"""


def processes(disk: Path, count: int) -> list[str]:
    """What processes print that run at once."""
    env = os.environ | {"GRADTAPE_CACHE": str(disk), "GRADTAPE_KERNELS": "now", "PYTHONPATH": str(ROOT)}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", SECOND], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(count)
    ]
    answers = []
    for p in running:
        out, err = p.communicate(timeout=300)
        assert p.returncode == 0, err
        answers.append(out.strip())
    return answers


def test_processes_at_once_and_after_each_other(disk: Path) -> None:
    """None of them loads the compiler: those that find nothing on disk have another process for that."""
    made, found = "1 0 False", "0 1 False"
    first = processes(disk, 2)
    assert set(first) <= {made, found} and made in first
    assert processes(disk, 1) == [found]
    assert [p.suffix for p in disk.iterdir()] == [".code"]


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.write_bytes(bytes(data))


DAMAGE: dict[str, Callable[[Path], object]] = {
    "one byte is another": lambda path: flip(path, -9),
    "one byte of its beginning is another": lambda path: flip(path, 3),
    "its sum is another": lambda path: flip(path, 40),
    "half of it is there": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "less than its beginning is there": lambda path: path.write_bytes(path.read_bytes()[:30]),
    "it is empty": lambda path: path.write_bytes(b""),
    "it is gone": lambda path: path.unlink(),
    "it is of another version": lambda path: path.write_bytes(path.read_bytes().replace(b" 1\n", b" 2\n", 1)),
    "it is a folder": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damaged_files_are_made_again(disk: Path, damage: Callable[[Path], object]) -> None:
    assert compile_one() == (1, 0)
    (path,) = code(disk)
    damage(path)
    assert compile_one() == (1, 0)
    if path.is_file():
        assert compile_one() == (0, 1)


def test_the_code_of_another_kernel_is_not_believed(disk: Path) -> None:
    assert compile_one() == (1, 0)
    (path,) = code(disk)
    x = given_of((4,), dtype=float32)[0]
    kernel_of(Graph([x], [emit("tanh", emit("negative", x))]))(*drawn(Graph([x], [])))
    (other,) = set(code(disk)) - {path}
    path.write_bytes(other.read_bytes())
    assert compile_one() == (1, 0)  # it compares the numbers


def test_code_for_another_processor_is_not_found(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert compile_one() == (1, 0)
    monkeypatch.setattr(entries, "processor", lambda: "another")
    assert compile_one() == (1, 0)
    assert len(code(disk)) == 2
    monkeypatch.undo()


def test_settings_of_the_compiler_are_part_of_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    made = objects.maker.__wrapped__
    before = made()
    monkeypatch.setenv("NUMBA_NUM_THREADS", "1")
    assert made() == before
    monkeypatch.setenv("NUMBA_OPT", "1")
    assert made() != before


def test_without_a_compiler_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "find_spec", lambda package: None)
    with pytest.raises(ModuleNotFoundError, match="GRADTAPE_KERNELS=never"):
        objects.maker.__wrapped__()


def test_code_that_calls_what_is_not_there_is_made_again(disk: Path) -> None:
    """A process may have libraries that the next one does not have."""
    assert compile_one() == (1, 0)
    (path,) = code(disk)
    absent = ObjectCode(calling("not_there_at_all"), ("not_there_at_all",))
    on_disk.write(path.stem, absent.code)
    assert compile_one() == (1, 0)
    assert compile_one() == (0, 1)


def calling(name: str) -> bytes:
    """Object code that calls a function of this name."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    text = f"declare void @{name}()\ndefine i32 @entry(i8* %words) {{\n  call void @{name}()\n  ret i32 0\n}}\n"
    module = llvm.parse_assembly(text)
    machine = llvm.Target.from_default_triple().create_target_machine(codemodel="jitdefault", jit=True)
    code: bytes = machine.emit_object(module)
    return code


def test_code_that_only_numba_can_serve_runs_and_is_not_kept(disk: Path) -> None:
    here = ctypes.CFUNCTYPE(None)(lambda: calls.append(1))
    calls: list[int] = []
    name = "known_to_llvm_alone"
    llvm.add_symbol(name, ctypes.cast(here, ctypes.c_void_p).value)
    entry, found = entries.entry_of("entry", (), lambda: ObjectCode(calling(name), (name,)))
    entry()
    assert (found, calls, code(disk)) == (False, [1], [])


def test_a_folder_of_somebody_else_is_not_read(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert compile_one() == (1, 0)
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    assert compile_one() == (1, 0)
    monkeypatch.undo()


def test_a_folder_that_all_may_write_to_is_not_read(disk: Path) -> None:
    assert compile_one() == (1, 0)
    disk.chmod(0o777)
    assert compile_one() == (1, 0)
    disk.chmod(0o700)
    assert compile_one() == (0, 1)


def test_where_nothing_can_be_kept_it_runs_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("GRADTAPE_CACHE", str(tmp_path / "file" / "kept"))
    assert compile_one() == (1, 0)
    assert compile_one() == (1, 0)


def test_the_oldest_are_dropped(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_disk, "MAX_FILES", 2)
    assert compile_one() == (1, 0)
    (old,) = code(disk)
    os.utime(old, (1, 1))
    for k in range(2):
        x, y = given_of((4,), (4,), dtype=float32)
        kernel_of(Graph([x, y], [emit("exp", emit("add" if k else "subtract", x, y))]))(*drawn(Graph([x, y], [])))
    assert len(code(disk)) == 2 and not old.exists()
    assert compile_one() == (1, 0)


def test_a_child_compiles_by_itself(strict: Compiler) -> None:
    """The parent's compiler thread is not there after a fork."""
    if "fork" not in multiprocessing.get_all_start_methods():
        pytest.skip("there is no fork here")
    ready = kernel_of(wide((5, 6))["pointwise"])
    arrays = drawn(wide((5, 6))["pointwise"])
    (wanted,) = ready(*arrays)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        same, new = pool.apply(_in_the_child, (arrays,))
    np.testing.assert_array_equal(same, wanted)
    assert new


def _in_the_child(arrays: list[Any]) -> tuple[Any, bool]:
    (found,) = kernel_of(wide((5, 6))["pointwise"])(*arrays)
    other = kernel_of(wide((5, 7))["columns"])
    other(*drawn(wide((5, 7))["columns"]))
    return found, other.native is not None


def test_the_settings_word_is_checked(tmp_path: Path) -> None:
    env = os.environ | {"GRADTAPE_KERNELS": "sometimes", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", "import gradtape"], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode and "should be one of background, now, never, got 'sometimes'" in done.stderr
