"""A clock that only programs move, and programs that cost what they are told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.harness import Program

LOOP = 0.001


class FakeClock:
    """Time passes by `spend`; `foreign` seconds of it went to others. `loops` gives the cost of each fixed loop."""

    cores = 1
    foreign_limit = 0.02

    def __init__(self, loop: Callable[[], float] = lambda: LOOP) -> None:
        self.now, self.stolen, self.settled = 0.0, 0.0, 0
        self._loop = loop

    def spend(self, seconds: float, foreign: float = 0.0) -> None:
        self.now += seconds + foreign
        self.stolen += foreign

    def wall(self) -> float:
        return self.now

    def taken(self) -> float:
        return self.stolen

    def loop(self) -> None:
        self.now += self._loop()

    def settle(self) -> None:
        self.settled += 1


class Costs:
    """Programs that log their names; each call costs what `cost(number of the call)` says, and gives `result`."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.log: list[str] = []

    def program(
        self,
        peer: str,
        cost: float | Callable[[int], float],
        variant: str = "",
        result: Any = 1.0,
        foreign: Callable[[int], float] = lambda n: 0.0,
        prepare: Callable[[], None] | None = None,
    ) -> Program:
        calls = 0

        def call() -> list[Any]:
            nonlocal calls
            self.log.append(peer)
            self.clock.spend(cost if isinstance(cost, float) else cost(calls), foreign(calls))
            calls += 1
            return [np.array(result)]

        return Program(peer, call, variant, prepare)
