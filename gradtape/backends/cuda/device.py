"""One CUDA device: its arrays, and how kernels get onto it. Floor: backends."""

from __future__ import annotations

import contextlib
import functools
import itertools
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np

from gradtape.backends.cuda.blas import Blas
from gradtape.backends.cuda.capture import Noting, Uncapturable
from gradtape.backends.cuda.cudnn import Cudnn
from gradtape.backends.cuda.memory import Room, install, room
from gradtape.ir.bounded import Bounded
from gradtape.ir.dtypes import DType
from gradtape.ir.show import show
from gradtape.kernels import numba_cuda
from gradtape.kernels.cuda_launch import Buffer, CudaProgram, Number, Table
from gradtape.kernels.cuda_render import TEMPLATES

KERNEL = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s+)?(\w+)\(")
MOST_SHARED = 97  # attribute of a device: bytes of shared memory for a block that asks
OPT_IN = 48 << 10  # bytes of shared memory for a block that a kernel has without asking
PROGRAMS = 4096  # that stay for the shapes that they were made for
NUMBERS = 1024  # numbers of the host that stay on the device

Load = Callable[[str], Any]
Kernel = Callable[..., Any]


class Known(np.ndarray[Any, Any]):
    """An array of the host that no one changes: its copy on the device is made once."""

    twin: tuple[Any, Any] | None = None  # the device and the copy


_numbers = itertools.count()


def as_given(*numbers: int) -> Callable[[Kernel], Kernel]:
    """For the function of an op: its operands of these numbers may be on the host, as they come, where it can look at
    them."""

    def mark(function: Kernel) -> Kernel:
        function.as_given = numbers  # type: ignore[attr-defined]
        return function

    return mark


class _Own(threading.local):
    """Of each thread: what it notes while its work becomes a graph."""

    noting: Noting | None = None


Arrays = dict[str, list[Any]]  # operands, results and scratch arrays, by kind


class Slot(NamedTuple):
    """Where an argument of a launch comes from: the operand, result or scratch array of this number."""

    kind: str
    number: int

    def of(self, arrays: Arrays) -> Any:
        return arrays[self.kind][self.number]


class Rows:
    """A table of arrays, as the bytes of a structure that a kernel takes by value."""

    def __init__(self, table: Table) -> None:
        missing = table.capacity - len(table.rows)
        self.slots = [(b.kind, b.number) for row in table.rows for b in row]
        self.addresses = np.zeros(table.capacity * len(table.rows[0]), np.uint64)
        self.rest = np.array([*table.extents, *[0] * missing], np.int64).tobytes()
        self.rest += np.array([*table.first, *[table.first[-1]] * missing], np.int32).tobytes()

    def of(self, arrays: Arrays) -> Any:
        addresses = self.addresses.copy()
        addresses[: len(self.slots)] = [arrays[kind][number].data.ptr for kind, number in self.slots]
        return np.array(np.void(addresses.tobytes() + self.rest))  # an array of one: CuPy's scalars are short


class Cuda:
    """What a backend needs of a device.

    Args:
      name: as TensorFlow spells it, such as "GPU:0".
      xp: the array module: CuPy, or what stands in for it.
      load: from the text of kernels to a module with `get_function(name)`.
      library: the functions of cuBLAS, under the C library's names.
      stream: gives the current stream as cuBLAS takes it.
      launch_compiled: launches kernels of Numba's (see `kernels.numba_cuda.launch`).
      cudnn: what does convolutions, where it is installed; the default is none.
    """

    def __init__(
        self,
        name: str,
        xp: Any,
        load: Load,
        library: Any,
        stream: Callable[[], Any],
        launch_compiled: Callable[..., None] = numba_cuda.launch,
        cudnn: Cudnn | None = None,
    ) -> None:
        self.name, self.xp, self.load, self.stream = name, xp, load, stream
        self.launch_compiled = launch_compiled
        self.cudnn = Cudnn(lambda: None, stream) if cudnn is None else cudnn
        self.key = f"{name}, {next(_numbers)}"  # of what steps remember for this device
        self.blas = Blas(library, stream, lambda size: self.empty((size,), np.uint8))
        self.ndarray = xp.ndarray
        self.shared: int = xp.cuda.runtime.deviceGetAttribute(MOST_SHARED, xp.cuda.Device().id)
        self.numbers: Bounded[Any, Any] = Bounded(NUMBERS)
        self.functions: dict[str, Any] = {}  # by the text of a kernel
        self.kept: Bounded[Any, Any] = Bounded(PROGRAMS)
        self.lock = threading.Lock()
        self.own = _Own()
        self.pinned: list[Any] = []  # memory of the host for batches that is not in use
        install(xp, name)

    # ------------------------------------------------------------------ arrays

    def owns(self, array: Any) -> bool:
        """Whether an array is on a device."""
        return isinstance(array, self.ndarray)

    def array(self, a: Any) -> Any:
        """An array on the device: a copy of what is on the host."""
        if isinstance(a, self.ndarray):
            return a
        noting = self.own.noting
        return self._copied(a) if noting is None else noting.apart(lambda: self._copied(a))

    def _copied(self, a: Any) -> Any:
        if not a.shape:
            return self.number(a)
        if isinstance(a, Known):
            if a.twin is None or a.twin[0] is not self:
                a.twin = self, self.xp.asarray(np.asarray(a))
            return a.twin[1]
        return self.xp.asarray(a)

    def copy(self, a: Any) -> Any:
        """A copy, in order, of an array of the device or the host."""
        return a.copy() if isinstance(a, self.ndarray) else self.xp.array(np.asarray(a))

    def number(self, value: Any) -> Any:
        """A number of the host as an array without axes, which nobody may write to; one for equal numbers."""
        value = np.asarray(value)
        return self.numbers.find((value.dtype, value.tobytes()), lambda: self.xp.asarray(value))

    def host(self, a: Any) -> Any:
        """An array on the host, or a number; waits for what is on the device."""
        if not isinstance(a, self.ndarray):
            return a
        self.needs_host("the host reads what was computed")
        return self.xp.asnumpy(a)[()]

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return self.xp.empty(shape, dtype)

    def filled(self, shape: tuple[int, ...], value: Any, dtype: Any) -> Any:
        """An array full of a number."""
        made, number = self.empty(shape, dtype), np.asarray(value).astype(dtype)
        if number.dtype.kind == "V":  # a half that CuPy's fills need not know: its bits
            made.view(np.uint16).fill(number.view(np.uint16)[()])
        else:
            made.fill(number[()])
        return made

    def memory(self) -> tuple[int, int]:
        """The bytes that arrays hold, and those that the pool took from the device for them."""
        pool = self.xp.get_default_memory_pool()
        return pool.used_bytes(), pool.total_bytes()

    def room(self) -> Room:
        """The bytes that arrays hold, that are free, and that there are for both."""
        return room(self.xp)

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return self.xp.zeros(shape, dtype)

    # ------------------------------------------------------------------ kernels

    def function(self, text: str) -> Any:
        """The kernel of a text."""
        found = self.functions.get(text)
        if found is None:
            self.compile([text])
            found = self.functions[text]
        return found

    def compile(self, texts: Sequence[str]) -> None:
        """All of these kernels that are not there yet, at once."""
        with self.lock:
            missing = [t for t in dict.fromkeys(texts) if t not in self.functions]
            if not missing:
                return
            for text in missing:
                show("kernels", f"{name_of(text)}, on {self.name}", functools.partial(str, text))
            try:
                module = self.load(whole("\n".join(missing)))
            except RuntimeError as e:
                raise RuntimeError(f"{e}\nPlease report this.") from e
            for text in missing:
                self.functions[text] = module.get_function(name_of(text))

    def once(self, key: Any, make: Callable[[], Any]) -> Any:
        """What was made for a key, such as a program; made now if it was not."""
        noting = self.own.noting
        if noting is None:
            return self.kept.find(key, make)
        return noting.apart(lambda: self.kept.find(key, make))

    # ------------------------------------------------------------------ graphs

    @contextlib.contextmanager
    def noting(self, noting: Noting) -> Iterator[None]:
        """A block whose work, in this thread, becomes a graph."""
        self.own.noting = noting
        try:
            yield
        finally:
            self.own.noting = None

    def needs_host(self, why: str) -> None:
        """What comes next is done by the host, or makes it wait.

        Raises:
          Uncapturable: it is to be part of a graph.
        """
        if self.own.noting is not None:
            raise Uncapturable(why)

    def note_positions(self, positions: Any, size: int) -> None:
        """For graphs: so many positions there are, which the host would have checked."""
        if self.own.noting is not None:
            self.own.noting.bounds.append((id(positions), size))

    def program(self, program: CudaProgram, results: Sequence[tuple[tuple[int, ...], Any]]) -> Program:
        """What runs the launches of a program; `results`: shapes and dtypes."""
        return Program(self, program, results)

    def run(
        self, program: CudaProgram, operands: Sequence[Any], results: Sequence[tuple[tuple[int, ...], Any]]
    ) -> tuple[Any, ...]:
        """The results of a program that runs once."""
        return Program(self, program, results)(*operands)


class Program:
    """The launches of one program, in order, on the current stream."""

    def __init__(self, cuda: Cuda, program: CudaProgram, results: Sequence[tuple[tuple[int, ...], Any]]) -> None:
        self.cuda, self.results = cuda, list(results)
        self.scratch = [(s.size, s.dtype.numpy_dtype) for s in program.scratch]
        texts = {name_of(t): t for t in program.texts}
        self.texts = program.texts
        self.launches = [
            (texts[x.kernel], (x.grid,), (x.block,), x.shared, [_argument(a) for a in x.arguments])
            for x in program.launches
        ]
        self.ready: list[Any] | None = None

    def __call__(self, *operands: Any, into: Sequence[Any] = ()) -> tuple[Any, ...]:
        """The results, which are new arrays, or those (in C order) that they are to be written `into`; None there: a
        new one."""
        if self.ready is None:
            self.ready = self._loaded()
        in_order, on_device = self.cuda.xp.ascontiguousarray, self.cuda.array
        empty = self.cuda.xp.empty
        arrays: Arrays = {
            "operand": [in_order(on_device(a)) for a in operands],
            "result": [a if a is not None else empty(*r) for a, r in zip_longest(into, self.results)],
            "scratch": [empty(size, dtype) for size, dtype in self.scratch],
        }
        for function, grid, block, shared, arguments in self.ready:
            given = [a.of(arrays) if type(a) in MADE else a for a in arguments]
            function(grid, block, given, shared_mem=shared)
        return tuple(arrays["result"])

    def _loaded(self) -> list[Any]:
        self.cuda.compile(self.texts)
        found = []
        for text, grid, block, shared, arguments in self.launches:
            function = self.cuda.function(text)
            allow(function, shared)
            found.append((function, grid, block, shared, arguments))
        return found


def allow(function: Any, shared: int, declared: int = 0) -> None:
    """Let a kernel have so many bytes of dynamic shared memory beside those that it declares, and never less than
    another program of the same kernel asked for."""
    if shared + declared > OPT_IN:
        most = max(shared, OPT_IN + 1, function.max_dynamic_shared_size_bytes)
        function.max_dynamic_shared_size_bytes = most


MADE = (Slot, Rows)  # arguments that are others in each launch


def _argument(a: Buffer | Number | Table) -> Any:
    if isinstance(a, Table):
        return Rows(a)
    return Slot(a.kind, a.number) if isinstance(a, Buffer) else number(a.value, a.dtype)


def number(value: Any, dtype: DType) -> Any:
    """A number as a kernel takes it: a complex one is a structure of two."""
    made = dtype.numpy_dtype.type(value)
    return np.void(made.tobytes()) if dtype.is_complex else made


def name_of(text: str) -> str:
    """The name of the kernel in a text."""
    found = KERNEL.findall(text)
    if len(found) != 1:
        raise ValueError(f"A text should have one kernel, got {len(found)}: {found}. Please report this.")
    return str(found[0])


def whole(text: str) -> str:
    """A text with the templates that it includes in place of their names, each once."""
    seen: set[str] = set()

    def put_in(match: re.Match[str]) -> str:
        file = TEMPLATES / match[1]
        if match[1] in seen or not file.exists():
            return "" if match[1] in seen else match[0]
        seen.add(match[1])
        return expand(file.read_text(encoding="utf-8").replace("#pragma once", ""))

    def expand(t: str) -> str:
        return re.sub(r'^#include "([\w.]+)"$', put_in, t, flags=re.MULTILINE)

    return expand(text)
