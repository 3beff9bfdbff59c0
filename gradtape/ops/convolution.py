"""Declarations: convolution and its two gradients, in any number of dimensions and with groups. Floor: ops.

    y[n,t,g,o] = Σ x[n, t·stride + w·dilation - low, g, c] · k[w,c,g,o]     over windows w and channels c

The three are the partial sums of one trilinear form, so that the gradients of each are the other two. Operands:
images x (n, *space, groups, channels), kernel k (*window, channels, groups, results), y (n, *windows, groups,
results). Nothing but operands is kept for gradients: patches are taken anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradtape.ir.aval import Aval
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.graph import Node, Value
from gradtape.ir.shapes import Shape, shape_text
from gradtape.kernels import convolution as host
from gradtape.kernels.halves import computed
from gradtape.ops.composite import Composite
from gradtape.ops.contraction import conjugate
from gradtape.ops.op import emit
from gradtape.ops.samples import BadSample, Sample, Spec
from gradtape.ops.windows import Sizes, Windows

_TIMES, _WITHIN = "pqrstu", "ijklmv"  # letters of which window, and of where in the window

# ------------------------------------------------------------------ what must fit


def _check_dtypes(a: Aval, b: Aval) -> None:
    if a.dtype is not b.dtype:
        raise ValueError(
            f"wants operands of one dtype, got a {a.dtype.cname} and a {b.dtype.cname} tensor. Use `tf.cast`."
        )
    if not a.dtype.is_differentiable:
        raise ValueError(f"wants floating or complex tensors, got {a.dtype.cname} ones. Use `tf.cast`.")


def _part(a: Aval, rank: int, what: str, begin: int, end: int | None) -> Shape:
    """Some dimensions of an operand with `rank` axes; None where its rank is not known."""
    if a.shape is None:
        return None
    if len(a.shape) != rank:
        raise ValueError(f"wants {what} with {rank} axes, got shape {shape_text(a.shape)}.")
    return a.shape[begin:end]


def _check_equal(what: str, found: Shape, wanted: Shape) -> None:
    """Dimensions that are known on both sides must be the same."""
    pairs = zip(found, wanted, strict=True) if found is not None and wanted is not None else ()
    if any(m is not None and n is not None and m != n for m, n in pairs):
        raise ValueError(f"wants equal {what}, got {shape_text(found)} and {shape_text(wanted)}.")


def _check_kernel(k: Aval, w: Windows) -> None:
    _check_equal("sizes of windows", _part(k, len(w.window) + 3, "a kernel", 0, -3), w.window)


def _check_convolve(x: Aval, k: Aval, **params: Any) -> None:
    w = Windows(**params)
    rank = len(w.window) + 3
    _check_dtypes(x, k)
    _check_kernel(k, w)
    channels, groups = _part(k, rank, "a kernel", -3, -2), _part(k, rank, "a kernel", -2, -1)
    _check_equal("numbers of channels", _part(x, rank, "images", -1, None), channels)
    _check_equal("numbers of groups", _part(x, rank, "images", -2, -1), groups)


def _check_input(g: Aval, k: Aval, shape: Sizes, **params: Any) -> None:
    w = Windows(**params)
    rank = len(w.window) + 3
    _check_dtypes(g, k)
    _check_kernel(k, w)
    last = _part(g, rank, "results", -2, None)
    _check_equal("numbers of groups and results", last, _part(k, rank, "a kernel", -2, None))
    _check_equal("numbers of windows", _part(g, rank, "results", 1, -2), w.counts(shape))


def _check_weights(x: Aval, g: Aval, **params: Any) -> None:
    w = Windows(**params)
    rank = len(w.window) + 3
    _check_dtypes(x, g)
    _check_equal("numbers of images", _part(x, rank, "images", 0, 1), _part(g, rank, "results", 0, 1))
    _check_equal("numbers of groups", _part(x, rank, "images", -2, -1), _part(g, rank, "results", -2, -1))
    _check_equal("numbers of windows", _part(g, rank, "results", 1, -2), w.counts(_part(x, rank, "images", 1, -2)))


# ------------------------------------------------------------------ what they compute, and their gradients


def _letters(w: Windows) -> tuple[str, str]:
    return _TIMES[: len(w.window)], _WITHIN[: len(w.window)]


def _convolve(x: Value, k: Value, **params: Any) -> Value:
    w = Windows(**params)
    t, i = _letters(w)
    return emit("contract", w.take(w.pad(x, 2)), k, subscripts=f"n{t}gc{i},{i}cgo->n{t}go")


def _convolve_vjp(node: Node, g: Value) -> list[Value | None]:
    (x, k), p = node.inputs, node.step.params
    return [
        emit("convolve_input", g, conjugate(k), shape=x.aval.dims[1:-2], **p),
        emit("convolve_kernel", conjugate(x), g, **p),
    ]


def _input(g: Value, k: Value, shape: Sizes, **params: Any) -> Value:
    w = Windows(**params)
    t, i = _letters(w)
    if w.are_elements and k.aval.is_known:
        only = emit("reshape", k, shape=k.aval.dims[-3:])
        return emit("contract", g, only, subscripts=f"n{t}go,cgo->n{t}gc")
    return w.add(emit("contract", g, k, subscripts=f"n{t}go,{i}cgo->n{t}gc{i}"), shape)


def _input_vjp(node: Node, c: Value) -> list[Value | None]:
    (g, k), p = node.inputs, dict(node.step.params)
    del p["shape"]
    return [emit("convolve", c, conjugate(k), **p), emit("convolve_kernel", c, conjugate(g), **p)]


def _kernel(x: Value, g: Value, **params: Any) -> Value:
    w = Windows(**params)
    t, i = _letters(w)
    return emit("contract", w.take(w.pad(x, 2)), g, subscripts=f"n{t}gc{i},n{t}go->{i}cgo")


def _kernel_vjp(node: Node, c: Value) -> list[Value | None]:
    (x, g), p = node.inputs, node.step.params
    return [
        emit("convolve_input", conjugate(g), c, shape=x.aval.dims[1:-2], **p),
        emit("convolve", conjugate(x), c, **p),
    ]


# ------------------------------------------------------------------ declarations


def _held(sizes: Callable[..., list[int]]) -> Callable[..., list[int]]:
    """What a function of the host holds besides its results; halves are widened before."""

    def scratch(a: Aval, b: Aval, **params: Any) -> list[int]:
        return sizes(a.dims, b.dims, computed(a.dtype).numpy_dtype, **params)

    return scratch


LINE: dict[str, Sizes] = {"window": (2,), "strides": (1,), "dilations": (1,), "low": (0,), "high": (0,)}
PLANE: dict[str, Sizes] = {"window": (2, 2), "strides": (2, 1), "dilations": (1, 2), "low": (1, 0), "high": (0, 2)}
WIDE: dict[str, Sizes] = {"window": (4,), "strides": (1,), "dilations": (1,), "low": (2,), "high": (1,)}
STEEP: dict[str, Sizes] = {"window": (3,), "strides": (2,), "dilations": (2,), "low": (0,), "high": (0,)}
SPACE: dict[str, Sizes] = {
    "window": (1, 2, 1),
    "strides": (1, 1, 2),
    "dilations": (1, 1, 1),
    "low": (0, 0, 0),
    "high": (0, 1, 0),
}
POINT: dict[str, Sizes] = {"window": (1, 1), "strides": (1, 1), "dilations": (1, 2), "low": (0, 0), "high": (0, 0)}

# Windows, then the shapes of images, kernel and results.
_FITTING: list[tuple[dict[str, Sizes], Sizes, Sizes, Sizes]] = [
    (LINE, (6, 4, 1, 3), (2, 3, 1, 5), (6, 3, 1, 5)),
    (PLANE, (2, 3, 3, 1, 2), (2, 2, 2, 1, 2), (2, 2, 3, 1, 2)),
    (WIDE, (1, 3, 2, 1), (4, 1, 2, 2), (1, 3, 2, 2)),
    (STEEP, (1, 8, 1, 1), (3, 1, 1, 1), (1, 2, 1, 1)),
    (SPACE, (1, 2, 2, 3, 1, 1), (1, 2, 1, 1, 1, 2), (1, 2, 2, 2, 1, 2)),
    (POINT, (2, 3, 2, 2, 3), (1, 1, 3, 2, 2), (2, 3, 2, 2, 2)),
    (LINE, (0, 4, 1, 3), (2, 3, 1, 2), (0, 3, 1, 2)),
    (LINE, (2, 1, 1, 3), (2, 3, 1, 2), (2, 0, 1, 2)),
]


def _samples(first: int, second: int, with_shape: bool = False) -> list[Sample]:
    """Samples of two of the three shapes."""
    chosen = []
    for windows, *shapes in _FITTING:
        params = {"shape": shapes[0][1:-2], **windows} if with_shape else windows
        chosen.append(Sample((Spec(shapes[first]), Spec(shapes[second])), params))
    return chosen


def _bad(a: Sizes, b: Sizes, says: str, dtype: str = "float32", **params: Any) -> BadSample:
    return BadSample(((a, "float32"), (b, dtype)), InvalidArgumentError, says, LINE | params)


CONVOLVE = Composite(
    "convolve",
    _convolve,
    vjp=_convolve_vjp,
    check=_check_convolve,
    host=host.convolve,
    scratch=_held(host.convolve_scratch),
    axes="n*gc,*cgo->n*go",
    samples=_samples(0, 1),
    errors=[
        _bad((1, 4, 1, 3), (2, 4, 1, 2), "channels"),
        _bad((1, 4, 2, 3), (2, 3, 1, 2), "groups"),
        _bad((1, 4, 1, 3), (3, 3, 1, 2), "sizes of windows"),
        _bad((4, 3), (2, 3, 1, 2), "4 axes"),
        _bad((1, 4, 1, 3), (2, 3, 1, 2), "double", "float64"),
    ],
    doc="Sums over windows of images, weighted by a kernel: (n, *space, groups, channels) to (n, *windows, groups, o).",
    notes="The kernel is not reversed: what is called convolution here is cross-correlation.",
)
CONVOLVE_INPUT = Composite(
    "convolve_input",
    _input,
    vjp=_input_vjp,
    check=_check_input,
    host=host.convolve_input,
    scratch=_held(host.convolve_input_scratch),
    axes="n*go,*cgo->n*gc",
    samples=_samples(2, 1, True),
    errors=[
        _bad((1, 4, 1, 2), (2, 3, 1, 2), "numbers of windows", shape=(4,)),
        _bad((1, 3, 1, 3), (2, 3, 1, 2), "groups and results", shape=(4,)),
    ],
    doc="The gradient of `convolve` in its images, or the transposed convolution of images of size `shape`.",
)
CONVOLVE_KERNEL = Composite(
    "convolve_kernel",
    _kernel,
    vjp=_kernel_vjp,
    check=_check_weights,
    host=host.convolve_kernel,
    scratch=_held(host.convolve_kernel_scratch),
    axes="n*gc,n*go->*cgo",
    samples=_samples(0, 2),
    errors=[
        _bad((1, 4, 1, 3), (1, 4, 1, 2), "numbers of windows"),
        _bad((2, 4, 1, 3), (1, 3, 1, 2), "numbers of images"),
    ],
    doc="The gradient of `convolve` in its kernel.",
)
