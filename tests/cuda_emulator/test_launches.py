"""Launches that a driver refuses, or would take without a word."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cuda_emulator.device import Device
from tests.cuda_emulator.faults import LaunchRefused
from tests.cuda_emulator.faulty import KERNELS, buffer, fault, kernel


@pytest.fixture
def device() -> Device:
    return Device(seed=1)


@pytest.mark.parametrize(
    ("grid", "block", "words"),
    [
        ((1, 70_000), (1,), "grid .* has 70000 along y"),
        ((1, 1, 65_536), (1,), "along z"),
        ((0,), (32,), "grid .* has 0 along x"),
        ((1,), (0,), "block .* has 0 along x"),
        ((1,), (2048,), "2048 along x"),
        ((1,), (64, 32), "2048 threads"),
        ((1,), (1, 1, 65), "65 along z"),
        ((-1,), (1,), "-1 along x"),
    ],
)
def test_sizes_beyond_the_limits(device: Device, grid: tuple, block: tuple, words: str) -> None:
    out = buffer(device, 100, "out")
    with pytest.raises(LaunchRefused, match=f"invalid configuration for `batches`: .*{words}"):
        kernel(device, "batches")(grid, block, (out, np.int64(100)))
    device.synchronize()
    assert device.counts.launches == []


def test_launch_bounds(device: Device) -> None:
    out = buffer(device, 200, "out")
    kernel(device, "bounded")((1,), (128,), (out,))
    with pytest.raises(LaunchRefused, match="129 threads, and __launch_bounds__ says 128"):
        kernel(device, "bounded")((1,), (129,), (out,))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((7,), "integer of 4 bytes, and 7 .int. is an integer of 8 bytes"),
        ((np.int64(7),), "8 bytes"),
        ((np.float32(7),), "is a floating point number of 4 bytes"),
        ((np.zeros(3),), "a host array was given"),
        ((), "takes 2 arguments .* got 1"),
        (("7",), "no form on the device"),
    ],
)
def test_argument_of_the_wrong_width(device: Device, arguments: tuple, words: str) -> None:
    with pytest.raises(LaunchRefused, match=words):
        kernel(device, "divides_by_zero")((1,), (1,), (buffer(device, 1, "out"), *arguments))


def test_shared_memory_beyond_the_limits(device: Device) -> None:
    out = buffer(device, 64, "out")
    dynamic = kernel(device, "dynamic")
    with pytest.raises(
        LaunchRefused, match="set max_dynamic_shared_size_bytes to opt in to more, up to 166912 on sm_80"
    ):
        dynamic((1,), (64,), (out, np.int32(64)), shared_mem=49_153)
    dynamic.max_dynamic_shared_size_bytes = 100 << 10
    dynamic((1,), (64,), (out, np.int32(25 << 10)), shared_mem=100 << 10)
    device.synchronize()
    dynamic.max_dynamic_shared_size_bytes = 164 << 10
    with pytest.raises(LaunchRefused, match="167936, and sm_80 has 166912"):
        dynamic((1,), (64,), (out, np.int32(64)))
    assert fault(device, "too_much_static", (out,)).kind == "shared memory"


def test_registers(device: Device) -> None:
    module = device.module(KERNELS, registers={"doubles": 80})
    doubles = module.get_function("doubles")
    doubles((1,), (768,), (buffer(device, 768),))
    doubles = device.module(KERNELS, registers={"doubles": 65}).get_function("doubles")
    with pytest.raises(LaunchRefused, match="1000 threads of 65 registers need 73728"):  # a warp takes 256 at a time
        doubles((1,), (1000,), (buffer(device, 1000),))
    doubles = module.get_function("doubles")
    with pytest.raises(LaunchRefused, match="1024 threads of 80 registers need 81920"):
        doubles((1,), (1024,), (buffer(device, 1024),))
