"""Which convolutions cuDNN has plans for, asked of cuDNN itself: that needs no GPU.

    python -m tests.backends.cuda.cudnn_plans            # prints a line for each architecture and dtype
    python -m tests.backends.cuda.cudnn_plans --write    # to cudnn_plans.txt

Graphs are made as on a GPU, of every sample of the op table and of layers of well-known networks, for devices that are
described by their properties. nvidia-cudnn-frontend and nvidia-cudnn-cu12 or -cu13 have to be installed; where there is
no driver, an empty library stands in for it, since one of cuDNN's names it."""

from __future__ import annotations

import ctypes
import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gradtape.backends.cuda.blas import MATH
from gradtape.backends.cuda.convolution import Convolution, expansions, problem_of
from gradtape.backends.cuda.cudnn import Problem, Unsupported, notes, planned
from gradtape.ir.aval import Aval, aval, aval_of
from gradtape.ir.determinism import DETERMINISM
from gradtape.ir.dtypes import DType, bfloat16, float16, float32
from gradtape.ops.convolution import CONVOLVE, CONVOLVE_INPUT, CONVOLVE_KERNEL
from gradtape.ops.op import Op
from gradtape.ops.windows import Windows
from tests.backends.cuda.running import Learning
from tests.cuda_emulator import cudnn_stand_in, cupy_stand_in
from tests.op_table.cases import CASES

RECORD = Path(__file__).with_suffix(".txt")
ARCHITECTURES = (75, 80, 86, 89, 90, 100, 120)
DTYPES = (float32, float16, bfloat16)
SHARED = {75: 64, 80: 163, 86: 99, 89: 99, 90: 227, 100: 227, 120: 99}  # KiB that a block may ask for
# What cuDNN's heuristics ask of a device. These are of an H100; of others the architecture is what decides.
PROPERTIES = {
    "cudaDeviceId": 0, "totalGlobalMem": 80 << 30, "driverVer": 13000, "maxGridSize": [2147483647, 65535, 65535],
    "maxBlockSize": [1024, 1024, 64], "regsPerBlock": 65536, "multiProcessorCount": 132, "smCountOrigin": 0,
    "warpSize": 32, "maxSharedMemoryPerBlock": 49152, "oversizedSharedMemoryPerBlock": 0,
    "reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536, "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024,
    "maxThreadsPerSM": 2048, "pciDeviceId": 0, "isTccDriver": 0, "supportCoopLaunch": 1, "smClockRateKHz": 1980000,
    "memClockRateKHz": 2619000, "memoryBusWidth": 5120, "l2CacheSize": 52428800, "deviceName": "a GPU",
}  # fmt: skip
# Images (batch, *space, channels), window, results, groups, stride, dilation, and whether all windows lie inside.
LAYERS: tuple[tuple[tuple[int, ...], tuple[int, ...], int, int, int, int, bool], ...] = (
    ((32, 28, 28, 1), (3, 3), 32, 1, 1, 1, False),
    ((32, 224, 224, 3), (7, 7), 64, 1, 2, 1, False),
    ((32, 56, 56, 64), (3, 3), 64, 1, 1, 1, False),
    ((32, 56, 56, 64), (3, 3), 128, 1, 2, 1, False),
    ((32, 56, 56, 256), (1, 1), 512, 1, 2, 1, False),
    ((32, 14, 14, 96), (3, 3), 96, 96, 1, 1, False),
    ((32, 15, 15, 96), (5, 5), 192, 96, 2, 1, False),
    ((8, 28, 28, 256), (3, 3), 256, 32, 1, 1, False),
    ((8, 32, 32, 48), (3, 3), 40, 1, 1, 4, True),
    ((16, 1000, 20), (9,), 30, 1, 3, 1, False),
    ((2, 16, 32, 32, 8), (3, 3, 3), 12, 1, 2, 1, False),
    ((1, 5, 5, 7), (5, 5), 11, 1, 1, 1, True),
)  # fmt: skip


def driver() -> None:
    """Make sure that there is a library of the driver's name."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "libcuda.so.1"
            names = ("GetErrorString", "ModuleGetFunction", "ModuleLoadData", "ModuleUnload", "TensorMapEncodeIm2col")
            text = "".join(
                f'extern "C" int cu{name}() {{ return 100; }}\n' for name in (*names, "TensorMapEncodeTiled")
            )
            command = ["g++", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-x", "c++", "-", "-o", str(path)]
            subprocess.run(command, input=text, text=True, check=True)
            ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)


def cases(dtype: DType) -> Iterator[tuple[Op, tuple[Aval, ...], dict[str, Any]]]:
    """Convolutions and their gradients: ops, operands and parameters."""
    for op in (CONVOLVE, CONVOLVE_INPUT, CONVOLVE_KERNEL):
        for case in CASES[op.name]:
            yield op, tuple(map(aval_of, case.draw(dtype))), dict(case.sample.params)
    for images, window, results, groups, stride, dilation, is_inside in LAYERS:
        n, *space, channels = images
        w = windows(space, window, stride, dilation, is_inside)
        params, counts = w._asdict(), w.counts(tuple(space))
        assert counts is not None
        x = aval((n, *space, groups, channels // groups), dtype)
        k = aval((*window, channels // groups, groups, results // groups), dtype)
        y = aval((n, *counts, groups, results // groups), dtype)
        yield CONVOLVE, (x, k), params
        yield CONVOLVE_INPUT, (y, k), {"shape": tuple(space), **params}
        yield CONVOLVE_KERNEL, (x, y), params


def windows(space: Sequence[int], window: Sequence[int], stride: int, dilation: int, is_inside: bool) -> Windows:
    """Windows inside of images, or as many as it takes to cover them ("SAME")."""
    axes = len(space)
    spans = [(k - 1) * dilation + 1 for k in window]
    more = [
        0 if is_inside else max(0, (-(-n // stride) - 1) * stride + s - n) for n, s in zip(space, spans, strict=True)
    ]
    low = tuple(m // 2 for m in more)
    high = tuple(m - a for m, a in zip(more, low, strict=True))
    return Windows(tuple(window), (stride,) * axes, (dilation,) * axes, low, high)


def problems(dtype: DType) -> list[Problem]:
    """What cuDNN is asked for in this dtype."""
    with cupy_stand_in.using_device():
        expand = expansions(Learning(cudnn_stand_in))
        graphs = [expand[op.name](avals, **params) for op, avals, params in cases(dtype)]
    nodes = [node for graph in graphs for node in graph.nodes if isinstance(node.step.op, Convolution)]
    return [problem_of(node.step, tuple(v.aval for v in node.inputs)) for node in nodes]


def has_plan(module: Any, problem: Problem, architecture: int, properties: Any) -> bool:
    """Whether there is one, whatever the switches say."""
    before = MATH.tf32, DETERMINISM.required
    try:
        for MATH.tf32, DETERMINISM.required in itertools.product((True, False), repeat=2):
            where = {"device_property": properties, "sm_version": 10 * architecture}
            planned(module, problem, notes(problem.dtype), **where).get_workspace_size()
    except Unsupported:
        return False
    finally:
        MATH.tf32, DETERMINISM.required = before
    return True


def lines(module: Any) -> Iterator[str]:
    for architecture in ARCHITECTURES:
        own = {"deviceVer": 10 * architecture, "maxSharedMemoryPerBlockOptin": SHARED[architecture] << 10}
        properties = module.create_device_properties(json.dumps(PROPERTIES | own))
        for dtype in DTYPES:
            asked = problems(dtype)
            found = sum(has_plan(module, p, architecture, properties) for p in asked)
            yield f"sm_{architecture} {dtype.name}: {found} of {len(asked)}"


if __name__ == "__main__":
    driver()
    import cudnn

    text = "".join(f"{line}\n" for line in lines(cudnn))
    if sys.argv[1:] == ["--write"]:
        RECORD.write_text(text, encoding="utf-8")
    else:
        print(text, end="")
