"""The table's text."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.report import markdown, number, table


def data(**changes: Any) -> dict[str, Any]:
    ours = {"peer": "gradtape", "variant": "eager", "state": "ran", "note": "", "error": 1e-7, "repeats": 5}
    ours |= {"slices": [[2.5, True], [9.0, False]], "quiet": 1, "dropped": 1, "minimum": 2.5, "median": 2.75}
    torch = ours | {"peer": "torch", "minimum": 5.0, "median": 5.5}
    compiled = torch | {"variant": "compiled", "minimum": 4.0, "median": 5.0}
    jax = {"peer": "jax", "variant": "", "state": "missing", "note": "no module named jax", "error": None}
    target = {
        "text": "≤ 3 ms",
        "limit": 3.0,
        "of": "time",
        "against": None,
        "minimum": 2.5,
        "median": 2.75,
        "met": "yes",
    }
    race = {
        "name": "step",
        "about": "one step",
        "unit": "ms",
        "programs": [ours, torch, compiled, jax],
        "baseline": None,
        "best": "torch",
        "ratios": {"torch": {"variant": "compiled", "minimum": 0.625, "median": 0.55}},
        "targets": [target],
    }
    growth = {"name": "growth", "value": 2048.0, "unit": "KiB", "limit": 1024.0, "note": "much", "met": False}
    shown = {"name": "seen", "value": 7, "unit": "", "limit": None, "note": "", "met": None}
    machine = {
        "processor": "P",
        "cores": 2,
        "system": "Linux",
        "python": "CPython 3",
        "revision": "abc",
        "date": "2020",
    }
    first = {"threads": 1, "versions": {"gradtape": "1", "torch": "2", "jax": None}, "races": [race], "counts": []}
    second = first | {"threads": 2, "races": [race | {"best": None, "ratios": {}}]}
    third = first | {"races": [], "counts": [{"name": "memory", "about": "counted", "figures": [growth, shown]}]}
    return {"schema": 1, "quick": False, "machine": machine, "settings": [first, second, third]} | changes


def test_the_whole_table() -> None:
    assert (
        markdown(data())
        == """\
# gradtape against its peers

P; 2 cores; Linux; CPython 3.
gradtape 1, torch 2; commit abc; 2020.
Missing peers: jax.

## Times

Times are minimum / median of the undisturbed slices, and so are ratios.

| workload | threads | unit | gradtape | torch | jax | ours / best peer | target | met |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
| `step` | 1 | ms | 2.5 / 2.75 | 4 / 5 (compiled) | missing | 0.625 / 0.55 (torch) | ≤ 3 ms | yes |
| `step` | 2 | ms | 2.5 / 2.75 | 4 / 5 (compiled) | missing | - | ≤ 3 ms | yes |

## Counts

| workload | figure | value | target | met | note |
| --- | --- | --- | --- | --- | --- |
| `memory` | growth | 2,048 KiB | ≤ 1,024 KiB | no | much |
| `memory` | seen | 7 |  |  |  |

## Notes

- `step`: one step.
- `memory`: counted.
- `step`, threads 1: slices without foreign load: gradtape eager 1 of 2, torch eager 1 of 2, torch compiled 1 of 2.
- `step`, threads 1: jax missing: no module named jax.
- `step`, threads 2: slices without foreign load: gradtape eager 1 of 2, torch eager 1 of 2, torch compiled 1 of 2.
- `step`, threads 2: jax missing: no module named jax.
"""
    )


def test_quick_runs_say_so() -> None:
    assert "these numbers say little" in markdown(data(quick=True))


def test_a_program_without_a_quiet_slice_is_called_disturbed() -> None:
    report = data()
    report["settings"] = report["settings"][:1]
    ours = report["settings"][0]["races"][0]["programs"][0]
    ours |= {"minimum": None, "median": None, "quiet": 0, "dropped": 2}
    assert "| ms | disturbed | 4 / 5 (compiled) |" in markdown(report)


def test_a_baseline_has_no_column() -> None:
    report = data()
    for setting in report["settings"]:
        for race in setting["races"]:
            race["baseline"] = "torch"
    assert "| gradtape | jax |" in markdown(report)


@pytest.mark.parametrize(
    "value, text",
    [(None, "-"), (0, "0"), (3.14159, "3.14"), (0.01234, "0.0123"), (1234.5, "1,234"), (12, "12"), (99.95, "100")],
)
def test_numbers_have_three_digits(value: float | None, text: str) -> None:
    assert number(value) == text


def test_a_bar_in_a_cell_does_not_end_it() -> None:
    assert table(["a"], [["x|y"]]) == "| a |\n| --- |\n| x\\|y |"
