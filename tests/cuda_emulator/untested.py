"""A plugin of pytest: a run without g++ ends by saying which device it did not test."""

from __future__ import annotations

import pytest

from tests.cuda_emulator.faults import CompilerMissing

__all__ = ["pytest_terminal_summary"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Look for the error that every test of kernels ends with where there is no compiler."""
    ended = [*terminalreporter.getreports("failed"), *terminalreporter.getreports("error")]
    missed = sum(f"{CompilerMissing.__name__}:" in report.longreprtext for report in ended)
    if missed:
        terminalreporter.section("untested: the emulated CUDA device", red=True)
        terminalreporter.line(f"{missed} tests of CUDA kernels could not run. Install g++ and binutils.")
