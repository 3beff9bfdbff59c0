"""Counts of checks per op, printed when a run ends. A plugin of the whole run (the top conftest names it), because with
several processes the one that prints collects no tests and never reads the conftest of this folder."""

from __future__ import annotations

from collections import Counter

import pytest

PROPERTY = "checks per op"


class Checks:
    """How many comparisons a test made; calling it counts one more."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, more: int = 1) -> None:
        self.count += more


def counts(reports: list[pytest.TestReport]) -> Counter[str]:
    """Checks by op, from the reports of a run (which is how they travel between processes)."""
    found: Counter[str] = Counter()
    for report in reports:
        if report.when == "teardown":
            for name, value in report.user_properties:
                if name == PROPERTY:
                    found[value[0]] += value[1]
    return found


def table(found: Counter[str], width: int) -> list[str]:
    """Names and counts in as many columns as fit."""
    cells = [f"{name} {found[name]}" for name in sorted(found)]
    wide = max(map(len, cells)) + 2
    columns = max(1, width // wide)
    rows = -(-len(cells) // columns)
    return ["".join(c.ljust(wide) for c in cells[k::rows]).rstrip() for k in range(rows)]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [r for group in terminalreporter.stats.values() for r in group if isinstance(r, pytest.TestReport)]
    found = counts(reports)
    if not found:
        return
    terminalreporter.section(f"checks of the op table: {sum(found.values())} on {len(found)} ops")
    for line in table(found, 118):
        terminalreporter.line(line)
