"""Races on a GPU: larger inputs, results that are read for checks alone, one wait for each slice."""

from __future__ import annotations

import math

import numpy as np
import pytest

import gradtape
from benchmarks import jacobian_tasks as jacobians
from benchmarks import machine, peers, places
from benchmarks import plan_tasks as plans
from benchmarks.catalogue import ALL, GPU
from benchmarks.harness import OURS, OnGpu, Pace, Program, check, measure
from benchmarks.workload import Race, Setting
from tests.benchmarks.fakes import FakeClock
from tools.gpu_check.section import on_the_device

TASKS = {
    "mlp_batch_jac": jacobians.network_batch,
    "layer_jac_kernel": jacobians.layer_by_kernel,
    "conv_batch_jac": jacobians.conv_batch,
    "bn_jac": jacobians.batch_norm,
    "mlp_hessian_all": jacobians.hessian("W1"),
}


@pytest.mark.parametrize("name", TASKS)
def test_inputs_are_larger(name: str) -> None:
    sizes = {size: len(TASKS[name].inputs(size)["x"]) for size in ("quick", "cpu", "gpu")}  # type: ignore[arg-type]
    assert sizes["quick"] < sizes["cpu"] < sizes["gpu"]
    # A Jacobian by what a whole batch depends on grows with the square of the batch.
    assert sizes["gpu"] / sizes["cpu"] > (math.sqrt(30) if name == "bn_jac" else 30)


def test_what_no_size_for_gpus_is_given_for_is_as_on_a_cpu() -> None:
    assert len(plans.third.inputs("gpu")["x"]) == len(plans.third.inputs("cpu")["x"])


def test_races_say_what_they_are_on_a_gpu() -> None:
    races = [ALL[name] for name in GPU]
    assert len(races) > 15 and all(isinstance(r, Race) and r.gpu != r.about for r in races)


@pytest.mark.parametrize("name", ["mlp_batch_jac", "train_mlp_adam"])
def test_our_programs_are_right_where_results_stay_on_a_device(name: str) -> None:
    race, setting = ALL[name], Setting(quick=True, gpu=True)
    assert isinstance(race, Race)
    with on_the_device(dry=True):
        reference = race.reference(setting)
        for program in race.programs[OURS](setting):
            assert program.wait is not None and program.read is not None
            assert check(program, reference, race.tolerance) <= race.tolerance
            assert not isinstance(program.call()[0], np.ndarray)
            program.run(2)


def test_without_a_gpu_no_program_of_ours_is_built() -> None:
    with pytest.raises(RuntimeError, match="gradtape sees no GPU"):
        places.ours(gradtape, Setting(gpu=True))


def test_a_slice_waits_once() -> None:
    clock, waits = FakeClock(), []

    def call() -> list[float]:
        clock.spend(0.25)
        return [0.0]

    program = Program(OURS, call, wait=lambda results: waits.append(len(results)), read=np.asarray)
    (track,) = measure([program], clock, Pace(1.0, 2, 2)).tracks
    assert track.repeats == 4
    assert waits == [1] * (3 + 2 * 2)  # the first calls, and a call to wake and the others of each slice


def test_time_that_others_have_does_not_count_beside_a_gpu() -> None:
    clock = OnGpu()
    assert clock.taken() == 0.0 and clock.foreign_limit >= 1.0


def test_no_library_takes_all_memory_and_the_gpu_is_not_hidden() -> None:
    found = machine.environment(1, {}, gpu=True)
    assert found["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"
    assert "CUDA_VISIBLE_DEVICES" not in found and "JAX_PLATFORMS" not in found
    assert machine.environment(1, {})["CUDA_VISIBLE_DEVICES"] == ""


@pytest.mark.parametrize("peer", peers.NAMES)
def test_a_peer_that_sees_no_gpu_is_missing(peer: str) -> None:
    if peers.version(peer) is None:
        pytest.skip(f"{peer} is not installed")
    with pytest.raises(ImportError, match="GPU"):
        places.of(peer, Setting(gpu=True))
