"""The harness on a clock that only programs move: turns, repeats, disturbances, ratios."""

from __future__ import annotations

import gc

import pytest

from benchmarks.harness import Measurement, OneCore, Pace, Program, SeveralCores, measure, ratios, summary
from tests.benchmarks.fakes import LOOP, Costs, FakeClock

# Calls of a program before its first slice: one to warm up and two trials. Each slice begins with one more.
TRIALS = 3


def rounds(log: list[str], programs: int) -> list[list[str]]:
    """Who had a turn in each round, from the calls of a run with one repeat (and one call to wake up) per slice."""
    turns = log[TRIALS * programs :][::2]
    return [turns[k : k + programs] for k in range(0, len(turns), programs)]


def test_programs_alternate_and_take_turns_in_going_first() -> None:
    clock = FakeClock()
    costs = Costs(clock)
    measure([costs.program(name, 1.0) for name in "abc"], clock, Pace(1.0, 4, 4))
    assert rounds(costs.log, 3) == [list("abc"), list("bca"), list("cab"), list("abc")]


def test_repeats_fill_a_slice() -> None:
    clock = FakeClock()
    costs = Costs(clock)
    measured = measure([costs.program("fast", 0.001), costs.program("slow", 0.5)], clock, Pace(0.03, 2, 2))
    assert [t.repeats for t in measured.tracks] == [30, 1]
    assert costs.log.count("fast") == TRIALS + 2 * 31


def test_one_round_of_quiet_slices_after_another_until_there_are_enough() -> None:
    clock = FakeClock()
    costs = Costs(clock)
    # a disturbance in each of the first five slices of `a`
    first = 2 * 5 + TRIALS
    disturbed = costs.program("a", 1.0, foreign=lambda n: 0.5 if TRIALS <= n < first else 0.0)
    measured = measure([disturbed, costs.program("b", 1.0)], clock, Pace(1.0, 3, 20))
    found = [summary(measured, t) for t in measured.tracks]
    assert [(s.quiet, s.dropped) for s in found if s] == [(3, 5), (8, 0)]
    assert all(s.minimum == s.median == pytest.approx(1.0) for s in found if s)


def test_it_ends_where_it_never_gets_quiet() -> None:
    clock = FakeClock()
    costs = Costs(clock)
    measured = measure(
        [costs.program("a", 1.0, foreign=lambda n: 0.5), costs.program("b", 1.0)], clock, Pace(1.0, 2, 7)
    )
    a, b = measured.tracks
    assert len(a.slices) == len(b.slices) == 7
    assert summary(measured, a) is None
    assert ratios(measured, a, b) is None


def test_a_slow_fixed_loop_drops_the_slice_even_where_it_came_before_a_fast_one() -> None:
    # Two loops before the first slice and two after each; the first round of one program begins on a slower machine.
    slow = iter([2 * LOOP] * 2)
    clock = FakeClock(lambda: next(slow, LOOP))
    costs = Costs(clock)
    measured = measure([costs.program("a", 1.0)], clock, Pace(1.0, 3, 9))
    (a,) = measured.tracks
    assert [s.loop for s in a.slices] == pytest.approx([2 * LOOP, LOOP, LOOP, LOOP])
    assert list(measured.quiet(a)) == [1, 2, 3]


@pytest.mark.parametrize("late, quiet", [(0, [1, 2, 3]), (2, [2, 3, 4])])
def test_one_slow_side_is_enough(late: int, quiet: list[int]) -> None:
    """A loop lies between two slices, and tells of both."""
    slow = iter([LOOP] * late + [2 * LOOP] * 2)
    clock = FakeClock(lambda: next(slow, LOOP))
    measured = measure([Costs(clock).program("a", 1.0)], clock, Pace(1.0, 3, 6))
    assert list(measured.quiet(measured.tracks[0])) == quiet


def test_summary_is_minimum_and_median() -> None:
    clock = FakeClock()
    # every second call wakes up; the slices take 1, 2, 3, 4, 5
    program = Costs(clock).program("a", lambda n: 1.0 + max(0, (n - TRIALS) // 2))
    measured = measure([program], clock, Pace(1.0, 5, 5))
    found = summary(measured, measured.tracks[0])
    assert found is not None
    assert (found.minimum, found.median, found.quiet, found.dropped) == (pytest.approx(1.0), pytest.approx(3.0), 5, 0)


def test_ratios_of_equal_drifts_cancel() -> None:
    clock = FakeClock()
    costs = Costs(clock)
    drift = [costs.program(name, lambda n, c=cost: c * (1 + 0.1 * n)) for name, cost in (("a", 1.0), ("b", 2.0))]
    a, b = (measured := measure(drift, clock, Pace(1.0, 9, 9))).tracks
    assert ratios(measured, a, b) == (pytest.approx(0.5), pytest.approx(0.5))
    assert ratios(measured, b, a) == (pytest.approx(2.0), pytest.approx(2.0))


def test_ratios_use_rounds_in_which_both_were_quiet() -> None:
    clock = FakeClock()
    costs = Costs(clock)
    a = costs.program("a", 1.0, foreign=lambda n: 1.0 if n == TRIALS + 1 else 0.0)  # its first slice
    b = costs.program("b", lambda n: 100.0 if n == TRIALS + 1 else 2.0)
    measured = measure([a, b], clock, Pace(1.0, 3, 9))
    assert ratios(measured, *measured.tracks) == (pytest.approx(0.5), pytest.approx(0.5))


def test_a_baseline_is_taken_off_round_by_round() -> None:
    clock = FakeClock()
    costs = Costs(clock)
    made = [costs.program("gradtape", 3.0), costs.program("torch", 5.0), costs.program("numpy", 1.0)]
    measured = measure(made, clock, Pace(1.0, 3, 3))
    ours, peer, base = measured.tracks
    found = summary(measured, ours, base)
    assert found is not None
    assert (found.minimum, found.median) == (pytest.approx(2.0), pytest.approx(2.0))
    assert ratios(measured, ours, peer, base) == (pytest.approx(0.5), pytest.approx(0.5))


def test_programs_are_put_back_to_their_start_before_each_slice() -> None:
    clock = FakeClock()
    starts: list[int] = []
    costs = Costs(clock)
    program = costs.program("a", 1.0, prepare=lambda: starts.append(len(costs.log)))
    measure([program], clock, Pace(2.0, 3, 3))
    assert starts == [0, TRIALS, TRIALS + 3, TRIALS + 6]
    assert clock.settled == 4  # before the first slice, and after each


def test_helper_threads_of_the_program_itself_are_no_foreign_load() -> None:
    """They spin for a while after some of its calls, and the fixed loop would then take ten times as long."""

    def loop() -> float:
        calls = len(costs.log) - TRIALS
        return 10 * LOOP if calls % 2 and clock.settled <= calls else LOOP

    clock = FakeClock(loop)
    costs = Costs(clock)
    program = costs.program("a", 1.0)
    measured = measure([program], clock, Pace(1.0, 5, 5, wake=False))
    assert len(measured.quiet(measured.tracks[0])) == 5


def test_programs_in_fresh_processes_are_not_woken_up() -> None:
    clock = FakeClock()
    costs = Costs(clock)
    measure([costs.program("a", 1.0)], clock, Pace(1.0, 4, 4, wake=False))
    assert len(costs.log) == TRIALS + 4


def test_waiting_for_files_may_be_allowed() -> None:
    for waiting, dropped in ((0.0, 3), (0.1, 0)):
        clock = FakeClock()
        program = Costs(clock).program("a", 1.0, foreign=lambda n: 0.1)
        measured = measure([program], clock, Pace(1.0, 3, 3, waiting=waiting))
        assert len(measured.tracks[0].slices) - len(measured.quiet(measured.tracks[0])) == dropped


@pytest.mark.parametrize("held, wanted", [(0, ["collect", "freeze", "call", "unfreeze"]), (7, ["collect", "call"])])
def test_the_collector_is_as_before_after_a_failure(
    held: int, wanted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is frozen for as long as is measured; what somebody else has frozen stays so."""
    log: list[str] = []
    for name in ("collect", "freeze", "unfreeze"):
        monkeypatch.setattr(gc, name, lambda name=name: log.append(name))
    monkeypatch.setattr(gc, "get_freeze_count", lambda: held)
    clock = FakeClock()
    calls = 0

    def call() -> list[float]:
        nonlocal calls
        calls += 1
        clock.spend(1.0)
        if calls > TRIALS:
            log.append("call")
            raise ZeroDivisionError
        return [1.0]

    with pytest.raises(ZeroDivisionError):
        measure([Program("a", call)], clock, Pace(1.0, 1, 1))
    assert log == wanted


@pytest.mark.parametrize("enough, most", [(0, 5), (6, 5)])
def test_a_pace_that_cannot_be_kept_is_refused(enough: int, most: int) -> None:
    with pytest.raises(ValueError, match="`most` must be at least `enough`"):
        Pace(1.0, enough, most)


def test_real_clocks_move_forwards() -> None:
    for clock in (OneCore(), SeveralCores([])):
        before, taken = clock.wall(), clock.taken()
        clock.loop() if clock.cores else None
        assert clock.wall() > before
        assert isinstance(clock.taken() - taken, float)


def test_a_clock_of_several_cores_leaves_the_affinity_as_it_is() -> None:
    os = pytest.importorskip("os")
    cpus = os.sched_getaffinity(0)
    clock = SeveralCores(cpus)
    clock.loop()
    assert os.sched_getaffinity(0) == cpus
    assert clock.cores == len(cpus)


def test_measurement_needs_quiet_slices_of_all() -> None:
    clock = FakeClock()
    costs = Costs(clock)
    measured = measure([costs.program("a", 1.0), costs.program("b", 1.0)], clock, Pace(1.0, 2, 2))
    assert isinstance(measured, Measurement)
    assert measured.enough(2)
    assert not measured.enough(3)
