"""Declarations: determinants and their derivatives of every order, for singular matrices too. Floor: ops.

A determinant is a polynomial, so all its derivatives exist. The k-th one is one op: with A = U S V*,

    D^k det(A)[X₁ … X_k] = det U · det V* · Σ π(i₁ … i_k) Σ_σ sgn σ Π_a x_a[i_a, i_σ(a)],    x_a = U* X_a V,

where π is the product of all singular values but those at i₁ … i_k, the first sum is over distinct indices and the
second over permutations. Nothing is divided by."""

from __future__ import annotations

import itertools
import string
from typing import Any

from gradtape.ir.aval import Aval, aval
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.graph import Node, Value
from gradtape.ops import matrix_algebra as m
from gradtape.ops.contraction import conjugate
from gradtape.ops.matrix_stack import singular_vectors
from gradtape.ops.op import constant, emit
from gradtape.ops.opaque import Opaque
from gradtape.ops.samples import BadSample, Sample
from gradtape.ops.solving import NOT_SQUARE, regular

# ------------------------------------------------------------------ cofactors


def _cofactors(xp: Any, a: Any, *along: Any) -> Any:
    u, s, vh = singular_vectors(xp, a, "cofactors")
    uh, v = (xp.conj(xp.swapaxes(x, -1, -2)) for x in (u, vh))
    phase = (xp.linalg.det(u) * xp.linalg.det(vh))[..., None, None]
    return phase * (xp.conj(u) @ _of_diagonal(xp, s, [uh @ x @ v for x in along]) @ xp.conj(vh))


def _of_diagonal(xp: Any, s: Any, along: list[Any]) -> Any:
    """The gradient of D^k det(diag s)[x₁ … x_k] in the matrix, permutation by permutation."""
    k, n = len(along), s.shape[-1]
    weights = _products_without(xp, s, k + 1)
    letters = string.ascii_letters[: k + 1]
    total: Any = 0
    for order in itertools.permutations(range(k + 1)):
        terms = ["..." + letters, *["..." + letters[a] + letters[order[a]] for a in range(k)]]
        fixed = order[k] == k
        to = letters[k] if fixed else letters[k] + letters[order[k]]
        part = xp.einsum(f"{','.join(terms)}->...{to}", weights, *along, optimize=k > 1)
        total = total + sign_of(order) * (part[..., :, None] * xp.eye(n, dtype=s.dtype) if fixed else part)
    return total


def sign_of(order: tuple[int, ...]) -> int:
    return -1 if sum(a > b for a, b in itertools.combinations(order, 2)) % 2 else 1


def _products_without(xp: Any, s: Any, count: int) -> Any:
    """(..., n) to (..., n, n, …): the products of all numbers but those at `count` distinct places, 0 where two
    of the places are the same."""
    n = s.shape[-1]
    places = xp.eye(n, dtype=bool)
    left = s
    for _ in range(count - 1):
        left = xp.where(places, s.dtype.type(1), left[..., None, :])
    ones = xp.ones_like(left[..., :1])
    before = xp.cumprod(xp.concatenate([ones, left[..., :-1]], axis=-1), axis=-1)
    after = xp.cumprod(xp.concatenate([ones, left[..., :0:-1]], axis=-1), axis=-1)[..., ::-1]
    table = before * after
    for a, b in itertools.combinations(range(count), 2):
        shape = [1] * count
        shape[a] = shape[b] = n
        table = xp.where(places.reshape(shape), s.dtype.type(0), table)
    return table


def _cofactors_vjp(node: Node, g: Value) -> list[Value | None]:
    """The result is the gradient of a multilinear form that is symmetric in its directions; one more derivative,
    along g, is the same op with one more direction; in a direction, the same op with g in its place."""
    return m.along_adjoints("cofactors", node.inputs, node.inputs, conjugate(g), conjugate)


COFACTORS = Opaque(
    "cofactors",
    _cofactors,
    infer=m.alike,
    vjp=_cofactors_vjp,
    signature="(n,n),(n,n)*->(n,n)",
    accumulate=True,
    samples=[
        Sample((regular(3, 3), regular(3, 3))),
        Sample((regular(2, 3, 3),), note="the cofactors themselves"),
        Sample((regular(2, 3, 3), regular(2, 3, 3), regular(2, 3, 3)), note="the third derivative"),
        Sample((regular(2, 2), regular(3, 2, 2)), note="one matrix, many directions"),
        Sample((regular(1, 1),)),
        Sample((regular(0, 0), regular(0, 0))),
    ],
    errors=[
        *NOT_SQUARE,
        BadSample((((2, 2), "float32"), ((3, 3), "float32")), InvalidArgumentError, "one shape"),
        BadSample((((2, 2), "float32"), ((2, 2), "float64")), InvalidArgumentError, "one dtype"),
    ],
    doc="The gradient of D^k det(A)[X₁ … X_k] in A: for k = 0 the matrix of cofactors.",
    notes="Finite for singular matrices. The k-th derivative takes memory n^(k + 1).",
)

# ------------------------------------------------------------------ determinants


def _one_number(x: Aval) -> list[Aval]:
    m.square(x)
    return [aval(None if x.shape is None else x.shape[:-2], x.dtype)]


def _det_vjp(node: Node, g: Value) -> list[Value | None]:
    """d det(A) = Σ cof(A) · dA"""
    (a,) = node.inputs
    return [emit("multiply", m.per_matrix(g), conjugate(emit("cofactors", a)))]


_SAMPLES = [
    Sample((regular(2, 3, 3),)),
    Sample((regular(1, 1),)),
    Sample((regular(0, 0),), note="the product of nothing: 1"),
    Sample((regular(0, 2, 2),)),
]
DET = Opaque(
    "det",
    lambda xp, a: xp.linalg.det(a),
    infer=_one_number,
    vjp=_det_vjp,
    signature="(n,n)->()",
    accumulate=True,
    samples=_SAMPLES,
    errors=NOT_SQUARE,
    doc="The determinants of square matrices.",
    notes="Derivatives of every order exist for singular matrices as well: they are made of cofactors.",
)


def _slogdet(xp: Any, a: Any) -> Any:
    sign, size = xp.linalg.slogdet(a)
    return sign, size


def _slogdet_infer(x: Aval) -> list[Aval]:
    (number,) = _one_number(x)
    return [number, aval(number.shape, x.dtype.real_dtype)]


def _slogdet_vjp(node: Node, sign_g: Value | None, size_g: Value | None) -> list[Value | None]:
    """With t = tr(A⁻¹ dA): d log|det A| = Re t and d sign = i · sign · Im t, which is 0 for real matrices."""
    (a,), (sign, _) = node.inputs, node.outputs
    if a.aval.dtype.is_complex:
        real = constant(0, a.aval.dtype.real_dtype) if size_g is None else size_g
        turned = constant(0, real.aval.dtype)
        if sign_g is not None:
            turned = emit("imag", emit("multiply", emit("conj", sign), sign_g))
        weight = emit("complex", real, turned)
    elif size_g is None:
        return [m.zeros(a)]
    else:
        weight = size_g
    back = m.adjoint(emit("inverse", a))
    return [emit("multiply", m.per_matrix(weight), back)]


SLOGDET = Opaque(
    "slogdet",
    _slogdet,
    infer=_slogdet_infer,
    vjp=_slogdet_vjp,
    signature="(n,n)->(),()",
    accumulate=True,
    samples=_SAMPLES,
    errors=NOT_SQUARE,
    doc="The sign (of complex matrices: the phase) and the logarithm of the size of determinants.",
    notes="Of a singular matrix: 0 and -inf.",
)
