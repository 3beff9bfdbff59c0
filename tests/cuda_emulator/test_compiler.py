"""From text to libraries: batches, the cache, options, headers; what is left of one module for the next."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.cuda_emulator import compiler
from tests.cuda_emulator.device import Device
from tests.cuda_emulator.faults import CompilerMissing, KernelCompileError, LaunchRefused
from tests.cuda_emulator.text import Source
from tests.cuda_emulator.together import Together

FILL = """
#define STEP {step}
__device__ float twice(float x) {{ return {factor}.0f * x; }}
struct Pair {{ float a, b; }};
extern "C" __global__ void fill(float* out) {{
    __shared__ float line[STEP * 32];
    line[threadIdx.x] = twice(threadIdx.x) + STEP;
    __syncthreads();
    out[threadIdx.x] = line[blockDim.x - 1 - threadIdx.x];
}}
"""


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """An empty cache (but for the device itself and its header), and the commands that ran since."""
    runtime, header = compiler.runtime_library(), compiler.device_header(True)
    monkeypatch.setattr(compiler, "folder", lambda: tmp_path)
    monkeypatch.setattr(compiler, "runtime_library", lambda: runtime)
    monkeypatch.setattr(compiler, "device_header", lambda wordy: header)
    commands: list[list[str]] = []
    call = compiler.call

    def watched(command: list[str], directory: Path) -> str:
        commands.append(list(command))
        return call(command, directory)

    monkeypatch.setattr(compiler, "call", watched)
    return commands


def compilations(commands: list[list[str]]) -> int:
    return sum(command[0] == "g++" and "-c" in command for command in commands)


def test_many_modules_in_one_call(fresh: list[list[str]]) -> None:
    device = Device()
    texts = [FILL.format(step=step, factor=step + 1) for step in range(1, 9)]
    modules = device.modules([device.source(text) for text in texts])
    assert compilations(fresh) == 1
    assert len({module.path for module in modules}) == 1
    out = device.alloc(128)
    for step, module in enumerate(modules, 1):
        module.get_function("fill")((1,), (32,), (out,))
        assert np.array_equal(out.to_numpy()[:32], np.arange(31.0, -1, -1) * (step + 1) + step)
        assert [(v.name, v.size) for v in module.variables] == [(b"line", 128 * step)]


def test_what_nobody_ran_waits_for_the_first_that_runs(fresh: list[list[str]]) -> None:
    device = Device()
    together, out = Together(device), device.alloc(128)
    modules = [together.module(FILL.format(step=step, factor=step + 2)) for step in range(1, 5)]
    for module in modules[:2]:
        module.get_function("fill")((1,), (32,), (out,))
    assert compilations(fresh) == 0
    assert np.array_equal(out.to_numpy(), np.arange(31.0, -1, -1) * 4 + 2)
    modules[3].get_function("fill")((1,), (32,), (out,))
    assert np.array_equal(out.to_numpy(), np.arange(31.0, -1, -1) * 6 + 4)
    assert compilations(fresh) == 1
    modules[0].get_function("fill")((1,), (32,), (np.float32(0),))
    with pytest.raises(LaunchRefused, match=r"argument 0 of `fill` is declared `float\* out`"):
        device.synchronize()


def test_what_was_compiled_is_kept(fresh: list[list[str]]) -> None:
    device = Device()
    first = device.source(FILL.format(step=1, factor=5))
    second = device.source(FILL.format(step=2, factor=5))
    kept = device.modules([first, first])
    device.modules([first, second])  # only the second is new
    again = device.module(first.text)
    assert compilations(fresh) == 2
    assert again.path == kept[0].path == kept[1].path


def test_options_and_headers_are_part_of_a_module(fresh: list[list[str]]) -> None:
    device = Device()
    text = """
    #include "shapes.cuh"
    #include <cuda_fp16.h>
    #if SMALL
    #define SIZE 1
    #else
    #define SIZE width(AMOUNT)
    #endif
    extern "C" __global__ void size(int* out) { out[0] = SIZE; out[1] = __CUDA_ARCH__; }
    """
    headers = {
        "shapes.cuh": '#pragma once\n#include "base.cuh"\n#include "base.cuh"\n',
        "base.cuh": "#pragma once\n__device__ int width(int n) { return 2 * n; }\n",
    }
    sources = [device.source(text, options, headers) for options in [("-DAMOUNT=7",), ("-DSMALL",), ("-D AMOUNT=8",)]]
    out = device.alloc(8)
    for wanted, module in zip((14, 1, 16), device.modules(sources)):
        module.get_function("size")((1,), (1,), (out,))
        assert out.to_numpy(np.int32).tolist() == [wanted, 800]
    assert compilations(fresh) == 1


def test_lines_of_headers_are_told_as_theirs() -> None:
    headers = {"broken.cuh": "\n\n__device__ int broken() { return nothing; }\n"}
    with pytest.raises(KernelCompileError, match=r"broken\.cuh:3:"):
        Device().module('#include "broken.cuh"\n', headers=headers)
    with pytest.raises(KernelCompileError, match=r"kernels\.cu:3:"):
        Device().module('#include "sound.cuh"\n\nnonsense;\n', headers={"sound.cuh": "#pragma once\n"})


@pytest.mark.parametrize(
    "declaration",
    [
        'extern "C" __global__ void __launch_bounds__(4 * (8 + 8), 2) k(const float* __restrict__ x, int n) {}',
        'extern "C" __global__ __launch_bounds__(64) void k(\n  const float* __restrict__ x,  // given\n  int n) {}',
        '/* extern "C" __global__ void other() {} */\nextern "C"\n__global__ void __launch_bounds__(64)\nk'
        "(const float *__restrict__ x, int n) {}",
    ],
)
def test_declarations_are_read(declaration: str) -> None:
    source = Source(declaration)
    assert list(source.kernels) == ["k"]
    x, n = source.kernels["k"].parameters
    assert (x.name, x.is_restricted, n.name, n.is_restricted) == ("x", True, "n", False)
    assert Device().module(declaration).get_function("k").most_threads == 64


def test_dynamic_shared_memory_is_found_in_all_its_spellings() -> None:
    spellings = [
        "extern __shared__ float line[];",
        "extern __shared__ __align__(16) unsigned char line[];",
        "extern __shared__ float4 line [ ] ;",
        "extern __shared__ alignas(16)\n double line[];",
    ]
    device = Device()
    sources = [
        device.source(f'extern "C" __global__ void k(int* out) {{ {text}\n line[1] = {{}}; *out = sizeof line[0]; }}')
        for text in spellings
    ]
    assert [size for size, module in zip((4, 1, 16, 8), device.modules(sources)) if module.source.kernels] == [
        4,
        1,
        16,
        8,
    ]


@pytest.mark.parametrize(
    "declaration",
    [
        "__shared__ float line[64];",
        "static __shared__ float line[64];",
        "__shared__ alignas(16) float line[64];",
        "alignas(16) __shared__ float line[64];",
        "__shared__ __align__(16) float line[64];",
        "volatile __shared__ float line[64];",
    ],
)
def test_shared_memory_is_found_in_all_its_spellings(declaration: str) -> None:
    device = Device()
    module = device.module(
        f'extern "C" __global__ void k(float* out) {{ {declaration} line[threadIdx.x] = threadIdx.x; __syncthreads(); '
        "out[threadIdx.x] = line[63 - threadIdx.x]; }"
    )
    assert [(variable.name, variable.size) for variable in module.variables] == [(b"line", 256)]
    out = device.alloc(256)
    module.get_function("k")((1,), (64,), (out,))
    assert np.array_equal(out.to_numpy(), np.arange(63.0, -1, -1))


def test_what_the_emulator_does_not_know_is_refused() -> None:
    device = Device()
    with pytest.raises(KernelCompileError, match=r"kernels\.cu:2:.*\n?.*nonsense"):
        device.module('extern "C" __global__ void f(float* x) {\n nonsense(x); }')
    with pytest.raises(KernelCompileError, match="line 1: no header 'cmath'"):
        device.module("#include <cmath>\n")
    with pytest.raises(KernelCompileError, match="no option '--use_fast_math'"):
        device.module("", ("--use_fast_math",))
    with pytest.raises(AttributeError, match=r"no `extern .* void g\(\.\.\.\)` in kernels\.cu; there is `f`"):
        device.module('extern "C" __global__ void f(float* x) {}').get_function("g")


def test_without_a_compiler_there_is_an_error_and_no_skip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler.shutil, "which", lambda tool: None if tool == "g++" else tool)
    with pytest.raises(CompilerMissing, match=re.escape("needs g++, not found on this machine")):
        compiler.require_tools.__wrapped__()


def test_a_run_without_a_compiler_ends_by_naming_the_untested_device(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    tests = "tests/cuda_emulator/test_streams.py::test_dropped_buffers_go_back_in_their_turn"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", tests]
    environment = {**os.environ, "PATH": str(tmp_path), "PYTHONPATH": str(root)}
    run = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "untested: the emulated CUDA device" in run.stdout
    assert "1 tests of CUDA kernels could not run" in run.stdout
    assert "1 failed in" in run.stdout.splitlines()[-1]


def test_a_run_on_the_emulated_device_without_a_compiler_does_not_begin(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--device", "emulated", "tests/numerics"]
    environment = {**os.environ, "PATH": str(tmp_path), "PYTHONPATH": str(root)}
    run = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == pytest.ExitCode.USAGE_ERROR
    assert "the CUDA emulator needs g++" in run.stderr and "the emulated device is untested" in run.stderr
