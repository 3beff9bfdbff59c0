"""Users' own kernels on a device: launches on the current stream, for which nobody waits. Floor: backends."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from gradtape.backends.cuda.device import Cuda, allow, number
from gradtape.ir.aval import aval_of
from gradtape.ir.bounded import Bounded
from gradtape.ir.dtypes import DType
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.show import show
from gradtape.kernels.cuda_source import CudaSource
from gradtape.ops.kernels import KernelStep, Layout, values_of
from gradtape.ops.op import Step

KEPT = 64  # shapes of operands for which a launch is remembered


Launch = Callable[[Sequence[Any], Sequence[Any]], None]  # of operands and results


class Call(NamedTuple):
    """How a kernel is called for operands of some shapes, once for each repeat. No launch: its results have no
    elements."""

    layout: Layout
    launch: Launch | None


def kernel(cuda: Cuda, step: Step) -> Callable[..., Any]:
    """The function of a kernel's step."""
    op, rows, static = step.op, step.params["rows"], step.params["static"]
    assert isinstance(op, KernelStep)
    calls: Bounded[Any, Call] = Bounded(KEPT)

    def made(avals: Sequence[Any]) -> Call:
        layout, known = op.layout(avals, rows, static), values_of(static)
        if not any(math.prod(shape) for shape, _ in op.shapes(layout)):
            return Call(layout, None)
        return Call(layout, (_of_text if op.kernel.source is not None else _compiled)(cuda, op, layout, known))

    def run(*arrays: Any) -> Any:
        given = [cuda.array(a) for a in arrays]
        avals = tuple(map(aval_of, given))
        call = calls.find(avals, lambda: made(avals))
        operands = op.flat(cuda.xp, given, call.layout)
        results = [cuda.empty(shape, d.numpy_dtype) for shape, d in op.shapes(call.layout)]
        if call.launch is not None:
            for k in range(call.layout.repeats):
                call.launch([a[k] for a in operands], [r[k] for r in results])
        return op.assembled(results, call.layout)

    return run


def _compiled(cuda: Cuda, op: KernelStep, layout: Layout, static: Mapping[str, Any]) -> Launch:
    """A kernel of Numba's, which it compiles itself for the arrays that it is given."""
    (grid, block, shared), numbers = op.kernel.grid(layout, static), op.kernel.numbers(layout, static)

    def launch(operands: Sequence[Any], results: Sequence[Any]) -> None:
        cuda.launch_compiled(op.kernel.compiled, grid, block, cuda.stream(), shared, [*operands, *results], numbers)

    return launch


def _of_text(cuda: Cuda, op: KernelStep, layout: Layout, static: Mapping[str, Any]) -> Launch:
    source = op.kernel.source
    assert source is not None
    grid, block, shared = op.kernel.grid(layout, static)
    numbers = iter(op.kernel.scalars(layout, static))
    places = {"operand": 0, "result": 0}
    arguments: list[Any] = []
    for p in source.parameters:
        if p.kind == "number":
            arguments.append(number(*next(numbers)))
        else:
            arguments.append((p.kind, places[p.kind]))
            places[p.kind] += 1
    function = _loaded(cuda, op, source, layout.letters)
    if shared:
        allow(function, shared, function.shared_size_bytes)

    def launch(operands: Sequence[Any], results: Sequence[Any]) -> None:
        arrays = {"operand": operands, "result": results}
        given = [arrays[a[0]][a[1]] if type(a) is tuple else a for a in arguments]
        function(grid, block, given, shared_mem=shared)

    return launch


def _loaded(cuda: Cuda, op: KernelStep, source: CudaSource, letters: Mapping[str, DType]) -> Any:
    """The kernel, compiled when it is first launched."""
    text = source.specialised(letters)

    def make() -> Any:
        show("kernels", f"{source.name}, on {cuda.name}", lambda: text)
        try:
            return cuda.load(text).get_function(source.name)
        except (RuntimeError, ValueError) as e:
            raise InvalidArgumentError(f"The source of `{op.name}` does not compile:\n{e}") from e

    return cuda.once(("own", text, source.name), make)
