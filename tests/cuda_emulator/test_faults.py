"""Deliberate faults, each of which the emulator must find, and tell in a way that leads to it."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from tests.cuda_emulator.device import Device
from tests.cuda_emulator.faults import DeviceFault
from tests.cuda_emulator.faulty import KERNELS, buffer, fault, kernel, line


@pytest.fixture
def device() -> Device:
    return Device(seed=1)


# ---- memory ----------------------------------------------------------------------------------------------------------


def test_read_behind_the_end(device: Device) -> None:
    found = fault(device, "reads_one_too_many", (buffer(device, 40), buffer(device, 40, "out"), np.int32(40)))
    assert found.kind == "out of bounds"
    assert found.line == line("x[i + 1]")
    assert found.thread == (39, 0, 0)
    assert "reads 4 bytes at byte 160 of `x`, which has 160 bytes" in str(found)


def test_write_behind_the_end(device: Device) -> None:
    found = fault(device, "writes_one_too_many", (buffer(device, 40), buffer(device, 40, "out"), np.int32(40)))
    assert found.kind == "out of bounds"
    assert found.line == line("i <= n")
    assert "writes 4 bytes at byte 160 of `out`" in str(found)


def test_write_before_the_start(device: Device) -> None:
    found = fault(device, "writes_before", (buffer(device, 64, "out"),))
    assert found.kind == "out of bounds"
    assert "at byte -4 of `out`" in str(found)


def test_null_pointer(device: Device) -> None:
    found = fault(device, "null", (0,))
    assert found.kind == "out of bounds"


def test_dynamic_shared_memory_has_an_end(device: Device) -> None:
    found = fault(device, "dynamic", (buffer(device, 64, "out"), np.int32(65)), shared=256)
    assert found.kind == "out of bounds"
    assert "byte 256 of `dynamic shared memory`" in str(found)


def test_local_array_has_an_end(device: Device) -> None:
    found = fault(device, "local_array", (buffer(device, 4, "out"), np.int32(1)), block=4)
    assert found.kind == "out of bounds"
    assert found.line == line("own[threadIdx.x + n]")


def test_memory_is_poison_until_it_is_written(device: Device) -> None:
    assert np.isnan(device.alloc(40).to_numpy()).all()
    found = fault(device, "doubles", (device.alloc(256, "x"),))
    assert found.kind == "unwritten"
    found = fault(device, "reads_unwritten_line", (buffer(device, 64, "out"),))
    assert found.kind == "unwritten"
    assert "byte 20 of `line`" in str(found)


def test_shared_memory_is_new_for_each_block(device: Device) -> None:
    found = fault(device, "hands_on_to_the_next_block", (buffer(device, 64, "out"),), block=1, grid=2)
    assert found.kind == "unwritten"
    assert "byte 0 of `line`" in str(found)


def test_access_that_ends_behind_the_end(device: Device) -> None:
    found = fault(device, "copies_four", (buffer(device, 8), buffer(device, 6, "out")), block=2)
    assert found.kind == "out of bounds"
    assert "writes 16 bytes at byte 16 of `out`, which has 24 bytes" in str(found)


def test_misaligned_atomic(device: Device) -> None:
    found = fault(device, "adds_at_a_byte", (device.alloc(16, "x").copy_from(np.zeros(4, np.int32)),), block=1)
    assert found.kind == "misaligned"


def test_buffers_lie_between_pages_that_nobody_may_touch(device: Device) -> None:
    x = device.alloc(5000, "x")
    assert x.address % 256 == 0
    assert rights(x.address) == rights(x.address + 4999) == "rw-p"
    assert (x.address + 5120) % 4096 == 0  # 5000 in steps of the alignment
    assert rights(x.address + 5120) == "---p"
    assert rights(x.address // 4096 * 4096 - 1) == "---p"
    x.free()
    assert rights(x.address) == "---p"


def rights(address: int) -> str:
    """What this process may do with the page of an address."""
    for text in Path("/proc/self/maps").read_text(encoding="ascii").splitlines():
        place, allowed = text.split()[:2]
        first, last = (int(end, 16) for end in place.split("-"))
        if first <= address < last:
            return allowed
    return "nothing"


def test_misaligned_vector_of_a_slice(device: Device) -> None:
    x, out = buffer(device, 64), buffer(device, 64, "out")
    kernel(device, "copies_four")((1,), (8,), (x.at(16), out.at(32)))
    device.synchronize()
    found = fault(device, "copies_four", (x.at(4), out), block=8)
    assert found.kind == "misaligned"
    assert found.line == line("reinterpret_cast<float4*>(out)")


def test_buffer_freed_before_the_launch_ran(device: Device) -> None:
    x = buffer(device, 64)
    kernel(device, "doubles")((1,), (64,), (x,))
    x.free()
    with pytest.raises(ValueError, match="used after it was freed"):
        device.synchronize()  # the copy of its first values was queued as well
    y = buffer(device, 64, "y")
    device.synchronize()
    kernel(device, "doubles")((1,), (64,), (y,))
    y.free()
    with pytest.raises(DeviceFault, match="the freed `y`") as caught:
        device.synchronize()
    assert caught.value.kind == "freed"


def test_release_waits_for_its_turn(device: Device) -> None:
    x, out = buffer(device, 64), device.alloc(256)
    kernel(device, "promises")((1,), (64,), (x, out))
    x.release()
    assert (out.to_numpy() == 2).all()
    found = fault(device, "promises", (x, out))
    assert found.kind == "freed"


def test_read_only_loads_and_promises(device: Device) -> None:
    assert fault(device, "caches_what_it_writes", (buffer(device, 64),)).kind == "read-only"
    x = buffer(device, 128)
    kernel(device, "promises")((1,), (64,), (x, x.at(256)))
    device.synchronize()
    assert fault(device, "promises", (x, x)).kind == "aliasing"


def test_stack_that_runs_over(device: Device) -> None:
    assert fault(device, "runs_over_its_stack", (buffer(device, 1, "out"),), block=1).kind == "signal"


def test_loop_without_end(device: Device) -> None:
    device.most_steps = 10_000
    flag = device.alloc(4).copy_from(np.int32([0]))
    assert fault(device, "never_ends", (flag,), block=1).kind == "endless"


def test_device_works_on_after_a_fault(device: Device) -> None:
    fault(device, "null", (0,))
    x = buffer(device, 64)
    kernel(device, "doubles")((1,), (64,), (x,))
    assert (x.to_numpy() == 2).all()


# ---- threads ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_missing_barrier(seed: int) -> None:
    device = Device(seed=seed)
    found = fault(device, "forgets_barrier", (buffer(device, 64), buffer(device, 64, "out")))
    assert found.kind in ("race", "unwritten")  # by the order of threads
    found = fault(device, "overwrites_too_early", (buffer(device, 64), buffer(device, 64, "out")))
    assert found.kind == "race"
    assert "with no barrier between" in str(found)


def test_missing_barrier_of_a_warp(device: Device) -> None:
    found = fault(device, "forgets_warp_barrier", (buffer(device, 32, "out"),), block=32)
    assert found.kind == "race"
    assert found.line in (line("lane + 16"), line("lane + 8"))


def test_two_threads_write_one_place(device: Device) -> None:
    assert fault(device, "two_write_one", (buffer(device, 64, "out"),)).kind == "race"


def test_neighbouring_bytes_are_no_race(device: Device) -> None:
    out = device.alloc(64)
    kernel(device, "bytes_beside")((1,), (64,), (out,))
    assert out.to_numpy(np.uint8).sum() == 64


def test_blocks_write_one_place(device: Device) -> None:
    found = fault(device, "blocks_write_one", (buffer(device, 1, "out"),), grid=3)
    assert found.kind == "race"
    assert "another block" in str(found)


@pytest.mark.parametrize("offset", [-5.0, 5.0])
def test_wrong_neutral_element_shows_against_a_reference(device: Device, offset: float) -> None:
    values = np.random.default_rng(0).random(50, np.float32) + np.float32(offset)
    x, out = buffer(device, 50).copy_from(values), device.alloc(4)
    kernel(device, "maximum")((1,), (32,), (x, out, np.int32(50)))
    assert (out.to_numpy()[0] == values.max()) == (offset > 0)


@pytest.mark.parametrize("block", [32, 20])
def test_shuffle_with_part_of_a_warp(device: Device, block: int) -> None:
    found = fault(
        device, "sums_part_of_a_warp", (buffer(device, 64), buffer(device, 1, "out"), np.int32(20)), block=block
    )
    assert found.kind == "mask"
    assert found.line == line("v += __shfl_down_sync")


def test_lane_that_is_not_in_its_own_mask(device: Device) -> None:
    found = fault(device, "leaves_itself_out", (buffer(device, 16, "out"),), block=16)
    assert found.kind == "mask"
    assert found.thread == (0, 0, 0)


def test_two_calls_for_one_mask(device: Device) -> None:
    found = fault(device, "two_calls_at_once", (buffer(device, 32, "out"),), block=32)
    assert found.kind == "mask"
    assert "__any_sync" in str(found) and "__all_sync" in str(found)


def test_value_of_an_unnamed_lane_is_poison(device: Device) -> None:
    out = buffer(device, 8)
    kernel(device, "reads_unnamed_lane")((1,), (32,), (out,))
    assert np.array_equal(out.to_numpy(), np.float32([1] * 4 + [np.nan] * 4), equal_nan=True)


def test_barrier_that_some_never_reach(device: Device) -> None:
    found = fault(device, "waits_for_half", (buffer(device, 64, "out"),))
    assert found.kind == "deadlock"
    barrier = line("if (threadIdx.x < 48) __syncthreads()")
    assert f"threads 0-47: line {barrier}, __syncthreads; threads 48-63: ended" in str(found)


def test_barriers_on_both_sides_of_a_branch(device: Device) -> None:
    assert fault(device, "two_barriers", (buffer(device, 64, "out"),)).kind == "divergent barrier"


# ---- numbers ---------------------------------------------------------------------------------------------------------


def test_index_that_overflows(device: Device) -> None:
    found = fault(device, "index_overflows", (buffer(device, 1, "out"), np.int32(70000), np.int32(70000)))
    assert found.kind == "overflow"
    assert found.line == line("rows * columns")
    assert "70000 * 70000 does not fit 'int'" in str(found)


def test_division_by_zero(device: Device) -> None:
    assert fault(device, "divides_by_zero", (buffer(device, 64, "out"), np.int32(0))).kind == "overflow"


@pytest.mark.parametrize(
    ("name", "numbers", "words"),
    [
        ("index_overflows", (70000, 70000), "rows * columns"),
        ("local_array", (1,), "own[threadIdx.x + n]"),
        ("divides_by_zero", (0,), "= 7 / n"),
    ],
)
def test_without_words_a_fault_says_where_it_is(
    device: Device, name: str, numbers: tuple[int, ...], words: str
) -> None:
    (module,) = device.modules([device.source(KERNELS)], wordy=False)
    arguments = (buffer(device, 64, "out"), *map(np.int32, numbers))
    module.get_function(name)((1,), (4,), arguments)
    with pytest.raises(DeviceFault, match="EMULATOR_WORDY=1 says which") as caught:
        device.synchronize()
    assert (caught.value.kind, caught.value.kernel) == ("undefined", name)
    assert caught.value.line == line(words)


def test_without_words_a_misaligned_slice_is_found(device: Device) -> None:
    x, out = buffer(device, 64), buffer(device, 64, "out")
    (module,) = device.modules([device.source(KERNELS)], wordy=False)
    module.get_function("copies_four")((1,), (8,), (x.at(16), out.at(32)))
    device.synchronize()
    module.get_function("copies_four")((1,), (8,), (x.at(4), out))
    with pytest.raises(DeviceFault) as caught:
        device.synchronize()
    assert (caught.value.kind, caught.value.line) == ("undefined", line("reinterpret_cast<float4*>(out)"))


def test_assertion(device: Device) -> None:
    x = device.alloc(256).copy_from(np.arange(64, dtype=np.int32) - 1)
    found = fault(device, "asserts", (x,))
    assert found.kind == "trap"
    assert found.line == line("assert(x[")


def test_signal_handlers_are_put_back(device: Device) -> None:
    handler = ctypes.CDLL(None).signal
    handler.restype, handler.argtypes = ctypes.c_void_p, [ctypes.c_int, ctypes.c_void_p]
    segmentation = 11
    before = handler(segmentation, None)
    handler(segmentation, before)
    fault(device, "null", (0,))
    after = handler(segmentation, None)
    handler(segmentation, after)
    assert before == after
