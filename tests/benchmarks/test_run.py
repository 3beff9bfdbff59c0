"""The command line, what it starts and what its exit status says. Nothing is measured here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import machine, peers, run
from benchmarks.catalogue import ALL, GPU
from benchmarks.workload import Count, Race


def result(state: str = "ran") -> dict[str, Any]:
    """What a measuring process gives."""
    program = {"peer": "torch", "variant": "", "state": state, "note": "", "error": None}
    race = {"name": "r", "about": "a", "unit": "ms", "programs": [program], "baseline": None}
    race |= {"best": None, "ratios": {}, "targets": []}
    return {"threads": 1, "versions": {"gradtape": "1"}, "races": [race], "counts": []}


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, tuple[str, ...], bool, bool]]:
    """Records the processes that would be started, in place of starting them."""
    calls: list[tuple[int, tuple[str, ...], bool, bool]] = []

    def measured(threads: int, names: list[str], quick: bool, gpu: bool) -> dict[str, Any]:
        calls.append((threads, tuple(names), quick, gpu))
        return result()

    monkeypatch.setattr(run, "measured", measured)
    return calls


def test_required_peers_that_are_missing_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], started: list[Any]
) -> None:
    monkeypatch.setattr(peers, "version", lambda name: None if name == "torch" else "1")
    assert run.main(["training", "--require-peers"]) == run.PEERS_MISSING
    assert "missing peers: torch;" in capsys.readouterr().err
    assert started == []


def test_peers_that_no_chosen_workload_has_are_not_required(
    monkeypatch: pytest.MonkeyPatch, started: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(peers, "version", lambda name: None)
    assert run.main(["memory", "--require-peers", "--threads", "1"]) == 0
    assert len(started) == 1
    assert capsys.readouterr().out


def test_without_the_option_missing_peers_do_not_matter(monkeypatch: pytest.MonkeyPatch, started: list[Any]) -> None:
    monkeypatch.setattr(peers, "version", lambda name: None)
    assert run.main(["training", "--threads", "1"]) == 0


@pytest.mark.parametrize(
    "state, required, wanted",
    [
        ("ran", True, 0),
        ("missing", False, 0),
        ("missing", True, run.PEERS_MISSING),
        ("refused", False, run.FAILED),
        ("failed", True, run.FAILED),
    ],
)
def test_exit_status(state: str, required: bool, wanted: int) -> None:
    assert run.status({"settings": [result(), result(state)]}, required) == wanted


def test_everything_is_written(tmp_path: Path, started: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    out, text = tmp_path / "r.json", tmp_path / "r.md"
    assert run.main(["training", "--quick", "--threads", "1", "--json", str(out), "--markdown", str(text)]) == 0
    written = json.loads(out.read_text())
    assert set(written) == {"schema", "quick", "machine", "settings"}
    assert written["schema"] == run.SCHEMA
    assert set(written["machine"]) == {"processor", "cores", "system", "python", "revision", "date"}
    assert written["settings"] == [result()]
    assert started == [(1, ("training",), True, False)]
    assert text.read_text() == capsys.readouterr().out.removesuffix("\n")


def test_a_run_on_a_gpu_takes_what_has_a_size_for_it(
    tmp_path: Path, started: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "r.json"
    assert run.main(["--size", "gpu", "--json", str(out)]) == 0
    assert started == [(1, tuple(GPU), False, True)] and "mlp_batch_jac" in GPU and "overhead_100" not in GPU
    assert "all bits of float32" in capsys.readouterr().out
    assert json.loads(out.read_text())["machine"]["gpu"]
    with pytest.raises(SystemExit):
        run.main(["overhead_100", "--size", "gpu"])
    assert "overhead_100 has no size for GPUs" in capsys.readouterr().err


def test_a_process_for_each_number_of_threads_and_one_for_what_is_counted() -> None:
    assert run.plan(["memory", "training", "import"], [1, 2]) == [
        (1, ["training", "import"]),
        (2, ["training"]),
        (1, ["memory"]),
    ]
    assert run.plan(["import"], [2, 1]) == [(2, ["import"])]


def test_unknown_names_are_refused_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        run.main(["tranining"])
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert "'tranining'" in error
    assert "training" in error


@pytest.mark.parametrize("threads", ["0", "x", "1,-2", ""])
def test_bad_numbers_of_threads_are_refused(threads: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run.main(["--threads", threads])
    assert "--threads" in capsys.readouterr().err


def test_more_threads_than_cores_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "available", lambda: [0])
    with pytest.raises(SystemExit):
        run.main(["--threads", "2"])
    assert "2 threads are wanted, and there are 1 cores" in capsys.readouterr().err


def test_the_list_names_every_workload_with_its_targets(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(ALL)
    for line, workload in zip(lines, ALL.values()):
        if isinstance(workload, Race):
            assert all(t.text(workload.unit) in line for t in workload.targets)
        else:
            assert isinstance(workload, Count)
            assert "(counted)" in line


def test_the_environment_of_a_measuring_process() -> None:
    base = {"OPENBLAS_CORETYPE": "Haswell", "OPENBLAS_L2_SIZE": "256", "OMP_NUM_THREADS": "8", "HOME": "h"}
    found = machine.environment(2, base)
    assert found["HOME"] == "h"
    assert not set(machine.UNSET) & set(found)
    assert {found[name] for name in machine.THREAD_VARIABLES} == {"2"}
    assert found["CUDA_VISIBLE_DEVICES"] == ""


def test_the_quietest_cores_are_among_those_we_may_use() -> None:
    cores = machine.quietest(1, 0.0)
    assert len(cores) == 1
    assert set(cores) <= set(machine.available())
    assert machine.quietest(10_000) == machine.available()


def test_the_machine_is_described_without_its_paths() -> None:
    found = machine.description()
    assert found["cores"] >= 1
    assert "/" not in json.dumps(found).replace("x86/64", "")


def test_versions_of_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert peers.version("no_such_library") is None
    assert peers.version("numpy") is not None
    monkeypatch.setattr(peers, "version", lambda name: None if name == "jax" else "1")
    assert peers.missing(["torch", "jax"]) == ["jax"]


def test_loading_a_peer_that_is_missing_is_an_import_error() -> None:
    with pytest.raises(ImportError):
        peers.load("no_such_library", 1)
