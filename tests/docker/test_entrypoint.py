"""The container's entry point: what it starts, and that its `test` sees what fails."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docker" / "entrypoint.py"


class Became(Exception):
    """The process would be another program now."""


@pytest.fixture
def entry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The entry point; what it becomes is raised, and its working folder is empty."""
    specification = importlib.util.spec_from_file_location("entrypoint", FILE)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)

    def become(program: str, words: list[str]) -> None:
        assert program == words[0] == sys.executable
        raise Became(*words[1:], os.getcwd())

    monkeypatch.setattr(os, "execv", become)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return module


def became(entry: ModuleType, *words: str) -> tuple[Any, ...]:
    with pytest.raises(Became) as found:
        entry.main(words)
    return found.value.args


def test_what_each_word_starts(entry: ModuleType, tmp_path: Path) -> None:
    here, examples = str(tmp_path), ROOT / "examples"
    digits, train = str(examples / "digits.py"), str(examples / "train_gpu.py")
    assert became(entry, "python", "-c", "1") == ("-c", "1", here)
    assert became(entry, "bench", "--list") == ("-m", "benchmarks.run", "--list", str(ROOT))
    os.chdir(tmp_path)
    assert became(entry, "demo", "--epochs", "1") == (
        digits,
        "--picture",
        str(tmp_path / "saliency.png"),
        "--epochs",
        "1",
        here,
    )
    assert became(entry, "demo", "--picture", "x.png") == (digits, "--picture", "x.png", here)
    assert became(entry, "train") == (train, here)
    assert became(entry, "train", "--epochs", "2") == (train, "--epochs", "2", here)
    (tmp_path / "mine.py").write_text("")
    assert became(entry, "train", "mine.py", "-x") == ("mine.py", "-x", here)
    for file in (digits, train):
        assert Path(file).is_file()


def test_help_names_every_word(entry: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    entry.main([])
    shown = capsys.readouterr().out
    assert [line.split()[0] for line in shown.splitlines()] == list(entry.COMMANDS)
    with pytest.raises(SystemExit, match=r"There is no `trian`\. There is:\ndemo"):
        entry.main(["trian"])
    with pytest.raises(SystemExit, match=r'no file `absent.py`.*\$PWD:/here" -w /here IMAGE train FILE'):
        entry.main(["train", "absent.py"])


def test_a_home_for_who_has_none(
    entry: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    entry.find_a_home()
    assert os.environ["HOME"] == str(tmp_path) and not capsys.readouterr().err
    for home in ("/", str(tmp_path / "absent")):
        monkeypatch.setenv("HOME", home)
        entry.find_a_home()
        assert Path(os.environ["HOME"]).is_dir() and os.environ["HOME"] != home
        assert f"{home} cannot be written to" in capsys.readouterr().err
        os.rmdir(os.environ["HOME"])


def test_examples_that_fail_are_counted(
    entry: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / "some_package"
    folder.mkdir()
    (folder / "__init__.py").write_text("one = 1\n")
    (folder / "__main__.py").write_text("raise SystemExit\n")
    (folder / "part.py").write_text('"""\n>>> tf.one + np.int8(1)\nnp.int8(2)\n>>> 1 + 1\n3\n"""\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    assert entry.examples("some_package") == (2, 1)
    assert "Expected:\n    3\nGot:\n    2" in capsys.readouterr().out


@pytest.mark.parametrize(
    "doctor, counts, status", [(0, (5, 0), 0), (1, (5, 0), 1), (0, (5, 1), 1), (0, (0, 0), 1)], ids=str
)
def test_its_test_fails_where_anything_fails(
    entry: ModuleType, monkeypatch: pytest.MonkeyPatch, doctor: int, counts: tuple[int, int], status: int
) -> None:
    ran: list[Any] = []

    def run(words: list[str], check: bool) -> Any:
        ran.append(words)
        return subprocess.CompletedProcess(words, doctor)

    monkeypatch.setenv("GRADTAPE_DEVICE", "")
    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(entry, "examples", lambda package: counts)
    with pytest.raises(SystemExit) as stopped:
        entry.main(["test", "--require-gpu"])
    assert stopped.value.code == status and ran == [[sys.executable, "-m", "gradtape", "doctor", "--require-gpu"]]
