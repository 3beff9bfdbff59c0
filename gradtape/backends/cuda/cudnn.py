"""cuDNN for one device, by the module of its frontend: how convolutions are planned, and how plans run. Floor:
backends.

cuDNN numbers the axes of images (batch, channels, *space) and those of filters (results, channels, *window), wherever
they lie in memory; strides say that. Arrays here have their channels last, so that no image is turned around."""

from __future__ import annotations

import functools
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from gradtape.backends.cuda.blas import MATH
from gradtape.ir.determinism import DETERMINISM

Sizes = tuple[int, ...]

DTYPES = {
    np.dtype(np.float32): "FLOAT",
    np.dtype(np.float16): "HALF",
    np.dtype(ml_dtypes.bfloat16): "BFLOAT16",
}
AXES = 3  # of space, the most that there are kernels for
ALIGNED = 16  # bytes: where tensors begin, if nobody says otherwise
WORKSPACE = 1 << 30  # bytes that a plan may ask for
FIRST, SECOND, RESULT = 1, 2, 3  # numbers of tensors
# Of each kind: the function that adds it to a graph, and what this calls the operands.
KINDS = {
    "fprop": ("conv_fprop", "image", "weight"),
    "dgrad": ("conv_dgrad", "loss", "filter"),
    "wgrad": ("conv_wgrad", "image", "loss"),
}
# What is said of a plan whose results are no plain sums of products in float32: it adds in a half type, or transforms
# windows, which loses digits in proportion to the largest numbers around.
NO_PLAIN_SUMS = (
    *("REDUCED_PRECISION_REDUCTION", "FFT"),
    *("WINOGRAD", "WINOGRAD_TILE_4x4", "WINOGRAD_TILE_6x6", "WINOGRAD_TILE_13x13"),
)
WITH_TF32 = ("TENSOR_CORE", "DOWN_CONVERT_INPUTS")  # for operands of float32
BY_CHANCE = ("NONDETERMINISTIC",)


class Policy:
    """Whether cuDNN is used where it is installed: "auto", or "never". The environment variable `GRADTAPE_CUDNN` says
    how a process begins."""

    WAYS = ("auto", "never")

    def __init__(self) -> None:
        self.use = os.environ.get("GRADTAPE_CUDNN", "auto")
        if self.use not in self.WAYS:
            raise ValueError(f"GRADTAPE_CUDNN should be one of {', '.join(self.WAYS)}, got {self.use!r}.")


POLICY = Policy()


class Problem(NamedTuple):
    """A convolution or one of its gradients. Shapes are those of arrays: channels last."""

    kind: str
    dtype: np.dtype[Any]
    first: Sizes
    second: Sizes
    result: Sizes
    strides: Sizes
    dilations: Sizes
    low: Sizes
    high: Sizes

    def __str__(self) -> str:
        steps = f"strides {self.strides}, dilations {self.dilations}, padding {self.low} and {self.high}"
        return f"{self.kind} of {self.dtype} {self.first} and {self.second}, {steps}"

    @property
    def is_in_line(self) -> bool:
        """Whether there is one axis of space; cuDNN wants two at least."""
        return len(self.strides) == 1


class Unsupported(RuntimeError):
    """cuDNN has no plan for a convolution."""


def notes(dtype: np.dtype[Any]) -> tuple[str, ...]:
    """What a plan may not have, as things stand now."""
    exact = WITH_TF32 if dtype == np.float32 and not MATH.tf32 else ()
    return (*NO_PLAIN_SUMS, *exact, *(BY_CHANCE if DETERMINISM.required else ()))


def planned(module: Any, p: Problem, unwanted: Sequence[str], **where: Any) -> Any:
    """The graph of a convolution, with the plan that cuDNN holds for the fastest without `unwanted` notes.

    Args:
      module: of the frontend.
      p: the convolution.
      unwanted: names of numerical notes.
      where: the handle of a device, or the properties of one that need not be there.

    Raises:
      Unsupported: there is none.
    """
    dtype, float32 = getattr(module.data_type, DTYPES[p.dtype]), module.data_type.FLOAT
    graph = module.pygraph(io_data_type=dtype, intermediate_data_type=float32, compute_data_type=float32, **where)
    add, *names = KINDS[p.kind]
    operands = {}
    for uid, name, shape in zip((FIRST, SECOND), names, (p.first, p.second), strict=True):
        dim, stride = _layout(shape, p.is_in_line)
        operands[name] = graph.tensor(dim=dim, stride=stride, data_type=dtype, uid=uid, name=name)
    out = getattr(graph, add)(
        **operands,
        pre_padding=_along(p.low, 0, p.is_in_line),
        post_padding=_along(p.high, 0, p.is_in_line),
        stride=_along(p.strides, 1, p.is_in_line),
        dilation=_along(p.dilations, 1, p.is_in_line),
        compute_data_type=float32,
        name=p.kind,
    )
    dim, stride = _layout(p.result, p.is_in_line)
    out.set_output(True).set_uid(RESULT).set_dim(dim).set_stride(stride).set_data_type(dtype)
    try:
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([module.heur_mode.A, module.heur_mode.FALLBACK])
        graph.deselect_numeric_notes([getattr(module.numerical_note, name) for name in unwanted])
        graph.deselect_workspace_greater_than(WORKSPACE)
        graph.check_support()
        graph.build_plans()
    except module.cudnnGraphNotSupportedError as e:
        raise Unsupported(str(e)) from e
    return graph


def _layout(shape: Sizes, is_in_line: bool) -> tuple[list[int], list[int]]:
    """Dimensions and strides, in elements, of an array in C order whose channels are last."""
    first, *space, channels = (shape[0], 1, *shape[1:]) if is_in_line else shape
    strides, step = [1], channels
    for n in reversed((first, *space)):
        strides.insert(0, step)
        step *= n
    return [first, channels, *space], [strides[0], 1, *strides[1:-1]]


def _along(sizes: Sizes, neutral: int, is_in_line: bool) -> list[int]:
    return [neutral, *sizes] if is_in_line else list(sizes)


class Cudnn:
    """cuDNN on the present device.

    Args:
      find: gives the module of the frontend, or None where cuDNN cannot be used; asked for the first convolution.
      stream: gives the number of the current stream.
    """

    def __init__(self, find: Callable[[], Any], stream: Callable[[], int]) -> None:
        self.find, self.stream = find, stream
        self.own = _Own()
        self.idle: list[Any] = []  # handles of threads that have ended
        self.has_warned = False

    @functools.cached_property
    def module(self) -> Any:
        """Of the frontend; None: im2col and cuBLAS do convolutions."""
        module = None if POLICY.use == "never" else self.find()
        if module is not None:
            try:
                self.idle.append(module.create_handle())
            except RuntimeError as e:
                self.warn(f"cuDNN cannot be used, and im2col and cuBLAS do convolutions: {e}")
                return None
        return module

    def plan(self, p: Problem, unwanted: Sequence[str]) -> Plan:
        """How a convolution runs.

        Raises:
          Unsupported: cuDNN cannot do it.
          RuntimeError: something is wrong with cuDNN.
        """
        try:
            return Plan(self, p, planned(self.module, p, unwanted, handle=self.handle()))
        except Unsupported:
            raise
        except RuntimeError as e:
            raise _failed(p, e) from e

    def warn(self, text: str) -> None:
        """Say, once, that something is done without cuDNN."""
        if not self.has_warned:
            self.has_warned = True
            way_out = "GRADTAPE_SHOW=plan tells of all others, GRADTAPE_CUDNN=never does without cuDNN."
            warnings.warn(f"{text.rstrip('.')}. {way_out}", RuntimeWarning, stacklevel=3)

    def handle(self) -> Any:
        """This thread's handle, on the current stream."""
        own = self.own
        if own.lent is None:
            try:
                handle = self.idle.pop()
            except IndexError:
                handle = self.module.create_handle()
            own.lent = _Lent(handle)
            weakref.finalize(own.lent, self.idle.append, own.lent.handle)
        stream = self.stream()
        if stream != own.lent.stream:
            self.module.set_stream(handle=own.lent.handle, stream=stream)
            own.lent.stream = stream
        return own.lent.handle

    def prepare(self) -> None:
        """Go over to the current stream, if this thread has a handle at all."""
        if self.own.lent is not None:
            self.handle()


class Plan:
    """How one convolution runs. `workspace`: the bytes that it works in."""

    def __init__(self, cudnn: Cudnn, problem: Problem, graph: Any) -> None:
        self.cudnn, self.problem, self.graph = cudnn, problem, graph
        self.workspace: int = graph.get_workspace_size()

    def run(self, first: int, second: int, result: int, workspace: int) -> None:
        """Queue it on the current stream; all are addresses."""
        try:
            tensors = {FIRST: first, SECOND: second, RESULT: result}
            self.graph.execute(tensors, workspace, handle=self.cudnn.handle())
        except RuntimeError as e:
            raise _failed(self.problem, e) from e


def _failed(p: Problem, error: Exception) -> RuntimeError:
    return RuntimeError(f"cuDNN failed at {p}: {error}. Please report this; GRADTAPE_CUDNN=never does without cuDNN.")


class _Lent:
    """A handle, while a thread has it, and the stream that it is on."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.stream: int | None = None


class _Own(threading.local):
    """Of each thread: a handle serves one."""

    lent: _Lent | None = None
