"""Races with fake programs: who is refused, who is fastest, which targets are met, and what the results look like."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from benchmarks.harness import Pace, Program
from benchmarks.trial import count, race
from benchmarks.workload import Count, Figure, Race, Setting, Target
from tests.benchmarks.fakes import Costs, FakeClock

PACE = Pace(1.0, 3, 5)


def contest(
    programs: Callable[[Costs], dict[str, Sequence[Program] | Exception]],
    *targets: Target,
    pace: Pace = PACE,
    **options: Any,
) -> tuple[dict[str, Any], Costs]:
    """The result of a race of fake programs whose right result is 1."""
    clock = FakeClock()
    costs = Costs(clock)

    def builder(made: Sequence[Program] | Exception) -> Callable[[Setting], Sequence[Program]]:
        def build(setting: Setting) -> Sequence[Program]:
            if isinstance(made, Exception):
                raise made
            return made

        return build

    builders = {peer: builder(made) for peer, made in programs(costs).items()}
    declared = Race("fake", "a fake", builders, lambda setting: [[1.0]], 1e-6, targets=targets, **options)
    return race(declared, Setting(), clock, pace), costs


def entry(found: dict[str, Any], peer: str, variant: str = "") -> dict[str, Any]:
    (one,) = [e for e in found["programs"] if (e["peer"], e["variant"]) == (peer, variant)]
    return one


def test_times_are_in_the_unit_of_the_race_and_ratios_against_each_peer() -> None:
    found, _ = contest(lambda c: {"gradtape": [c.program("gradtape", 1.0)], "torch": [c.program("torch", 4.0)]})
    assert entry(found, "gradtape")["minimum"] == pytest.approx(1000.0)
    assert entry(found, "torch")["median"] == pytest.approx(4000.0)
    assert found["ratios"]["torch"] == {"variant": "", "minimum": pytest.approx(0.25), "median": pytest.approx(0.25)}
    assert found["best"] == "torch"


def test_the_fastest_variant_of_each_peer_counts() -> None:
    found, _ = contest(
        lambda c: {
            "gradtape": [c.program("gradtape", 2.0)],
            "torch": [c.program("torch", 4.0, "eager"), c.program("torch", 1.0, "compiled")],
            "jax": [c.program("jax", 3.0)],
        },
        Target(1.0, "ratio"),
        Target(1.0, "ratio", "jax"),
        Target(3000.0),
        Target(1.0, "ratio", "tensorflow"),
    )
    assert found["best"] == "torch"
    assert found["ratios"]["torch"]["variant"] == "compiled"
    assert [(t["text"], t["met"]) for t in found["targets"]] == [
        ("≤ 1 × best peer", "no"),
        ("≤ 1 × jax", "yes"),
        ("≤ 3000 ms", "yes"),
        ("≤ 1 × tensorflow", "unknown"),
    ]


def test_a_variant_of_which_few_slices_were_quiet_is_not_the_fastest() -> None:
    """It is if no other one has more."""

    def disturbed(c: Costs) -> Program:
        """Slices have two calls, of which the second is timed: one in five is quiet."""
        return c.program("gradtape", 1.0, "eager", foreign=lambda n: 0.5 * (n // 2 % 5 != 0))

    for others, best in (([("function", 2.0)], "function"), ([], "eager")):
        found, _ = contest(
            lambda c, others=others: {
                "gradtape": [disturbed(c), *(c.program("gradtape", cost, name) for name, cost in others)],
                "torch": [c.program("torch", 4.0)],
            },
            Target(1500.0),
            pace=Pace(1.0, 10, 10),
        )
        assert entry(found, "gradtape", "eager")["quiet"] == 2
        shown = 2000.0 if others else 1000.0
        assert found["targets"][0]["median"] == pytest.approx(shown), best
        assert found["ratios"]["torch"]["median"] == pytest.approx(shown / 4000)


def test_a_target_between_minimum_and_median_is_at_the_edge() -> None:
    found, _ = contest(lambda c: {"gradtape": [c.program("gradtape", lambda n: 1.0 + n)]}, Target(7000.0))
    own = entry(found, "gradtape")
    assert own["minimum"] < 7000.0 < own["median"]
    assert found["targets"][0]["met"] == "at the edge"


def test_a_wrong_peer_is_named_and_never_timed() -> None:
    found, costs = contest(
        lambda c: {"gradtape": [c.program("gradtape", 1.0)], "torch": [c.program("torch", 1.0, result=1.1)]}
    )
    assert entry(found, "torch")["state"] == "refused"
    assert "off by 0.1" in entry(found, "torch")["note"]
    assert costs.log.count("torch") == 1
    assert found["best"] is None


def test_nothing_is_timed_where_ours_is_wrong() -> None:
    found, costs = contest(
        lambda c: {"gradtape": [c.program("gradtape", 1.0, result=2.0)], "torch": [c.program("torch", 1.0)]},
        Target(1.0),
    )
    assert costs.log == ["gradtape", "torch"]
    assert entry(found, "gradtape")["state"] == "refused"
    assert found["targets"][0]["met"] == "unknown"


def test_peers_that_are_missing_or_fail_are_named() -> None:
    def failing() -> list[Any]:
        raise MemoryError("8 TB")

    found, _ = contest(
        lambda c: {
            "gradtape": [c.program("gradtape", 1.0)],
            "torch": ImportError("no torch here"),
            "jax": ValueError("bad shape"),
            "autograd": [Program("autograd", failing)],
        }
    )
    states = {e["peer"]: (e["state"], e["note"]) for e in found["programs"]}
    assert states["torch"] == ("missing", "no torch here")
    assert states["jax"] == ("failed", "ValueError: bad shape")
    assert states["autograd"] == ("failed", "MemoryError: 8 TB")
    assert states["gradtape"][0] == "ran"


def test_a_race_against_a_baseline() -> None:
    found, _ = contest(
        lambda c: {
            "gradtape": [c.program("gradtape", 1.5)],
            "numpy": [c.program("numpy", 1.0)],
            "torch": [c.program("torch", 2.0)],
        },
        baseline="numpy",
    )
    assert entry(found, "gradtape")["median"] == pytest.approx(500.0)
    assert entry(found, "numpy")["median"] == pytest.approx(1000.0)
    assert list(found["ratios"]) == ["torch"]
    assert found["ratios"]["torch"]["median"] == pytest.approx(0.5)


def test_nothing_is_timed_without_the_baseline() -> None:
    found, _ = contest(
        lambda c: {"gradtape": [c.program("gradtape", 1.0)], "numpy": ImportError("none")},
        Target(5000.0),
        baseline="numpy",
    )
    assert "slices" not in entry(found, "gradtape")
    assert found["targets"][0]["met"] == "unknown"


def test_dropped_slices_are_counted_and_kept_in_the_data() -> None:
    found, _ = contest(lambda c: {"gradtape": [c.program("gradtape", 1.0, foreign=lambda n: 0.5 * (n == 5))]})
    own = entry(found, "gradtape")
    assert (own["quiet"], own["dropped"]) == (3, 1)
    assert [quiet for _, quiet in own["slices"]].count(False) == 1


def test_results_are_plain_data() -> None:
    found, _ = contest(lambda c: {"gradtape": [c.program("gradtape", 1.0)], "torch": ImportError("none")}, Target(1.0))
    assert json.loads(json.dumps(found)) == found
    assert set(found) == {"name", "about", "unit", "programs", "baseline", "best", "ratios", "own", "targets"}
    always = {"peer", "variant", "state", "note", "error"}
    assert set(entry(found, "torch")) == always
    assert set(entry(found, "gradtape")) == always | {"repeats", "slices", "quiet", "dropped", "minimum", "median"}
    assert set(found["targets"][0]) == {"text", "limit", "of", "against", "minimum", "median", "met"}


def test_counts() -> None:
    declared = Count(
        "c", "counted", lambda setting: [Figure("n", 3, "KiB", 2), Figure("m", 1, "", 1), Figure("k", 0, "")]
    )
    found = count(declared, Setting())
    assert [(f["name"], f["value"], f["met"]) for f in found["figures"]] == [
        ("n", 3, False),
        ("m", 1, True),
        ("k", 0, None),
    ]
    assert json.loads(json.dumps(found)) == found


def test_one_of_our_programs_is_judged_by_another() -> None:
    found, _ = contest(
        lambda c: {
            "gradtape": [c.program("gradtape", 2.0, "traced"), c.program("gradtape", 3.0, "eager")],
            "torch": [c.program("torch", 4.0)],
        },
        Target(1.4, "ratio", "traced", "eager"),
        Target(1.6, "ratio", "traced", "eager"),
        Target(1.0, "ratio", "other", "eager"),
    )
    assert found["own"]["eager / traced"] == {"minimum": pytest.approx(1.5), "median": pytest.approx(1.5)}
    assert [t["met"] for t in found["targets"]] == ["no", "yes", "unknown"]
    assert found["targets"][0]["text"] == "eager ≤ 1.4 × traced"


def test_only_our_programs_are_made_ready() -> None:
    clock = FakeClock()
    costs = Costs(clock)
    programs = {p: (lambda setting, p=p: [costs.program(p, 1.0)]) for p in ("gradtape", "torch")}
    declared = Race("fake", "a fake", programs, lambda setting: [[1.0]], 1e-6)  # type: ignore[arg-type]
    made: list[str] = []
    race(declared, Setting(), clock, PACE, lambda program: made.append(program.peer))
    assert made == ["gradtape"]
