"""Graphs of recorded work: what a launch does again, with which numbers and addresses, and what cannot be recorded."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.cuda_emulator import cupy_stand_in as cupy
from tests.cuda_emulator.cublas import Cublas
from tests.cuda_emulator.device import Device
from tests.cuda_emulator.faults import CaptureRefused, DeviceFault

KERNELS = """
extern "C" __global__ void scale(const float* x, float* out, float factor) {
    out[threadIdx.x] = factor * x[threadIdx.x];
}
extern "C" __global__ void first_half(const float* x, float* out) {
    if (threadIdx.x < 16) out[threadIdx.x] = x[threadIdx.x];
}
"""


@pytest.fixture
def emulated() -> Iterator[Device]:
    with cupy.using_device() as device:
        yield device


def ones() -> Any:
    return cupy.ones(32, np.float32)


def kernel(name: str, *arguments: Any) -> None:
    cupy.RawModule(code=KERNELS).get_function(name)((1,), (32,), arguments)


def scale(x: Any, out: Any, factor: float = 2) -> None:
    kernel("scale", x, out, np.float32(factor))


def recorded(work: Callable[[], Any], pool: Any = None) -> Any:
    """The graph of some work, over a pool of its own."""
    cupy.cuda.Device().synchronize()
    stream = cupy.cuda.Stream(non_blocking=True)
    with cupy.cuda.using_allocator((pool or cupy.cuda.MemoryPool()).malloc), stream:
        stream.begin_capture()
        work()
        return stream.end_capture()


def fault(graph: Any) -> DeviceFault:
    """What a launch ends with."""
    graph.launch()
    with pytest.raises(DeviceFault) as caught:
        cupy.cuda.Device().synchronize()
    return caught.value


# ---- what a launch does ----------------------------------------------------------------------------------------------


def test_nothing_runs_before_the_launch(emulated: Device) -> None:
    x, y = ones(), cupy.zeros(32, np.float32)

    def work() -> None:
        scale(x, y)
        y.data.memset_async(0, 64)

    graph = recorded(work)
    emulated.synchronize()
    assert emulated.counts.launches == []
    for value in (3, 5):
        x.fill(value)
        graph.launch()
        assert y.get().tolist() == [0] * 16 + [2 * value] * 16


def test_launches_of_graphs_are_counted_apart(emulated: Device) -> None:
    x, y = ones(), ones()

    def work() -> None:
        scale(x, y)
        scale(y, x)

    graph = recorded(work)
    emulated.counts.clear()
    graph.launch()
    scale(x, y)
    assert (emulated.counts.graphs, emulated.counts.queued, emulated.counts.allocations) == (1, 1, 0)
    emulated.synchronize()
    assert len(emulated.counts.launches) == 3


def test_a_number_stays_what_it_was(emulated: Device) -> None:
    """What a program forgot to put into the device's memory shows: the graph has the number of the recording."""
    x, y, rates = ones(), ones(), [2.0]
    graph = recorded(lambda: scale(x, y, rates[0]))
    rates[0] = 3.0
    graph.launch()
    assert y.get()[0] == 2


def test_memory_of_its_own_pool_is_used_again(emulated: Device) -> None:
    """Blocks that come and go while it is recorded come and go in each launch."""
    x, y, pool = ones(), cupy.zeros(32, np.float32), cupy.cuda.MemoryPool()

    def work() -> None:
        one = cupy.empty(32, np.float32)
        scale(x, one)
        two = cupy.empty(32, np.float32)
        scale(one, two)
        del one
        three = cupy.empty(32, np.float32)  # where `one` was
        scale(two, three)
        scale(three, y)

    graph = recorded(work, pool)
    assert pool.total_bytes() == 2 * 512
    emulated.counts.clear()
    for value in (1, 3):
        x.fill(value)
        graph.launch()
        assert y.get().tolist() == [16 * value] * 32
    assert emulated.counts.allocations == 0


# ---- deliberate faults -----------------------------------------------------------------------------------------------


def test_an_operand_that_was_freed(emulated: Device) -> None:
    held, y = [ones()], ones()
    graph = recorded(lambda: scale(held[0], y))
    held.clear()
    emulated.synchronize()
    assert fault(graph).kind == "freed"


def test_what_another_graph_lets_go_of_is_no_part_of_this_one(emulated: Device) -> None:
    x, y, pool = ones(), cupy.zeros(32, np.float32), cupy.cuda.MemoryPool()
    results = []

    def work() -> None:
        results.append(cupy.empty(32, np.float32))
        scale(x, results[0])

    def other() -> None:
        results.clear()  # as the garbage collector does it, at any time
        scale(x, y)

    earlier = recorded(work, pool)
    graph = recorded(other)
    del earlier, pool
    cupy.cuda.Device().synchronize()
    graph.launch()
    assert (y.get() == 2).all()


def test_a_pool_that_was_freed(emulated: Device) -> None:
    x, y = ones(), ones()

    def work() -> None:
        between = cupy.empty(32, np.float32)
        scale(x, between)
        scale(between, y)

    graph = recorded(work)  # nobody has its pool
    emulated.synchronize()
    assert fault(graph).kind == "freed"


def test_what_the_launch_before_left_is_poison(emulated: Device) -> None:
    """A kernel that writes half of a block, and one that reads all of it: the other half must not be old values."""
    x, y, pool = ones(), ones(), cupy.cuda.MemoryPool()
    with cupy.cuda.using_allocator(pool.malloc):
        outside = ones()

    def work() -> None:
        between = cupy.empty(32, np.float32)
        kernel("first_half", x, between)
        scale(between, y)

    graph = recorded(work, pool)
    assert fault(graph).kind == "unwritten"
    assert outside.get()[0] == 1


def test_a_workspace_that_was_freed(emulated: Device) -> None:
    library, handle, one = Cublas(emulated), ctypes.c_void_p(), ctypes.c_float(1)
    a, c, held = cupy.ones((2, 2), np.float32), cupy.ones((2, 2), np.float32), [cupy.empty(1 << 16, np.uint8)]
    library.cublasCreate_v2(handle)

    def work() -> None:
        library.cublasSetStream_v2(handle, emulated.current_stream)
        library.cublasSetWorkspace_v2(handle, held[0].data.ptr, held[0].nbytes)
        p, q = a.data.ptr, c.data.ptr
        operands = (p, 0, 2, 4, p, 0, 2, 4, ctypes.c_float(0), q, 0, 2, 4)
        assert library.cublasGemmStridedBatchedEx(handle, 0, 0, 2, 2, 2, one, *operands, 1, 68, -1) == 0

    graph = recorded(work)
    graph.launch()
    assert c.get().tolist() == [[2, 2], [2, 2]]
    held.clear()
    emulated.synchronize()
    assert fault(graph).kind == "freed"


# ---- what cannot be recorded -----------------------------------------------------------------------------------------


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a wait": (lambda x: x.get(), "nobody can wait"),
    "a condition": (lambda x: bool(x[0]), "nobody can wait"),
    "a wait for the device": (lambda x: cupy.cuda.Device().synchronize(), "nobody can wait"),
    "a copy of a host array": (lambda x: cupy.asarray(np.ones(4, np.float32)), "not pinned"),
    "a copy from an address": (lambda x: x.data.copy_from_host_async(np.ones(4).ctypes.data, 32), "not pinned"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_spoils_a_graph(emulated: Device, what: str) -> None:
    x, (run, words) = ones(), REFUSED[what]

    def work() -> None:
        with pytest.raises(CaptureRefused, match=words):
            run(x)

    with pytest.raises(CaptureRefused, match="Invalidated"):
        recorded(work)


def test_what_is_refused_before_the_driver_hears_of_it(emulated: Device) -> None:
    x, stream = cupy.ones((4, 4), np.float32), cupy.cuda.Stream(non_blocking=True)
    with pytest.raises(RuntimeError, match="legacy"):
        cupy.cuda.get_current_stream().begin_capture()
    with stream:
        stream.begin_capture()
        with pytest.raises(CaptureRefused, match="cuBLAS"):
            cupy.matmul(x, x)
        with pytest.raises(CaptureRefused, match="pool that everything shares"):
            cupy.empty(4)
        with pytest.raises(CaptureRefused, match="records a graph already"):
            stream.begin_capture()
        stream.end_capture()


def test_other_threads_go_on(emulated: Device) -> None:
    """A stream, and a pool for a block, are those of one thread."""
    x, y = ones(), ones()

    def elsewhere() -> None:
        assert cupy.cuda.get_current_stream().ptr == 0
        scale(x, y, 5)
        found.append(y.get()[0])

    found: list[float] = []

    def work() -> None:
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        scale(x, y)

    graph = recorded(work)
    assert found == [5]
    graph.launch()
    assert y.get()[0] == 2
