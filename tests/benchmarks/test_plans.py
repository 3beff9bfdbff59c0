"""What measures whole programs, at their smallest: warming up, peaks, counted products, the picture."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from benchmarks import peaks, plan_training, plans, products, ratios
from benchmarks.catalogue import ALL
from benchmarks.harness import OURS, Program
from benchmarks.warming import until_ready, warm
from benchmarks.workload import Setting
from gradtape import caches

QUICK = Setting(threads=1, quick=True)


def test_a_program_is_called_until_no_kernel_is_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = [2, 2, 1, 0]
    found = caches.cache_info()

    def info() -> caches.CacheInfo:
        return found._replace(kernels=found.kernels._replace(waiting=waiting[0]))

    def call() -> None:
        if len(waiting) > 1:
            waiting.pop(0)

    monkeypatch.setattr("gradtape.cache_info", info)
    assert until_ready(call, 0.0) == 4  # and once with the kernels that came last
    assert waiting == [0]


def test_a_compiler_that_does_not_end_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    found = caches.cache_info()
    busy = found._replace(kernels=found.kernels._replace(waiting=1))
    monkeypatch.setattr("gradtape.cache_info", lambda: busy)
    monkeypatch.setattr("benchmarks.warming.PATIENCE", 0.0)
    with pytest.raises(TimeoutError, match="still waiting to be compiled"):
        until_ready(lambda: None, 0.0)


def test_a_program_begins_at_its_start_before_it_is_warmed() -> None:
    log: list[str] = []
    program = Program(OURS, lambda: [log.append("call")], prepare=lambda: log.append("prepare"))
    warm(program, 0.0)
    assert log[:2] == ["prepare", "call"]


def test_our_own_variants_can_be_targets() -> None:
    """The eager training step is judged by the traced one."""
    (target,) = [t for t in ALL["train_mlp_adam"].targets if t.variant]  # type: ignore[union-attr]
    assert target.text("ms") == "eager ≤ 1.3 × function"
    variants = {p.variant for p in ALL["train_mlp_adam"].programs[OURS](QUICK)}  # type: ignore[union-attr]
    assert {target.variant, target.against} <= variants


def test_peaks_hold_the_results() -> None:
    """The rise of a program that makes an array of a known size is at least that array."""
    found = peaks.peak(OURS, "grad_chain", 0, quick=False)
    results = 4_000_000 * 4
    assert results <= found < 100 * results


@pytest.mark.skipif(products.compiler() is None, reason="products are counted with a C compiler")
def test_three_products_for_each_layer_but_the_first() -> None:
    counted = products.counted(quick=True)
    assert set(counted) == {p.variant for p in ALL["train_mlp_adam"].programs[OURS](QUICK)}  # type: ignore[union-attr]
    for sizes in counted.values():
        assert len(sizes) == 3 * plan_training.LAYERS - 1
        assert sum(math.prod(s) for s in sizes) == products.needed(QUICK)


def test_without_a_compiler_nothing_is_counted_and_the_limit_not_met(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "compiler", lambda: None)
    (figure,) = products.figures(QUICK)
    assert figure.met is False
    assert "no C compiler" in figure.note


def results() -> dict[str, Any]:
    def race(name: str, ratio: float, limit: float | None) -> dict[str, Any]:
        targets = [] if limit is None else [{"of": "ratio", "against": "best peer", "limit": limit}]
        targets.append({"of": "ratio", "against": "function", "limit": 9.0})
        best = {"jax": {"variant": "jit", "minimum": ratio, "median": ratio}}
        return {"name": name, "best": "jax", "ratios": best, "targets": targets}

    alone = race("alone", 1.0, None) | {"best": None, "ratios": {}}
    races = [race("fast", 0.5, 1.0), race("slow", 2.0, None), alone]
    return {"settings": [{"threads": 1, "races": races}, {"threads": 2, "races": []}]}


def test_bars_are_the_races_that_have_a_peer() -> None:
    assert ratios.bars(results(), 1) == [("fast", 0.5, "jax", 1.0), ("slow", 2.0, "jax", None)]
    assert ratios.bars(results(), 2) == []


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    ratios.draw(results(), tmp_path / "ratios.png")
    assert (tmp_path / "ratios.png").stat().st_size > 5000


def test_everything_that_is_run_is_there() -> None:
    assert {*plans.STARTED, *plans.ELSEWHERE} <= set(ALL)
