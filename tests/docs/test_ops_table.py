"""docs/ops.md is what the op table says."""

from gradtape.ops.op import all_ops
from tools.ops_table import PAGE, main, page


def test_the_committed_page_is_the_generated_one() -> None:
    assert main(["--check"]) == 0, "run `python tools/ops_table.py`"


def test_every_op_is_on_the_page() -> None:
    text = page()
    assert [op.name for op in all_ops() if f"| `{op.name}` |" not in text] == []


def test_another_page_is_noticed(tmp_path, monkeypatch, capsys) -> None:  # type: ignore[no-untyped-def]
    other = tmp_path / "ops.md"
    other.write_text(page().replace("`tanh`", "`tang`"))
    monkeypatch.setattr("tools.ops_table.PAGE", other)
    assert main(["--check"]) == 1
    assert "tools/ops_table.py" in capsys.readouterr().err
    assert other != PAGE
