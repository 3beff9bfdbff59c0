"""The example with kernels of one's own, on the host and on the emulated device."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def example() -> ModuleType:
    path = Path(__file__).parents[2] / "examples" / "own_kernels.py"
    spec = importlib.util.spec_from_file_location("own_kernels", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_learns(example: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    example.main(["--steps", "60"])
    words = capsys.readouterr().out.split()
    assert words[0] == "loss"
    assert float(words[3]) < 0.7 * float(words[1])


def test_the_device_takes_the_same_steps(example: ModuleType, request: pytest.FixtureRequest) -> None:
    on_host = example.train(3)
    request.getfixturevalue("device")
    assert example.train(3) == pytest.approx(on_host, rel=1e-4)
