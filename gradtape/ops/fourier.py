"""Declarations: discrete Fourier transforms along the last axis, without any factor in front. Floor: ops.

A sum is its own transpose with i replaced by -i, so each of these is the other's VJP."""

from __future__ import annotations

from typing import Any

from gradtape.ir.aval import Aval, aval
from gradtape.ir.dtypes import complex64, complex128, float32, float64, int64
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.graph import Node, Value
from gradtape.ir.shapes import shape_text
from gradtape.ops import matrix_algebra as m
from gradtape.ops.op import constant, emit
from gradtape.ops.opaque import Opaque
from gradtape.ops.samples import BadSample, Sample, Spec


def _vector(x: Aval) -> None:
    if x.shape is not None and not x.shape:
        raise ValueError("wants at least one axis, got a scalar.")


def _fft(xp: Any, x: Any, inverse: bool) -> Any:
    if x.size == 0:
        return x.copy()
    return xp.fft.ifft(x, axis=-1, norm="forward") if inverse else xp.fft.fft(x, axis=-1)


def _fft_infer(x: Aval, inverse: bool) -> list[Aval]:
    if not x.dtype.is_complex:
        raise ValueError(f"wants a complex tensor, got a {x.dtype.cname} tensor. Use `tf.cast` or `tf.signal.rfft`.")
    _vector(x)
    return [x]


FFT = Opaque(
    "fft",
    _fft,
    infer=_fft_infer,
    vjp=lambda node, g: [emit("fft", g, inverse=not node.step.params["inverse"])],
    signature="(n)->(n)",
    samples=[
        Sample((Spec((2, 4)),), {"inverse": False}),
        Sample((Spec((3,)),), {"inverse": True}),
        Sample((Spec((2, 1)),), {"inverse": False}),
        Sample((Spec((2, 0)),), {"inverse": False}),
    ],
    errors=[
        BadSample((((3,), "float32"),), InvalidArgumentError, "complex", {"inverse": False}),
        BadSample((((), "complex64"),), InvalidArgumentError, "one axis", {"inverse": False}),
    ],
    doc="y_k = Σ x_j exp(∓2πi jk / n): minus forwards, plus when `inverse`; nothing is divided by n.",
)


def _rfft_infer(x: Aval) -> list[Aval]:
    if x.dtype not in (float32, float64):
        raise ValueError(f"wants a float or double tensor, got a {x.dtype.cname} tensor. Use `tf.cast`.")
    _vector(x)
    kind = complex128 if x.dtype is float64 else complex64
    if x.shape is None:
        return [aval(None, kind)]
    n = x.shape[-1]
    if n == 0:
        raise ValueError(f"wants at least one sample, got shape {shape_text(x.shape)}.")
    return [aval((*x.shape[:-1], None if n is None else n // 2 + 1), kind)]


def _once_or_twice(n: int, twice: float, v: Value) -> Value:
    """The half spectrum of n samples times a number at frequencies whose mirror image it leaves out."""
    real = v.aval.dtype.real_dtype
    k, none = m.positions(n // 2 + 1), constant(0, int64)
    mirrored = emit("not_equal", k, none)
    if n % 2 == 0:
        mirrored = emit("logical_and", mirrored, emit("not_equal", k, constant(n // 2, int64)))
    weight = emit("select", mirrored, constant(twice, real), constant(1, real))
    return emit("multiply", v, m.cast(weight, v.aval.dtype))


def _rfft_vjp(node: Node, g: Value) -> list[Value | None]:
    """Re Σ g_k exp(+2πi jk / n) over half of the frequencies; `irfft` counts mirrored ones twice."""
    n = node.inputs[0].aval.dims[-1]
    return [emit("irfft", _once_or_twice(n, 0.5, g), length=n)]


RFFT = Opaque(
    "rfft",
    lambda xp, x: xp.fft.rfft(x, axis=-1),
    infer=_rfft_infer,
    vjp=_rfft_vjp,
    signature="(n)->(h)",
    samples=[Sample((Spec((2, 4)),)), Sample((Spec((5,)),)), Sample((Spec((2, 1)),)), Sample((Spec((0, 2)),))],
    errors=[
        BadSample((((3,), "complex64"),), InvalidArgumentError, "complex64"),
        BadSample((((0,), "float32"),), InvalidArgumentError, "at least one sample"),
        BadSample((((), "float32"),), InvalidArgumentError, "one axis"),
    ],
    doc="The first n // 2 + 1 numbers of the Fourier transform of n real ones; the others are their conjugates.",
)


def _irfft_infer(x: Aval, length: int) -> list[Aval]:
    if not x.dtype.is_complex:
        raise ValueError(f"wants a complex tensor, got a {x.dtype.cname} tensor. Use `tf.cast`.")
    _vector(x)
    if length < 1:
        raise ValueError(f"wants a length of at least 1, got {length}.")
    if x.shape is None:
        return [aval(None, x.dtype.real_dtype)]
    if x.shape[-1] is not None and x.shape[-1] != length // 2 + 1:
        raise ValueError(f"wants {length // 2 + 1} frequencies for {length} samples, got shape {shape_text(x.shape)}.")
    return [aval((*x.shape[:-1], length), x.dtype.real_dtype)]


def _irfft_vjp(node: Node, g: Value) -> list[Value | None]:
    """Mirrored frequencies enter twice, as 2 Re(x_k exp(2πi jk / n))."""
    return [_once_or_twice(node.step.params["length"], 2.0, emit("rfft", g))]


IRFFT = Opaque(
    "irfft",
    lambda xp, x, length: xp.fft.irfft(x, n=length, axis=-1, norm="forward"),
    infer=_irfft_infer,
    vjp=_irfft_vjp,
    signature="(h)->(n)",
    samples=[
        Sample((Spec((2, 3)),), {"length": 4}),
        Sample((Spec((3,)),), {"length": 5}),
        Sample((Spec((2, 1)),), {"length": 1}),
        Sample((Spec((0, 2)),), {"length": 2}),
    ],
    errors=[
        BadSample((((3,), "float32"),), InvalidArgumentError, "complex", {"length": 4}),
        BadSample((((3,), "complex64"),), InvalidArgumentError, "4 frequencies", {"length": 7}),
        BadSample((((1,), "complex64"),), InvalidArgumentError, "at least 1", {"length": 0}),
        BadSample((((), "complex64"),), InvalidArgumentError, "one axis", {"length": 1}),
    ],
    doc="n real numbers from the first n // 2 + 1 of their Fourier transform; nothing is divided by n.",
    notes="The imaginary parts of the frequencies 0 and n / 2 are not read.",
)
