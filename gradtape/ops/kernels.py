"""Users' own kernels as ops: opaque ones outside of the table, with a signature or as a whole. Floor: ops.

A kernel is given its operands with their loop axes made one, which it goes over, as arrays that lie in one piece."""

from __future__ import annotations

import functools
import inspect
import math
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from gradtape.ir.aval import Aval, aval, aval_of
from gradtape.ir.bounded import Bounded
from gradtape.ir.dtypes import DType
from gradtape.ir.errors import InvalidArgumentError, UnimplementedError
from gradtape.ir.expr import Expr, mentions
from gradtape.ir.graph import Graph, Node, Value
from gradtape.ir.shapes import shape_text
from gradtape.kernels import numba_cuda
from gradtape.kernels.cuda_source import CudaSource
from gradtape.ops.call import NO_GRADIENT
from gradtape.ops.op import Cotangent, apply, constant, emit
from gradtape.ops.opaque import Opaque
from gradtape.ops.pointwise import instantiate, masked
from gradtape.ops.signatures import Dims, Signature, repeated

KEPT = 64  # shapes of operands for which layouts are remembered
THREADS = 256  # of a block, where nobody says otherwise
MOST = {"grid": ((1 << 31) - 1, 65535, 65535), "block": (1024, 1024, 64)}  # along each axis
SIZE = "size"  # how a kernel calls the number of its loops

Static = tuple[tuple[str, Any, str], ...]  # name, value, and how that is written
Rule = Callable[[Node, Sequence[Value | None]], Sequence[Value | None]]
Partials = Callable[[Static], Sequence[Expr | None]]


class Layout(NamedTuple):
    """How a kernel sees operands of some shapes.

    `loops`: the axes that are made one, of `size` elements in all; `repeats`: how often it runs, one time for each
    element of further loop axes in front of these; `sizes`: of core axes; `letters`: dtypes of letters."""

    repeats: int
    loops: Dims
    size: int
    sizes: dict[str, int]
    operands: tuple[Dims, ...]  # of the core
    results: tuple[Dims, ...]
    dtypes: tuple[DType, ...]
    letters: dict[str, DType]


@dataclass
class Kernel:
    """A user's kernel, and how it is called.

    `source`: in CUDA C++; `compiled`: one of Numba's; `host`: a function of NumPy arrays. `signature`: None where
    `shapes` says what comes of operands as a whole. `dtypes`: of the results. `launch`: grid, block, shared memory."""

    name: str
    operands: int
    results: int
    source: CudaSource | None = None
    compiled: Any = None
    host: Callable[..., Any] | None = None
    signature: Signature | None = None
    shapes: Callable[..., Any] | None = None
    sizes: Callable[..., Any] | None = None
    dtypes: Callable[..., Sequence[DType]] | None = None
    allowed: Mapping[str, Sequence[DType]] = field(default_factory=dict)
    launch: Mapping[str, Any] = field(default_factory=dict)

    def layout(self, avals: Sequence[Aval], rows: int, static: Mapping[str, Any]) -> Layout:
        """What it makes of operands, `rows` of whose first axes are loops besides those of the signature.

        Raises:
          ValueError: operands that do not fit, with the reason.
        """
        if len(avals) != self.operands:
            raise TypeError(f"`{self.name}` takes {self.operands} operands, got {len(avals)}.")
        letters = self._letters(avals)
        dtypes = tuple(self._dtypes(avals, letters, static))
        shapes = [a.dims for a in avals]
        if self.signature is None:
            outer, cores = shapes[0][:rows], tuple(s[rows:] for s in shapes)
            results = self._whole(cores, static)
            return Layout(math.prod(outer), outer, 1, {}, cores, results, dtypes, letters)
        loops, sizes = self.signature.loops(shapes)
        sizes = self._sized(sizes, static)
        size = math.prod(loops)
        cores, results = (
            tuple(tuple(sizes[n] if isinstance(n, str) else n for n in core) for core in side)
            for side in (self.signature.operands, self.signature.results)
        )
        return Layout(1, loops, size, sizes, cores, results, dtypes, letters)

    def _letters(self, avals: Sequence[Aval]) -> dict[str, DType]:
        """The dtypes of a text's letters, by those of the operands."""
        letters: dict[str, DType] = {}
        declared = [] if self.source is None else self.source.of_kind("operand")
        for k, (a, p) in enumerate(zip(avals, declared, strict=False)):
            want = letters.setdefault(p.type, a.dtype) if isinstance(p.type, str) else p.type
            if isinstance(p.type, str) and a.dtype not in self.allowed[p.type]:
                names = ", ".join(d.name for d in self.allowed[p.type])
                raise ValueError(
                    f"wants one of {names} for operand {k}, `{p.name}`, got {a.dtype.name}. Convert it with `tf.cast`, "
                    f"or add the dtype to `types` at `{p.type}`"
                )
            if want is not a.dtype:
                raise ValueError(
                    f"wants {want.name} for operand {k}, `{p.name}`, got {a.dtype.name}. Convert it with `tf.cast`"
                )
        return letters

    def _dtypes(
        self, avals: Sequence[Aval], letters: Mapping[str, DType], static: Mapping[str, Any]
    ) -> Sequence[DType]:
        if self.source is not None:
            return [letters[p.type] if isinstance(p.type, str) else p.type for p in self.source.of_kind("result")]
        if self.dtypes is None:
            usual = next((a.dtype for a in avals if a.dtype.is_floating), avals[0].dtype)
            return [usual] * self.results
        return self.dtypes(*(a.dtype for a in avals))

    def _sized(self, sizes: dict[str, int], static: Mapping[str, Any]) -> dict[str, int]:
        """The sizes with those that only results have."""
        assert self.signature is not None
        missing = [n for n in self.signature.names if n not in sizes]
        if missing:
            made = {} if self.sizes is None else called(self.sizes, dict(static) | sizes)
            if not isinstance(made, Mapping) or not all(
                isinstance(made.get(n), int | np.integer) and made[n] >= 0 for n in missing
            ):
                raise ValueError(f"wants the sizes {missing} of `sizes`, in a dictionary, got {made!r}")
            sizes = sizes | {n: int(made[n]) for n in missing}
        return sizes

    def _whole(self, shapes: Sequence[Dims], static: Mapping[str, Any]) -> tuple[Dims, ...]:
        assert self.shapes is not None
        made = self.shapes(*shapes, **static)
        found = [made] if self.results == 1 and all(isinstance(n, int | np.integer) for n in made) else list(made)
        if len(found) != self.results or not all(isinstance(n, int | np.integer) and n >= 0 for s in found for n in s):
            raise ValueError(f"wants {self.results} shapes of `shapes`, got {made!r}")
        return tuple(tuple(map(int, s)) for s in found)

    def repeated(self, have: Dims, want: Dims, k: int) -> tuple[int, ...]:
        """The axes along which operand k was repeated to the loop axes of all."""
        return repeated(have, want, 0 if self.signature is None else len(self.signature.operands[k]))

    def grid(self, layout: Layout, static: Mapping[str, Any]) -> tuple[tuple[int, ...], tuple[int, ...], int]:
        """Blocks, threads of each, bytes of shared memory: one thread for each element of the largest result."""
        most = max(layout.size * math.prod(core) for core in layout.results)
        known = dict(static) | layout.sizes | {SIZE: layout.size}
        block = self._three("block", known, THREADS)
        grid = self._three("grid", known, -(-most // math.prod(block)))
        shared = self.launch.get("shared") or 0
        return grid, block, int(called(shared, known) if callable(shared) else shared)

    def numbers(self, layout: Layout, static: Mapping[str, Any]) -> list[Any]:
        """The numbers of a kernel of Numba's, which stand behind its arrays."""
        known = dict(static) | layout.sizes | {SIZE: layout.size}
        return [known[n] for n in numba_cuda.parameters_of(self.compiled)[self.operands + self.results :]]

    def scalars(self, layout: Layout, static: Mapping[str, Any]) -> list[tuple[Any, DType]]:
        """The numbers of a text, with the dtypes that it declares and that hold them."""
        known, found = dict(static) | layout.sizes | {SIZE: layout.size}, []
        for p in self.source.of_kind("number") if self.source else ():
            value, dtype = known[p.name], layout.letters[p.type] if isinstance(p.type, str) else p.type
            if dtype.is_integer and not (dtype.min <= value <= dtype.max and value == int(value)):
                raise InvalidArgumentError(
                    f"`{self.name}` declares its parameter `{p.name}` as {dtype.name}, which does not hold {value}. "
                    "Declare another type."
                )
            found.append((value, dtype))
        return found

    def _three(self, what: str, known: Mapping[str, Any], usual: int) -> tuple[int, ...]:
        given = self.launch.get(what)
        found = usual if given is None else called(given, known) if callable(given) else given
        sizes = tuple(found) if isinstance(found, tuple | list) else (found,)
        fits = [isinstance(n, int | np.integer) and 1 <= n <= m for n, m in zip(sizes, MOST[what], strict=False)]
        if not 1 <= len(sizes) <= 3 or not all(fits) or (what == "block" and math.prod(sizes) > MOST[what][0]):
            raise InvalidArgumentError(
                f"`{self.name}` wants one to three whole numbers from 1 as `{what}`, at most {MOST[what]}"
                f"{' (and 1024 in all)' if what == 'block' else ''}, got {found!r}."
            )
        return tuple(map(int, sizes))


def called(f: Callable[..., Any], known: Mapping[str, Any]) -> Any:
    """A function of what it asks for by name."""
    parameters = inspect.signature(f).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return f(**known)
    if unknown := [n for n in parameters if n not in known]:
        raise TypeError(f"`{getattr(f, '__name__', f)}` asks for {unknown}, and there is {sorted(known)}.")
    return f(**{n: known[n] for n in parameters})


class KernelStep(Opaque):
    """The op of a kernel. Parameters: `static`, numbers of the user's; `rows`, how many axes in front are more loops.

    Args:
      kernel: what runs.
      rule: (node, cotangents) to the cotangents of all operands at their full loop axes; None: it has no gradient.
      partials: of a kernel of single numbers with one result, in its place: (static) to a partial for each operand, in
        symbols x0, x1, ... and `out`.
      linear: the operands in which the kernel is linear, alone and together, as its user says.
    """

    kind = "kernel"

    def __init__(
        self, kernel: Kernel, rule: Rule | None = None, partials: Partials | None = None, linear: Sequence[int] = ()
    ) -> None:
        self.kernel, self.pulls, self.partials, self.linear = kernel, rule, partials, frozenset(linear)
        self.warned = False
        self.layouts: Bounded[Any, Layout] = Bounded(KEPT)
        super().__init__(
            f"kernel_op_{kernel.name}",
            self.on_host,
            infer=self._infer,
            vjp=self._pulled,
            signature="" if kernel.signature is None else kernel.signature.text,
            shift=self._shifted if kernel.signature is None else None,
            samples=(),
            listed=False,
        )

    def layout(self, avals: Sequence[Aval], rows: int, static: Static) -> Layout:
        make = functools.partial(self.kernel.layout, avals, rows, values_of(static))
        return self.layouts.find((tuple(avals), rows, static), make)

    def is_linear(self, which: Collection[int], static: Static) -> bool:
        """Whether it is linear in operands, alone and together: by its partials, or as its user says."""
        if self.partials is None:
            return self.linear.issuperset(which)
        partials = self.partials(static)
        varying = {f"x{k}" for k in which} | {"out"}
        return not any(p is not None and mentions(p) & varying for p in (partials[k] for k in which))

    @property
    def is_transposable(self) -> bool:
        """Whether it can be pulled back by operands in which it is linear."""
        return self.pulls is not None or self.partials is not None

    def _infer(self, *avals: Aval, rows: int, static: Static) -> Sequence[Aval]:
        found = self.layout(avals, rows, static)
        return [aval((*found.loops, *core), d) for core, d in zip(found.results, found.dtypes, strict=True)]

    def _shifted(self, params: dict[str, Any], count: int) -> dict[str, Any]:
        if not self.warned:
            self.warned = True
            warnings.warn(
                f"The kernel op `{self.kernel.name}` has no signature: it runs once for each row, one after the other. "
                "Give `signature=`, and write the kernel for loop axes, so that it runs once for all.",
                RuntimeWarning,
                stacklevel=2,
            )
        return params | {"rows": params["rows"] + count}

    def pull(self, node: Node, given: list[Cotangent | None], wanted: list[bool]) -> list[Cotangent | None]:
        if self.partials is None:
            return super().pull(self._at_zero(node, wanted), given, wanted)
        (c,) = given
        if c is None:
            return [None] * len(node.inputs)
        symbols = {f"x{k}": v for k, v in enumerate(node.inputs)} | {"out": node.outputs[0]}
        pulled: list[Cotangent | None] = []
        for k, (p, w) in enumerate(zip(self.partials(node.step.params["static"]), wanted, strict=True)):
            if p is None or not w:
                pulled.append(None)
                continue
            partial = masked(instantiate(p, symbols, c.value.aval.dtype), c.mask)
            if partial.aval.dtype.is_complex:
                partial = emit("conj", partial)
            pulled.append(Cotangent(self._summed(emit("multiply", partial, c.value), node.inputs[k], k)))
        return pulled

    def _at_zero(self, node: Node, wanted: Sequence[bool]) -> Node:
        """The node by which it is pulled back. Cotangents of operands in which it is linear do not depend on these: a
        rule that reads them gets zeros, since forward mode has no value for what it transposes."""
        if not self.linear or not self.linear.issuperset(k for k, w in enumerate(wanted) if w):
            return node
        zeros = [constant(0, v.aval.dtype, v.aval.dims) for v in (*node.inputs, *node.outputs)]
        inputs = tuple(zeros[k] if k in self.linear else v for k, v in enumerate(node.inputs))
        found = Node(node.step, inputs, ())
        found.outputs = tuple(zeros[len(inputs) :])
        return found

    def _pulled(self, node: Node, *cotangents: Value | None) -> Sequence[Value | None]:
        given = [
            constant(0, v.aval.dtype, v.aval.dims) if g is None and v.aval.dtype.is_differentiable else g
            for v, g in zip(node.outputs, cotangents, strict=True)
        ]
        if self.pulls is None:
            return without_gradient(self.kernel.name, node, given)
        pulled = self.pulls(node, given)
        return [None if p is None else self._summed(p, v, k) for k, (p, v) in enumerate(zip(pulled, node.inputs))]

    def _summed(self, pulled: Value, operand: Value, k: int) -> Value:
        """The cotangent of an operand: the sum over loop axes along which it was repeated."""
        want = operand.aval.dims
        axes = self.kernel.repeated(pulled.aval.dims, want, k)
        total = emit("reduce_sum", pulled, axes=axes, keepdims=False) if axes else pulled
        return total if total.aval.dims == want else emit("reshape", total, shape=want)

    # ------------------------------------------------------------------ arrays

    def flat(self, xp: Any, arrays: Sequence[Any], found: Layout) -> list[Any]:
        """The operands as a kernel is given them: (repeats, size, core), in one piece."""
        outer = () if self.kernel.signature is None else (found.size,)
        made = []
        for a, core in zip(arrays, found.operands, strict=True):
            whole = (*found.loops, *core)
            wide = a if a.shape == whole else xp.broadcast_to(a, whole)
            made.append(xp.ascontiguousarray(wide).reshape((found.repeats, *outer, *core)))
        return made

    def shapes(self, found: Layout) -> list[tuple[Dims, DType]]:
        """The results as a kernel is given them."""
        outer = () if self.kernel.signature is None else (found.size,)
        return [((found.repeats, *outer, *core), d) for core, d in zip(found.results, found.dtypes, strict=True)]

    def assembled(self, results: Sequence[Any], found: Layout) -> Any:
        """The results with their loop axes."""
        done = [r.reshape((*found.loops, *core)) for r, core in zip(results, found.results, strict=True)]
        return tuple(done) if len(done) > 1 else done[0]

    def on_host(self, xp: Any, *arrays: Any, rows: int, static: Static) -> Any:
        """The kernel's form for the host."""
        known = values_of(static)
        found = self.layout([aval_of(a) for a in arrays], rows, static)
        operands = [_frozen(a) for a in self.flat(xp, arrays, found)]
        results = [xp.empty(shape, d.numpy_dtype) for shape, d in self.shapes(found)]
        if any(r.size for r in results):
            run = self._on_host(xp, found, known)
            for k in range(found.repeats):
                run([a[k] for a in operands], [r[k] for r in results])
        return self.assembled(results, found)

    def _on_host(self, xp: Any, found: Layout, known: Mapping[str, Any]) -> Callable[[list[Any], list[Any]], None]:
        """What writes the results of one call: the form for the host, or Numba's simulator."""
        kernel = self.kernel
        sizes = kernel.grid(found, known)  # what a GPU would refuse is refused here as well
        kernel.scalars(found, known)
        if kernel.host is not None:
            return lambda operands, results: self._write(xp, kernel.host, operands, results, known)
        if kernel.compiled is None or not numba_cuda.is_simulated(kernel.compiled):
            raise UnimplementedError(
                f"`{self.name}` has no form for the host, and there is no GPU, or its operands were sent to the host. "
                "Give `kernel_op` a function of NumPy arrays, `host=`."
            )
        numbers = kernel.numbers(found, known)
        return lambda operands, results: numba_cuda.simulate(kernel.compiled, *sizes, operands, results, numbers)

    def _write(
        self, xp: Any, host: Any, operands: Sequence[Any], results: Sequence[Any], static: Mapping[str, Any]
    ) -> None:
        """The results of the form for the host, written where they go."""
        made = host(*operands, **static)
        listed = list(made) if isinstance(made, tuple | list) else [made]
        if len(listed) != len(results):
            raise self.invalid(f"should return {len(results)} arrays from `host`, got {len(listed)}.")
        for k, (a, r) in enumerate(zip(map(xp.asarray, listed), results, strict=True)):
            if a.shape != r.shape or a.dtype != r.dtype:
                raise self.invalid(
                    f"should return {r.dtype}{shape_text(r.shape)} as result {k} from `host`, got "
                    f"{a.dtype}{shape_text(a.shape)}."
                )
            r[...] = a


def without_gradient(name: str, node: Node, cotangents: Sequence[Value | None]) -> Sequence[Value]:
    """What stands for cotangents of operands that nobody can say; who asks for their numbers is told."""
    given = [g for g in cotangents if g is not None]
    step = NO_GRADIENT.bind(name=name, results=tuple(v.aval for v in node.inputs))
    return apply(step, [*node.inputs, *node.outputs, *given])


def _frozen(a: Any) -> Any:
    """An array that may be a user's tensor, to be read only."""
    view = a.view()
    view.flags.writeable = False
    return view


def holds_kernels(graph: Graph) -> bool:
    """Whether a graph, or one inside it, runs a kernel of a user's."""
    return any(
        isinstance(n.step.op, KernelStep)
        or any(holds_kernels(g) for g in n.step.params.values() if isinstance(g, Graph))
        for n in graph.nodes
    )


def values_of(static: Static) -> dict[str, Any]:
    """Static parameters by name."""
    return {name: value for name, value, _ in static}
