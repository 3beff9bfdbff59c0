"""Programs in README.md, CONTRIBUTING.md, docs/ and the tests' own documents do what they say.

A ```python block that a ```text block follows is run by itself, and must print exactly that text.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / name for name in ("README.md", "CONTRIBUTING.md")]
DOCUMENTS += sorted([*ROOT.glob("docs/*.md"), *ROOT.glob("tests/*/README.md")])
PROGRAM = re.compile(r"^```python\n(?P<code>.*?)^```\n+```text\n(?P<output>.*?)^```$", re.MULTILINE | re.DOTALL)


def programs() -> list[tuple[str, str, str]]:
    """Place, code and promised output of every program with its output."""
    found = []
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        for match in PROGRAM.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            found.append((f"{document.relative_to(ROOT)}:{line}", match["code"], match["output"]))
    return found


PROGRAMS = programs()


def test_the_readme_has_a_program() -> None:
    assert any(place.startswith("README.md") for place, _, _ in PROGRAMS)


@pytest.mark.parametrize(("code", "output"), [pytest.param(c, o, id=place) for place, c, o in PROGRAMS])
def test_program_prints_what_the_document_shows(code: str, output: str, tmp_path: Path) -> None:
    # In an empty folder, so that what a program writes stays out of the checkout; the path serves a bare one.
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    program = tmp_path / "program.py"
    program.write_text(code, encoding="utf-8")
    run = subprocess.run(
        [sys.executable, str(program)], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.rstrip() == output.rstrip()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_to_files_lead_somewhere(document: Path) -> None:
    text = re.sub(r"```.*?```", "", document.read_text(encoding="utf-8"), flags=re.DOTALL)
    links = [link for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) if "://" not in link]
    missing = [link for link in links if not (document.parent / link).exists()]
    assert missing == []


def test_readme_names_every_make_target_it_tells_of() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    told = {
        name for document in DOCUMENTS for name in re.findall(r"`make ([a-z-]+)", document.read_text(encoding="utf-8"))
    }
    assert "test" in told
    assert told <= targets, f"no such target: {sorted(told - targets)}"
