"""`kernel_op` of kernels of `numba.cuda.jit`. Numba decides when it is loaded whether it simulates: each program is a
process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import gradtape as tf
from gradtape.kernels import numba_cuda

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("where", "programs"), [("host", 3), ("device", 4)])
def test_programs_of_simulated_kernels(where: str, programs: int) -> None:
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "PYTHONPATH": str(ROOT), "GRADTAPE_DEVICE": "cpu"}
    run = subprocess.run(
        [sys.executable, "-m", "tests.kernel_ops.numba_programs", where],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (run.returncode, len(run.stdout.split())) == (0, programs), run.stdout + run.stderr


def kernels() -> Any:
    """Kernels that are not simulated: they can be described here, but not run."""
    from numba import cuda

    @cuda.jit
    def twice(x, y, size):
        i = cuda.grid(1)
        if i < size:
            y[i] = 2 * x[i]

    @cuda.jit
    def twice_back(x, dy, dx, size):
        i = cuda.grid(1)
        if i < size:
            dx[i] = 2 * dy[i]

    return twice, twice_back


def test_without_a_gpu_there_is_the_form_for_the_host() -> None:
    twice, twice_back = kernels()
    with tf.device("/CPU:0"):
        with pytest.raises(tf.errors.UnimplementedError, match=r"`host=`"):
            tf.kernel_op(twice, signature="()->()")([1.0])
        op = tf.kernel_op(
            twice, signature="()->()", host=lambda x: 2 * x, backward=twice_back, backward_host=lambda x, up: 2 * up
        )
        x = tf.Variable([1.0, 2.0])
        with tf.GradientTape() as tape:
            y = op(x)
        assert list(tape.gradient(y, x).numpy()) == [2.0, 2.0]


def test_wrong_descriptions_are_refused() -> None:
    twice, twice_back = kernels()
    with pytest.raises(ValueError, match="wants `signature`"):
        tf.kernel_op(twice)
    with pytest.raises(ValueError, match="parameters for 3 operands and 1 results"):
        tf.kernel_op(twice, signature="(),(),()->()")
    with pytest.raises(TypeError, match="`types` is for kernels in CUDA"):
        tf.kernel_op(twice, signature="()->()", types="T")
    with pytest.raises(ValueError, match=r"should have 2 operands(.|\n)*it has 1 and 1"):
        tf.kernel_op(twice, signature="()->()", backward=twice)
    with pytest.raises(ValueError, match="one for each of 1 results"):
        tf.kernel_op(twice, signature="()->()", dtypes=["float32", "int32"])
    with pytest.raises(TypeError, match="`signature` belongs to kernels"):
        tf.kernel_op(lambda x: x, signature="()->()")
    assert numba_cuda.is_kernel(twice_back) and not numba_cuda.is_simulated(twice_back)


class Recorded:
    """A kernel that notes how it is launched."""

    def __init__(self) -> None:
        self.launches: list[Any] = []

    def __getitem__(self, configuration: Any) -> Any:
        return lambda *arguments: self.launches.append((configuration, arguments))


@pytest.mark.parametrize(("address", "stream"), [(0, 0), (77, "stream 77")])
def test_a_launch_takes_arrays_without_waiting_for_their_streams(
    address: int, stream: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from numba import cuda

    views: list[Any] = []

    def view(interface: Any, owner: Any, sync: bool) -> str:
        views.append((interface, owner, sync))
        return f"view {len(views)}"

    monkeypatch.setattr(cuda, "from_cuda_array_interface", view)
    monkeypatch.setattr(cuda, "external_stream", "stream {}".format)
    arrays = [SimpleNamespace(__cuda_array_interface__={"number": k}) for k in range(2)]
    kernel = Recorded()
    numba_cuda.launch(kernel, (3,), (64,), address, 16, arrays, [5, 0.5])
    assert kernel.launches == [(((3,), (64,), stream, 16), ("view 1", "view 2", 5, 0.5))]
    assert views == [({"number": k}, arrays[k], False) for k in range(2)]
