"""Where tensors are: on the host, or on the device of this process; and where new ones go. Floor: runtime.

Arrays go to the device, where there is one, and so does work that reads or makes numbers with a fraction in arrays.
Single numbers stay on the host until they meet an array of the device, and so do small arrays of integers and truth
values, which mostly say where and how many; what is made of these alone stays there too. `tf.device` says otherwise."""

from __future__ import annotations

import functools
import math
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradtape.backends.choice import choice
from gradtape.backends.control import Stack
from gradtape.backends.cuda import convolution
from gradtape.backends.cuda.assembling import assembler
from gradtape.backends.cuda.device import Cuda
from gradtape.backends.cuda.lowering import Lowering
from gradtape.backends.cuda.products import is_product
from gradtape.backends.cuda.table import EXPANSIONS, OPS
from gradtape.ir.aval import Aval
from gradtape.ir.errors import ResourceExhaustedError
from gradtape.ir.graph import Graph, Node
from gradtape.ir.show import show
from gradtape.kernels.cuda_spelling import spells_cuda
from gradtape.runtime.state import STATE, State
from gradtape.transforms.fuse import fuse
from gradtape.transforms.opened import Expansions, opened
from gradtape.transforms.simplify import flattened, simplify
from gradtape.transforms.together import together

FEW = 64  # integers that stay on the host
DLPACK_CUDA = 2  # the kind of device, by DLPack

Kernel = Callable[..., Any]


class Device:
    """The device that this process uses, and the functions of steps on it."""

    def __init__(self, cuda: Cuda) -> None:
        self.cuda = cuda
        own = EXPANSIONS | convolution.expansions(cuda)
        self.lowering = Lowering(cuda, lambda graph: prepared(graph, own), OPS)

    @property
    def name(self) -> str:
        return self.cuda.name

    def assembled_bytes(self, node: Node) -> int:
        """What a step that assembles terms takes besides its result."""
        return assembler(self.cuda, tuple(v.aval.dtype for v in node.inputs), **node.step.params).scratch


class Devices:
    """What this process has besides the host; chosen when it is first asked for, or by `use`."""

    def __init__(self) -> None:
        self.chosen = False
        self._device: Device | None = None
        self.lock = threading.Lock()

    @property
    def device(self) -> Device | None:
        if not self.chosen:
            self._choose()
        return self._device

    def use(self, cuda: Cuda | None) -> None:
        """Give this process a device (None: the host alone)."""
        self._device = None if cuda is None else Device(cuda)
        self.chosen = True
        State.alone = HOST_ALONE if cuda is None else f"{cuda.key}, alone"

    def _choose(self) -> None:
        with self.lock:
            if self.chosen:
                return
            found = choice()
            if found.is_worth_a_word:
                # One line, without that of this file: whose it is says the name.
                warnings.warn_explicit(f"gradtape runs on the CPU: {found.reason}.", RuntimeWarning, "gradtape", 1)
            self.use(found.device)


HOST_ALONE = State.alone
DEVICES = Devices()


def prepared(graph: Graph, expansions: Expansions = EXPANSIONS) -> Graph:
    """A graph as a device runs it: in clusters, products and what has kernels of its own."""
    graph = simplify(opened(flattened(graph), is_product, expansions, OPS))
    runs = together(fuse(graph, spells_cuda, 1, siblings=True))
    show("plan", "what runs on the device", lambda: runs)
    return runs


def of_others(value: Any) -> Any:
    """The array of the device that an object is, or that it gives by DLPack without a copy: CuPy's, PyTorch's and such.
    None where it is none."""
    device = DEVICES.device
    if device is None or isinstance(value, np.ndarray | np.generic):
        return None
    if device.cuda.owns(value):
        return value
    where = getattr(type(value), "__dlpack_device__", None)
    if where is None or isinstance(value, type) or where(value)[0] != DLPACK_CUDA:
        return None
    return device.cuda.xp.from_dlpack(value)


def on_host(array: Any) -> Any:
    """An array or number as NumPy has it; waits for what is on a device."""
    if isinstance(array, np.ndarray | np.generic) or DEVICES.device is None:
        return array
    if isinstance(array, Stack):
        return Stack(map(on_host, array))
    return DEVICES.device.cuda.host(array)


def is_on_device(array: Any) -> bool:
    """Whether an array, or what a stack holds, is on a device."""
    device = DEVICES.device
    if device is None:
        return False
    if isinstance(array, Stack):
        return any(map(is_on_device, array))
    return device.cuda.owns(array)


def roomy(make: Kernel) -> Kernel:
    """A function that makes an array, with the error for too little memory in TensorFlow's terms."""

    @functools.wraps(make)
    def made(*args: Any) -> Any:
        try:
            return make(*args)
        except MemoryError as e:
            raise ResourceExhaustedError(f"There is no memory for a new tensor: {e}") from e

    return made


@roomy
def placed(array: Any) -> Any:
    """A new array of the host where new tensors go."""
    device, place = DEVICES.device, STATE.place
    if device is None or place == "CPU" or _is_text(array):
        return array
    if place is None and not is_for_device(array):
        return array
    return device.cuda.array(array) if array.ndim else device.cuda.number(array)


@roomy
def own_copy(array: Any) -> Any:
    """A copy, in order, that a variable may write to: on the device where there is one, unless `tf.device` says
    otherwise."""
    device = DEVICES.device
    if device is None or STATE.place == "CPU" or _is_text(array):
        return np.array(array, order="C") if isinstance(array, np.ndarray) else array
    return device.cuda.copy(array)


def empty_beside(array: Any, shape: tuple[int, ...]) -> Any:
    """An array with anything in it, where another one is, and of its dtype."""
    if DEVICES.device is not None and is_on_device(array):
        return DEVICES.device.cuda.empty(shape, array.dtype)
    return np.empty(shape, array.dtype)


@roomy
def filled(shape: tuple[int, ...], value: Any, dtype: Any) -> Any:
    """An array full of a number, where new tensors go."""
    device, place = DEVICES.device, STATE.place
    if device is None or place == "CPU" or (place is None and not _goes(shape, np.dtype(dtype))):
        return np.full(shape, value, dtype)
    return device.cuda.filled(shape, value, dtype)


def is_for_device(array: Any) -> bool:
    """Whether an array goes to the device unasked."""
    return _goes(array.shape, array.dtype)


def _goes(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
    return bool(shape) and (is_fractional(dtype) or math.prod(shape) > FEW)


def is_fractional(dtype: np.dtype[Any]) -> bool:
    """Whether it is floating or complex; the small floating types are of NumPy's kind V."""
    return dtype.kind in "fcV"


def make_fractions(avals: Sequence[Aval]) -> bool:
    """Whether any of these are arrays with a fraction."""
    return any(v.shape and v.dtype.kind in "fc" for v in avals)


def are_for_device(avals: Sequence[Aval]) -> bool:
    """Whether any of these go to the device unasked when they are new."""
    return any(_goes(v.dims, v.dtype.numpy_dtype) for v in avals)


def _is_text(array: Any) -> bool:
    """Whether it is an array of strings: those stay on the host."""
    return isinstance(array, np.ndarray) and array.dtype.hasobject


class Placed:
    """What runs on the host or on the device. `host`, `device`: make the function for each, when it is first needed;
    `makes`: whether it makes arrays with a fraction of these operands."""

    def __init__(
        self, host: Callable[[], Kernel], device: Callable[[Lowering], Kernel], makes: Callable[[Sequence[Any]], bool]
    ) -> None:
        self.make_host, self.make_device, self.makes = host, device, makes
        self.host: Kernel | None = None
        self.device: Kernel | None = None

    def __call__(self, *arrays: Any) -> Any:
        if self.goes_to_device(arrays):
            return self.on_device()(*arrays)
        if self.host is None:
            self.host = self.make_host()
        return self.host(*map(on_host, arrays))

    def on_device(self) -> Kernel:
        """What runs it on the device."""
        if self.device is None:
            assert DEVICES.device is not None
            self.device = self.make_device(DEVICES.device.lowering)
        return self.device

    def goes_to_device(self, arrays: Sequence[Any]) -> bool:
        if STATE.place == "CPU" or any(map(_is_text, arrays)):
            return False
        if STATE.place is not None or any(map(is_on_device, arrays)):
            return True
        return any(isinstance(a, np.ndarray) and is_for_device(a) for a in arrays) or self.makes(arrays)
