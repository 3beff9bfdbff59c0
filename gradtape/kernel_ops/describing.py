"""Kernels in CUDA C++ and of Numba's as ops: what they and the arguments of `kernel_op` say together. Floor: api."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gradtape.ir.dtypes import DType, as_dtype, float32, float64
from gradtape.kernel_ops.base import checked_name
from gradtape.kernel_ops.opaque import OpaqueKernel
from gradtape.kernels import numba_cuda
from gradtape.kernels.cuda_source import CudaSource, Parameter, cuda_source, kernels_in
from gradtape.ops.kernels import SIZE, Kernel
from gradtape.ops.signatures import Signature, signature_of


@dataclass(frozen=True)
class Options:
    """The arguments of `kernel_op` for kernels, as they are given."""

    derivative: Any = None
    signature: str | None = None
    shapes: Any = None
    sizes: Any = None
    types: Any = ()
    dtypes: Any = None
    static: Any = None
    grid: Any = None
    block: Any = None
    shared: Any = None
    host: Any = None
    backward: Any = None
    backward_host: Any = None
    linear: bool = False

    def described(self, name: str) -> dict[str, Any]:
        """What kernels of both kinds have of them.

        Raises:
          ValueError: neither a signature nor shapes, or both.
          TypeError: what should be a function, and is none.
        """
        if (self.signature is None) == (self.shapes is None):
            raise ValueError(
                f"The kernel op `{name}` wants `signature`, such as '()->()' for single numbers or '(n)->(n)' for "
                "rows; or, for a kernel of whole arrays, `shapes`: a function of the operands' shapes to the result's."
            )
        for what in ("shapes", "sizes", "host", "backward_host"):
            f = getattr(self, what)
            if f is not None and not callable(f):
                raise TypeError(f"`{what}` of a kernel op should be a function, got {type(f).__name__}.")
        return {
            "signature": None if self.signature is None else signature_of(self.signature),
            "shapes": self.shapes,
            "sizes": self.sizes,
            "host": self.host,
            "launch": {"grid": self.grid, "block": self.block, "shared": self.shared},
        }


# ------------------------------------------------------------------ kernels of both kinds


def of_text(text: str, name: str | None, options: Options) -> OpaqueKernel:
    """The op of a kernel in CUDA C++."""
    found = kernels_in(text)
    entry = name if name in found else found[0] if len(found) == 1 else None
    if entry is None:
        there = ", ".join(found) or "none"
        raise ValueError(
            f"The text should have one kernel (`__global__ void`), or `name` one of them; there is {there}."
        )
    if options.dtypes is not None:
        raise TypeError("`dtypes` is for kernels of Numba's; a text says of which types its results are.")
    name, letters = checked_name(name or entry, None), letters_of(options.types)
    source = cuda_source(text, entry, list(letters))
    operands, results = source.of_kind("operand"), source.of_kind("result")
    kernel = Kernel(name, len(operands), len(results), source=source, allowed=letters, **options.described(name))
    _check_pointers(kernel, source)
    numbers = [p.name for p in source.of_kind("number")]
    return _op(kernel, [p.name for p in operands], numbers, options)


def of_compiled(compiled: Any, name: str | None, options: Options) -> OpaqueKernel:
    """The op of a kernel of Numba's: its parameters are operands, results, and numbers behind them."""
    if options.types:
        raise TypeError("`types` is for kernels in CUDA C++; Numba compiles its own for the dtypes of operands.")
    name, parameters = checked_name(name, compiled), numba_cuda.parameters_of(compiled)
    described = options.described(name)
    signature: Signature | None = described["signature"]
    results = len(signature.results) if signature else 1
    operands = len(signature.operands) if signature else max(1, _arrays(parameters, options) - 1)
    if len(parameters) < operands + results:
        raise ValueError(
            f"The kernel `{name}` should have parameters for {operands} operands and {results} results, and then for "
            f"numbers; it has {parameters}."
        )
    kernel = Kernel(name, operands, results, compiled=compiled, dtypes=_dtypes_of(options.dtypes, results), **described)
    return _op(kernel, parameters[:operands], parameters[operands + results :], options)


def _arrays(parameters: Sequence[str], options: Options) -> int:
    """How many parameters are arrays: those in front of the numbers, which have values of their own."""
    return len([p for p in parameters if p != SIZE and p not in (options.static or {})])


def _op(kernel: Kernel, operands: Sequence[str], numbers: Sequence[str], options: Options) -> OpaqueKernel:
    known = {SIZE, *(kernel.signature.names if kernel.signature else ())}
    return OpaqueKernel(
        kernel,
        operands,
        [n for n in numbers if n not in known],
        options.static or {},
        _checked_derivative(kernel, options),
        _backward(kernel, [n for n in numbers if n not in known], options),
        options.linear,
    )


def _check_pointers(kernel: Kernel, source: CudaSource) -> None:
    """Whether a text has the pointers that its signature wants, and all of its letters stand for something.

    Raises:
      ValueError: they are not there.
    """
    operands, results, signature = source.of_kind("operand"), source.of_kind("result"), kernel.signature
    if not operands or not results:
        raise ValueError(
            f"The kernel `{kernel.name}` should have pointers to constants (its operands) and other pointers (its "
            f"results), got {len(operands)} and {len(results)}."
        )
    if signature and (len(signature.operands), len(signature.results)) != (len(operands), len(results)):
        raise ValueError(
            f"`signature` of `{kernel.name}` has {len(signature.operands)} operands and {len(signature.results)} "
            f"results, the text {len(operands)} pointers to constants and {len(results)} others."
        )
    used = {p.type for p in operands if isinstance(p.type, str)}
    for p in (*results, *source.of_kind("number")):
        if isinstance(p.type, str) and p.type not in used:
            raise ValueError(f"The type `{p.type}` of `{p.name}` is that of no operand of `{kernel.name}`.")


def letters_of(types: Any) -> dict[str, Sequence[DType]]:
    """The letters of a text, and the dtypes that they may be."""
    if isinstance(types, Mapping):
        return {k: [as_dtype(d) for d in (v if isinstance(v, list | tuple) else [v])] for k, v in types.items()}
    names = [types] if isinstance(types, str) else list(types)
    if not all(isinstance(n, str) and n.isidentifier() for n in names):
        raise TypeError(
            f"`types` should be names of types in the text, or a dictionary from them to dtypes, got {types!r}."
        )
    return dict.fromkeys(names, (float32, float64))


def _dtypes_of(given: Any, results: int) -> Callable[..., Sequence[DType]] | None:
    """The dtypes of results as a function of those of the operands."""
    if given is None or callable(given):
        return None if given is None else lambda *dtypes: _listed(given(*dtypes), results)
    found = _listed(given, results)
    return lambda *dtypes: found


def _listed(given: Any, results: int) -> list[DType]:
    found = [as_dtype(d) for d in (given if isinstance(given, list | tuple) else [given] * results)]
    if len(found) != results:
        raise ValueError(f"`dtypes` should be one dtype, or one for each of {results} results, got {given!r}.")
    return found


# ------------------------------------------------------------------ gradients


def _checked_derivative(kernel: Kernel, options: Options) -> Any:
    if options.derivative is None:
        return None
    if options.backward is not None:
        raise TypeError(f"`{kernel.name}` has both `derivative` and `backward`. Give one of them.")
    if kernel.results != 1 or kernel.signature is None or not kernel.signature.is_elementwise:
        raise TypeError(
            f"`derivative` is for kernels of single numbers with one result ('()->()'). Give `{kernel.name}` a "
            "`backward`."
        )
    return options.derivative


def _backward(kernel: Kernel, static: Sequence[str], options: Options) -> Any:
    """The gradient as another kernel, or as a Python function."""
    given = options.backward
    own = replace(
        options, backward=None, backward_host=None, host=options.backward_host, sizes=None, dtypes=None, linear=False
    )
    if isinstance(given, str):
        return _backward_of_text(kernel, given, own)
    if numba_cuda.is_kernel(given):
        return _backward_of_compiled(kernel, given, static, own)
    if options.backward_host is not None:
        raise TypeError("`backward_host` is for a `backward` that is a kernel.")
    if given is not None and (not callable(given) or isinstance(given, type)):
        raise TypeError(f"`backward` should be a kernel or a function, got {given!r}.")
    return given


def _backward_of_text(kernel: Kernel, given: str, own: Options) -> OpaqueKernel:
    text, entry = given, None
    if given.isidentifier():
        text, entry = kernel.source.text if kernel.source else "", given
    found = kernels_in(text)
    if entry is not None and entry not in found:
        raise ValueError(f"The text has no kernel `{entry}`; it has {', '.join(found) or 'none'}.")
    if len(found) != 1 and entry is None:
        raise ValueError(f"The text of `backward` should have one kernel, there is {', '.join(found) or 'none'}.")
    source = cuda_source(text, entry or found[0], list(letters_of(own.types)))
    counts = len(source.of_kind("operand")), len(source.of_kind("result"))
    return of_text(text, source.name, _turned(kernel, source.name, counts, own))


def _backward_of_compiled(kernel: Kernel, given: Any, static: Sequence[str], own: Options) -> OpaqueKernel:
    known = {SIZE, *static, *(kernel.signature.names if kernel.signature else ())}
    arrays = len([p for p in numba_cuda.parameters_of(given) if p not in known])
    name, results = checked_name(None, given), len(_with_cotangents(kernel)[0])
    if kernel.signature is None:
        raise TypeError(f"`{kernel.name}` has no signature: give it a `backward` that is a Python function.")
    return of_compiled(given, None, _turned(kernel, name, (arrays - results, results), own))


def _turned(kernel: Kernel, name: str, counts: tuple[int, int], own: Options) -> Options:
    """Options of a backward kernel with so many operands and results: those of the op, then its results if there are
    pointers for them, then cotangents; to cotangents of the operands.

    Raises:
      ValueError: other counts.
    """
    operands, results = _with_cotangents(kernel)
    short = kernel.operands + len(results)
    if counts not in ((short, len(operands)), (short + kernel.results, len(operands))):
        raise ValueError(
            f"The backward kernel `{name}` should have {short} operands (those of `{kernel.name}` and the cotangents "
            f"of its results) or {short + kernel.results} (between them its results), and {len(operands)} results (the "
            f"cotangents of its operands); it has {counts[0]} and {counts[1]}."
        )
    if kernel.signature is None:
        return replace(own, shapes=lambda *given, **static: [given[k] for k in operands])
    s = kernel.signature
    inside = (*s.operands, *(s.results if counts[0] > short else ()), *(s.results[k] for k in results))
    dtypes = None if kernel.source else (lambda *given: [given[k] for k in operands])
    return replace(own, signature=Signature(inside, tuple(s.operands[k] for k in operands)).text, dtypes=dtypes)


def _with_cotangents(kernel: Kernel) -> tuple[list[int], list[int]]:
    """The operands and the results that may have cotangents: of a kernel that does not say its types, all."""
    if kernel.source is None:
        return list(range(kernel.operands)), list(range(kernel.results))
    sides = (kernel.source.of_kind("operand"), kernel.source.of_kind("result"))
    operands, results = ([k for k, p in enumerate(side) if _is_differentiable(p)] for side in sides)
    return operands, results


def _is_differentiable(p: Parameter) -> bool:
    return isinstance(p.type, str) or p.type.is_differentiable
