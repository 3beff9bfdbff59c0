"""The stand-in for CuPy: what is free, what is counted, what raises, and what would go wrong on a device."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.cuda_emulator import cupy_stand_in as cupy
from tests.cuda_emulator.cupy_stand_in import ComputesOutsideKernels, memory
from tests.cuda_emulator.device import Device
from tests.cuda_emulator.faults import DeviceFault

DOUBLE = """
extern "C" __global__ void twice(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = 2 * x[i];
}
"""


@pytest.fixture(autouse=True)
def emulated() -> Iterator[Device]:
    with cupy.using_device() as device:
        yield device


def twice(x: Any, out: Any) -> None:
    cupy.RawKernel(DOUBLE, "twice")((-(-x.size // 64),), (64,), (x, out, np.int32(x.size)))


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(5).standard_normal(shape, np.float32)


# ---- arrays ----------------------------------------------------------------------------------------------------------

VIEWS: dict[str, Callable[[Any], Any]] = {
    "an element": lambda x: x[1, 2, 3],
    "a row": lambda x: x[-1],
    "steps backwards": lambda x: x[:, ::-2, 1:],
    "a new axis": lambda x: x[..., None, 0],
    "nothing": lambda x: x[:0],
    "transposed": lambda x: x.T,
    "axes": lambda x: x.transpose(1, 2, 0),
    "axes as a tuple": lambda x: x.transpose((1, 2, 0)),
    "swapped": lambda x: x.swapaxes(0, -1),
    "another shape": lambda x: x.reshape(6, -1),
    "another shape as a tuple": lambda x: x.reshape((2, 12)),
    "flat": lambda x: x.ravel(),
    "no axis of one": lambda x: x[:1].squeeze(0),
    "as bits": lambda x: x.view(np.uint32),
    "as halves": lambda x: x.view(np.float16),
    "views of views": lambda x: x[1:].transpose(2, 0, 1)[::2].reshape(2, 3, 1),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_are_free(emulated: Device, name: str) -> None:
    host = numbers(2, 3, 4)
    x = cupy.asarray(host)
    view, wanted = VIEWS[name](x), VIEWS[name](host)
    assert (view.shape, view.dtype) == (wanted.shape, np.asarray(wanted).dtype)
    assert np.array_equal(cupy.asnumpy(view), wanted, equal_nan=True)
    assert view.base is x
    assert emulated.counts.library_calls == []
    assert emulated.counts.allocations == 1


def test_a_shape_that_no_view_has_is_a_counted_copy(emulated: Device) -> None:
    host = numbers(3, 4)
    x = cupy.asarray(host)
    assert np.array_equal(x.T.reshape(12).get(), host.T.reshape(12))
    assert np.array_equal(cupy.ascontiguousarray(x[:, ::2]).get(), host[:, ::2])
    assert cupy.ascontiguousarray(x) is x
    assert emulated.counts.library_calls == ["copy", "copy"]
    with pytest.raises(ValueError, match="cannot reshape"):
        x.reshape(5)
    with pytest.raises(ValueError, match="copy"):
        x.T.reshape(12, copy=False)


@pytest.mark.parametrize(
    "dtype", [np.bool_, np.int8, np.int64, np.float16, ml_dtypes.bfloat16, np.float64, np.complex64]
)
def test_arrays_go_there_and_back(dtype: Any) -> None:
    host = np.arange(12).reshape(3, 4).astype(dtype)
    x = cupy.asarray(host)
    assert not isinstance(x, np.ndarray)
    assert isinstance(x, cupy.ndarray)
    assert (x.shape, x.dtype, x.nbytes, x.strides) == (host.shape, host.dtype, host.nbytes, host.strides)
    assert np.array_equal(x.get(), host)
    assert np.array_equal(cupy.asarray(host, order="F").get(), host)


def test_new_arrays() -> None:
    assert np.isnan(cupy.asnumpy(cupy.full(3, np.nan, np.float32))).all()
    assert np.array_equal(cupy.zeros((2, 3), np.int32).get(), np.zeros((2, 3)))
    assert np.array_equal(cupy.ones((2, 3)).get(), np.ones((2, 3)))
    assert cupy.ones(2).dtype == np.float64
    assert np.array_equal(cupy.full(3, 7, np.int16).get(), [7, 7, 7])
    turned = cupy.ones((2, 3), order="F")
    assert cupy.empty_like(turned).strides == turned.strides == (8, 16)
    assert cupy.zeros_like(turned, np.int8, shape=(4,)).get().tolist() == [0, 0, 0, 0]
    assert cupy.full_like(turned, 2.0).get().tolist() == [[2.0] * 3] * 2


def test_unwritten_elements_do_not_reach_the_host() -> None:
    with pytest.raises(DeviceFault, match="nothing has written") as caught:
        cupy.empty(3).get()
    assert caught.value.kind == "unwritten"


def test_assignment_copies_or_fills(emulated: Device) -> None:
    host = numbers(3, 4)
    x = cupy.asarray(host)
    x[0] = x[1]
    x[:, 2] = 5
    host[0] = host[1]
    host[:, 2] = 5
    assert np.array_equal(x.get(), host)
    assert emulated.counts.library_calls == ["copy", "fill"]
    with pytest.raises(TypeError, match="got ndarray: use `set`"):
        x[0] = host[0]
    x.set(host * 2)
    assert np.array_equal(x.get(), host * 2)
    with pytest.raises(ValueError, match="does not fit"):
        x.set(host.astype(float))
    with pytest.raises(ValueError, match="broadcast"):
        x[:2] = x


COMPUTING: dict[str, Callable[[Any], Any]] = {
    "sum of two": lambda x: x + x,
    "with a number": lambda x: 2 * x,
    "with a host array": lambda x: x - numbers(3, 4),
    "a host array with it": lambda x: numbers(3, 4) - x,
    "power": lambda x: x**2,
    "in place": lambda x: x.__iadd__(1),
    "comparison": lambda x: x == x,
    "negation": lambda x: -x,
    "product": lambda x: x @ x.T,
    "total": lambda x: x.sum(),
    "NumPy's total": lambda x: np.sum(x),
    "NumPy's function": lambda x: np.exp(x),
    "joining": lambda x: np.concatenate([x, x]),
    "another dtype": lambda x: x.astype(np.float64),
    "gathering": lambda x: x[np.array([0, 2])],
    "a mask": lambda x: x[[True, False, True]],
    "a list of arrays": lambda x: cupy.array([x, x]),
}


@pytest.mark.parametrize("name", COMPUTING)
def test_what_would_compute_raises(name: str) -> None:
    with pytest.raises(ComputesOutsideKernels):
        COMPUTING[name](cupy.asarray(numbers(3, 4)))


def test_no_implicit_conversion() -> None:
    with pytest.raises(TypeError, match="Implicit conversion to a NumPy array is not allowed"):
        np.asarray(cupy.ones(3))
    with pytest.raises(TypeError, match="unhashable"):
        hash(cupy.ones(3))


def test_waits_of_the_host_are_counted(emulated: Device) -> None:
    x = cupy.asarray(np.float32([1.5]))
    assert emulated.counts.synchronizations == []
    assert bool(x) and int(x) == 1 and float(x) == 1.5 and x.item() == 1.5 and x.tolist() == [1.5]
    cupy.asnumpy(x)
    cupy.cuda.Device().synchronize()
    reasons = ["bool", "int", "float", "item", "tolist", "get", "device"]
    assert emulated.counts.synchronizations == reasons
    with pytest.raises(TypeError, match="only size-1"):
        bool(cupy.ones(2))


def test_copy_without_waiting_is_there_later(emulated: Device) -> None:
    x = cupy.asarray(np.float32([1, 2]))
    found = x.get(blocking=False)
    assert np.isnan(found).all()
    cupy.cuda.get_current_stream().synchronize()
    assert found.tolist() == [1, 2]
    assert emulated.counts.synchronizations == ["stream"]


# ---- kernels and library calls ---------------------------------------------------------------------------------------


def test_kernels_take_arrays(emulated: Device) -> None:
    host = numbers(100)
    x, out = cupy.asarray(host), cupy.empty(100, np.float32)
    twice(x, out)
    assert np.array_equal(out.get(), 2 * host)
    assert [launch.kernel for launch in emulated.counts.launches] == ["twice"]
    module = cupy.RawModule(code=DOUBLE, options=("-std=c++17",))
    kernel = module.get_function("twice")
    kernel.max_dynamic_shared_size_bytes = 64 << 10
    kernel((1,), (4,), (x[96:], out[:4], np.int32(4)), shared_mem=60 << 10)
    assert np.array_equal(out.get()[:4], 2 * host[96:])
    assert (kernel.name, kernel.max_threads_per_block) == ("twice", 1024)
    with pytest.raises(NotImplementedError, match="`code` and `options` only"):
        cupy.RawModule(path="kernels.cubin")


def test_dropping_an_argument_after_the_launch_is_allowed() -> None:
    out = cupy.empty(100, np.float32)
    twice(cupy.ones(100, np.float32), out)
    gc.collect()
    assert (out.get() == 2).all()


def test_library_calls_run_in_their_turn(emulated: Device) -> None:
    a, b = numbers(3, 4), numbers(4, 2)
    x, y = cupy.asarray(a), cupy.asarray(b)
    product = cupy.matmul(x, y)
    x.fill(0)
    assert np.allclose(product.get(), a @ b)
    out = cupy.empty((3, 2), np.float32)
    assert cupy.matmul(x, y, out=out) is out
    assert (out.get() == 0).all()
    assert emulated.counts.library_calls == ["matmul", "fill", "matmul"]
    with pytest.raises(TypeError, match="wants device arrays, got ndarray"):
        cupy.matmul(a, y)
    with pytest.raises(ValueError, match="`out` has"):
        cupy.matmul(x, y, out=cupy.empty((2, 3), np.float32))
    cupy.matmul(cupy.empty((3, 4), np.float32), y)
    with pytest.raises(DeviceFault, match=r"matmul.*nothing has written"):
        emulated.synchronize()


def test_linear_algebra_and_transforms() -> None:
    a = numbers(4, 4)
    square = a @ a.T + 4 * np.eye(4, dtype=np.float32)
    x = cupy.asarray(square)
    lower = cupy.linalg.cholesky(x).get()
    assert np.allclose(lower @ lower.T, square, atol=1e-4)
    assert np.allclose(cupy.linalg.solve(x, cupy.asarray(a)).get(), np.linalg.solve(square, a), atol=1e-4)
    assert np.allclose(cupy.linalg.inv(x).get() @ square, np.eye(4), atol=1e-4)
    u, s, vt = (part.get() for part in cupy.linalg.svd(x))
    assert np.allclose((u * s) @ vt, square, atol=1e-4)
    q, r = (part.get() for part in cupy.linalg.qr(x))
    assert np.allclose(q @ r, square, atol=1e-4)
    w, v = (part.get() for part in cupy.linalg.eigh(x))
    assert np.allclose((v * w) @ v.T, square, atol=1e-4)
    assert np.allclose(cupy.linalg.eigvalsh(x).get(), w, atol=1e-4)
    assert np.allclose(cupy.linalg.svd(x, compute_uv=False).get(), s, atol=1e-4)
    spectrum = cupy.fft.fft(x)
    assert spectrum.dtype == np.complex64
    assert np.allclose(cupy.fft.ifft(spectrum).get(), square, atol=1e-4)
    assert np.allclose(cupy.fft.irfft(cupy.fft.rfft(x)).get(), square, atol=1e-4)
    order = cupy.argsort(cupy.asarray(a), axis=0).get()
    assert np.array_equal(np.take_along_axis(a, order, 0), cupy.sort(cupy.asarray(a), axis=0).get())


# ---- memory, streams, graphs -----------------------------------------------------------------------------------------


def test_the_pool_keeps_accounts() -> None:
    pool = cupy.get_default_memory_pool()
    x = cupy.empty(1000, np.uint8)
    assert (pool.used_bytes(), pool.free_bytes(), pool.n_free_blocks()) == (1024, 0, 0)
    del x
    assert (pool.used_bytes(), pool.free_bytes(), pool.n_free_blocks()) == (0, 1024, 1)
    again = cupy.empty(1001, np.uint8)
    assert (pool.used_bytes(), pool.total_bytes()) == (1024, 1024)
    assert cupy.cuda.Device().mem_info == (memory.TOTAL_MEMORY - 1024, memory.TOTAL_MEMORY)
    pool.set_limit(4096)
    assert pool.get_limit() == 4096
    with pytest.raises(
        memory.OutOfMemoryError, match=r"4,096 bytes \(allocated so far: 1,024 bytes, limit set to: 4,096"
    ):
        cupy.empty(4000, np.uint8)
    del again
    assert cupy.empty(4000, np.uint8).size == 4000  # what was free goes back first


def test_allocators() -> None:
    private = cupy.cuda.MemoryPool()
    with cupy.cuda.using_allocator(private.malloc):
        x = cupy.zeros(8)
    assert (private.used_bytes(), cupy.get_default_memory_pool().used_bytes()) == (512, 0)
    assert x.get().sum() == 0


def test_pinned_memory_is_read_late() -> None:
    room = cupy.cuda.alloc_pinned_memory(16)
    host = np.frombuffer(room, np.float32, 4)
    host[:] = 1
    x = cupy.empty(4, np.float32)
    x.data.copy_from_host_async(room.ptr, 16)
    host[:] = 2
    assert x.get().tolist() == [2] * 4
    x.data.copy_from_host_async(room.ptr, 16)
    del host, room
    with pytest.raises(DeviceFault, match="pinned memory that was freed"):
        x.get()


def test_other_memory_of_the_host_is_read_at_once() -> None:
    host = np.ones(4, np.float32)
    x = cupy.empty(4, np.float32)
    x.data.copy_from_host_async(host.ctypes.data, 16)
    host[:] = 2
    y = cupy.empty(4, np.float32)
    y.data.copy_from_device_async(x.data, 16)
    assert y.get().tolist() == [1] * 4


def results_on_two_streams(seed: int, *, with_event: bool) -> float:
    with cupy.using_device(seed=seed):
        x, y = cupy.ones(32, np.float32), cupy.ones(32, np.float32)
        cupy.cuda.Device().synchronize()
        other = cupy.cuda.Stream(non_blocking=True)
        twice(x, y)
        if with_event:
            other.wait_event(cupy.cuda.get_current_stream().record())
        with other:
            assert cupy.cuda.get_current_stream() == other
            twice(y, x)
            return float(x.get()[0])


def test_streams_need_events() -> None:
    assert {results_on_two_streams(seed, with_event=False) for seed in range(8)} == {2.0, 4.0}
    assert {results_on_two_streams(seed, with_event=True) for seed in range(8)} == {4.0}
