"""What a benchmark declares: races against peers, and figures that are counted. Targets are data beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from benchmarks.harness import OURS, Pace, Program
from benchmarks.sizes import Size

BEST = "best peer"


@dataclass(frozen=True)
class Target:
    """A bound from above: on our time in the race's unit, or on its ratio to a peer's, by default the fastest one's.
    With `variant`, that program of ours is meant, `against` another one of ours; else our fastest."""

    limit: float
    of: Literal["time", "ratio"] = "time"
    against: str = BEST
    variant: str = ""

    def text(self, unit: str) -> str:
        bound = f"≤ {self.limit:g} {unit}" if self.of == "time" else f"≤ {self.limit:g} × {self.against}"
        return f"{self.variant} {bound}".strip()


@dataclass(frozen=True)
class Setting:
    """What programs are built for. `quick`: small sizes, for a first look and for tests. `gpu`: they run on a GPU."""

    threads: int = 1
    quick: bool = False
    gpu: bool = False

    @property
    def size(self) -> Size:
        return "quick" if self.quick else "gpu" if self.gpu else "cpu"


Build = Callable[[Setting], Sequence[Program]]


@dataclass(frozen=True)
class Race:
    """A workload that our program and the peers' compute in turns.

    `programs` says, for us and for each peer, how its programs are built (the peer is imported there); `reference`
    gives the float64 results of the first calls, one entry per call. `scale` turns seconds into `unit`. `baseline`: a
    program whose time is taken off everyone's. `alone`: a race that other numbers of threads would only repeat. `gpu`:
    what `about` says, for its size on a GPU; empty where it has none.
    """

    name: str
    about: str
    programs: Mapping[str, Build]
    reference: Callable[[Setting], Sequence[Sequence[Any]]]
    tolerance: float
    unit: str = "ms"
    scale: float = 1e3
    targets: tuple[Target, ...] = ()
    baseline: str | None = None
    alone: bool = False
    pace: Pace | None = None
    gpu: str = ""

    @property
    def peers(self) -> tuple[str, ...]:
        return tuple(p for p in self.programs if p not in (OURS, self.baseline))


@dataclass(frozen=True)
class Figure:
    """Something counted; `limit` None where it is only shown."""

    name: str
    value: float
    unit: str
    limit: float | None = None
    note: str = ""

    @property
    def met(self) -> bool | None:
        return None if self.limit is None else self.value <= self.limit


@dataclass(frozen=True)
class Count:
    """A workload that is counted, not timed."""

    name: str
    about: str
    figures: Callable[[Setting], Sequence[Figure]]
    peers: tuple[str, ...] = ()


Workload = Race | Count
