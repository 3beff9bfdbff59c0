"""The module of cuDNN's frontend on the emulated device: graphs of one convolution, under its names and with its
parameters (`cudnn_signatures.txt`).

It is stricter than the library. Images have their channels last, filters lie as (results, *window, channels), all in
one piece; steps come in their order, with the arguments' own types. A plan that has not run yet cannot run while a
graph is recorded, since its kernels are loaded then; one that a graph was recorded from lives as long as the graph is
launched. A workspace holds poison. The host computes the results when the stream gets there.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.cuda_emulator.convolving import dgrad, fprop, wgrad
from tests.cuda_emulator.cublas import rounded_to_tf32
from tests.cuda_emulator.cudnn_graphs import (
    DTYPES,
    LOSSY,
    Engine,
    N,
    Node,
    Plan,
    Tensor,
    data_type,
    engines,
    heur_mode,
    is_beyond,
    numerical_note,
)
from tests.cuda_emulator.cupy_stand_in.state import device, stream_at
from tests.cuda_emulator.faults import DeviceFault
from tests.cuda_emulator.host import Span, poison

__all__ = [
    "Tensor",
    "backend_version",
    "create_handle",
    "cudnnGraphNotSupportedError",
    "data_type",
    "destroy_handle",
    "heur_mode",
    "numerical_note",
    "pygraph",
    "set_stream",
]

ALIGNED = 16
COMPUTED = {"fprop": fprop, "dgrad": dgrad, "wgrad": wgrad}


class cudnnGraphNotSupportedError(Exception):
    """No engine does this graph."""


def backend_version() -> int:
    return 91200


# ------------------------------------------------------------------ handles


class Handle:
    """Of one thread, on one stream."""

    def __init__(self) -> None:
        self.thread, self.queue, self.is_live = threading.get_ident(), device().default_stream, True

    def require(self) -> None:
        if not self.is_live:
            raise RuntimeError("the handle was destroyed")


def create_handle() -> Handle:
    _refuse_recording("create_handle")
    return Handle()


def set_stream(handle: Handle, stream: int) -> None:
    if type(handle) is not Handle or type(stream) is not int:
        raise TypeError(f"set_stream takes a handle and a number, got {handle!r} and {stream!r}")
    handle.require()
    handle.thread, handle.queue = threading.get_ident(), stream_at(stream)  # who calls it has it from now on


def destroy_handle(handle: Handle) -> None:
    handle.require()
    handle.is_live = False


def _refuse_recording(what: str) -> None:
    if device().current_stream.recording is not None:
        raise device().current_stream.refuse(f"`{what}` while a graph is recorded")


# ------------------------------------------------------------------ graphs


@dataclass
class _State:
    """How far a graph is."""

    done: list[str] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)
    barred: set[int] = field(default_factory=set)


ORDER = ("validate", "build_operation_graph", "create_execution_plans", "check_support", "build_plans")


class pygraph:
    """A graph of one convolution."""

    def __init__(
        self,
        name: str = "test_graph",
        io_data_type: Any = data_type.NOT_SET,
        intermediate_data_type: Any = data_type.NOT_SET,
        compute_data_type: Any = data_type.NOT_SET,
        handle: Handle | None = None,
        sm_count: Any = None,
        sm_version: Any = None,
        kernel_cache: Any = None,
        device_property: Any = None,
        is_dynamic_shape_enabled: bool = False,
        is_override_shape_enabled: bool = False,
        cuda_graph_retention: Any = None,
        *,
        is_cuda_graph_replay_expected: bool = False,
        **kwargs: Any,
    ) -> None:
        if type(handle) is not Handle:
            raise TypeError("the stand-in plans for the device of a handle")
        handle.require()
        self._tensors: list[Tensor] = []
        self._node: Node | None = None
        self._plan: Plan | None = None
        self._state = _State()

    def tensor(
        self,
        dim: Sequence[int],
        stride: Sequence[int],
        data_type: Any = data_type.NOT_SET,
        is_virtual: bool = False,
        is_pass_by_value: bool = False,
        ragged_offset: Any = None,
        reordering_type: Any = None,
        name: str = "",
        uid: int = -1,
        ragged_offset_multiplier: int = 1,
        alignment_value: int = 1,
        **kwargs: Any,
    ) -> Tensor:
        if not all(type(n) is int for n in (*dim, *stride)) or uid < 1 or data_type not in DTYPES:
            raise TypeError(f"a tensor of {dim}, {stride}, {data_type} and number {uid}")
        made = Tensor(list(dim), list(stride), data_type, uid)
        self._tensors.append(made)
        return made

    def conv_fprop(
        self,
        image: Tensor,
        weight: Tensor,
        pre_padding: Sequence[int] = (),
        post_padding: Sequence[int] = (),
        stride: Sequence[int] = (),
        dilation: Sequence[int] = (),
        convolution_mode: Any = None,
        compute_data_type: Any = data_type.NOT_SET,
        name: str = "",
    ) -> Tensor:
        return self._add("fprop", (image, weight), pre_padding, post_padding, stride, dilation, compute_data_type)

    def conv_dgrad(
        self,
        loss: Tensor,
        filter: Tensor,
        pre_padding: Sequence[int] = (),
        post_padding: Sequence[int] = (),
        stride: Sequence[int] = (),
        dilation: Sequence[int] = (),
        convolution_mode: Any = None,
        compute_data_type: Any = data_type.NOT_SET,
        name: str = "",
    ) -> Tensor:
        return self._add("dgrad", (loss, filter), pre_padding, post_padding, stride, dilation, compute_data_type)

    def conv_wgrad(
        self,
        image: Tensor,
        loss: Tensor,
        pre_padding: Sequence[int] = (),
        post_padding: Sequence[int] = (),
        stride: Sequence[int] = (),
        dilation: Sequence[int] = (),
        convolution_mode: Any = None,
        compute_data_type: Any = data_type.NOT_SET,
        name: str = "",
    ) -> Tensor:
        return self._add("wgrad", (image, loss), pre_padding, post_padding, stride, dilation, compute_data_type)

    def _add(self, kind: str, operands: tuple[Tensor, Tensor], *steps: Any) -> Tensor:
        *along, compute = steps
        names = ("pre_padding", "post_padding", "stride", "dilation")
        result = Tensor([], [], data_type.NOT_SET, -1)
        given = dict(zip(names, map(list, along), strict=True))
        self._node = Node(kind, operands, result, given, compute)
        return result

    # ------------------------------------------------------------------ from a graph to a plan

    def _step(self, name: str) -> Node:
        if tuple(self._state.done) != ORDER[: ORDER.index(name)]:
            raise RuntimeError(f"`{name}` after {', '.join(self._state.done) or 'nothing'}")
        _refuse_recording(name)
        self._state.done.append(name)
        assert self._node is not None
        return self._node

    def validate(self) -> None:
        node = self._step("validate")
        wrong = node.problem()
        tensors = (*node.operands, node.result)
        if not node.result.is_output or len({t.uid for t in tensors}) != 3 or min(t.uid for t in tensors) < 1:
            wrong = "the result is no output, or tensors have equal numbers"
        if wrong is not None:
            raise RuntimeError(f"validate failed: {wrong}")

    def build_operation_graph(self) -> None:
        node = self._step("build_operation_graph")
        tensors = (*node.operands, node.result)
        if not all(t.has_channels_last for t in tensors):
            raise cudnnGraphNotSupportedError(f"the stand-in wants channels last, got {[t.stride for t in tensors]}")
        if len({t.data_type for t in tensors}) > 1 or node.compute is not data_type.FLOAT:
            raise cudnnGraphNotSupportedError("the stand-in wants one dtype, and sums in float32")

    def create_execution_plans(self, heuristics: Sequence[Any]) -> None:
        node = self._step("create_execution_plans")
        dtype = node.result.data_type
        known = [] if is_beyond(dtype) else engines(node.kind, dtype)
        self._state.plans = [Plan(e) for mode in heuristics for e in known if mode in e.modes]
        if not self._state.plans:
            raise cudnnGraphNotSupportedError("No valid engine configs for CONVOLUTION")

    def _filter(self, is_barred: Callable[[Engine], bool]) -> None:
        if "create_execution_plans" not in self._state.done:
            raise RuntimeError("there are no plans yet that could be left out")
        self._state.barred.update(k for k, p in enumerate(self._state.plans) if is_barred(p.engine))

    def deselect_numeric_notes(self, notes: Sequence[Any]) -> None:
        if not all(isinstance(note, numerical_note) for note in notes):
            raise TypeError(f"{notes} are no notes")
        self._filter(lambda e: bool(e.notes & set(notes)))

    def deselect_workspace_greater_than(self, workspace_limit: int) -> None:
        self._filter(lambda e: e.workspace > workspace_limit)

    def check_support(self) -> None:
        self._step("check_support")
        if len(self._state.barred) == len(self._state.plans):
            raise cudnnGraphNotSupportedError("No valid execution plans built")

    def build_plans(self, policy: Any = None) -> None:
        self._step("build_plans")
        self._plan = next(p for k, p in enumerate(self._state.plans) if k not in self._state.barred)

    def get_workspace_size(
        self, handle: Any = None, override_uids: Any = None, override_shapes: Any = None, override_strides: Any = None
    ) -> int:
        return self._built().engine.workspace

    def _built(self) -> Plan:
        if self._plan is None:
            raise RuntimeError("no plan was built")
        return self._plan

    # ------------------------------------------------------------------ running it

    def execute(
        self,
        tensor_dict: dict[int, int],
        workspace: int | None = None,
        handle: Handle | None = None,
        override_uids: Any = None,
        override_shapes: Any = None,
        override_strides: Any = None,
        tensor_uids: Any = None,
    ) -> None:
        plan, node = self._built(), self._node
        assert node is not None
        if type(handle) is not Handle:
            raise TypeError("execute takes a handle, or it works on the default stream")
        handle.require()
        name = f"cudnn.conv_{node.kind}"
        if handle.thread != threading.get_ident():
            raise DeviceFault("race", "a handle of another thread is used", name)
        spans = [t.span(_aligned(tensor_dict[t.uid], name)) for t in (*node.operands, node.result)]
        if plan.engine.workspace and not workspace:
            raise RuntimeError(f"the plan works in {plan.engine.workspace} bytes, and was given none")
        is_recorded = handle.queue.recording is not None
        if is_recorded and not plan.has_run:
            raise handle.queue.refuse(f"`{name}` loads its kernels when it first runs")
        plan.has_run = True
        alive = weakref.ref(self) if is_recorded else lambda: True
        device().counts.library_calls.append(name)
        handle.queue.enqueue(lambda: _run(node, plan, spans, workspace, alive, name))


def _aligned(address: int, name: str) -> int:
    if type(address) is not int:
        raise TypeError(f"`{name}` takes addresses here, got {address!r}")
    if address % ALIGNED:
        raise DeviceFault("misaligned", f"a tensor at {address:#x} is not aligned to {ALIGNED} bytes", name)
    return address


def _run(node: Node, plan: Plan, spans: list[Span], workspace: int, alive: Callable[[], Any], name: str) -> None:
    if not alive():
        raise DeviceFault("freed", "the plan that a graph was recorded with is gone, and its kernels with it", name)
    if plan.engine.workspace:
        poison(workspace, plan.engine.workspace, name)
    first, second, result = spans
    given = [span.read(name).astype(np.float32) for span in (first, second)]
    notes = plan.engine.notes
    if {N.TENSOR_CORE, N.DOWN_CONVERT_INPUTS} <= notes:
        given = [rounded_to_tf32(values) for values in given]
    order = np.random.default_rng() if N.NONDETERMINISTIC in notes else None
    with np.errstate(all="ignore"):
        found = COMPUTED[node.kind](*given, result.shape, *node.steps.values(), order)
    if notes & LOSSY:  # digits, in proportion to the largest number
        step = np.abs(found).max() * 2.0**-11
        found = np.round(found / step) * step if step else found
    result.written(name)[...] = found.astype(result.dtype)
