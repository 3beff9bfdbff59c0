"""A plugin of pytest for a part of the suite: as many tests as there is time for, in an order that mixes all files."""

from __future__ import annotations

import json
import time
import zlib
from pathlib import Path
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--within", type=float, help="seconds after which no further test begins")
    parser.addoption("--at-most", type=int, help="how many tests")
    parser.addoption("--told", help="the file that the names of tests go to, by what became of them")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Within(config), "tests within a time")


class Within:
    """The tests that have run, and whether there is time for another one."""

    def __init__(self, config: pytest.Config) -> None:
        self.file = Path(config.getoption("--told"))
        self.most: int | None = config.getoption("--at-most")
        self.seconds: float = config.getoption("--within")
        self.begin = time.monotonic()
        self.is_worker = hasattr(config, "workerinput")
        self.collected = 0
        self.tests: dict[str, list[str]] = {"passed": [], "failed": [], "skipped": []}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: zlib.crc32(item.nodeid.encode()))
        self.collected = len(items)
        if self.most is not None:
            del items[self.most :]

    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        """True where the time is over: then nobody runs the test."""
        return True if time.monotonic() - self.begin > self.seconds else None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.tests["failed"].append(report.nodeid)
        elif report.skipped or report.when == "call":
            self.tests["skipped" if report.skipped else "passed"].append(report.nodeid)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: list[str]) -> None:
        """The process that others work for collects nothing itself."""
        self.collected = len(ids)

    def pytest_sessionfinish(self) -> None:
        if not self.is_worker:
            self.file.write_text(json.dumps({"collected": self.collected, **self.tests}), encoding="utf-8")
