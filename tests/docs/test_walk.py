"""docs/walk.md is what the code prints."""

from pathlib import Path

import pytest

from tools.walk import PAGE, main, page


def test_the_committed_page_is_the_generated_one() -> None:
    assert main(["--check"]) == 0, "run `python tools/walk.py`"


def test_the_page_walks_all_the_way() -> None:
    text = page()
    steps = ("Record", "Differentiate", "Simplify", "Fuse", "Kernels", "Plan", "Run", "Vectorize")
    places = [text.index(f"## {step}") for step in steps]
    assert places == sorted(places)
    assert text.count("def kernel@(") == 2


def test_another_page_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "walk.md"
    other.write_text(page().replace("tanh", "tang"))
    monkeypatch.setattr("tools.walk.PAGE", other)
    assert main(["--check"]) == 1
    assert "tools/walk.py" in capsys.readouterr().err
    assert other != PAGE
