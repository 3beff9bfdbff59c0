"""cuDNN itself has plans for what it is asked for: `cudnn_plans.txt` says so, and the library confirms it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest

from gradtape.ir.dtypes import ALL
from tests.backends.cuda.cudnn_plans import ARCHITECTURES, DTYPES, RECORD
from tests.cuda_emulator import cudnn_graphs, cupy_stand_in


def recorded() -> dict[tuple[int, str], tuple[int, int]]:
    """How many of how many convolutions there are plans for, by architecture and dtype."""
    found = {}
    for line in RECORD.read_text(encoding="utf-8").splitlines():
        where, _, counts = line.partition(": ")
        architecture, dtype = where.removeprefix("sm_").split()
        planned, asked = map(int, counts.split(" of "))
        found[int(architecture), dtype] = planned, asked
    return found


def test_there_are_plans_for_all_that_the_stand_in_does() -> None:
    """The one refuses nothing that the other does."""
    counts = recorded()
    assert counts.keys() == {(a, d.name) for a in ARCHITECTURES for d in DTYPES}
    types = {np_dtype: kind for kind, np_dtype in cudnn_graphs.DTYPES.items()}
    for (architecture, name), (planned, asked) in counts.items():
        (dtype,) = [d.numpy_dtype for d in ALL if d.name == name]
        with cupy_stand_in.using_device(f"sm_{architecture}"):
            refused = cudnn_graphs.is_beyond(types[dtype])
        assert planned == (0 if refused else asked), (architecture, name)
        assert asked > 40


@pytest.mark.timeout(300)
def test_the_library_has_them() -> None:
    if importlib.util.find_spec("cudnn") is None:
        pytest.skip("nvidia-cudnn-frontend is not installed: what is recorded of cuDNN's plans stays as it is")
    command = [sys.executable, "-m", "tests.backends.cuda.cudnn_plans"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ})
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == RECORD.read_text(encoding="utf-8")
