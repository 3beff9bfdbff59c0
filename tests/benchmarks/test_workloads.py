"""Each workload once, at its smallest: programs are right, figures can be counted. No time is asserted."""

from __future__ import annotations

import functools
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import caches, imports, machine, peers, products, starts
from benchmarks.catalogue import ALL
from benchmarks.harness import OURS, check
from benchmarks.workload import Count, Figure, Race, Setting

ROOT = Path(__file__).parents[2]
QUICK = Setting(threads=1, quick=True)
RACES = {name: w for name, w in ALL.items() if isinstance(w, Race)}
COUNTS = {name: w for name, w in ALL.items() if isinstance(w, Count)}


@pytest.mark.parametrize("name, program", [(name, p) for name, race in RACES.items() for p in race.programs])
def test_programs_are_right(name: str, program: str) -> None:
    race = RACES[name]
    if program in peers.NAMES and peers.version(program) is None:
        pytest.skip(f"{program} is not installed")
    reference = race.reference(QUICK)
    for built in race.programs[program](QUICK):
        assert built.peer == program
        assert check(built, reference, race.tolerance) <= race.tolerance


@pytest.mark.parametrize("name", RACES)
def test_races_have_our_program_and_known_peers(name: str) -> None:
    race = RACES[name]
    assert OURS in race.programs
    assert set(race.peers) <= set(peers.NAMES)
    assert race.targets


@functools.cache
def counted(name: str) -> list[Figure]:
    """What is counted, once for all tests."""
    return COUNTS[name].figures(QUICK)


@pytest.mark.parametrize("name", COUNTS)
def test_figures_are_counted(name: str) -> None:
    if name == products.COUNT.name and products.compiler() is None:
        pytest.skip("products are counted with a C compiler")
    figures = counted(name)
    assert figures
    assert all(math.isfinite(f.value) for f in figures)
    assert len({f.name for f in figures}) == len(figures)


def test_first_calls_and_what_comes_after_them() -> None:
    (figure,) = counted("first_calls")
    assert figure.value > 0
    assert "all kernels there after" in figure.note
    (second,) = counted("second_starts")
    assert second.limit == starts.SECOND_START
    assert "without compiling" in second.note


@pytest.mark.parametrize("scene", caches.SCENES)
def test_the_counters_see_the_first_gradient(scene: str) -> None:
    """A counter that sees nothing would call every cache perfect."""
    first, _ = caches.built(caches.SCENES[scene](), 1)
    assert all(first[kind] for kind in caches.KINDS), first


def test_loaded_modules_are_seen() -> None:
    roots = imports.loaded()
    assert roots["gradtape"] > 10
    assert "numpy" in roots


def test_a_measuring_process_writes_its_results(tmp_path: Path) -> None:
    out = tmp_path / "results.json"
    command = [sys.executable, "-m", "benchmarks.worker", "eager_scalar", "import_modules", "--threads", "1", "--quick"]
    subprocess.run([*command, "--out", str(out)], cwd=ROOT, env=machine.environment(1), check=True)
    found = json.loads(out.read_text(encoding="utf-8"))
    assert set(found) == {"threads", "versions", "races", "counts"}
    assert [r["name"] for r in found["races"]] == ["eager_scalar"]
    assert [c["name"] for c in found["counts"]] == ["import_modules"]
    assert found["races"][0]["programs"][0]["state"] == "ran"
    assert os.sched_getaffinity(0) == set(machine.available())
