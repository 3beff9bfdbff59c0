"""docs/vectorizer_table.md is what the ops do to the structure of rows."""

from typing import Any

import pytest

from gradtape.ops.op import lookup
from tests.op_table.cases import OPS
from tools import vectorizer_table
from tools.vectorizer_table import PAGE, REASONS, _cell, main, page, survey


@pytest.fixture(scope="module")
def text() -> str:
    return page()


def test_the_committed_page_is_the_measured_one(text: str) -> None:
    assert PAGE.read_text() == text, "run `python tools/vectorizer_table.py`"


def test_every_op_is_on_the_page(text: str) -> None:
    assert [op.name for op in OPS if f"`{op.name}`" not in text] == []


def test_no_built_in_op_loops_or_refuses(text: str) -> None:
    table = [line for line in text.splitlines() if line.startswith("| `")]
    assert len(table) > 100
    assert [line for line in table if "looped" in line or "refused" in line] == []


def test_every_reason_is_needed() -> None:
    expanding = {(op.name, mode) for op in OPS for (_, mode), found in survey(op).items() if "expanded" in found}
    assert set(REASONS) == expanding


def test_an_expansion_without_a_reason_is_an_error() -> None:
    with pytest.raises(ValueError, match="write down why"):
        _cell(lookup("tanh"), {"expanded"}, "reverse")


def test_what_loses_structure_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """With pointwise ops that write rows out, tanh would no longer keep anything."""
    from gradtape.ops.pointwise import Pointwise
    from gradtape.transforms import vectorize
    from gradtape.transforms.rows import arithmetic

    def dumb(b: Any, node: Any, operands: Any) -> Any:
        return [arithmetic._pointwise_free(b, node, operands)]

    monkeypatch.setitem(vectorize.RULES, Pointwise, dumb)
    assert "expanded" in {what for found in survey(lookup("tanh")).values() for what in found}


def test_another_page_is_noticed(tmp_path: Any, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    other = tmp_path / "vectorizer_table.md"
    monkeypatch.setattr(vectorizer_table, "PAGE", other)
    monkeypatch.setattr(vectorizer_table, "page", lambda: text)
    assert main(["--check"]) == 1
    assert main([]) == 0
    assert main(["--check"]) == 0
    other.write_text(text.replace("`tanh`", "`tang`"))
    assert main(["--check"]) == 1
