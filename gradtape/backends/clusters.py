"""Fused steps on the CPU: NumPy op by op until enough time was spent in one, then the kernel rendered for it. Floor:
backends."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from gradtape.backends.formula import HALF
from gradtape.backends.memory import empty
from gradtape.ir.cluster import LEAVES, Cluster, Write, by_the_way, may_be_over, with_overs
from gradtape.ir.determinism import DETERMINISM
from gradtape.ir.shapes import size_of
from gradtape.kernels.arguments import Entry, answered
from gradtape.kernels.compiled import COMPILER, KernelSource, Ticket
from gradtape.kernels.kernel import Kernel, partial_dtype
from gradtape.kernels.loops import SHARE, share, sharing
from gradtape.kernels.memory import LARGE, LINE, POOL, bytes_of, lined, trim
from gradtape.kernels.render import render
from gradtape.kernels.schedule import CHEAP
from gradtape.kernels.spelling import is_limited
from gradtape.kernels.streaming import is_streamed
from gradtape.ops.op import Step

PATIENCE = 0.02  # seconds of NumPy's work (estimated) in one step from which its kernel is worth compiling
PER_CALL = 4e-6  # seconds of an operation on a small array
PER_ELEMENT = 0.5e-9  # of a cheap operation
DEAR = 5  # how much more others take
BIG = 1 << 18  # elements from which what the C library keeps of op by op's arrays is worth giving back

Run = Callable[..., tuple[Any, ...]]

COMBINE: dict[str, tuple[np.ufunc, Any]] = {
    "sum": (np.add, 0),
    "prod": (np.multiply, 1),
    "max": (np.maximum, -np.inf),
    "min": (np.minimum, np.inf),
    "all": (np.logical_and, True),
    "any": (np.logical_or, False),
}


class Policy:
    """When kernels are compiled: in the "background" once a step is worth it, "now" before its first run, or "never".
    The environment variable `GRADTAPE_KERNELS` says how a process begins."""

    WAYS = ("background", "now", "never")

    def __init__(self) -> None:
        self.asked = os.environ.get("GRADTAPE_KERNELS", "background")
        if self.asked not in self.WAYS:
            raise ValueError(f"GRADTAPE_KERNELS should be one of {', '.join(self.WAYS)}, got {self.asked!r}.")

    @property
    def compile(self) -> str:
        """When. Where results must be the same in every run, none may depend on what is ready."""
        return "now" if self.asked == "background" and DETERMINISM.required else self.asked

    @compile.setter
    def compile(self, way: str) -> None:
        self.asked = way


POLICY = Policy()


def warn_of(fault: Exception) -> None:
    """Say that a step goes on op by op since its kernel could not be made: right, but slower. Once for each step."""
    what = (str(fault) or repr(fault)).splitlines()[0]
    warnings.warn(
        f"A kernel could not be made, so its step runs op by op, which is slower: {what} "
        "With GRADTAPE_KERNELS=now the whole error is raised, with GRADTAPE_KERNELS=never no kernels are made. Please "
        "report this.",
        RuntimeWarning,
        stacklevel=2,
    )


class FusedKernel:
    """What runs a fused step; `over`: by results, the operands that its kernel writes them over."""

    def __init__(self, step: Step, program: Run, over: Mapping[int, int] | None = None) -> None:
        self.step, self.program, self.over = step, program, dict(over or {})
        self.cluster: Cluster = with_overs(by_the_way(step.params["cluster"]), self.over)
        self.shapes = [(v.aval.dims, v.aval.dtype.numpy_dtype) for v in step.params["graph"].outputs]
        self.streamed = not self.over and is_streamed(self.cluster)
        dear = sum(e.op not in CHEAP for e in self.cluster.code if e.op not in LEAVES)
        elements = (self.cluster.work + DEAR * dear) * self.cluster.size
        self.estimate = self.cluster.work * PER_CALL + elements * PER_ELEMENT
        self.spent = 0.0
        self.native: Native | None = None
        self.run: Run | None = None  # the native kernel
        self.asked: tuple[Kernel, Ticket] | None = None
        self.given_up = False
        self.callers: list[tuple[dict[str, Any], str]] = []

    def called_as(self, name: str, env: dict[str, Any]) -> None:
        """Stand for a name of a program, until the kernel itself does."""
        env[name] = self.run or self
        if self.run is None:
            self.callers.append((env, name))

    def writing_over(self, pairs: Iterable[tuple[int, int]]) -> FusedKernel:
        """What runs the same step where nothing needs some of the operands any more: the kernel writes results over
        them, where pairs of result and operand say so and its loops allow. A kernel that may have to be run again needs
        its operands."""
        chosen: dict[int, int] = {}
        if not any(is_limited(e.op) for e in self.cluster.code):
            for j, k in pairs:
                if j not in chosen and k not in chosen.values() and may_be_over(self.cluster, j, k):
                    chosen[j] = k
        return FusedKernel(self.step, self.program, chosen) if chosen else self

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        if self.run is None and POLICY.compile != "never" and not self.given_up:
            self._look()
        return (self.run or self.program)(*arrays)

    def _look(self) -> None:
        """Take the kernel if it is there; ask for it when it is worth that."""
        self.spent += self.estimate
        now = POLICY.compile == "now"
        try:
            if self.asked is None and (now or self.spent > PATIENCE):
                self.asked = self.ask(False)
            if self.asked is not None:
                kernel, ticket = self.asked
                if now or ticket.done.is_set():
                    self.native = Native(self, kernel, ticket.wait())
                    self.run = self.native.run
                    for env, name in self.callers:
                        env[name] = self.run
                    self.callers.clear()
                    POOL.clear()  # of the blocks that op by op took
                    if self.cluster.size >= BIG:
                        trim()
        except Exception as e:
            if now:
                raise
            self.given_up = True
            warn_of(e)

    def ask(self, anywhere: bool) -> tuple[Kernel, Ticket]:
        """The kernel of this cluster, and the ticket of all clusters that have its text."""
        kernel = render(self.cluster, anywhere)
        dtypes = tuple(r.access.dtype for r in self.cluster.reads)
        return kernel, COMPILER.request(KernelSource(kernel, dtypes, self.streamed))


class Native:
    """A compiled kernel with its arguments in order."""

    def __init__(self, fused: FusedKernel, kernel: Kernel, function: Entry) -> None:
        cluster = fused.cluster
        self.fused, self.kernel, self.function = fused, kernel, function
        self.outs = [(*shape, w) for shape, w in zip(fused.shapes, cluster.writes, strict=True)]
        self.arrays = [(cluster.reads[k].operand, cluster.reads[k].access.dtype.numpy_dtype) for k in kernel.arrays]
        self.scalars = [cluster.reads[k].operand for k in kernel.scalars]
        numbers = [dtype.numpy_dtype.type(value) for value, dtype in kernel.numbers]
        self.constants = (*numbers, *kernel.integers)
        self.extent = 1 if kernel.split is None else cluster.loops[kernel.split].extent
        self.elements = cluster.size * max(1, cluster.work // 8)
        self.slow: Native | None = None
        self.asked: tuple[Kernel, Ticket] | None = None
        self.run = self._direct()

    def shared(self, *arrays: Any) -> tuple[Any, ...]:
        """The results; threads share the work."""
        over = self.fused.over
        made = lined if self.fused.streamed else empty
        results = [
            _writable(arrays[over[j]]) if j in over else made(shape, dtype)
            for j, (shape, dtype, _) in enumerate(self.outs)
        ]
        writes = [_bits(r) for r, (_, _, w) in zip(results, self.outs, strict=True) if w.monoid is None]
        reads = [_bits(_flat(arrays[k], dtype)) for k, dtype in self.arrays]
        given = (*reads, *[_number(arrays[k]) for k in self.scalars], *self.constants)
        if self.kernel.sinks:
            far = self._in_parts(writes, given, results)
        else:
            far = self._whole(writes, given)
        if far:
            return self._anywhere(arrays)
        return tuple([r if r.shape else r[()] for r in results])

    def _direct(self) -> Run:
        """The same where one thread does the work, in a straight line: for small arrays every call of Python counts."""
        env: dict[str, Any] = {
            "entry": self.function.run,
            "pack": self.function.pack,
            "answered": answered,
            "anywhere": self._anywhere,
            "flat": _flat,
            "number": _number,
            "shared": self.shared,
            "sharing": sharing,
            "writable": _writable,
        }
        over = self.fused.over
        used = [*(k for k, _ in self.arrays), *self.scalars, *over.values()]
        given = "".join(f"x{k}, " for k in range(1 + max(used, default=-1)))
        given += "*others"
        lines = [f"def run({given}):"]
        if self.elements >= 2 * SHARE:
            lines += [
                f"    if sharing({self.extent}, {self.elements}) > 1:",
                f"        return shared({given})",
            ]
        results = []
        for k, (shape, dtype, w) in enumerate(self.outs):
            env[f"shape{k}"], env[f"dtype{k}"] = shape, dtype
            results.append(f"w{k}" if shape else f"w{k}[()]")
            if k in over:
                lines.append(f"    w{k} = writable(x{over[k]})")
            elif w.monoid is None:
                made = empty if bytes_of(shape, dtype) >= LARGE else np.empty
                env[f"empty{k}"] = lined if self.fused.streamed else made
                lines.append(f"    w{k} = empty{k}(shape{k}, dtype{k})")
            else:
                env[f"start{k}"] = _start(w, size_of(shape))
                lines.append(f"    w{k} = start{k}.copy()")
                results[-1] = f"w{k}.astype(dtype{k}, copy=False).reshape(shape{k})" + "[()]" * (not shape)
        for j, (k, dtype) in enumerate(self.arrays):
            env[f"d{j}"] = dtype
            lines.append(f"    a{j} = flat(x{k}, d{j})")
        env |= {f"c{k}": c for k, c in enumerate((*self.constants, 0, self.extent))}
        written = [k for k, (_, _, w) in enumerate(self.outs) if w.monoid is None]
        arguments = [
            *(f"id(w{k})" for k in written),
            *(f"id(w{k})" for k in range(len(self.outs)) if k not in written),
            *(f"id(a{k})" for k in range(len(self.arrays))),
            *(f"number(x{k})" for k in self.scalars),
            *(f"c{k}" for k in range(len(self.constants) + 2)),
        ]
        lines += [
            f"    far = entry(pack({', '.join(arguments)}))",
            "    if far:",
            "        answered(far)",
            f"        return anywhere(({given},))",
            f"    return ({''.join(f'{r}, ' for r in results)})",
        ]
        exec(compile("\n".join(lines), "<gradtape call of a kernel>", "exec"), env)
        run: Run = env["run"]
        return run

    def _whole(self, writes: Sequence[Any], given: Sequence[Any]) -> bool:
        """Every element is written by itself: threads share the split loop."""
        function = self.function
        extent, far = self.extent, []
        step = LINE if self.fused.streamed else 1  # a line has so many elements at most

        def run(a: int, b: int) -> None:
            far.append(function(*writes, *given, a * step, min(b * step, extent)))

        share(-(-extent // step), self.elements, run)
        return any(far)

    def _in_parts(self, writes: Sequence[Any], given: Sequence[Any], results: list[Any]) -> bool:
        """Each thread combines into arrays of its own, which are put together in the order of the loop."""
        function = self.function
        sinks = [(k, w) for k, (_, _, w) in enumerate(self.outs) if w.monoid is not None]
        parts: dict[int, tuple[list[Any], Any]] = {}

        def run(a: int, b: int) -> None:
            mine = [_start(w, results[k].size) for k, w in sinks]
            parts[a] = (mine, function(*writes, *mine, *given, a, b))

        share(self.extent, self.elements, run)
        held = [parts[a] for a in sorted(parts)]
        for j, (k, w) in enumerate(sinks):
            combine, _ = COMBINE[w.monoid or "sum"]
            total = held[0][0][j]
            for mine, _ in held[1:]:
                combine(total, mine[j], out=total)
            results[k] = total.astype(results[k].dtype).reshape(results[k].shape)
        return any(far for _, far in held)

    def _anywhere(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        """An operand was beyond what the fast operations take: the same work without limits."""
        if self.slow is None:
            self.asked = self.asked or self.fused.ask(True)
            kernel, ticket = self.asked
            if POLICY.compile != "now" and ticket.function is None:  # not yet, or never
                return self.fused.program(*arrays)
            self.slow = Native(self.fused, kernel, ticket.wait())
        return self.slow.run(*arrays)


def _writable(a: Any) -> Any:
    """The array itself if its elements lie in order, to be written to; else a copy for which that is true."""
    return a if a.flags.c_contiguous and a.flags.writeable else np.array(a, order="C")


def _flat(a: Any, dtype: Any) -> Any:
    """An array as kernels read it."""
    if type(a) is np.ndarray and a.dtype is dtype and a.flags.c_contiguous:
        return a
    if a.dtype != dtype:
        raise TypeError(f"A kernel reads {dtype}, got an array {a.shape} of {a.dtype}. Please report this.")
    return np.ascontiguousarray(a)


def _bits(a: Any) -> Any:
    """An array of halves as what kernels read and write."""
    return a.view(np.uint16) if a.dtype in HALF else a


def _number(a: Any) -> Any:
    number = a.reshape(-1)[0] if a.ndim else a[()]
    return np.float32(number) if a.dtype in HALF else number


def _start(w: Write, size: int) -> Any:
    dtype = partial_dtype(w)
    _, start = COMBINE[w.monoid or "sum"]
    if dtype.is_integer and w.monoid in ("max", "min"):
        start = dtype.min if w.monoid == "max" else dtype.max
    return np.full(size, start, dtype.numpy_dtype)
