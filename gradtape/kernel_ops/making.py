"""`kernel_op`: the public function. Floor: api."""

from __future__ import annotations

import functools
import types as python_types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gradtape.ir.dtypes import DType, as_dtype, float32, float64
from gradtape.kernel_ops.base import KernelOp, checked_name
from gradtape.kernel_ops.opaque import OpaqueKernel
from gradtape.kernel_ops.scalar import ScalarKernel
from gradtape.kernels.cuda_source import CudaSource, Parameter, cuda_source, kernels_in
from gradtape.ops.kernels import SIZE, Kernel
from gradtape.ops.signatures import Signature, signature_of

OF_KERNELS = (
    *("signature", "shapes", "sizes", "types", "static", "grid", "block", "shared", "host", "backward"),
    *("backward_host", "linear"),
)


def kernel_op(
    kernel: Any = None,
    *,
    name: str | None = None,
    derivative: Any = None,
    signature: str | None = None,
    shapes: Callable[..., Any] | None = None,
    sizes: Callable[..., Any] | None = None,
    types: Any = (),
    static: Mapping[str, Any] | None = None,
    grid: Any = None,
    block: Any = None,
    shared: Any = None,
    host: Callable[..., Any] | None = None,
    backward: Any = None,
    backward_host: Callable[..., Any] | None = None,
    linear: bool = False,
) -> Any:
    """A function or kernel of your own as an op: differentiable, to be run for many rows at once.

    A plain Python function of numbers becomes an elementwise op. It is read, not run: arithmetic, comparisons, `if`,
    loops over known numbers, functions of `math`, NumPy and `tf.math` that work element by element, and
    functions written like it. It becomes one formula, which is fused with what stands around it, on the host and on a
    GPU, and whose derivatives of all orders follow. Parameters behind `*` are static: numbers that belong to the op.

    A text in CUDA C++ holds a kernel. Its parameters are, in any order, pointers to constants (the operands), other
    pointers (the results), and numbers by value: sizes under the names that `signature` has for them, `size` (how many
    loops there are: for "()->()" that is how many elements), and static parameters. Operands are broadcast along
    their loop axes, which become one; arrays lie in one piece, the last axis fastest.

    Args:
      kernel: the function or the text.
      name: of the op; by default that of the function or the kernel. Of several kernels in a text it names one.
      derivative: the partial derivative: a scalar function of the operands, by their names, and of `out`, the result;
        or a tuple of such functions, one for each operand. Of plain functions it replaces the formula's.
      signature: the core axes of operands and results, as NumPy's generalized functions have them: "()->()" for single
        numbers, "(n),(n)->()" for rows. All axes before are loops, over which the kernel goes itself; what lies at one
        position of them must not depend on others.
      shapes: without a signature, a function of the operands' shapes (and static parameters) to the result's shape, or
        a list of shapes. Such a kernel sees arrays as a whole; rows of a Jacobian run one after the other, with a
        warning.
      sizes: a function to a dictionary of the sizes that only results have; it may ask for other sizes and for static
        parameters by name.
      types: letters that stand for dtypes in a text, "T" or ("T", "U"), or a dictionary from letters to the dtypes that
        they may be (float32 and float64).
      static: values of static parameters for calls that give none.
      grid, block, shared: blocks and threads along one to three axes, and bytes of shared memory: numbers, or functions
        that may ask for `size`, sizes and static parameters by name. By default there are 256 threads in a block and
        one thread for each element of the largest result.
      host: what runs where there is no GPU: a function of NumPy arrays as the kernel sees them (size, core), and of
        static parameters by name, to the results.
      backward: the gradient: the text of a kernel, or the name of one in the same text, whose operands are those of the
        op, then its results if it takes them, then the cotangents, and whose results are the cotangents of the operands
        that have fractions; or another kernel op of these; or a Python function of the operation (`inputs`, `outputs`,
        `get_attr`) and the cotangents, as for `tf.RegisterGradient`, which finds an op without one by its name.
      backward_host: as `host`, of the backward kernel.
      linear: the backward kernel is linear in its cotangents, so that forward mode is allowed (of single numbers), and
        rows keep their structure.

    Returns:
      A `KernelOp`, to be called with operands by position and static parameters by name; its `check` compares
      derivatives with differences.

    Raises:
      TypeError: a function that does more than single numbers allow (the message says in which line); arguments that do
        not belong to such a kernel.
      ValueError: a function whose source is not known, a text whose parameters cannot be passed, a wrong signature.
      LookupError: when a gradient is asked for and there is none.
      UnimplementedError: when it runs without a GPU, and has no form for the host.

    >>> import math
    >>> import gradtape as tf
    >>> @tf.kernel_op
    ... def bump(x, width, *, height=1.0):
    ...     r = x / width
    ...     return height * math.exp(-1 / (1 - r * r)) if abs(r) < 1 else 0.0
    >>> x = tf.constant([0.0, 0.5, 2.0])
    >>> with tf.GradientTape() as tape:
    ...     tape.watch(x)
    ...     y = bump(x, 1.0)
    >>> print(y.numpy().round(4), tape.gradient(y, x).numpy().round(4)[1])
    [0.3679 0.2636 0.    ] -0.4686

    >>> import numpy as np
    >>> text = '''
    ... extern "C" __global__ void row_norm(const float* x, float* norm, int size, int n) {
    ...     int row = blockIdx.x * blockDim.x + threadIdx.x;
    ...     if (row >= size) return;
    ...     float sum = 0;
    ...     for (int k = 0; k < n; ++k) sum += x[row * n + k] * x[row * n + k];
    ...     norm[row] = sqrtf(sum);
    ... }'''
    >>> row_norm = tf.kernel_op(
    ...     text,
    ...     signature="(n)->()",
    ...     host=lambda x: np.sqrt((x * x).sum(-1)),
    ...     backward=lambda op, up: (up / op.outputs[0])[..., None] * op.inputs[0],
    ... )
    >>> x = tf.constant([[3.0, 4.0], [6.0, 8.0]])
    >>> with tf.GradientTape() as tape:
    ...     tape.watch(x)
    ...     y = row_norm(x)
    >>> print(y.numpy(), tape.gradient(y, x).numpy().round(1))
    [ 5. 10.] [[0.6 0.8]
     [0.6 0.8]]
    """
    options = dict(
        signature=signature, shapes=shapes, sizes=sizes, types=types, static=static, grid=grid, block=block,
        shared=shared, host=host, backward=backward, backward_host=backward_host, linear=linear,
    )  # fmt: skip
    if kernel is None:
        return functools.partial(kernel_op, name=name, derivative=derivative, **options)
    if isinstance(kernel, str):
        return _of_text(kernel, name, derivative, options)
    if given := [n for n in OF_KERNELS if options[n]]:
        raise TypeError(f"`{given[0]}` belongs to kernels in CUDA C++ and of Numba's, not to plain Python functions.")
    made: KernelOp = ScalarKernel(checked_name(name, kernel), kernel, derivative)
    return made


# ------------------------------------------------------------------ texts


def _of_text(text: str, name: str | None, derivative: Any, options: dict[str, Any]) -> OpaqueKernel:
    found = kernels_in(text)
    entry = name if name in found else found[0] if len(found) == 1 else None
    if entry is None:
        there = ", ".join(found) or "none"
        raise ValueError(
            f"The text should have one kernel (`__global__ void`), or `name` one of them; there is {there}."
        )
    op_name, letters = checked_name(name or entry, None), _letters(options["types"])
    source = cuda_source(text, entry, list(letters))
    kernel = _kernel(op_name, source, letters, options)
    numbers = [p.name for p in source.of_kind("number")]
    known = {SIZE} | set(kernel.signature.names if kernel.signature else ())
    return OpaqueKernel(
        kernel,
        [p.name for p in source.of_kind("operand")],
        [n for n in numbers if n not in known],
        options["static"] or {},
        _one_gradient(derivative, options["backward"], kernel),
        _backward(kernel, options),
        options["linear"],
    )


def _kernel(name: str, source: CudaSource, letters: Mapping[str, Sequence[DType]], options: dict[str, Any]) -> Kernel:
    operands, results = source.of_kind("operand"), source.of_kind("result")
    signature = _signature(options, name)
    if not operands or not results:
        raise ValueError(
            f"The kernel `{name}` should have pointers to constants (its operands) and other pointers (its results), "
            f"got {len(operands)} and {len(results)}."
        )
    if signature and (len(signature.operands), len(signature.results)) != (len(operands), len(results)):
        raise ValueError(
            f"`signature` of `{name}` has {len(signature.operands)} operands and {len(signature.results)} results, the "
            f"text {len(operands)} pointers to constants and {len(results)} others."
        )
    used = {p.type for p in operands if isinstance(p.type, str)}
    if unbound := [p for p in (*results, *source.of_kind("number")) if isinstance(p.type, str) and p.type not in used]:
        raise ValueError(f"The type `{unbound[0].type}` of `{unbound[0].name}` is that of no operand of `{name}`.")
    return Kernel(
        name,
        len(operands),
        len(results),
        source=source,
        host=_function(options["host"], "host"),
        signature=signature,
        shapes=options["shapes"],
        sizes=options["sizes"],
        allowed=letters,
        launch={n: options[n] for n in ("grid", "block", "shared")},
    )


def _signature(options: dict[str, Any], name: str) -> Signature | None:
    if (options["signature"] is None) == (options["shapes"] is None):
        raise ValueError(
            f"The kernel op `{name}` wants `signature`, such as '()->()' for single numbers or '(n)->(n)' for rows; "
            "or, for a kernel of whole arrays, `shapes`: a function of the operands' shapes to the result's."
        )
    if options["signature"] is None:
        _function(options["shapes"], "shapes")
        return None
    return signature_of(options["signature"])


def _letters(types: Any) -> dict[str, Sequence[DType]]:
    """The letters of a text, and the dtypes that they may be."""
    if isinstance(types, Mapping):
        return {k: [as_dtype(d) for d in (v if isinstance(v, list | tuple) else [v])] for k, v in types.items()}
    names = [types] if isinstance(types, str) else list(types)
    if not all(isinstance(n, str) and n.isidentifier() for n in names):
        raise TypeError(
            f"`types` should be names of types in the text, or a dictionary from them to dtypes, got {types!r}."
        )
    return dict.fromkeys(names, (float32, float64))


def _function(f: Any, what: str) -> Any:
    if f is not None and not callable(f):
        raise TypeError(f"`{what}` of a kernel op should be a function, got {type(f).__name__}.")
    return f


def _one_gradient(derivative: Any, backward: Any, kernel: Kernel) -> Any:
    if derivative is None:
        return None
    if backward is not None:
        raise TypeError(f"`{kernel.name}` has both `derivative` and `backward`. Give one of them.")
    if kernel.results != 1 or kernel.signature is None or not kernel.signature.is_elementwise:
        raise TypeError(
            f"`derivative` is for kernels of single numbers with one result ('()->()'). Give `{kernel.name}` a "
            "`backward`."
        )
    return derivative


def _backward(kernel: Kernel, options: dict[str, Any]) -> Any:
    """The gradient as another kernel, or as a Python function."""
    given = options["backward"]
    if given is None or isinstance(given, OpaqueKernel | python_types.FunctionType | functools.partial):
        if options["backward_host"] is not None:
            raise TypeError("`backward_host` is for a `backward` that is the text of a kernel, or its name.")
        return given
    if isinstance(given, str):
        assert kernel.source is not None
        text, entry = (kernel.source.text, given) if given.isidentifier() else (given, None)
        if entry is not None and entry not in kernels_in(text):
            raise ValueError(f"The text has no kernel `{entry}`; it has {', '.join(kernels_in(text))}.")
        return _backward_of_text(kernel, text, entry, options)
    if callable(given):
        return given
    raise TypeError(f"`backward` should be a kernel or a function, got {type(given).__name__}.")


def _backward_of_text(kernel: Kernel, text: str, entry: str | None, options: dict[str, Any]) -> OpaqueKernel:
    found = kernels_in(text)
    if entry is None and len(found) != 1:
        raise ValueError(f"The text of `backward` should have one kernel, there is {', '.join(found) or 'none'}.")
    source = cuda_source(text, entry or found[0], list(_letters(options["types"])))
    own = options | {
        "backward": None, "backward_host": None, "host": options["backward_host"], "sizes": None, "linear": False,
    }  # fmt: skip
    if kernel.signature is None:
        assert kernel.source is not None
        own["shapes"] = _shapes_of_operands(kernel.source)
    else:
        own["signature"] = _signature_of_backward(kernel, source).text
    return _of_text(text, source.name, None, own)


def _signature_of_backward(kernel: Kernel, source: CudaSource) -> Signature:
    """Operands, then results if the kernel has pointers for them, then cotangents, to cotangents of the operands."""
    forward = kernel.signature
    assert forward is not None and kernel.source is not None
    operands, results = len(source.of_kind("operand")), len(source.of_kind("result"))
    source_of = kernel.source.of_kind
    floats = [core for core, p in zip(forward.operands, source_of("operand"), strict=True) if _has_cotangent(p)]
    ups = [core for core, p in zip(forward.results, source_of("result"), strict=True) if _has_cotangent(p)]
    short, long = (*forward.operands, *ups), (*forward.operands, *forward.results, *ups)
    inside = {len(short): short, len(long): long}.get(operands)
    if inside is None or results != len(floats):
        raise ValueError(
            f"The backward kernel `{source.name}` should have {len(short)} operands (those of `{kernel.name}` and the "
            f"cotangents of its results) or {len(long)} (between them its results), and {len(floats)} results (the "
            f"cotangents of its operands); it has {operands} pointers to constants and {results} others."
        )
    return Signature(inside, tuple(floats))


def _shapes_of_operands(source: CudaSource) -> Callable[..., Any]:
    """The shapes of the operands that have cotangents."""
    places = [k for k, p in enumerate(source.of_kind("operand")) if _has_cotangent(p)]
    return lambda *given, **static: [given[k] for k in places]


def _has_cotangent(p: Parameter) -> bool:
    return isinstance(p.type, str) or p.type.is_differentiable
