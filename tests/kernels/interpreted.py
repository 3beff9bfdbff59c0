"""Rendered kernels run by Python itself, on arrays that refuse every place outside and every element that nobody wrote:
what a compiled kernel would do to memory is an error here. No compiler is needed, so that many can be tried."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gradtape.backends.cpu import lower
from gradtape.backends.formula import HALF
from gradtape.ir.cluster import Cluster
from gradtape.kernels.halves import stored
from gradtape.kernels.kernel import Kernel, partial_dtype
from gradtape.kernels.spelling import DTYPES, HALVES
from gradtape.kernels.vector_math import FORMS
from gradtape.ops.op import lookup

INF = float("inf")


class Checked:
    """A flat array with the marks of what was written; `once`: what was written stays
    as it is, since threads may write the same."""

    def __init__(self, array: Any, written: Any, once: bool = False) -> None:
        self.array, self.written, self.once = array, written, once

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            key = self._inside(key)
            return Checked(self.array[key], self.written[key], self.once)
        self._at(key)
        if not self.written[key]:
            raise AssertionError(f"element {key} is read before anything was written to it")
        return self.array[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(key, slice):
            key = self._inside(key)
        else:
            self._at(key)
            if np.asarray(value).dtype != self.array.dtype:
                raise AssertionError(f"a {np.asarray(value).dtype} is written to an array of {self.array.dtype}")
            if self.once and self.written[key] and value != self.array[key] and value == value:
                raise AssertionError(f"element {key} is {self.array[key]}, and then {value}")
        self.array[key] = value
        self.written[key] = True

    def _at(self, key: Any) -> None:
        if not 0 <= key < self.array.size:
            raise IndexError(f"element {key} of {self.array.size}")

    def _inside(self, key: slice) -> slice:
        start, stop, step = key.start or 0, self.array.size if key.stop is None else key.stop, key.step or 1
        if not (0 <= start < stop <= self.array.size and step > 0):
            raise IndexError(f"elements {start} to {stop} by {step} of {self.array.size}")
        return slice(start, stop, step)


def given(array: Any) -> Checked:
    """What a kernel reads, or combines into."""
    flat = np.array(array).reshape(-1)
    flat = flat.view(np.uint16) if flat.dtype in HALF else flat
    return Checked(flat, np.ones(flat.size, bool))


def fresh(size: int, dtype: Any, once: bool = False) -> Checked:
    """What nothing was written to yet."""
    return Checked(np.zeros(size, dtype), np.zeros(size, bool), once)


@functools.cache
def environment() -> dict[str, Any]:
    """The names of a kernel's text, as NumPy's functions of scalars."""

    def scalar(run: Any) -> Any:
        def function(*operands: Any) -> Any:
            with np.errstate(all="ignore"):
                return run(*operands)

        return function

    ops = {name: scalar(lower(lookup(name).bind())) for name in FORMS}
    anywhere = {f"{name}_anywhere": ops[name] for name in ("sin", "cos", "tan")}
    halves: dict[str, Any] = {}
    for half in HALVES:
        dtype = half.numpy_dtype
        halves[f"widen_{half.name}"] = functools.partial(_widened, dtype)
        halves[f"narrow_{half.name}"] = functools.partial(_narrowed, dtype)
        halves[f"round_{half.name}"] = functools.partial(_rounded, dtype)
    combine = {"add_any": np.add, "multiply_any": np.multiply, "largest": np.maximum, "smallest": np.minimum}
    return {
        **ops,
        **anywhere,
        **halves,
        **{name: scalar(ufunc) for name, ufunc in combine.items()},
        **{d.name: d.as_numpy_dtype for d in DTYPES},
        "is_beyond": lambda x: bool(abs(x) > FORMS["sin"].limit and abs(x) < INF),
        "empty": fresh,
        "inf": np.inf,
        "nan": np.nan,
    }


def _widened(dtype: Any, bits: Any) -> Any:
    assert bits.dtype == np.uint16
    return np.float32(np.array([bits]).view(dtype)[0])


def _narrowed(dtype: Any, number: Any) -> Any:
    assert number.dtype == np.float32
    with np.errstate(all="ignore"):
        return np.array([number]).astype(dtype).view(np.uint16)[0]


def _rounded(dtype: Any, number: Any) -> Any:
    return _widened(dtype, _narrowed(dtype, number))


def function_of(kernel: Kernel) -> Any:
    """The kernel as a Python function."""
    names = dict(environment())
    exec(compile(kernel.text.replace("@(", "("), "<kernel>", "exec"), names)
    return names["kernel"]


def operands_of(kernel: Kernel, cluster: Cluster, arrays: Sequence[Any]) -> list[Any]:
    """Everything that a kernel is given after the arrays it writes, but the part of its loop."""
    reads = cluster.reads
    return [
        *(given(arrays[reads[k].operand]) for k in kernel.arrays),
        *(_number(arrays[reads[k].operand]) for k in kernel.scalars),
        *(dtype.as_numpy_dtype(value) for value, dtype in kernel.numbers),
        *kernel.integers,
    ]


def _number(array: Any) -> Any:
    number = np.asarray(array).reshape(-1)[0]
    return np.float32(number) if np.asarray(array).dtype in HALF else number


START = {"sum": 0, "prod": 1, "max": -np.inf, "min": np.inf, "all": True, "any": False}
COMBINE = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "all": np.logical_and,
    "any": np.logical_or,
}


def run(
    kernel: Kernel,
    cluster: Cluster,
    arrays: Sequence[Any],
    shapes: Sequence[tuple[int, ...]],
    parts: int,
    over: Mapping[int, int] | None = None,
) -> Any:
    """What a kernel gives, its split loop in so many parts: every element is written, and once. `over`: by results, the
    operands in whose memory they are."""
    function = function_of(kernel)
    sizes = [int(np.prod(s)) for s in shapes]
    writes = [
        given(arrays[over[j]]) if over and j in over else fresh(n, stored(w.access.dtype), once=True)
        for j, (n, w) in enumerate(zip(sizes, cluster.writes, strict=True))
        if w.monoid is None
    ]
    totals: list[Any] = []
    extent = 1 if kernel.split is None else cluster.loops[kernel.split].extent
    parts = min(parts, extent)
    cuts = [extent * k // parts for k in range(parts + 1)]
    rest = operands_of(kernel, cluster, arrays)
    for a, b in itertools.pairwise(cuts):
        sinks = [_sink(n, w) for n, w in zip(sizes, cluster.writes, strict=True) if w.monoid is not None]
        with np.errstate(all="ignore"):
            function(*writes, *sinks, *rest, a, b)
        totals = (
            [
                COMBINE[w.monoid or "sum"](t, s.array)
                for t, s, w in zip(totals, sinks, [w for w in cluster.writes if w.monoid], strict=True)
            ]
            if totals
            else [s.array for s in sinks]
        )
    made, combined = iter(writes), iter(totals)
    results = []
    for shape, w in zip(shapes, cluster.writes, strict=True):
        if w.monoid is None:
            checked = next(made)
            assert checked.written.all(), f"elements that nothing wrote: {np.flatnonzero(~checked.written)}"
            array = checked.array
            results.append((array.view(w.access.dtype.numpy_dtype) if w.access.dtype.is_half else array).reshape(shape))
        else:
            results.append(next(combined).astype(w.access.dtype.numpy_dtype).reshape(shape))
    return results


def _sink(size: int, w: Any) -> Checked:
    dtype, start = partial_dtype(w), START[w.monoid]
    if dtype.is_integer and w.monoid in ("max", "min"):
        start = dtype.min if w.monoid == "max" else dtype.max
    return given(np.full(size, start, dtype.numpy_dtype))
