"""The `gradtape` command: what it prints, what it returns, and how it answers a slip."""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest

from gradtape import backends, cli
from gradtape.doctor import packages
from gradtape.version import __version__
from tests.doctor import answers

ROOT = Path(__file__).parents[1]


def printed(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> str:
    assert cli.main(words) == status
    return capsys.readouterr().out


def test_doctor_names_backend_reason_and_every_requirement(capsys: pytest.CaptureFixture[str]) -> None:
    report = printed(capsys, "doctor")
    choice = backends.choice()
    assert f"{choice.name} ({choice.reason})" in report
    for name in (*packages.REQUIRED, "cache", "cpus", "cupy", "driver", "gradtape", "python", "trial"):
        assert f"  {name} " in report, report


def test_quick_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    report = printed(capsys, "doctor", "--quick")
    assert __version__ in report and backends.choice().name in report and report.count("\n") == 3


def test_faults_are_marked_and_end_in_status_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers.answering(monkeypatch, ("cupy-cuda13x", "cupy"), driver=answers.NO_LIBRARY)
    report = printed(capsys, "doctor", "--require-gpu", status=1)
    assert "\n! cupy " in report and report.endswith("\nTo mend: cupy, gpu.\n")


def test_doctor_as_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    answers.answering(monkeypatch)
    found = json.loads(printed(capsys, "doctor", "--json"))
    assert found["faults"] == [] and {"name": "gradtape", "text": __version__, "fault": False} in found["findings"]
    answers.answering(monkeypatch, (), driver=answers.NO_LIBRARY)
    assert json.loads(printed(capsys, "doctor", "--quick", "--require-gpu", "--json", status=1))["faults"] == ["gpu"]


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
