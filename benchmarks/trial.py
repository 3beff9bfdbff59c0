"""From workloads to results: build, check, measure, judge. Results are plain data, as they are written to JSON."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks.catalogue import ALL
from benchmarks.harness import (
    OURS,
    Clock,
    Measurement,
    OneCore,
    OnGpu,
    Pace,
    Program,
    SeveralCores,
    Track,
    WrongResultError,
    by_speed,
    check,
    measure,
    ratios,
    summary,
)
from benchmarks.warming import WARM, warm
from benchmarks.workload import BEST, Count, Race, Setting, Target
from gradtape.backends.cuda.blas import MATH
from gradtape.version import __version__


def run(names: Sequence[str], setting: Setting, cores: Sequence[int]) -> dict[str, Any]:
    """Measure these workloads in this process, on these cores."""
    threads, clock = setting.threads, clock_of(setting, cores)
    if setting.gpu:
        MATH.tf32 = False  # as the peers do
    races, counts = [], []
    for name in names:
        workload = ALL[name]
        print(f"{threads} thread{'s' * (threads > 1)}: {name}", file=sys.stderr, flush=True)
        if isinstance(workload, Race):
            own = None if setting.gpu else workload.pace
            races.append(race(workload, setting, clock, own or pace(setting), _warm(setting)))
        else:
            counts.append(count(workload, setting))
    wanted = sorted({p for name in names for p in ALL[name].peers}, key=peers.NAMES.index)
    versions = {"gradtape": __version__, "numpy": np.__version__} | {p: peers.version(p) for p in wanted}
    return {"threads": threads, "versions": versions, "races": races, "counts": counts}


def clock_of(setting: Setting, cores: Sequence[int]) -> Clock:
    if setting.gpu:
        return OnGpu()
    return OneCore() if setting.threads == 1 else SeveralCores(cores)


def pace(setting: Setting) -> Pace:
    if setting.quick:
        return Pace(0.005, 3, 6)
    if setting.gpu:
        return Pace(0.05, 15, 30)
    return Pace() if setting.threads == 1 else Pace(0.15, 15, 30)


# ---- races -----------------------------------------------------------------------------------------------------------


def _warm(setting: Setting) -> Callable[[Program], None]:
    return lambda program: warm(program, WARM / 20 if setting.quick else WARM)


def race(
    workload: Race,
    setting: Setting,
    clock: Clock,
    pace: Pace,
    ready: Callable[[Program], None] = lambda program: None,
) -> dict[str, Any]:
    """Build and check every program, then let those that are right take turns, ours once they are `ready`."""
    entries, programs = [], []
    reference = workload.reference(setting)
    for peer in workload.programs:
        for entry, program in _checked(workload, peer, setting, reference):
            entries.append(entry)
            if program is not None:
                programs.append((entry, program))
    found: dict[str, Any] = {
        "name": workload.name,
        "about": workload.gpu if setting.size == "gpu" else workload.about,
        "unit": workload.unit,
        "programs": entries,
        "baseline": workload.baseline,
        "best": None,
        "ratios": {},
        "own": {},
        "targets": [],
    }
    if {OURS, workload.baseline or OURS} <= {p.peer for _, p in programs}:
        for _, program in programs:
            if program.peer == OURS:
                ready(program)
        measured = measure([p for _, p in programs], clock, pace)
        _fill(found, workload, measured, [entry for entry, _ in programs])
    found["targets"] = [_judged(t, found) for t in workload.targets]
    return found


def _checked(
    workload: Race, peer: str, setting: Setting, reference: Sequence[Sequence[Any]]
) -> list[tuple[dict[str, Any], Program | None]]:
    """One entry per program of a peer, with the program where it may be timed."""

    def entry(variant: str = "", state: str = "ran", note: str = "", error: float | None = None) -> dict[str, Any]:
        return {"peer": peer, "variant": variant, "state": state, "note": note, "error": error}

    try:
        built = workload.programs[peer](setting)
    except ImportError as e:
        return [(entry(state="missing", note=str(e)), None)]
    except Exception as e:  # noqa: BLE001  a peer may fail in its own ways; the others run all the same
        return [(entry(state="failed", note=f"{type(e).__name__}: {e}"), None)]
    found: list[tuple[dict[str, Any], Program | None]] = []
    for program in built:
        try:
            error = check(program, reference, workload.tolerance)
        except WrongResultError as e:
            found.append((entry(program.variant, "refused", str(e)), None))
        except Exception as e:  # noqa: BLE001
            found.append((entry(program.variant, "failed", f"{type(e).__name__}: {e}"), None))
        else:
            found.append((entry(program.variant, error=error), program))
    return found


def _fill(found: dict[str, Any], workload: Race, measured: Measurement, entries: Sequence[dict[str, Any]]) -> None:
    """Times, dropped slices and ratios."""
    baseline = next((t for t in measured.tracks if t.program.peer == workload.baseline), None)
    fastest: dict[str, tuple[tuple[bool, float], Track]] = {}  # by peer, of its variants
    for entry, track in zip(entries, measured.tracks):
        entry["repeats"] = track.repeats
        quiet = measured.quiet(track)
        entry["slices"] = [[s.seconds * workload.scale, s.round in quiet] for s in track.slices]
        short = summary(measured, track, None if track is baseline else baseline)
        entry["quiet"], entry["dropped"] = len(quiet), len(track.slices) - len(quiet)
        entry["minimum"] = short and short.minimum * workload.scale
        entry["median"] = short and short.median * workload.scale
        if short and track is not baseline:
            peer, speed = track.program.peer, by_speed(short.median, short.quiet, short.dropped)
            if peer not in fastest or speed < fastest[peer][0]:
                fastest[peer] = speed, track
    if OURS not in fastest:
        return
    found["own"] = _between(measured, [t for t in measured.tracks if t.program.peer == OURS], baseline)
    ours = fastest.pop(OURS)[1]
    for peer, (_, track) in fastest.items():
        ratio = ratios(measured, ours, track, baseline)
        if ratio is not None:
            found["ratios"][peer] = {"variant": track.program.variant, "minimum": ratio[0], "median": ratio[1]}
    if fastest:
        found["best"] = min(fastest, key=lambda peer: fastest[peer][0])


def _between(measured: Measurement, tracks: Sequence[Track], baseline: Track | None) -> dict[str, dict[str, float]]:
    """Ratios of the times of our own programs: "one / other" for each two of them."""
    found = {}
    for a in tracks:
        for b in tracks:
            ratio = ratios(measured, a, b, baseline) if a is not b else None
            if ratio is not None:
                found[f"{a.program.variant} / {b.program.variant}"] = {"minimum": ratio[0], "median": ratio[1]}
    return found


def _judged(target: Target, found: dict[str, Any]) -> dict[str, Any]:
    """A target with what was reached: met where minimum and median are both within it."""
    reached: dict[str, Any] | None
    if target.variant:
        reached = found["own"].get(f"{target.variant} / {target.against}")
    elif target.of == "time":
        own = [e for e in found["programs"] if e["peer"] == OURS and e.get("median") is not None]
        reached = min(own, key=lambda e: by_speed(e["median"], e["quiet"], e["dropped"]), default=None)
    else:
        reached = found["ratios"].get(found["best"] if target.against == BEST else target.against)
    values = (reached["minimum"], reached["median"]) if reached else (None, None)
    within = [v <= target.limit for v in values if v is not None]
    verdict = "unknown" if not within else "yes" if all(within) else "at the edge" if any(within) else "no"
    return {
        "text": target.text(found["unit"]),
        "limit": target.limit,
        "of": target.of,
        "against": target.against if target.of == "ratio" else None,
        "minimum": values[0],
        "median": values[1],
        "met": verdict,
    }


# ---- counts ----------------------------------------------------------------------------------------------------------


def count(workload: Count, setting: Setting) -> dict[str, Any]:
    figures = [
        {"name": f.name, "value": f.value, "unit": f.unit, "limit": f.limit, "note": f.note, "met": f.met}
        for f in workload.figures(setting)
    ]
    return {"name": workload.name, "about": workload.about, "figures": figures}
