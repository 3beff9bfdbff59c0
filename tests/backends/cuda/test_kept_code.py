"""Machine code of CUDA kernels on disk: NVIDIA's compiler makes it once for all processes, and what is there is
believed only where it is what was written. No GPU is needed; a class stands for CuPy's modules."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gradtape.backends.cuda import nvidia
from gradtape.kernels import disk

pytest.importorskip(
    "cuda.bindings.nvrtc", reason="NVIDIA's compiler is not installed: `pip install -e .[nvrtc]`, or the extra `dev`"
)

ROOT = Path(__file__).parents[3]
TEXT = 'extern "C" __global__ void __launch_bounds__(32) one(float* out) { out[threadIdx.x] = 1.0f; }'
MACHINE_CODE = b"\x7fELF"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GRADTAPE_CACHE", str(tmp_path / "kept"))
    return tmp_path / "kept"


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that are compiled, and not found."""
    texts: list[str] = []
    compiled = nvidia.Compiler.compiled
    monkeypatch.setattr(nvidia.Compiler, "compiled", lambda self, text: (texts.append(text), compiled(self, text))[1])
    return texts


def code(text: str = TEXT, architecture: str = "sm_90") -> bytes:
    """The machine code that a new compiler gives."""
    found = nvidia.Compiler(None, architecture).code(text)
    assert found.startswith(MACHINE_CODE)
    return found


def test_the_next_compiler_finds_it(made: list[str], folder: Path) -> None:
    first = code()
    assert code() == first and made == [TEXT]
    (file,) = folder.iterdir()
    assert file.name.startswith("cuda_") and file.suffix == ".code" and first in file.read_bytes()
    assert folder.stat().st_mode & 0o777 == 0o700


def test_other_texts_architectures_and_compilers_have_files_of_their_own(
    made: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code()
    code(TEXT.replace("1.0f", "2.0f"))
    code(architecture="sm_80")
    nvrtc = nvidia.Compiler(None, "sm_90").nvrtc
    monkeypatch.setattr(nvrtc, "nvrtcVersion", lambda: (nvrtc.nvrtcResult.NVRTC_SUCCESS, 99, 0))
    code()
    assert len(made) == len(list(folder.iterdir())) == 4


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "one byte is another": lambda data: data[:-9] + bytes([data[-9] ^ 0xFF]) + data[-8:],
    "half of it is there": lambda data: data[: len(data) // 2],
    "it is another's": lambda data: data.replace(MACHINE_CODE, b"\x7fELV"),
    "it is empty": lambda data: b"",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_was_damaged_is_made_again(made: list[str], folder: Path, damage: str) -> None:
    first = code()
    (file,) = folder.iterdir()
    file.write_bytes(DAMAGE[damage](file.read_bytes()))
    assert code() == first and len(made) == 2
    assert code() == first and len(made) == 2


def test_the_code_of_another_text_is_not_believed(made: list[str], folder: Path) -> None:
    code()
    (file,) = folder.iterdir()
    other = TEXT.replace("1.0f", "2.0f")
    code(other)
    (second,) = set(folder.iterdir()) - {file}
    second.write_bytes(file.read_bytes())
    code(other)
    assert made == [TEXT, other, other]


def test_there_are_only_so_many(made: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "MAX_FILES", 2)
    for k in range(4):
        code(TEXT.replace("1.0f", f"{k}.5f"))
        os.utime(max(folder.iterdir(), key=lambda p: p.stat().st_mtime), (k, k))
    assert len(list(folder.iterdir())) == 2
    code(TEXT.replace("1.0f", "3.5f"))
    assert len(made) == 4, "the newest is gone"


PROGRAM = f"""
from gradtape.backends.cuda import nvidia
print(len(nvidia.Compiler(None, "sm_90").code({TEXT!r})))
"""


def test_processes_at_once(made: list[str], folder: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", PROGRAM]
    running = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    sizes = {p.communicate(timeout=300)[0] for p in running}
    assert sizes == {f"{len(code())}\n"} and made == []
    assert [p.suffix for p in folder.iterdir()] == [".code"]


class Modules:
    """What stands for CuPy: a module is read when it is compiled, and not before."""

    read: bytes = b""

    def __init__(self, path: str) -> None:
        self.path = Path(path)

    def compile(self) -> None:
        Modules.read = self.path.read_bytes()

    def get_function(self, name: str) -> Any:
        assert not self.path.exists(), "the file stays behind"
        return name


def test_a_module_is_loaded_from_machine_code() -> None:
    """It is no PTX, which a driver older than the compiler would refuse."""

    class CuPy:
        RawModule = Modules

    compiler = nvidia.Compiler(CuPy, "sm_90")
    assert compiler.load(TEXT).get_function("one") == "one"
    assert Modules.read == code()


def test_a_text_that_does_not_compile_says_where(folder: Path) -> None:
    with pytest.raises(RuntimeError, match=r'kernels\.cu\(2\): error: identifier "nonsense" is undefined'):
        code("\nvoid f() { nonsense; }")
    assert not folder.exists() or not list(folder.iterdir())
