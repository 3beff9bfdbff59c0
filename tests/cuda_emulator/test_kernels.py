"""Right kernels give right results: what the emulator must not find fault with, against NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.cuda_emulator.device import Device
from tests.cuda_emulator.memory import Buffer
from tests.cuda_emulator.module import Function
from tests.cuda_emulator.sound import KERNELS


@pytest.fixture(params=[0, 1, 2], ids="seed {}".format)
def device(request: pytest.FixtureRequest) -> Device:
    return Device(seed=request.param)


def kernel(device: Device, name: str) -> Function:
    return device.module(KERNELS).get_function(name)


def on(device: Device, array: np.ndarray, name: str = "x") -> Buffer:
    return device.alloc(array.nbytes, name).copy_from(array)


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(shape, np.float32)


@pytest.mark.parametrize("n", [1, 255, 256, 1000, 3001])
def test_sums_of_vectors(device: Device, n: int) -> None:
    x, y = numbers(2, n)
    out = device.alloc(4 * n)
    kernel(device, "add")((3,), (256,), (on(device, x), on(device, y), out, np.int32(n)))
    assert np.array_equal(out.to_numpy(), x + y)


@pytest.mark.parametrize("n", [1, 4, 1027])
def test_vectors_of_four_are_one_access_each(device: Device, n: int) -> None:
    x = numbers(n)
    out = device.alloc(4 * n)
    kernel(device, "scale4")((-(-n // 1024),), (256,), (on(device, x), out, np.float32(3), np.int64(n)))
    assert np.array_equal(out.to_numpy(), x * np.float32(3))
    launch = device.counts.launches[-1]
    assert launch.bytes_moved == 8 * n
    assert launch.traffic["x"].wide_reads == launch.traffic["out"].wide_writes == n // 4
    assert launch.traffic["x"].reads == launch.traffic["out"].writes == n // 4 + n % 4


def test_larger_structures_are_several_wide_accesses(device: Device) -> None:
    x = numbers(80)
    out = device.alloc(x.nbytes)
    kernel(device, "scale8")((1,), (10,), (on(device, x), out))
    assert np.array_equal(out.to_numpy(), 2 * x)
    traffic = device.counts.launches[-1].traffic
    assert (traffic["x"].bytes_read, traffic["x"].wide_reads) == (320, 20)
    assert (traffic["out"].bytes_written, traffic["out"].wide_writes) == (320, 20)


def test_tiles_in_shared_memory(device: Device) -> None:
    x = numbers(37, 50)
    out = device.alloc(x.nbytes)
    kernel(device, "transpose")((4, 3), (16, 16), (on(device, x), out, np.int32(37), np.int32(50)))
    assert np.array_equal(out.to_numpy(shape=(50, 37)), x.T)
    traffic = device.counts.launches[-1]
    assert traffic.bytes_moved == 2 * x.nbytes
    assert traffic.shared.bytes_written == traffic.shared.bytes_read == x.nbytes


def test_sum_in_two_stages(device: Device) -> None:
    x = np.random.default_rng(0).integers(-9, 9, 5000).astype(np.float32)
    parts, out = device.alloc(28), device.alloc(4)
    sums = kernel(device, "sum")
    sums((7,), (128,), (on(device, x), parts, np.int32(x.size)))
    sums((1,), (128,), (parts, out, np.int32(7)))
    assert out.to_numpy() == x.sum()
    assert len(device.counts.launches) == 2
    assert len(device.counts.synchronizations) == 1


def test_softmax_of_rows(device: Device) -> None:
    x = numbers(5, 300)
    out = device.alloc(x.nbytes)
    kernel(device, "softmax")((5,), (128,), (on(device, x), out, np.int32(300)), shared_mem=1200)
    e = np.exp(x - x.max(1, keepdims=True))
    assert np.allclose(out.to_numpy(shape=x.shape), e / e.sum(1, keepdims=True), rtol=1e-6, atol=0)
    assert device.counts.launches[-1].bytes_moved == 2 * x.nbytes


def test_histogram(device: Device) -> None:
    values = np.random.default_rng(0).integers(0, 16, 1000, dtype=np.int32)
    counts = on(device, np.zeros(16, np.uint32))
    kernel(device, "histogram")((3,), (64,), (on(device, values), counts, np.int32(values.size)))
    assert np.array_equal(counts.to_numpy(np.uint32), np.bincount(values, minlength=16))
    assert device.counts.launches[-1].traffic["counts"].atomics == 48


def test_compare_and_swap(device: Device) -> None:
    x = numbers(300)
    out = on(device, np.float32([-np.inf]))
    kernel(device, "largest")((3,), (128,), (on(device, x), out, np.int32(300)))
    assert out.to_numpy() == x.max()


def test_last_block_sees_what_was_fenced(device: Device) -> None:
    x = np.arange(3000, dtype=np.float32) % 7
    out, parts = device.alloc(4), device.alloc(20)
    arrived = on(device, np.uint32([0]))
    arguments = (on(device, x), parts, arrived, out, np.int32(x.size))
    for _ in range(2):  # the counter is 0 again after each
        kernel(device, "sum_at_once")((5,), (128,), arguments)
        assert out.to_numpy() == x.sum()


@pytest.mark.parametrize(("name", "dtype"), [("halves", np.float16), ("bfloats", ml_dtypes.bfloat16)])
def test_halves_round_as_numpy_does(name: str, dtype: type) -> None:
    device = Device()
    every = np.arange(1 << 16, dtype=np.uint16).view(dtype).astype(np.float32)
    exact = every[np.isfinite(every)]
    middles = ((exact[1:].astype(np.float64) + exact[:-1]) / 2).astype(np.float32)
    x = np.concatenate(
        [every, middles, np.nextafter(middles, np.float32(np.inf)), np.float32([65519.99, 65520, 3.4e38])]
    )
    out, back = device.alloc(2 * x.size), device.alloc(4 * x.size)
    kernel(device, name)((-(-x.size // 1024),), (1024,), (on(device, x), out, back, np.int32(x.size)))
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = x.astype(dtype)
    found = out.to_numpy(np.uint16)
    number = ~np.isnan(x)
    assert np.array_equal(found[number], wanted.view(np.uint16)[number])
    assert np.array_equal(back.to_numpy(), wanted.astype(np.float32), equal_nan=True)


def test_votes_and_shuffles_of_part_of_a_warp(device: Device) -> None:
    x = np.random.default_rng(0).integers(-3, 4, 32, dtype=np.int32)
    x[8:] = np.abs(x[8:]) + 1
    out = device.alloc(5 * 4 * 32)
    kernel(device, "votes")((1,), (32,), (on(device, x), out))
    ballot, some, first, up, count = out.to_numpy(np.int32, (32, 5)).T
    positive = sum(int(v > 0) << i for i, v in enumerate(x))
    assert np.array_equal(ballot.view(np.uint32), [positive & 0xFF] * 8 + [positive & 0xFFFFFF00] * 24)
    assert np.array_equal(some, [int((x[:8] > 0).any()) + 2 * int((x[:8] > 0).all())] * 8 + [3] * 24)
    assert np.array_equal(first, np.repeat(x[2::8], 8))
    assert np.array_equal(up, np.concatenate([x[:1], x[:-1]]))
    assert np.array_equal(count, np.full(32, 100 * (x > 0).sum() + (x > 1).sum()))


def order_of(seed: int) -> list[int]:
    """When each thread of three blocks of four had its turn."""
    device = Device(seed=seed)
    tickets, following = device.alloc(48), on(device, np.int32([0]))
    kernel(device, "order")((3,), (4,), (tickets, following))
    return tickets.to_numpy(np.int32).tolist()


def test_the_seed_decides_the_order() -> None:
    orders = [order_of(seed) for seed in range(20)]
    assert orders == [order_of(seed) for seed in range(20)]
    assert {min(order[:4]) for order in orders} == {0, 4, 8}  # the first block comes first, second and last
    assert {order[0] - min(order[:4]) for order in orders} == {0, 1, 2, 3}  # and so do its threads
    assert all(max(order[i : i + 4]) == min(order[i : i + 4]) + 3 for order in orders for i in (0, 4, 8))


def test_one_pointer_may_be_read_and_written(device: Device) -> None:
    x = numbers(32)
    buffer = on(device, x)
    kernel(device, "doubled")((1,), (32,), (buffer,))
    assert np.array_equal(buffer.to_numpy(), 2 * x)


def taken_from(kind: str, lane: int, argument: int, width: int) -> int:
    """The lane that a shuffle reads from."""
    first, last = lane // width * width, lane // width * width + width
    if kind == "__shfl_sync":
        return first + argument % width
    if kind == "__shfl_up_sync":
        return lane - argument if lane - argument >= first else lane
    if kind == "__shfl_down_sync":
        return lane + argument if lane + argument < last else lane
    return lane ^ argument if lane ^ argument < last else lane


@pytest.mark.parametrize("kind", ["__shfl_sync", "__shfl_up_sync", "__shfl_down_sync", "__shfl_xor_sync"])
def test_shuffles_within_segments(device: Device, kind: str) -> None:
    cases = [(argument, width) for width in (1, 2, 8, 32) for argument in (0, 1, 3, 7, 16, 31)]
    calls = "".join(f"*out++ = {kind}(~0u, lane, {argument}, {width}); " for argument, width in cases)
    text = f'extern "C" __global__ void k(int* out) {{ int lane = threadIdx.x; out += lane * {len(cases)}; {calls} }}'
    out = device.alloc(4 * 32 * len(cases))
    device.module(text).get_function("k")((1,), (32,), (out,))
    wanted = [[taken_from(kind, lane, argument, width) for argument, width in cases] for lane in range(32)]
    assert out.to_numpy(np.int32, (32, -1)).tolist() == wanted


@pytest.mark.parametrize("seed", range(8))  # in half of the orders a lane ends while others wait
def test_lanes_that_ended_hold_no_warp_up(seed: int) -> None:
    device = Device(seed=seed)
    out = device.alloc(64)
    kernel(device, "half_goes_home")((1,), (32,), (out,))
    assert np.array_equal(out.to_numpy(np.int32), np.arange(15, -1, -1))


def test_each_launch_is_counted_by_itself(device: Device) -> None:
    x = numbers(100)
    arguments = (on(device, x), on(device, x, "y"), device.alloc(400), np.int32(100))
    for _ in range(2):
        kernel(device, "add")((1,), (64,), arguments)
    device.synchronize()
    first, second = ({name: repr(one) for name, one in launch.traffic.items()} for launch in device.counts.launches)
    assert first == second
    assert device.counts.launches[1].traffic["out"].unique_bytes_written == 400


def test_warps_may_work_by_barriers_of_their_own(device: Device) -> None:
    x = np.arange(64, dtype=np.int32)
    buffer = on(device, x)
    kernel(device, "warp_scan")((1,), (64,), (buffer,))
    assert np.array_equal(buffer.to_numpy(np.int32), x.reshape(2, 32).cumsum(1).ravel())


def test_structures_and_constants(device: Device) -> None:
    geometry = np.zeros((), np.dtype([("rows", "i4"), ("columns", "i4"), ("scale", "f4")]))
    geometry[...] = (2, 5, 3.0)
    x = numbers(10)
    out = device.alloc(40)
    kernel(device, "structured")((1,), (32,), (on(device, x), out, geometry))
    assert np.array_equal(out.to_numpy(), x * np.float32(3) + np.float32([1, 2, 3, 4] * 3)[:10])


def test_bits(device: Device) -> None:
    x = np.uint32([0, 1, 0x80000000, 0xFFFFFFFF, 0x12345678])
    out = device.alloc(6 * x.nbytes)
    kernel(device, "bits")((1,), (5,), (on(device, x), out))
    wanted = []
    for v in map(int, x):
        text = f"{v:032b}"
        ones, leading = text.count("1"), len(text) - len(text.lstrip("0"))
        last = 0 if v == 0 else 32 - text.rindex("1")
        wanted.append([ones, leading, last, v * 0x9E3779B9 >> 32, int(text[::-1], 2), (5 << 3 | v >> 29) & 0xFFFFFFFF])
    assert out.to_numpy(np.uint32, (5, 6)).tolist() == wanted
