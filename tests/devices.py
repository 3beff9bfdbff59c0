"""`--device`: where tensors are while tests run. A plugin, which the root conftest names."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.op_table.tally import table

EXECUTED = "executed on the device"
SESSION = {"device": "cpu"}  # what `--device` says


def files(folder: str, names: str) -> tuple[str, ...]:
    return tuple(f"{folder}/test_{name}.py" for name in names.split())


BY_THE_HOST = (
    "derivatives edges errors graph_ops halves host_loops layouts programs residuals rows simplify unknown_shapes "
    "values window_loops"
)
OF_GRAPHS = (
    "branches_and_loops dense_terms fuse gathering inner_factors layout_steps loops_made_smaller picking postponing "
    "random_graphs random_rows reordering row_algebra row_terms tiling turning"
)
# What runs the same code whatever device the tensors of a process are on, folders and files, and why.
ALIKE: dict[tuple[str, ...], str] = {
    ("accuracy",): "functions of the host against many digits",
    files(
        "backends", "assembling blocks choosing contractions memory one_thread outer"
    ): "the host's backend by itself",
    files(
        "backends", "kernels_in_programs small small_loops stepping without_kernels"
    ): "programs of the host's kernels",
    ("backends/test_choice.py",): "processes of their own, which have no device",
    ("backends/cuda",): "a device's backend by itself, on a device of its own",
    ("benchmarks",): "the harness, without its workloads",
    ("cuda_emulator",): "the emulated device itself",
    ("docker",): "files of images",
    ("docs",): "generated pages",
    ("doctor",): "answers of processes that are started for them",
    ("kernels",): "texts of kernels, and those of the host and of a device by themselves",
    files("op_table", BY_THE_HOST): "ops by the host's backend; `backends/cuda` has the same samples on a device",
    files("op_table", "faults_are_seen table"): "declarations of ops, and the tests of them",
    ("structure",): "the files of the project",
    ("test_cli.py",): "the command, which makes no tensors",
    ("tools",): "the device that a tool makes for itself",
    files("transforms", OF_GRAPHS): "graphs to graphs, and these by the host's backend",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--device",
        choices=("cpu", "emulated", "cuda"),
        default="cpu",
        help="where tensors are: on the host, on the emulated CUDA device, or on a GPU",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "host(reason): looks at what only the host has; skipped on other devices")
    SESSION["device"] = config.getoption("--device")
    if config.getoption("--device") == "emulated":
        require_compiler()
    # Tensors that modules of tests make while they are imported are on the host, also where there is a GPU.
    if config.getoption("--device") != "cuda":
        os.environ["GRADTAPE_DEVICE"] = "cpu"


def require_compiler() -> None:
    """End the run where there is no compiler for the emulated device, before every test fails for it."""
    from tests.cuda_emulator.compiler import require_tools
    from tests.cuda_emulator.faults import CompilerMissing

    try:
        require_tools()
    except CompilerMissing as e:
        raise pytest.UsageError(str(e)) from e


def examples(on_the_host: int) -> int:
    """How many random examples a test takes whose programs are compiled one by one on the emulated device."""
    return on_the_host if SESSION["device"] == "cpu" else on_the_host // 6


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """On another device than the host, leave out what would be the same once more; the summary names it."""
    again = config.getoption("--device") != "cpu" and is_alike(collection_path, config)
    return True if again else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On another device than the host, skip what is about the host."""
    if config.getoption("--device") == "cpu":
        return
    for item in items:
        for mark in item.iter_markers("host"):
            item.add_marker(pytest.mark.skip(reason=f"on the host only: {mark.args[0]}"))


def is_alike(path: Path, config: pytest.Config) -> bool:
    """Whether a path is in `ALIKE`, or in a folder that is."""
    tests = config.rootpath / "tests"
    parts = path.relative_to(tests).parts if path.is_relative_to(tests) else ()
    found = {"/".join(parts[:n]) for n in range(1, len(parts) + 1)}
    return any(found & set(names) for names in ALIKE)


@pytest.fixture(scope="session", autouse=True)
def device(request: pytest.FixtureRequest) -> Iterator[None]:
    """The device of the whole session."""
    where = request.config.getoption("--device")
    # Here, not at the top: a package that cannot be imported must fail its own tests, not the collection of all.
    from gradtape.runtime.devices import DEVICES

    if where == "cpu":
        assert DEVICES.device is None, "something put this process on a device while tests were collected"
        yield
    elif where == "cuda":
        assert DEVICES.device is not None, "--device cuda: this process has no GPU; `gradtape doctor` says why"
        yield
    else:
        from tests.cuda_emulator import cupy_stand_in
        from tests.cuda_emulator.devices import emulated

        with cupy_stand_in.using_device():
            DEVICES.use(emulated())
            yield
            DEVICES.use(None)


@pytest.fixture(autouse=True)
def finished(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a test queued has run before the next one begins: its faults are its own."""
    if request.config.getoption("--device") != "cpu":
        from gradtape.backends.cuda.blas import MATH

        MATH.tf32 = False  # tests compare with numbers of all bits
    yield
    if request.config.getoption("--device") == "emulated":
        from tests.cuda_emulator import cupy_stand_in

        cupy_stand_in.device().synchronize("end of a test")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What each op executed on the emulated device: how many launches of kernels, and which library calls. On other
    devices than the host, also what was left out."""
    if terminalreporter.config.getoption("--device") != "cpu":
        terminalreporter.section("not repeated on this device, since they run the same code")
        for names, reason in ALIKE.items():
            terminalreporter.line(f"{', '.join(f'tests/{name}' for name in names)}: {reason}")
    kernels: Counter[str] = Counter()
    calls: dict[str, Counter[str]] = {}
    for group in terminalreporter.stats.values():
        for report in group:
            if isinstance(report, pytest.TestReport) and report.when == "teardown":
                for name, value in report.user_properties:
                    if name == EXECUTED:
                        op, names = value
                        libraries = {k: n for k, n in names.items() if is_library_call(k)}
                        kernels[op] += sum(names.values()) - sum(libraries.values())
                        calls.setdefault(op, Counter()).update(libraries)
    if not kernels:
        return
    terminalreporter.section(
        f"launches of kernels on the emulated device: {sum(kernels.values())} of {len(kernels)} ops"
    )
    for line in table(kernels, 118):
        terminalreporter.line(line)
    for op in sorted(calls):
        if calls[op]:
            terminalreporter.line(f"{op}: {', '.join(f'{k} {n}' for k, n in sorted(calls[op].items()))}")


def is_library_call(name: str) -> bool:
    """Whether it is a call of a library, and no kernel of ours."""
    return "." in name or name.startswith("cublas") or name in ("sort", "argsort", "matmul")
