"""Jacobians in chunks of rows: within a memory budget, into a given array, with a progress bar. Floor: runtime.

A chunk is a range of positions along one axis of the rows; where it begins is an operand of its graph, so that all
chunks of a size share one plan."""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradtape.ir.aval import Aval, aval
from gradtape.ir.dtypes import int64
from gradtape.ir.errors import ResourceExhaustedError
from gradtape.ir.graph import Graph, Value
from gradtape.ir.index import Index
from gradtape.ir.shapes import shape_text, size_of
from gradtape.kernels.memory import POOL
from gradtape.ops.comparison import SELECT
from gradtape.ops.op import emit
from gradtape.ops.reductions import REDUCE_SUM
from gradtape.runtime.backward import PROGRAMS
from gradtape.runtime.compiled import CompiledGraph
from gradtape.runtime.devices import DEVICES, empty_beside, is_on_device, on_host
from gradtape.runtime.dispatch import execute, unary
from gradtape.runtime.jacobian import reachable, vectorized_rows
from gradtape.runtime.pullback import Backward, Reads, traced_backward
from gradtape.runtime.record import Path, Recorder
from gradtape.runtime.tensor import Tensor, from_array, wrap
from gradtape.runtime.trie import TrieNode
from gradtape.transforms.rows.builder import Builder
from gradtape.transforms.rows.leaving import dense
from gradtape.transforms.rows.letters import Letter, Pair, whole
from gradtape.transforms.rows.products import nonzeros
from gradtape.transforms.rows.terms import Rows, Term, rows_of, seed

STEPS_OF_A_BAR = 16
UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}


@dataclass(frozen=True)
class Chunking:
    """What was asked for: rows per chunk, a budget in bytes, an array for the result, a bar."""

    rows: int | None = None
    budget: int | None = None
    out: Any = None
    progress: bool = False

    @property
    def is_asked(self) -> bool:
        return self.rows is not None or self.budget is not None or self.out is not None or self.progress


def budget_of(memory: Any, name: str = "memory") -> int | None:
    """A budget in bytes from "2GiB", a fraction of the memory that is free, a number of bytes, or None; `name` is the
    argument that it was given as.

    Raises:
      ValueError: anything else."""
    if memory is None:
        return None
    if isinstance(memory, str):
        found = re.fullmatch(r"\s*([0-9.]+)\s*([kmg]i?)?b?\s*", memory.lower())
        if found:
            return int(float(found[1]) * UNITS[found[2] or ""])
    elif isinstance(memory, float) and 0 < memory <= 1:
        return int(memory * available())
    elif isinstance(memory, int) and not isinstance(memory, bool) and memory > 0:
        return memory
    raise ValueError(
        f"`{name}` should be a size such as '2GiB', a fraction of the free memory (0 < {name} <= 1) or bytes, "
        f"got {memory!r}."
    )


def available() -> int:
    """The bytes of memory that are free for use: the device's, where there is one."""
    if DEVICES.device is not None:
        return int(DEVICES.device.cuda.room().free)
    try:
        with open("/proc/meminfo") as f:
            line = next(n for n in f if n.startswith("MemAvailable:"))
        return int(line.split()[1]) * 1024
    except (OSError, StopIteration):  # not Linux: half of what there is
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


class ChunkProgram:
    """The plans of one Jacobian for chunks of several sizes."""

    def __init__(self, backward: Backward) -> None:
        self.used = False
        self.backward = backward
        self.plans: dict[int, tuple[Reads, CompiledGraph, int]] = {}
        self.kept: dict[int, bool] = {}  # by size of a chunk
        dims = self.backward.y.aval.dims
        self.axis = max(range(len(dims)), key=lambda k: dims[k]) if dims else 0

    def plan(self, count: int) -> tuple[Reads, CompiledGraph, int]:
        """What the chunk of `count` positions reads, its graph (that, then where it begins), and the bytes that it
        needs at most."""
        if count not in self.plans:
            begin = Value(aval((1,), int64))
            graph = self._graph(count, begin)
            reads = self.backward.reads(graph.outputs)
            compiled = self.backward.compiler(Graph([*reads.values, begin], graph.outputs))
            self.plans[count] = (reads, compiled, compiled.peak_bytes(again=True))
        return self.plans[count]

    def keeps_structure(self, count: int) -> bool:
        """Whether the chunks have no more entries that can be other than zero than the rows of the whole Jacobian."""
        if count not in self.kept:
            (pulled,), b = self.backward.pulled, self.backward
            assert pulled is not None
            _, whole_rows = vectorized_rows(pulled, b.cotangent, seed(b.y.aval.dims, b.y.aval.dtype), b.given)
            begin = Value(aval((1,), int64))
            _, rows = self._rows(count, begin)
            extent = b.y.aval.dims[self.axis] if b.y.aval.dims else 1
            self.kept[count] = nonzeros(rows) * extent <= nonzeros(whole_rows) * count
        return self.kept[count]

    def _graph(self, count: int, begin: Value) -> Graph:
        return Graph([], [dense(*self._rows(count, begin))])

    def _rows(self, count: int, begin: Value) -> tuple[Builder, Rows]:
        (pulled,), y = self.backward.pulled, self.backward.y
        assert pulled is not None
        given = [*self.backward.given, begin]
        return vectorized_rows(pulled, self.backward.cotangent, _seed(y.aval, self.axis, count, begin), given)


def _seed(target: Aval, axis: int, count: int, begin: Value) -> Rows:
    """The identity over the target, for `count` positions along one axis from a beginning on."""
    dims = target.dims
    axes = [whole(n) for n in dims]
    rows = list(axes)
    if dims:
        letter = Letter(count)
        steps = emit("positions", value=Index(np.arange(count)))
        where: Any = emit("add", begin, steps)
        rows[axis] = (Pair(letter, None, count),) if count != 1 else ()
        axes[axis] = (Pair(letter, where, dims[axis]),) if dims[axis] != 1 else ()
    shape = tuple(count if k == axis else n for k, n in enumerate(dims))
    return rows_of([Term((), tuple(rows), tuple(axes))], shape, dims, target.dtype)


def chunked(recorder: Recorder, target: Any, source: Any, mode: str, how: Chunking) -> Tensor | None:
    """A dense Jacobian, chunk by chunk; None where the target does not depend on the source."""
    program = chunk_program(recorder, target, source, mode)
    if program.backward.pulled[0] is None:
        return None
    of, by = recorder.slots[target._id], recorder.slots[source._id]
    return _run(program, recorder.saved, target, source, how, functools.cache(lambda: reachable(recorder, of, by)))


def chunk_program(recorder: Recorder, target: Any, source: Any, mode: str) -> ChunkProgram:
    """The plans of a Jacobian for chunks, from the cache; with custom rules on the way, made for this call.

    Raises:
      ValueError: forward mode; what comes in chunks are the target's rows."""
    if mode == "forward":
        raise ValueError(
            "`memory`, `parallel_iterations`, `out` and `progress` compute the target's rows in chunks, which is "
            "reverse mode. Leave them out, or `mode`."
        )
    of, by = recorder.slots[target._id], recorder.slots[source._id]
    make: Any = functools.partial(_cached, recorder.node, of, by)
    found: Any = PROGRAMS.find(recorder.node, ("chunks", of, by), make)
    program: ChunkProgram = found
    rules = program.backward.rules
    return ChunkProgram(traced_backward(recorder, rules, of, (by,))) if rules else program


def _cached(end: TrieNode, target: int, source: int) -> ChunkProgram:
    return ChunkProgram(Backward(Path(end, {}), target, (source,)))


def chunks_of(program: ChunkProgram, target: Any, source: Any, how: Chunking) -> tuple[int, int]:
    """How many positions along the chunked axis a chunk has, and how many chunks there are."""
    dims = target._aval.dims
    extent = dims[program.axis] if dims else 1
    rest = max(1, size_of(dims) // max(1, extent))
    written = target._aval.size * source._aval.nbytes
    count = _first_count(program, extent, rest, written, how)
    return count, -(-extent // count)


def _run(
    program: ChunkProgram,
    saved: Sequence[Tensor],
    target: Any,
    source: Any,
    how: Chunking,
    reached: Callable[[], Tensor | None],
) -> Tensor:
    dims, full = target._aval.dims, (*target._aval.dims, *source._aval.dims)
    if how.budget is not None:
        POOL.clear()  # what other work left there would come on top
    out = None if how.out is None else _result(how.out, full, source._aval)
    extent, axis = (dims[program.axis] if dims else 1), program.axis
    rest = max(1, size_of(dims) // max(1, extent))
    count = _first_count(program, extent, rest, size_of(full) * source._aval.dtype.size, how)
    start = 0
    with _bar(extent * rest, how.progress) as advance:
        block: Tensor | None
        while start < extent:
            n = min(count, extent - start)
            try:
                reads, compiled, _ = program.plan(n)
                begin = from_array(np.array([start], np.int64))
                (block,) = compiled([*reads.tensors(saved), begin])
                block = _reached_only(block, _rows_from(start, n, axis, dims), program, n, reached)
                out = empty_beside(block._array, full) if out is None else out
            except (MemoryError, ResourceExhaustedError):
                if count == 1:
                    raise
                count, block = max(1, count // 2), None  # finished rows stay
                continue
            where = _rows_from(start, n, axis, dims)
            assert block is not None
            found = block._array if is_on_device(out) else np.asarray(on_host(block._array))
            out[where] = found.reshape(out[where].shape)
            del block, found  # before the next one is made beside it
            start += n
            advance(n * rest)
    out = np.empty(full, source._aval.dtype.numpy_dtype) if out is None else out
    return wrap(out if full else out[()], aval(full, source._aval.dtype))


def _rows_from(start: int, count: int, axis: int, dims: tuple[int, ...]) -> tuple[slice, ...]:
    return (*(slice(None),) * axis, slice(start, start + count)) if dims else ()


def _reached_only(
    block: Tensor, where: tuple[slice, ...], program: ChunkProgram, count: int, reached: Callable[[], Tensor | None]
) -> Tensor:
    """Rows in which entries that cannot be reached are zero, also where zeros have met slopes that are not finite: a
    chunk may have less structure than the whole."""
    if program.keeps_structure(count) or _all_finite(block):
        return block
    mask = reached()
    if mask is None:
        return block
    part = from_array(np.ascontiguousarray(on_host(mask._array)[where]).reshape(block._aval.dims))
    zero = wrap(block._aval.dtype.numpy_dtype.type(0), aval((), block._aval.dtype))
    kept: Tensor = execute(SELECT.bind(), (part, block, zero))
    return kept


def _all_finite(block: Tensor) -> bool:
    """Whether all elements are; their sum is not where one is not. It may say no where the sum is too large."""
    total = unary(REDUCE_SUM.bind(axes=tuple(range(len(block._aval.dims))), keepdims=False), block)
    return bool(np.isfinite(on_host(total._array)))


@contextlib.contextmanager
def _bar(rows: int, shown: bool) -> Iterator[Callable[[int], Any]]:
    """A progress bar over rows, and what moves it on. tqdm is imported where a bar is shown: it costs 40 ms."""
    if not shown:
        yield lambda n: None
        return
    from tqdm import tqdm

    with tqdm(total=rows, unit="row") as bar:
        yield bar.update


def _result(out: Any, full: tuple[int, ...], source: Aval) -> Any:
    if not isinstance(out, np.ndarray) or out.shape != full or out.dtype != source.dtype.numpy_dtype:
        got = f"{type(out).__name__} of shape {shape_text(getattr(out, 'shape', None))}"
        got += f" and dtype {out.dtype}" if hasattr(out, "dtype") else ""
        raise ValueError(
            f"`out` should be a NumPy array of shape {shape_text(full)} and dtype {source.dtype.name}, got {got}."
        )
    return out


def write_to(out: Any, found: Tensor) -> None:
    """A Jacobian into the array that was given for it, unless it is there already."""
    array = _result(out, found._aval.dims, found._aval)
    if found._array is not array:
        array[...] = on_host(found._array)


def _first_count(program: ChunkProgram, extent: int, rest: int, written: int, how: Chunking) -> int:
    """Positions per chunk: what was asked for, or as many as the budget holds beside the result. A bar by itself
    wants steps to show."""
    count = -(-extent // STEPS_OF_A_BAR) if how.progress and how.rows is None and how.budget is None else extent
    if how.rows is not None:
        count = max(1, how.rows // rest)
    if how.budget is not None:
        room = how.budget - (written if how.out is None else 0)
        count = _within(lambda n: program.plan(n)[2] <= room, min(count, extent))
    return min(count, extent)


def _within(fits: Callable[[int], bool], most: int) -> int:
    """The largest power-of-two fraction of `most` that fits; 1 where nothing does."""
    count = most
    while count > 1 and not fits(count):
        count = -(-count // 2)
    return count
