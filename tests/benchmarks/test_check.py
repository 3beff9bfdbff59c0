"""No program is timed before its results are right, and read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.harness import Program, WrongResultError, check
from benchmarks.reference import gradient


def program(*results: list[Any]) -> Program:
    """Gives one list of results per call."""
    left = iter(results)
    return Program("peer", lambda: next(left), "eager")


def test_the_worst_error_is_relative_to_the_largest_element() -> None:
    got = [np.array([100.0, 1.1]), np.array([0.0])]
    assert check(program(got), [[np.array([100.0, 1.0]), np.array([0.0])]], 0.01) == pytest.approx(0.001)


def test_every_call_is_compared() -> None:
    with pytest.raises(WrongResultError, match=r"off by 1, allowed is 0\.5"):
        check(program([1.0], [4.0]), [[1.0], [2.0]], 0.5)


@pytest.mark.parametrize(
    "results, message",
    [
        ([np.array([1.0, np.nan])], "result 0 is off by nan"),
        ([np.array([1.0, np.inf])], "result 0 is off by inf"),
        ([np.array([1.0, 2.5])], "peer eager: result 0 is off by 0.25, allowed is 0.001"),
        ([np.array([[1.0, 2.0]])], r"shape \(1, 2\), wanted \(2,\)"),
        ([], "gave 0 results, 1 are wanted"),
        ([[1.0, 2.0]], "result 0 is a list, not a NumPy array that was read"),
    ],
)
def test_wrong_results_are_refused(results: list[Any], message: str) -> None:
    with pytest.raises(WrongResultError, match=message):
        check(program(results), [[np.array([1.0, 2.0])]], 1e-3)


def test_a_program_begins_from_its_start() -> None:
    state = [5.0]

    def prepare() -> None:
        state[0] = 0.0

    def call() -> list[float]:
        state[0] += 1.0
        return [state[0]]

    assert check(Program("a", call, prepare=prepare), [[1.0], [2.0]], 0.0) == 0.0


def test_central_differences() -> None:
    x = np.array([[0.3, -1.2], [2.0, 0.5]])
    assert gradient(lambda p: np.sin(p) * 3, x) == pytest.approx(3 * np.cos(x), rel=1e-9)
    assert gradient(np.exp, np.float32(0.5)) == pytest.approx(np.exp(0.5), rel=1e-7)
