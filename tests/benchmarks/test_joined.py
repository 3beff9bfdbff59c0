"""Runs of single workloads as one table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.joined import joined, main
from benchmarks.report import markdown

MACHINE = {"processor": "P", "cores": 2, "system": "S", "python": "CPython", "revision": "aa", "date": "2026-01-01"}


def run(threads: int, name: str, value: float, **machine: Any) -> dict[str, Any]:
    figure = {"name": "n", "value": value, "unit": "ms", "limit": None, "note": ""}
    counted = {"name": name, "about": "a", "figures": [figure]}
    setting = {"threads": threads, "versions": {"gradtape": "0.1.0"}, "races": [], "counts": [counted]}
    return {"schema": 1, "quick": False, "machine": MACHINE | machine, "settings": [setting]}


def values(data: dict[str, Any]) -> dict[tuple[int, str], float]:
    return {(s["threads"], c["name"]): c["figures"][0]["value"] for s in data["settings"] for c in s["counts"]}


def test_runs_are_put_together_by_threads_and_later_ones_count() -> None:
    data = joined([run(2, "x", 1.0), run(1, "x", 2.0), run(1, "y", 3.0), run(1, "x", 4.0, revision="bb")])
    assert [s["threads"] for s in data["settings"]] == [1, 2]
    assert values(data) == {(1, "y"): 3.0, (1, "x"): 4.0, (2, "x"): 1.0}
    assert data["machine"]["revision"] == "aa, bb"


def test_runs_of_two_machines_are_refused() -> None:
    with pytest.raises(ValueError, match="2 machines"):
        joined([run(1, "x", 1.0), run(1, "y", 1.0, processor="Q")])


def test_runs_of_two_versions_are_refused() -> None:
    other = run(1, "y", 1.0)
    other["settings"][0]["versions"]["gradtape"] = "0.2.0"
    with pytest.raises(ValueError, match=r"gradtape 0[.]1[.]0 and 0[.]2[.]0"):
        joined([run(1, "x", 1.0), other])


def test_files_in_and_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for k, name in enumerate("xy"):
        (tmp_path / f"{name}.json").write_text(json.dumps(run(1, name, float(k))))
    out, table = tmp_path / "all.json", tmp_path / "all.md"
    assert main([*(str(tmp_path / f"{n}.json") for n in "xy"), "--json", str(out), "--markdown", str(table)]) == 0
    data = json.loads(out.read_text())
    assert values(data) == {(1, "x"): 0.0, (1, "y"): 1.0}
    assert table.read_text() == markdown(data)
    assert capsys.readouterr().out.strip() == table.read_text().strip()
