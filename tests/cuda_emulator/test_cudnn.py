"""The stand-in for cuDNN's frontend: what it computes, what it refuses, and what a wrong call does."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.cuda_emulator import cudnn_stand_in as cudnn
from tests.cuda_emulator import cupy_stand_in as cupy
from tests.cuda_emulator.cudnn_stand_in import data_type, heur_mode, numerical_note
from tests.cuda_emulator.cupy_stand_in.state import address_of_stream
from tests.cuda_emulator.device import Device
from tests.cuda_emulator.faults import CaptureRefused, DeviceFault

FLOAT = data_type.FLOAT
IMAGES, FILTERS, RESULTS = (2, 5, 4, 3), (6, 3, 2, 3), (2, 3, 3, 6)  # as arrays have them: channels last


@pytest.fixture
def device() -> Iterator[Device]:
    with cupy.using_device() as found:
        yield found


def layout(shape: tuple[int, ...]) -> dict[str, list[int]]:
    first, *space, channels = shape
    inner = [channels * int(np.prod(space[k + 1 :])) for k in range(len(space))]
    return {"dim": [first, channels, *space], "stride": [channels * int(np.prod(space)), 1, *inner]}


def graph(handle: Any, compute: Any = FLOAT, dtype: Any = FLOAT, **changed: Any) -> Any:
    """One of a convolution, as far as it can be made without a plan."""
    made = cudnn.pygraph(io_data_type=dtype, compute_data_type=compute, handle=handle)
    image = made.tensor(**layout(IMAGES), data_type=dtype, uid=1)
    weight = made.tensor(**layout(changed.pop("filters", FILTERS)), data_type=dtype, uid=2)
    steps = {"pre_padding": [0, 0], "post_padding": [0, 0], "stride": [1, 1], "dilation": [1, 1]} | changed
    out = made.conv_fprop(image, weight, **steps, compute_data_type=compute)
    out.set_output(True).set_uid(3).set_data_type(dtype)
    out.set_dim(layout(RESULTS)["dim"]).set_stride(layout(RESULTS)["stride"])
    return made


def built(handle: Any, unwanted: tuple[str, ...] = (), modes: Any = tuple(heur_mode), **changed: Any) -> Any:
    made = graph(handle, **changed)
    made.validate()
    made.build_operation_graph()
    made.create_execution_plans(modes)
    made.deselect_numeric_notes([getattr(numerical_note, name) for name in unwanted])
    made.deselect_workspace_greater_than(1 << 30)
    made.check_support()
    made.build_plans()
    return made


def numbers(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def operands() -> tuple[Any, Any, Any]:
    return cupy.array(numbers(*IMAGES)), cupy.array(numbers(*FILTERS)), cupy.empty(RESULTS, np.float32)


def wanted() -> Any:
    """By the definition, element by element."""
    x, w, y = numbers(*IMAGES), numbers(*FILTERS), np.zeros(RESULTS, np.float32)
    for n, i, j, k in np.ndindex(*RESULTS):
        y[n, i, j, k] = np.sum(x[n, i : i + 3, j : j + 2] * w[k])
    return y


def tensors(*arrays: Any) -> dict[int, int]:
    return {uid: a.data.ptr for uid, a in enumerate(arrays, 1)}


PLAIN = ("TENSOR_CORE", "WINOGRAD")
BLOCK = 512  # bytes that the pool hands out at once


def test_a_convolution_is_queued(device: Device) -> None:
    handle = cudnn.create_handle()
    x, w, y = operands()
    device.synchronize("operands")
    built(handle, PLAIN).execute(tensors(x, w, y), 0, handle=handle)
    assert device.default_stream.steps
    np.testing.assert_allclose(cupy.asnumpy(y), wanted(), rtol=1e-5, atol=1e-5)
    assert device.counts.library_calls[-1] == "cudnn.conv_fprop"


def test_tf32_has_ten_bits(device: Device) -> None:
    handle, (x, w, y) = cudnn.create_handle(), operands()
    made = built(handle, ("WINOGRAD",))
    space = cupy.empty((made.get_workspace_size(),), np.uint8)
    made.execute(tensors(x, w, y), space.data.ptr, handle=handle)
    off = np.abs(cupy.asnumpy(y) - wanted()).max()
    assert 1e-4 < off < 1e-2


def test_operands_are_read_when_it_runs(device: Device) -> None:
    """What nobody has written by then, and what lies beyond an array, is a fault."""
    handle, (_, w, y) = cudnn.create_handle(), operands()
    made = built(handle, PLAIN)
    empty, short = cupy.empty(IMAGES, np.float32), cupy.array(np.zeros(BLOCK // 4, np.float32))
    device.synchronize("operands")
    for address, kind in ((empty.data.ptr, "unwritten"), (short.data.ptr + BLOCK // 2, "out of bounds")):
        made.execute({1: address, 2: w.data.ptr, 3: y.data.ptr}, 0, handle=handle)
        with pytest.raises(DeviceFault, match=kind):
            cupy.asnumpy(y)


def test_a_workspace_is_as_large_as_the_plan_says(device: Device) -> None:
    handle, (x, w, y) = cudnn.create_handle(), operands()
    made = built(handle, ("WINOGRAD",))
    with pytest.raises(RuntimeError, match="works in 131 bytes, and was given none"):
        made.execute(tensors(x, w, y), 0, handle=handle)
    small = cupy.empty((BLOCK,), np.uint8)
    made.execute(tensors(x, w, y), small.data.ptr + BLOCK - 128, handle=handle)
    with pytest.raises(DeviceFault, match="out of bounds"):
        cupy.asnumpy(y)


def test_addresses_are_aligned(device: Device) -> None:
    handle, (x, w, y) = cudnn.create_handle(), operands()
    with pytest.raises(DeviceFault, match="misaligned"):
        built(handle, PLAIN).execute({1: x.data.ptr + 4, 2: w.data.ptr, 3: y.data.ptr}, 0, handle=handle)


def test_handles_serve_one_thread_and_one_stream(device: Device) -> None:
    handle, (x, w, y) = cudnn.create_handle(), operands()
    made, found = built(handle, PLAIN), []

    def work() -> None:
        try:
            made.execute(tensors(x, w, y), 0, handle=handle)
        except DeviceFault as e:
            found.append(e.kind)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == ["race"]
    device.synchronize("operands")
    stream = cupy.cuda.Stream(non_blocking=True)
    cudnn.set_stream(handle=handle, stream=address_of_stream(stream.queue))
    made.execute(tensors(x, w, y), 0, handle=handle)
    assert stream.queue.steps and not device.default_stream.steps
    cudnn.destroy_handle(handle)
    with pytest.raises(RuntimeError, match="destroyed"):
        made.execute(tensors(x, w, y), 0, handle=handle)


def test_nothing_is_made_while_a_graph_is_recorded(device: Device) -> None:
    """Nor is what has not run yet put into one."""
    handle, (x, w, y) = cudnn.create_handle(), operands()
    made = built(handle, PLAIN)
    stream = cupy.cuda.Stream(non_blocking=True)
    cudnn.set_stream(handle, address_of_stream(stream.queue))
    device.synchronize("operands")
    for attempt in (
        cudnn.create_handle,
        lambda: built(handle, PLAIN),
        lambda: made.execute(tensors(x, w, y), 0, handle=handle),
    ):
        with stream:
            stream.begin_capture()
            with pytest.raises(CaptureRefused):
                attempt()
            with pytest.raises(CaptureRefused, match="Invalidated"):
                stream.end_capture()


def test_a_graph_needs_its_plan(device: Device) -> None:
    handle, (x, w, y) = cudnn.create_handle(), operands()
    made = built(handle, PLAIN)
    made.execute(tensors(x, w, y), 0, handle=handle)
    stream = cupy.cuda.Stream(non_blocking=True)
    cudnn.set_stream(handle, address_of_stream(stream.queue))
    device.synchronize("operands")
    with stream:
        stream.begin_capture()
        made.execute(tensors(x, w, y), 0, handle=handle)
        recorded = stream.end_capture()
    recorded.launch()
    np.testing.assert_allclose(cupy.asnumpy(y), wanted(), rtol=1e-5, atol=1e-5)
    del made
    gc.collect()
    recorded.launch()
    with pytest.raises(DeviceFault, match="plan that a graph was recorded with is gone"):
        cupy.asnumpy(y)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"filters": (6, 3, 2, 2)}, "do not fit each other"),
        ({"stride": [2, 1]}, "3 windows along an axis of 5 elements"),
        ({"post_padding": [1, 0]}, "3 windows along an axis of 5 elements"),
        ({"dilation": [1]}, "for 2 axes of space"),
        ({"dilation": [0, 1]}, "less than 1"),
    ],
    ids=str,
)
def test_what_does_not_fit(device: Device, changed: dict[str, Any], says: str) -> None:
    with pytest.raises(RuntimeError, match=says):
        graph(cudnn.create_handle(), **changed).validate()


def test_what_is_not_supported(device: Device) -> None:
    handle = cudnn.create_handle()
    with pytest.raises(cudnn.cudnnGraphNotSupportedError, match="sums in float32"):
        built(handle, compute=data_type.HALF, dtype=data_type.HALF)
    first = graph(handle)
    first._node.operands[1].stride = [1, 6, 36, 18]  # channels before results: filters as gradtape has them
    first.validate()
    with pytest.raises(cudnn.cudnnGraphNotSupportedError, match="channels last"):
        first.build_operation_graph()
    with pytest.raises(cudnn.cudnnGraphNotSupportedError, match="No valid execution plans"):
        built(handle, PLAIN, modes=(heur_mode.A,))


def test_steps_have_an_order(device: Device) -> None:
    made = graph(cudnn.create_handle())
    with pytest.raises(RuntimeError, match="`check_support` after nothing"):
        made.check_support()
    with pytest.raises(RuntimeError, match="no plans yet"):
        made.deselect_numeric_notes([])
    with pytest.raises(RuntimeError, match="no plan was built"):
        made.get_workspace_size()
