"""The `gradtape` command: what it prints, what it returns, and how it answers a slip."""

import argparse
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from gradtape import backends, cli
from gradtape.version import __version__

ROOT = Path(__file__).parents[1]


def printed(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> str:
    assert cli.main(words) == status
    return capsys.readouterr().out


def test_doctor_names_backend_reason_and_every_requirement(capsys: pytest.CaptureFixture[str]) -> None:
    report = printed(capsys, "doctor")
    choice = backends.choice()
    assert f"{choice.name} ({choice.reason})" in report
    for name in (*cli.REQUIRED, "cupy", "python", "cpus", "gradtape"):
        assert f"  {name} " in report, report


def test_doctor_requirements_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {line.split(">")[0].split("<")[0].strip() for line in project["dependencies"]}
    assert set(cli.REQUIRED) == declared


def test_quick_doctor_asks_nothing_slow(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> tuple[str, bool]:
        raise AssertionError("--quick must not start CuPy")

    monkeypatch.setattr(cli, "probe_cupy", refuse)
    monkeypatch.setattr(cli, "installed", lambda package: "1.0")
    report = printed(capsys, "doctor", "--quick")
    assert __version__ in report
    assert backends.choice().name in report


def test_missing_requirement_is_a_fault_with_its_cure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "installed", lambda package: None if package in {"optree", *cli.CUPY_PACKAGES} else "1.0")
    report = printed(capsys, "doctor", status=1)
    assert "pip install optree" in report
    assert report.rstrip().endswith("To mend: optree.")


def test_two_cupy_packages_are_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "installed", lambda package: None if package == "cupy" else "14.2.0")
    finding = cli.cupy_finding()
    assert finding.fault
    assert "pip uninstall cupy-cuda12x" in finding.text


@pytest.mark.parametrize(
    ("module", "text", "fault"),
    [
        ("def is_available(): return True", "it sees a GPU", False),
        ("def is_available(): return False", "no usable GPU", False),
        ("raise ImportError('libcublas.so.13: cannot open shared object file')", "libcublas.so.13", True),
        ("import os; os._exit(7)", "exit status 7", True),
        ("import time; time.sleep(60)", "did not answer", True),
    ],
)
def test_probe_reports_what_cupy_says(
    module: str, text: str, fault: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cupy.py").write_text(module)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    if "sleep" in module:
        monkeypatch.setattr(cli, "PROBE_SECONDS", 0.5)
    answer, is_fault = cli.probe_cupy()
    assert text in answer
    assert is_fault is fault


def test_unknown_command_names_the_near_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["docter"])
    assert stopped.value.code == 2
    message = capsys.readouterr().err
    assert "there is no command `docter`" in message
    assert "Did you mean `doctor`?" in message


def test_unknown_command_without_a_near_one_lists_all(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["xyz"])
    assert stopped.value.code == 2
    assert "There is: `doctor`." in capsys.readouterr().err


def test_unknown_option_points_to_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["doctor", "--fast"])
    assert stopped.value.code == 2
    message = capsys.readouterr().err
    assert "--fast" in message
    assert "--help" in message


def test_no_command_prints_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert "doctor" in capsys.readouterr().err


def test_every_command_has_help_and_a_function() -> None:
    top, commands = cli.parser()
    [choices] = [action for action in top._actions if isinstance(action, argparse._SubParsersAction)]
    assert set(choices.choices) == set(commands)


def test_module_runs_as_a_command() -> None:
    command = [sys.executable, "-m", "gradtape", "doctor", "--quick"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert __version__ in run.stdout
