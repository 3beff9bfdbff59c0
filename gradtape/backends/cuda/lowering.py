"""Each kind of op on a CUDA device. Floor: backends.

What can be a cluster is one before it gets here. Operands that are still on the host (numbers, positions, what a host
step made) are copied to the device where a kernel reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gradtape.backends import control
from gradtape.backends.cuda import own
from gradtape.backends.cuda.clustered import Clustered
from gradtape.backends.cuda.convolution import Convolution, convolution
from gradtape.backends.cuda.device import Cuda, Known, Program
from gradtape.backends.cuda.library import Library
from gradtape.backends.cuda.products import contraction
from gradtape.backends.program import compile_graph
from gradtape.ir.aval import Aval, aval_of
from gradtape.ir.bounded import Bounded
from gradtape.ir.errors import UnimplementedError
from gradtape.ir.graph import Graph, Value
from gradtape.kernels.cuda_together import Member
from gradtape.ops.arithmetic import ADD
from gradtape.ops.call import Call, Effectful, Ruled, UnknownRule
from gradtape.ops.composite import Composite
from gradtape.ops.contraction import Contraction
from gradtape.ops.control import Checkpoint, Cond, EmptyStack, Scan, StackSum, While
from gradtape.ops.fused import Fused, Together
from gradtape.ops.host import Host
from gradtape.ops.kernels import KernelStep
from gradtape.ops.layout import Positions
from gradtape.ops.op import Constant, Op, Step, apply
from gradtape.ops.opaque import Opaque
from gradtape.ops.placement import Assemble
from gradtape.ops.pointwise import IDLE, Pointwise
from gradtape.ops.reduction import Reduction
from gradtape.ops.structural import Structural

Kernel = Callable[..., Any]

BY_GRAPHS = (Call, Host, Cond, While, Scan, Checkpoint, StackSum, EmptyStack, Ruled)  # their steps hold all they need
KEPT = 64  # shapes for which a step's program is remembered


class Lowering:
    """The functions of steps on one device.

    Args:
      cuda: the device.
      prepared: a graph to the one that runs: in clusters where there can be any.
      ops: by name, functions (cuda, *device arrays, **params) of the ops that are no clusters.
    """

    def __init__(self, cuda: Cuda, prepared: Callable[[Graph], Graph], ops: Mapping[str, Callable[..., Any]]) -> None:
        self.cuda, self.prepared, self.ops = cuda, prepared, ops

    def __call__(self, step: Step) -> Kernel:
        """The function of a step of a prepared graph: arrays to an array, or to a tuple of arrays."""
        found = step.lowered.get(self.cuda.key)
        if found is None:
            found = step.lowered[self.cuda.key] = self._rule(step.op)(self, step)
        return found

    def alone(self, step: Step) -> Kernel:
        """The function of a step that is no part of a program: a program for each shape."""
        if isinstance(step.op, BY_GRAPHS):
            return self(step)
        programs: Bounded[Any, Kernel] = Bounded(KEPT)

        def run(*arrays: Any) -> Any:
            avals = tuple(map(aval_of, arrays))
            return _single(programs.find(avals, lambda: self._of_one(step, avals))(*arrays))

        return run

    def _of_one(self, step: Step, avals: tuple[Aval, ...]) -> Kernel:
        inputs = tuple(map(Value, avals))
        return self.program(Graph(inputs, apply(step, inputs)))

    def program(self, graph: Graph, over: Mapping[int, int] | None = None) -> Kernel:
        """What runs a graph: arrays to a tuple of arrays. Its kernels are compiled at once, when it is made. `over`: by
        number, which result may be written over which of the graph's inputs, all of which are in C order."""
        return self.compiled(self.prepared(graph), over)

    def compiled(self, graph: Graph, over: Mapping[int, int] | None = None) -> Kernel:
        """The same for a graph that was prepared."""
        if over is None:
            kernels = [self(n.step) for n in graph.nodes if isinstance(n.step.op, Fused | Together)]
            self.cuda.compile([text for k in kernels if isinstance(k, Program) for text in k.texts])
        return compile_graph(graph, self, host=False, over=over)

    def _rule(self, op: Op) -> Callable[[Lowering, Step], Kernel]:
        for kind in type(op).__mro__:
            if kind in RULES:
                return RULES[kind]
        raise TypeError(f"The CUDA backend does not know the kind of `{op.name}`.")

    # ------------------------------------------------------------------ rules

    def _fused(self, step: Step) -> Clustered:
        results = [(v.aval.dims, v.aval.dtype.numpy_dtype) for v in step.params["graph"].outputs]
        return Clustered(self.cuda, [Member(step.params["cluster"], 0, 0)], results)

    def _together(self, step: Step) -> Clustered:
        results = [(a.dims, a.dtype.numpy_dtype) for a in step.params["results"]]
        return Clustered(self.cuda, [Member(*m) for m in step.params["members"]], results)

    def _contraction(self, step: Step) -> Kernel:
        return contraction(self.cuda, step.params["subscripts"])

    def _structural(self, step: Step) -> Kernel:
        """A view, if the op has no function of its own; positions stay where they are, on the host or not."""
        op, cuda, params = step.op, self.cuda, step.params
        assert isinstance(op, Structural)
        if op.view and op.name not in self.ops:
            return lambda *arrays: op.value(cuda.xp, *map(cuda.array, arrays), **params)
        found, moved = self._found(op), -op.indices or None

        def run(*arrays: Any) -> Any:
            operands = [cuda.array(a) for a in arrays[:moved]]
            return found(cuda, *operands, *arrays[len(operands) :], **params)

        return run

    def _by_name(self, step: Step) -> Kernel:
        cuda, params, found = self.cuda, step.params, self._found(step.op)
        stay = getattr(found, "as_given", ())
        return lambda *arrays: found(cuda, *[a if k in stay else cuda.array(a) for k, a in enumerate(arrays)], **params)

    def _library(self, step: Step) -> Kernel:
        cuda, params, op = self.cuda, step.params, step.op
        assert isinstance(op, Library)
        return lambda *arrays: op.run(cuda, *map(cuda.array, arrays), **params)

    def _found(self, op: Op) -> Callable[..., Any]:
        found = self.ops.get(op.name)
        if found is None:
            raise UnimplementedError(
                f"`{op.name}` has no kernel for {self.cuda.name}. Run it on the host: `with tf.device('/CPU:0'):`."
            )
        return found

    def _unspelled(self, step: Step) -> Kernel:
        """An op that should have become part of a cluster, or that does nothing."""
        if step.op.name in IDLE:
            return self.cuda.array
        raise UnimplementedError(
            f"`{step.op.name}` of these dtypes has no kernel for {self.cuda.name}. Run it on the host: `with "
            "tf.device('/CPU:0'):`, or cast its operands."
        )

    def _call(self, step: Step) -> Kernel:
        return self.program(step.params["graph"])

    def _ruled(self, step: Step) -> Kernel:
        count = step.params["results"]
        return (lambda x, *others: x) if count == 1 else (lambda *arrays: arrays[:count])

    def _constant(self, step: Step) -> Kernel:
        shape, dtype = step.params["shape"], step.params["dtype"].numpy_dtype
        value = np.asarray(step.params["value"]).astype(dtype)[()]
        if not shape:
            return lambda: self.cuda.number(value)

        return lambda: self.cuda.filled(shape, value, dtype)

    def _positions(self, step: Step) -> Kernel:
        known = np.array(list(step.params["value"]), np.int64).view(Known)
        return lambda: known

    def _host(self, function: Callable[..., Any]) -> Kernel:
        cuda = self.cuda

        def run(*arrays: Any) -> Any:
            cuda.needs_host("a function of Python runs in it, such as `tf.print`")
            return function(*[cuda.host(a)[()] for a in arrays])

        return run

    def _unknown(self, step: Step) -> Kernel:
        op = step.op
        assert isinstance(op, UnknownRule)

        def refuse(*arrays: Any) -> Any:
            raise op.error(step)

        return refuse

    def _add_stacks(self, step: Step) -> Kernel:
        return control.stack_adder(self.alone(ADD.bind()))


def _around_graphs(
    rule: Callable[[Step, control.Compile], Kernel], asks: str = ""
) -> Callable[[Lowering, Step], Kernel]:
    """The function of a branch or a loop, which runs the programs of its graphs. `asks`: what the host must know."""

    def made(lowering: Lowering, step: Step) -> Kernel:
        cuda, run = lowering.cuda, rule(step, control.Compile(lowering.prepared, lowering.compiled))

        def asking(*arrays: Any) -> Any:
            cuda.needs_host(f"the host reads {asks}")
            return run(*arrays)

        return asking if asks else run

    return made


RULES: dict[type, Callable[[Lowering, Step], Kernel]] = {
    Fused: Lowering._fused,
    Together: Lowering._together,
    Contraction: Lowering._contraction,
    Structural: Lowering._structural,
    Opaque: Lowering._by_name,
    KernelStep: lambda lowering, step: own.kernel(lowering.cuda, step),
    Library: Lowering._library,
    Convolution: lambda lowering, step: convolution(lowering.cuda, step, lowering.program),
    Composite: Lowering._by_name,
    Assemble: Lowering._by_name,
    Pointwise: Lowering._unspelled,
    Reduction: Lowering._unspelled,
    Call: Lowering._call,
    Ruled: Lowering._ruled,
    Constant: Lowering._constant,
    Positions: Lowering._positions,
    Host: lambda lowering, step: lowering._host(step.params["function"]),
    Effectful: lambda lowering, step: lowering._host(step.params["effect"].on_arrays),
    UnknownRule: Lowering._unknown,
    Cond: _around_graphs(control.cond, "the condition of a branch"),
    While: _around_graphs(control.while_loop, "the condition of a loop"),
    Scan: _around_graphs(control.scan, "how many rounds a loop has"),
    Checkpoint: _around_graphs(control.checkpoint),
    StackSum: Lowering._add_stacks,
    EmptyStack: lambda lowering, step: control.Stack,
}


def _single(results: tuple[Any, ...]) -> Any:
    return results[0] if len(results) == 1 else results
