"""Convolution and its gradients by cuDNN, where it is installed: which it does, and as graphs around its calls. Floor:
backends.

Groups and the channels in them lie side by side, so that images are read where they are. Filters are turned to
(groups · results, *window, channels), the order that cuDNN's kernels for such images are made for; they are small."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradtape.backends.cuda.cudnn import ALIGNED, AXES, DTYPES, Plan, Problem, Unsupported, notes
from gradtape.backends.cuda.device import Cuda
from gradtape.backends.cuda.matrices import Expand, called
from gradtape.ir.aval import Aval, aval_of
from gradtape.ir.graph import Graph, Value
from gradtape.ir.show import show
from gradtape.ops.composite import Composite
from gradtape.ops.convolution import CONVOLVE, CONVOLVE_INPUT, CONVOLVE_KERNEL
from gradtape.ops.op import Op, Step, emit
from gradtape.ops.windows import Windows

Kernel = Callable[..., Any]
LARGEST = 2**31 - 1  # elements: what the library's 32-bit indices reach


def split(v: Value, groups: int) -> Value:
    """Groups as an axis of their own before the channels."""
    *others, channels = v.aval.dims
    return emit("reshape", v, shape=(*others, groups, channels // groups))


def merged(v: Value) -> Value:
    """The last two axes as one."""
    *others, groups, channels = v.aval.dims
    return emit("reshape", v, shape=(*others, groups * channels))


def filters(k: Value) -> Value:
    """(*window, channels, groups, results) as (groups · results, *window, channels)."""
    n = len(k.aval.dims)
    *window, channels, groups, results = k.aval.dims
    turned = emit("transpose", k, perm=(n - 2, n - 1, *range(n - 2)))
    return emit("reshape", turned, shape=(groups * results, *window, channels))


def kernel(w: Value, groups: int) -> Value:
    """What `filters` was given."""
    results, *others = w.aval.dims
    apart = emit("reshape", w, shape=(groups, results // groups, *others))
    n = len(apart.aval.dims)
    return emit("transpose", apart, perm=(*range(2, n), 0, 1))


class Convolution(Op):
    """A call of cuDNN. It is no op of the table: only graphs for a device have it. Its images have their groups side by
    side, its filters the order of `filters`.

    Args:
      kind: which of `cudnn.KINDS` it is.
      body: (*graph values, groups, **params) to the same result by ops of the table.
    """

    kind = "library"

    def __init__(self, kind: str, body: Callable[..., Value]) -> None:
        super().__init__(f"cudnn_{kind}", listed=False)
        self.which, self.body = kind, body

    def expand(self, avals: tuple[Aval, ...], **params: Any) -> Graph:
        """The graph that does the same without cuDNN."""
        inputs = tuple(map(Value, avals))
        return Graph(inputs, [self.body(*inputs, **params)])

    def infer(self, avals: tuple[Aval, ...], **params: Any) -> tuple[Aval, ...]:
        return tuple(v.aval for v in self.expand(avals, **params).outputs)


FORWARD = Convolution(
    "fprop", lambda x, w, groups, **p: merged(CONVOLVE.body(split(x, groups), kernel(w, groups), **p))
)
INPUT = Convolution(
    "dgrad", lambda g, w, groups, **p: merged(CONVOLVE_INPUT.body(split(g, groups), kernel(w, groups), **p))
)
KERNEL = Convolution(
    "wgrad", lambda x, g, groups, **p: filters(CONVOLVE_KERNEL.body(split(x, groups), split(g, groups), **p))
)


# ------------------------------------------------------------------ which it does


def is_for_cudnn(op: Composite, avals: tuple[Aval, ...], params: dict[str, Any]) -> bool:
    """Whether cuDNN is asked to do a convolution."""
    if not all(a.is_known for a in avals) or avals[0].dtype.numpy_dtype not in DTYPES:
        return False
    sizes = [a.size for a in (*avals, *op.infer(avals, **params))]
    w = Windows(*(params[name] for name in Windows._fields))
    # Of single elements it is a product of matrices, which cuBLAS does where they lie.
    return len(w.window) <= AXES and min(sizes) > 0 and max(sizes) <= LARGEST and not w.are_elements


def _convolve(x: Value, k: Value, **params: Any) -> Value:
    groups = x.aval.dims[-2]
    return split(called(FORWARD, merged(x), filters(k), groups=groups, **params), groups)


def _convolve_input(g: Value, k: Value, **params: Any) -> Value:
    groups = g.aval.dims[-2]
    return split(called(INPUT, merged(g), filters(k), groups=groups, **params), groups)


def _convolve_kernel(x: Value, g: Value, **params: Any) -> Value:
    groups = x.aval.dims[-2]
    return kernel(called(KERNEL, merged(x), merged(g), groups=groups, **params), groups)


def _expansion(cuda: Cuda, op: Composite, build: Callable[..., Value]) -> Expand:
    def expand(avals: tuple[Aval, ...], **params: Any) -> Graph:
        if not is_for_cudnn(op, avals, params) or cuda.cudnn.module is None:
            return op.expand(avals, **params)
        inputs = tuple(map(Value, avals))
        return Graph(inputs, [build(*inputs, **params)])

    return expand


def expansions(cuda: Cuda) -> dict[str, Expand]:
    """(avals, **params) to the graph of a convolution, by the name of the op."""
    return {
        CONVOLVE.name: _expansion(cuda, CONVOLVE, _convolve),
        CONVOLVE_INPUT.name: _expansion(cuda, CONVOLVE_INPUT, _convolve_input),
        CONVOLVE_KERNEL.name: _expansion(cuda, CONVOLVE_KERNEL, _convolve_kernel),
    }


# ------------------------------------------------------------------ calls


def problem_of(step: Step, avals: tuple[Aval, ...]) -> Problem:
    """What a step asks of cuDNN."""
    op, params = step.op, step.params
    assert isinstance(op, Convolution)
    shapes = (a.dims for a in (*avals, *step.infer(avals)))
    steps = (params[name] for name in ("strides", "dilations", "low", "high"))
    return Problem(op.which, avals[0].dtype.numpy_dtype, *shapes, *steps)


def convolution(cuda: Cuda, step: Step, program: Callable[[Graph], Kernel]) -> Kernel:
    """The function of a step: two arrays to one. `program`: the function of a graph that does without cuDNN."""
    op, params = step.op, step.params
    assert isinstance(op, Convolution)

    def made(problem: Problem, avals: tuple[Aval, ...], unwanted: tuple[str, ...]) -> Kernel:
        try:
            plan = cuda.cudnn.plan(problem, unwanted)
        except Unsupported as e:
            text = f"{e}; im2col and cuBLAS do it"
            show("plan", f"{problem} without cuDNN", lambda: text)
            cuda.cudnn.warn(f"cuDNN has no plan for {problem}: {text}")
            run = program(op.expand(avals, **params))
            return lambda *arrays: run(*arrays)[0]
        show("plan", f"{problem} by cuDNN", lambda: f"{plan.workspace} bytes of workspace")
        return _planned(cuda, plan)

    def run(*arrays: Any) -> Any:
        given = [cuda.array(a) for a in arrays]
        avals = tuple(map(aval_of, given))
        problem = problem_of(step, avals)
        unwanted = notes(problem.dtype)
        return cuda.once(("cudnn", problem, unwanted), lambda: made(problem, avals, unwanted))(*given)

    return run


def _planned(cuda: Cuda, plan: Plan) -> Kernel:
    p = plan.problem

    def run(*arrays: Any) -> Any:
        first, second = (_in_place(cuda, a) for a in arrays)
        result = cuda.empty(p.result, p.dtype)
        workspace = cuda.empty((plan.workspace,), "uint8") if plan.workspace else None
        plan.run(first.data.ptr, second.data.ptr, result.data.ptr, 0 if workspace is None else workspace.data.ptr)
        return result

    return run


def _in_place(cuda: Cuda, a: Any) -> Any:
    """An operand as cuDNN reads it: in C order, from an aligned address on."""
    a = cuda.xp.ascontiguousarray(a)
    return cuda.copy(a) if a.data.ptr % ALIGNED else a
