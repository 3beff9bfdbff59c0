"""Interleaved measurement: programs that compute the same alternate in short slices of one process.

A slice is one program, called as often as fills it. Before it and after it a fixed loop is timed, and the time that
other processes had on our cores meanwhile is read; a slice in which either shows foreign load is dropped and counted.
"""

from __future__ import annotations

import gc
import os
import resource
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

OURS = "gradtape"


class WrongResultError(Exception):
    """A program computed something else than the reference, or gave its result in no array that can be read."""


@dataclass(frozen=True)
class Program:
    """One way to compute a workload. `call` runs it once and returns its results as NumPy arrays, so that reading them
    is inside the timing; `prepare` puts it back to its start before each slice, outside the timing.

    On a GPU `call` only queues. `wait` waits until the results of a call are there, inside the timing and once for each
    slice; `read` copies one to the host, to be checked."""

    peer: str
    call: Callable[[], Sequence[Any]]
    variant: str = ""
    prepare: Callable[[], None] | None = None
    wait: Callable[[Sequence[Any]], object] | None = None
    read: Callable[[Any], Any] | None = None

    @property
    def name(self) -> str:
        return f"{self.peer} {self.variant}".strip()

    def start(self) -> None:
        if self.prepare is not None:
            self.prepare()

    def results(self) -> Sequence[Any]:
        """Of one call, on the host."""
        found = self.call()
        return found if self.read is None else [self.read(r) for r in found]

    def run(self, repeats: int = 1) -> None:
        """Calls, until their results are there."""
        call, found = self.call, ()
        for _ in range(repeats):
            found = call()
        if self.wait is not None:
            self.wait(found)


# ---- correctness -----------------------------------------------------------------------------------------------------


def check(program: Program, reference: Sequence[Sequence[Any]], tolerance: float) -> float:
    """The largest error of a program relative to the largest element of the reference, over its first calls: one per
    entry of `reference`. Raises WrongResultError where it is above the tolerance."""
    program.start()
    return max(_error(program.name, program.results(), wanted, tolerance) for wanted in reference)


def _error(name: str, results: Sequence[Any], wanted: Sequence[Any], tolerance: float) -> float:
    if len(results) != len(wanted):
        raise WrongResultError(f"{name} gave {len(results)} results, {len(wanted)} are wanted")
    worst = 0.0
    for k, (got, want) in enumerate(zip(results, wanted)):
        if not isinstance(got, np.ndarray | np.generic | float | int):
            raise WrongResultError(f"{name}: result {k} is a {type(got).__name__}, not a NumPy array that was read")
        exact = np.asarray(want, np.float64)
        if np.shape(got) != exact.shape:
            raise WrongResultError(f"{name}: result {k} has shape {np.shape(got)}, wanted {exact.shape}")
        off = np.max(np.abs(np.asarray(got, np.float64) - exact), initial=0.0)
        error = float(off / max(np.max(np.abs(exact), initial=0.0), 1e-30)) if off else 0.0
        if not error <= tolerance:  # NaN is not
            raise WrongResultError(f"{name}: result {k} is off by {error:.3g}, allowed is {tolerance:g}")
        worst = max(worst, error)
    return worst


# ---- clocks ----------------------------------------------------------------------------------------------------------


class Clock(Protocol):
    """Time as the harness sees it."""

    def wall(self) -> float:
        """Seconds."""

    def taken(self) -> float:
        """Seconds that others have had on our cores so far."""

    def loop(self) -> None:
        """The fixed loop."""

    def settle(self) -> None:
        """Wait until helper threads of the program that ran have stopped spinning: the fixed loop would find its core
        taken by them."""

    @property
    def cores(self) -> int: ...

    @property
    def foreign_limit(self) -> float:
        """The share of our cores from which the load of others counts as a disturbance."""


def own_cpu() -> float:
    """Processor seconds of this process and of its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def fixed_loop() -> float:
    """About a third of a millisecond of arithmetic that touches no memory."""
    x = 0.5
    for _ in range(8000):
        x = x * 0.999 + 0.0005
    return x


class OneCore:
    """The clock for one pinned thread: whenever that does not run, someone else does."""

    cores = 1
    foreign_limit = 0.02

    def wall(self) -> float:
        return time.perf_counter()

    def taken(self) -> float:
        return time.perf_counter() - own_cpu()

    def loop(self) -> None:
        fixed_loop()

    def settle(self) -> None:
        pass


class OnGpu:
    """The clock beside a GPU: programs wait for it most of the time, so that what the cores do meanwhile counts for
    nothing; how fast the fixed loop runs still does."""

    cores = 1
    foreign_limit = 1.0

    def wall(self) -> float:
        return time.perf_counter()

    def taken(self) -> float:
        return 0.0

    def loop(self) -> None:
        fixed_loop()

    def settle(self) -> None:
        pass


class SeveralCores:
    """The clock for several threads: what the kernel counted as busy on our cores and was not ours."""

    # The kernel counts in ticks of 10 ms, so slices must be long and the limit wide.
    foreign_limit = 0.12
    # OpenBLAS's helper thread spins for 0.10 s after its last product, and would take a core from whatever comes next.
    spinning = 0.13

    def __init__(self, cpus: Sequence[int]) -> None:
        self.cpus = sorted(cpus)
        self.cores = len(self.cpus)
        self.tick = 1.0 / os.sysconf("SC_CLK_TCK")

    def wall(self) -> float:
        return time.perf_counter()

    def taken(self) -> float:
        wanted = {f"cpu{i}" for i in self.cpus}
        with open("/proc/stat", encoding="ascii") as file:
            rows = [line.split() for line in file if line.split(maxsplit=1)[0] in wanted]
        # user nice system idle iowait irq softirq steal
        ticks = sum(sum(map(int, (*row[1:4], *row[6:9]))) for row in rows)
        return ticks * self.tick - own_cpu()

    def loop(self) -> None:
        """The fixed loop on each core in turn."""
        for cpu in self.cpus:
            os.sched_setaffinity(0, {cpu})  # the calling thread's alone
            fixed_loop()
        os.sched_setaffinity(0, self.cpus)

    def settle(self) -> None:
        time.sleep(self.spinning)


# ---- slices ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pace:
    """How long to measure: until each program has `enough` quiet slices, but no more than `most` rounds.

    `wake`: one call before each slice, untimed, for threads and caches; programs that run in a fresh process need none.
    `waiting`: the share of a slice that programs may wait for files, which counts as no disturbance.
    """

    seconds: float = 0.01  # of one slice: short enough to lie between two turns of other processes
    enough: int = 40
    most: int = 300
    wake: bool = True
    waiting: float = 0.0

    def __post_init__(self) -> None:
        if self.enough < 1 or self.most < self.enough:
            raise ValueError(f"`most` must be at least `enough` and that at least 1, got {self}")


@dataclass(frozen=True)
class Slice:
    """One program's turn: seconds per call, the slower of the two fixed loops, the share that others had."""

    round: int
    seconds: float
    loop: float
    foreign: float


@dataclass
class Track:
    """What was measured of one program."""

    program: Program
    repeats: int = 1
    slices: list[Slice] = field(default_factory=list)


LOOP_LIMIT = 1.3  # a fixed loop this many times as slow as the fastest one tells of a foreign load


@dataclass(frozen=True)
class Measurement:
    """All slices of one run, and which of them count."""

    tracks: tuple[Track, ...]
    foreign_limit: float

    @property
    def quiet_loop(self) -> float:
        """The fixed loop at its fastest."""
        return min(s.loop for t in self.tracks for s in t.slices)

    def quiet(self, track: Track, without: Track | None = None) -> dict[int, float]:
        """Seconds per call by round, of the slices without foreign load. `without`: a track whose time in the same
        round is taken off; rounds in which it was disturbed count no more than those of the track itself."""
        own = dict(self._undisturbed(track))
        if without is None:
            return own
        less = dict(self._undisturbed(without))
        return {r: own[r] - less[r] for r in own if r in less}

    def _undisturbed(self, track: Track) -> Iterator[tuple[int, float]]:
        slowest = LOOP_LIMIT * self.quiet_loop
        for s in track.slices:
            if s.loop <= slowest and s.foreign <= self.foreign_limit:
                yield s.round, s.seconds

    def enough(self, wanted: int) -> bool:
        return all(len(self.quiet(t)) >= wanted for t in self.tracks)


def measure(programs: Sequence[Program], clock: Clock, pace: Pace) -> Measurement:
    """Let the programs take turns. Each round begins with another one, so that none always follows the same."""
    tracks = tuple(Track(p) for p in programs)
    measured = Measurement(tracks, clock.foreign_limit + pace.waiting)
    for track in tracks:
        track.repeats = _repeats(track.program, clock, pace.seconds)
    gc.collect()
    frozen = gc.get_freeze_count() > 0  # by who runs us, and to stay so
    if not frozen:
        gc.freeze()  # what the libraries made while loading is not for the programs to be charged with
    try:
        loop = _loop(clock)
        for number in range(pace.most):
            for k in range(len(tracks)):
                track = tracks[(number + k) % len(tracks)]
                seconds, foreign = _turn(track, clock, pace.wake)
                before, loop = loop, _loop(clock)
                track.slices.append(Slice(number, seconds, max(before, loop), foreign))
            if number + 1 >= pace.enough and measured.enough(pace.enough):
                break
    finally:
        if not frozen:
            gc.unfreeze()
    return measured


def _repeats(program: Program, clock: Clock, seconds: float) -> int:
    """How many calls fill a slice: the faster of two trials decides, after a call that warms up."""
    program.start()
    program.run()
    once = min(_timed(program.run, clock) for _ in range(2))
    return max(1, min(100_000, round(seconds / max(once, 1e-9))))


def _timed(call: Callable[[], Any], clock: Clock) -> float:
    before = clock.wall()
    call()
    return clock.wall() - before


def _turn(track: Track, clock: Clock, wake: bool) -> tuple[float, float]:
    """Seconds per call, and the share that others had of the cores."""
    program = track.program
    program.start()
    if wake:
        program.run()
    taken = clock.taken()
    begin = clock.wall()
    program.run(track.repeats)
    seconds = clock.wall() - begin
    taken = clock.taken() - taken
    foreign = min(1.0, max(0.0, taken / (seconds * clock.cores))) if seconds else 0.0
    return seconds / track.repeats, foreign


def _loop(clock: Clock) -> float:
    """How long the fixed loop takes now, once nobody of ours spins any more."""
    clock.settle()
    return min(_timed(clock.loop, clock) for _ in range(2))


# ---- summaries -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Summary:
    """Seconds of one call, and how many slices stand behind them."""

    minimum: float
    median: float
    quiet: int
    dropped: int


FEW = 0.25  # of the slices: from fewer that were quiet nobody learns which variant is the fastest


def by_speed(median: float, quiet: int, dropped: int) -> tuple[bool, float]:
    """A key for variants, the fastest first: those last of which only few slices were quiet."""
    return quiet < FEW * (quiet + dropped), median


def summary(measured: Measurement, track: Track, without: Track | None = None) -> Summary | None:
    """None where no slice was quiet."""
    quiet = list(measured.quiet(track, without).values())
    if not quiet:
        return None
    if without is None:
        minimum = min(quiet)
    else:  # the least difference would only say how slow the other once was
        minimum = min(measured.quiet(track).values()) - min(measured.quiet(without).values())
    return Summary(minimum, statistics.median(quiet), len(quiet), len(track.slices) - len(quiet))


def ratios(measured: Measurement, ours: Track, peer: Track, without: Track | None = None) -> tuple[float, float] | None:
    """Our time in terms of a peer's: ratio of the minima, and median of the ratios of the rounds in which both were
    quiet (each round's two slices lie next to each other in time, so that slow drifts cancel)."""
    mine, theirs = summary(measured, ours, without), summary(measured, peer, without)
    a, b = measured.quiet(ours, without), measured.quiet(peer, without)
    both = [a[r] / b[r] for r in a if r in b and b[r] > 0]
    if mine is None or theirs is None or theirs.minimum <= 0 or not both:
        return None
    return mine.minimum / theirs.minimum, statistics.median(both)
