"""Declarations: the exponential and the pseudo-inverse of matrices. Floor: ops."""

from __future__ import annotations

import math
from typing import Any

from gradtape.ir.aval import Aval, aval
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.graph import Node, Value
from gradtape.ir.shapes import shape_text
from gradtape.ops import matrix_algebra as m
from gradtape.ops.matrix_stack import each_matrix, singular_vectors
from gradtape.ops.op import emit
from gradtape.ops.opaque import Opaque
from gradtape.ops.samples import BadSample, Sample, Spec
from gradtape.ops.solving import NOT_SQUARE, regular

# Padé approximants of exp (Higham, The scaling and squaring method for the matrix exponential revisited, 2005; Al-Mohy
# & Higham, A new scaling and squaring algorithm for the matrix exponential, 2009): the size up to which they are exact
# to rounding, and the coefficients of the numerator.
SINGLE = (3.925724783138660, (17297280.0, 8648640.0, 1995840.0, 277200.0, 25200.0, 1512.0, 56.0, 1.0))
DOUBLE = (
    4.25,
    (
        64764752532480000.0,
        32382376266240000.0,
        7771770303897600.0,
        1187353796428800.0,
        129060195264000.0,
        10559470521600.0,
        670442572800.0,
        33522128640.0,
        1323241920.0,
        40840800.0,
        960960.0,
        16380.0,
        182.0,
        1.0,
    ),
)


def _expm(xp: Any, a: Any, *along: Any) -> Any:
    """The derivative along X is the upper right block of exp([[A, X], [0, A]]), that of higher order the corner of
    such blocks in each other (Najfeld & Havel, Derivatives of the matrix exponential, 1995). It is linear in X,
    which is brought to a size of 1 first so as not to add squarings."""
    n, whole = a.shape[-1], a
    sizes = [_size(xp, x) for x in along]
    for x, size in zip(along, sizes, strict=True):
        whole = _in_blocks(xp, whole, _repeated(xp, x / size, whole.shape[-1] // n if n else 1))
    whole = each_matrix(xp, lambda a: _scaled_and_squared(xp, a), (2,), "`expm`: no matrix has an exponential.", whole)
    return math.prod(sizes[1:], start=sizes[0]) * whole[..., :n, -n:] if along else whole


def _size(xp: Any, x: Any) -> Any:
    size = xp.abs(x).max(axis=(-2, -1), keepdims=True, initial=0)
    return xp.where((size > 0) & xp.isfinite(size), size, xp.ones_like(size))


def _repeated(xp: Any, x: Any, times: int) -> Any:
    """A block diagonal matrix with `times` copies of x."""
    n = x.shape[-1]
    out = xp.zeros((*x.shape[:-2], times, n, times, n), x.dtype)
    place = xp.arange(times)
    out[..., place, :, place, :] = x
    return out.reshape(*x.shape[:-2], times * n, times * n)


def _in_blocks(xp: Any, a: Any, x: Any) -> Any:
    """[[A, X], [0, A]]"""
    loops, n = xp.broadcast_shapes(a.shape[:-2], x.shape[:-2]), a.shape[-1]
    out = xp.zeros((*loops, 2 * n, 2 * n), a.dtype)
    out[..., :n, :n] = out[..., n:, n:] = a
    out[..., :n, n:] = x
    return out


def _scaled_and_squared(xp: Any, a: Any) -> Any:
    """exp(A) = exp(A / 2^s)^(2^s), every matrix with its own s."""
    if a.size == 0:
        return a.copy()
    bound, coefficients = SINGLE if xp.finfo(a.dtype).eps > 1e-10 else DOUBLE
    squarings = _squarings(xp, a, bound, len(coefficients) - 1)
    result = _approximant(xp, xp.ldexp(1.0, -squarings)[..., None, None].astype(a.real.dtype) * a, coefficients)
    for done in range(int(squarings.max())):
        result = xp.where((squarings > done)[..., None, None], result @ result, result)
    return result


def _squarings(xp: Any, a: Any, bound: float, degree: int) -> Any:
    """As few halvings as bring the matrix below the bound, in a size that is no more than its powers have: many
    squarings of a matrix that is nearly 1 would lose what it differs by."""
    norm = xp.minimum(_norm(xp, a), xp.finfo(a.dtype).max)
    unit = a / xp.where(norm > 0, norm, xp.ones_like(norm))[..., None, None]
    square = unit @ unit
    fourth = square @ square
    d4, d6, d8 = (_norm(xp, power) ** (1 / k) for k, power in ((4, fourth), (6, fourth @ square), (8, fourth @ fourth)))
    size = norm * xp.minimum(xp.maximum(d4, d6), xp.maximum(d6, d8))
    least = xp.ceil(xp.log2(xp.maximum(size / bound, 1.0)))
    more = xp.log2(_norm_of_power(xp, xp.abs(unit), 2 * degree + 1)) + 2 * degree * (xp.log2(norm) - least)
    more += log2_of_error(degree) - math.log2(float(xp.finfo(a.dtype).eps) / 2)
    return (least + xp.maximum(xp.ceil(more / (2 * degree)), 0)).astype(int)


def log2_of_error(degree: int) -> float:
    """Of the first coefficient in which the approximant of this degree differs from exp."""
    m = math.factorial(degree)
    return math.log2(m * m) - math.log2(math.factorial(2 * degree) * math.factorial(2 * degree + 1))


def _norm(xp: Any, a: Any) -> Any:
    """The largest column sum."""
    return xp.abs(a).sum(axis=-2).max(axis=-1)


def _norm_of_power(xp: Any, a: Any, power: int) -> Any:
    """The norm of a power of a matrix without negative elements, by products with a vector."""
    sums = xp.ones((*a.shape[:-2], 1, a.shape[-1]), a.dtype)
    for _ in range(power):
        sums = sums @ a
    return sums.max(axis=(-2, -1))


def _approximant(xp: Any, a: Any, coefficients: tuple[float, ...]) -> Any:
    """(V - U)⁻¹ (V + U) with the odd powers in U and the even ones in V."""
    square = a @ a
    power = xp.eye(a.shape[-1], dtype=a.dtype)
    odd = even = 0
    for k in range(0, len(coefficients), 2):
        even = even + coefficients[k] * power
        odd = odd + coefficients[k + 1] * power
        if k + 2 < len(coefficients):
            power = power @ square
    odd = a @ odd
    return xp.linalg.solve(even - odd, even + odd)


def _expm_vjp(node: Node, g: Value) -> list[Value | None]:
    """The adjoint of a derivative is the derivative at A*, along X*."""
    return m.along_adjoints("expm", node.inputs, [m.adjoint(v) for v in node.inputs], g, lambda v: v)


def _small(*shape: int) -> Spec:
    return Spec(shape, (-1.0, 1.0), structure="general")


EXPM = Opaque(
    "expm",
    _expm,
    infer=m.alike,
    vjp=_expm_vjp,
    signature="(n,n),(n,n)*->(n,n)",
    accumulate=True,
    samples=[
        Sample((_small(2, 3, 3),)),
        Sample((_small(1, 1),)),
        Sample((Spec((2, 2), (2.0, 4.0), structure="general"),), note="with squarings"),
        Sample((_small(2, 2, 2), _small(2, 2), _small(2, 1, 1, 2, 2)), note="loops that broadcast"),
        Sample((_small(0, 0),)),
        Sample((_small(0, 2, 2),)),
    ],
    errors=[
        *NOT_SQUARE,
        BadSample((((2, 2), "float32"), ((3, 3), "float32")), InvalidArgumentError, "one shape"),
        BadSample((((2, 2), "float32"), ((2, 2), "float64")), InvalidArgumentError, "one dtype"),
    ],
    doc="The exponentials Σ Aᵏ / k! of square matrices; with directions X, D^k exp(A)[X₁ … X_k].",
)

# ------------------------------------------------------------------ pseudo-inverse


def _pinv(xp: Any, a: Any, rcond: Any) -> Any:
    u, s, vh = singular_vectors(xp, a, "pinv")
    kept = s > xp.asarray(rcond).real[..., None] * s.max(axis=-1, keepdims=True, initial=0)
    inverse = xp.where(kept, 1 / xp.where(kept, s, xp.ones_like(s)), xp.zeros_like(s))
    return xp.conj(xp.swapaxes(vh, -1, -2)) @ (inverse[..., None] * xp.conj(xp.swapaxes(u, -1, -2)))


def _pinv_infer(x: Aval, rcond: Aval) -> list[Aval]:
    m.matrix(x)
    m.one_dtype(x, rcond)
    if x.shape is None or rcond.shape is None:
        return [aval(None, x.dtype)]
    loops = x.shape[:-2]
    if len(m.common_loops(loops, rcond.shape) or ()) > len(loops):
        raise ValueError(f"wants at most one `rcond` per matrix, got shape {shape_text(rcond.shape)}.")
    return [aval((*loops, x.shape[-1], x.shape[-2]), x.dtype)]


def _pinv_vjp(node: Node, g: Value) -> list[Value | None]:
    """dP = -P dA P + P P* dA* (1 - A P) + (1 - P A) dA* P* P, where the rank stays (Golub & Pereyra 1973)."""
    (a, _), (p,) = node.inputs, node.outputs
    back, g_back = m.adjoint(p), m.adjoint(g)
    main = emit("negative", m.product(back, g, back))
    first = m.product(g_back, p, back)
    first = m.minus(first, m.product(a, p, first))
    second = m.product(back, p, g_back)
    second = m.minus(second, m.product(second, p, a))
    return [emit("add", main, emit("add", first, second)), None]


PINV = Opaque(
    "pinv",
    _pinv,
    infer=_pinv_infer,
    vjp=_pinv_vjp,
    signature="(m,n),()->(n,m)",
    accumulate=True,
    samples=[
        Sample((regular(2, 3, 2), Spec((), (1e-4, 1e-3)))),
        Sample((regular(2, 2, 3), Spec((2,), (1e-4, 1e-3)))),
        Sample((regular(3, 3), Spec((), (1e-4, 1e-3)))),
        Sample((regular(1, 1), Spec((), (1e-4, 1e-3)))),
        Sample((regular(0, 2), Spec((), (1e-4, 1e-3)))),
    ],
    errors=[
        BadSample((((3,), "float32"), ((), "float32")), InvalidArgumentError, "matrices"),
        BadSample((((3, 2), "float32"), ((), "float64")), InvalidArgumentError, "one dtype"),
        BadSample((((3, 2), "float32"), ((4,), "float32")), InvalidArgumentError, "rcond"),
        BadSample((((3, 2), "int32"), ((), "int32")), InvalidArgumentError, "int32"),
    ],
    doc="The Moore-Penrose inverses of matrices; singular values up to rcond times the largest count as 0.",
    notes="Its derivative is that at a fixed rank. No gradient flows to rcond.",
)
