"""Declarations: eigenvalues, singular values, orthogonal factors. Floor: ops.

Where values are equal, the vectors that belong to them are known only up to a rotation. The rules then leave out the
part of the derivative that would rotate them, so that every function that does not depend on it has its gradient."""

from __future__ import annotations

from typing import Any

from gradtape.ir.aval import Aval, aval
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.graph import Node, Value
from gradtape.ir.shapes import shape_text
from gradtape.ops import gauge
from gradtape.ops import matrix_algebra as m
from gradtape.ops.matrix_stack import NOT_FOUND, each_matrix
from gradtape.ops.op import apply, emit, lookup
from gradtape.ops.opaque import Opaque
from gradtape.ops.samples import BadSample, Sample, Spec
from gradtape.ops.solving import NOT_SQUARE


def general(*shape: int) -> Spec:
    """Matrices without any structure."""
    return Spec(shape, (-2.0, 2.0), structure="general")


# ------------------------------------------------------------------ Hermitian matrices


def _eigh(xp: Any, a: Any) -> Any:
    def run(a: Any) -> Any:
        e, v = xp.linalg.eigh(a)
        return e, v * gauge.turning(xp, v)

    return each_matrix(xp, run, (1, 2), NOT_FOUND.format("eigh"), a)


def _eigh_infer(x: Aval) -> list[Aval]:
    m.square(x)
    return [aval(None if x.shape is None else x.shape[:-1], x.dtype.real_dtype), x]


def _eigh_vjp(node: Node, values_g: Value | None, vectors_g: Value | None) -> list[Value | None]:
    """With C = V* dA V: de = diag C and dV = V (F ∘ C), where F_ij = 1 / (e_j - e_i)."""
    e, v = node.outputs
    inner = None if values_g is None else m.on_diagonal(values_g, v.aval.dtype)
    if vectors_g is not None:
        g = gauge.released(v, vectors_g, gauge.along_columns(v, vectors_g))
        rates = m.cast(gauge.differences(e), v.aval.dtype)
        inner = m.plus(inner, emit("multiply", rates, m.product(m.adjoint(v), g)))
    if inner is None:
        return [None]
    return [_to_lower_triangle(m.product(v, inner, m.adjoint(v)))]


def _to_lower_triangle(g: Value) -> Value:
    """The cotangent of the lower triangle that a Hermitian matrix is read from."""
    both = m.hermitian(g)
    return m.plus(m.times(m.lower(both, -1), 2.0), m.real_diagonal(both))


_SQUARES = [
    Sample((general(2, 3, 3),)),
    Sample((general(1, 1),)),
    Sample((general(0, 0),)),
    Sample((general(0, 2, 2),)),
]
EIGH = Opaque(
    "eigh",
    _eigh,
    infer=_eigh_infer,
    vjp=_eigh_vjp,
    signature="(n,n)->(n),(n,n)",
    accumulate=True,
    samples=_SQUARES,
    errors=NOT_SQUARE,
    doc="The eigenvalues, in ascending order, and eigenvectors of Hermitian matrices.",
    notes="Reads the lower triangle, and its gradient is one of the lower triangle. Equal eigenvalues do not rotate "
    "their vectors.",
)


def _eigvalsh_infer(x: Aval) -> list[Aval]:
    return _eigh_infer(x)[:1]


def _eigvalsh_vjp(node: Node, g: Value) -> list[Value | None]:
    _, v = apply(lookup("eigh").bind(), node.inputs)
    return [_to_lower_triangle(m.product(m.scaled_columns(v, g), m.adjoint(v)))]


EIGVALSH = Opaque(
    "eigvalsh",
    lambda xp, a: each_matrix(xp, xp.linalg.eigvalsh, (1,), NOT_FOUND.format("eigvalsh"), a),
    infer=_eigvalsh_infer,
    vjp=_eigvalsh_vjp,
    signature="(n,n)->(n)",
    accumulate=True,
    samples=_SQUARES,
    errors=NOT_SQUARE,
    doc="The eigenvalues of Hermitian matrices, in ascending order.",
    notes="Reads the lower triangle. The gradient computes the eigenvectors.",
)

# ------------------------------------------------------------------ singular values


def _svd(xp: Any, a: Any, full: bool) -> Any:
    def run(a: Any) -> Any:
        u, s, vh = xp.linalg.svd(a, full_matrices=full)
        v = xp.conj(xp.swapaxes(vh, -1, -2))
        k = s.shape[-1]
        turn = gauge.turning(xp, u)
        own = gauge.turning(xp, v[..., k:])
        return s, u * turn, v * xp.concatenate([turn[..., :k], own], axis=-1)

    return each_matrix(xp, run, (1, 2, 2), NOT_FOUND.format("svd"), a)


def _svd_infer(x: Aval, full: bool) -> list[Aval]:
    m.matrix(x)
    if x.shape is None:
        return [aval(None, x.dtype.real_dtype), aval(None, x.dtype), aval(None, x.dtype)]
    loops, (rows, columns) = x.shape[:-2], x.shape[-2:]
    k = None if rows is None or columns is None else min(rows, columns)
    return [
        aval((*loops, k), x.dtype.real_dtype),
        aval((*loops, rows, rows if full else k), x.dtype),
        aval((*loops, columns, columns if full else k), x.dtype),
    ]


def _svd_vjp(node: Node, s_g: Value | None, u_g: Value | None, v_g: Value | None) -> list[Value | None]:
    """With P = U* dA V = H + K, Hermitian and skew: ds = diag H, and the vectors turn by U* dU = D ∘ H + S ∘ K and
    V* dV = D ∘ H - S ∘ K, where D_ij = 1 / (s_j - s_i) and S_ij = 1 / (s_j + s_i). Beyond the spans,
    dU = (1 - U U*) dA V / s and dV = (1 - V V*) dA* U / s."""
    (a,), (s, u, v) = node.inputs, node.outputs
    k = s.aval.dims[-1]
    inner = None if s_g is None else m.on_diagonal(s_g, a.aval.dtype)
    if u_g is None and v_g is None:
        u, v = m.columns(u, 0, k), m.columns(v, 0, k)
        return [None if inner is None else m.product(u, inner, m.adjoint(v))]
    u_g, v_g = m.zeros(u) if u_g is None else u_g, m.zeros(v) if v_g is None else v_g
    u, v, u_g, v_g = _thin(u, v, u_g, v_g, k)
    left, right = m.product(m.adjoint(u), u_g), m.product(m.adjoint(v), v_g)
    apart, together = (m.cast(f(s), a.aval.dtype) for f in (gauge.differences, gauge.sums))
    inner = m.plus(inner, m.hermitian(emit("multiply", apart, emit("add", left, right))))
    inner = m.plus(inner, m.skew(emit("multiply", together, m.minus(left, right))))
    total = m.product(u, inner, m.adjoint(v))
    if u.aval.dims[-2] > k:
        beyond = m.minus(u_g, m.product(u, left))
        total = m.plus(total, m.product(m.scaled_columns(beyond, gauge.inverses(s)), m.adjoint(v)))
    if v.aval.dims[-2] > k:
        beyond = m.minus(v_g, m.product(v, right))
        total = m.plus(total, m.product(m.scaled_columns(u, gauge.inverses(s)), m.adjoint(beyond)))
    return [total]


def _thin(u: Value, v: Value, u_g: Value, v_g: Value, k: int) -> tuple[Value, Value, Value, Value]:
    """The vectors that belong to singular values, and their cotangents: those of pairs before they were turned
    together, with what the others hand on by staying orthogonal to them."""
    u1, u1_g, u2, u2_g = _split(u, u_g, k)
    v1, v1_g, v2, v2_g = _split(v, v_g, k)
    if u.aval.dtype.is_complex:
        total = emit("add", gauge.along_columns(u1, u1_g), gauge.along_columns(v1, v1_g))
        u1_g = gauge.released(u1, u1_g, total)
    return u1, v1, _handed_on(u1, u1_g, u2, u2_g), _handed_on(v1, v1_g, v2, v2_g)


def _split(x: Value, g: Value, k: int) -> tuple[Value, Value, Value | None, Value | None]:
    n = x.aval.dims[-1]
    if n == k:
        return x, g, None, None
    return m.columns(x, 0, k), m.columns(g, 0, k), m.columns(x, k, n), m.columns(g, k, n)


def _handed_on(x1: Value, g1: Value, x2: Value | None, g2: Value | None) -> Value:
    """x2* x1 = 0 makes dx2 = -x1 (dx1)* x2, up to a rotation of x2 in itself."""
    if x2 is None or g2 is None:
        return g1
    g2 = gauge.released(x2, g2, gauge.along_columns(x2, g2))
    return m.minus(g1, m.product(x2, m.adjoint(g2), x1))


SVD = Opaque(
    "svd",
    _svd,
    infer=_svd_infer,
    vjp=_svd_vjp,
    signature="(m,n)->(k),(m,u),(n,v)",
    accumulate=True,
    samples=[
        Sample((general(2, 3, 3),), {"full": False}),
        Sample((general(4, 2),), {"full": False}),
        Sample((general(2, 2, 4),), {"full": False}),
        Sample((general(3, 2),), {"full": True}, "one vector beyond the span"),
        Sample((general(2, 3),), {"full": True}),
        Sample((general(1, 1),), {"full": False}),
        Sample((general(0, 2, 2),), {"full": False}),
        Sample((general(0, 2),), {"full": False}),
    ],
    errors=[
        BadSample((((3,), "float32"),), InvalidArgumentError, "matrices", {"full": False}),
        BadSample((((2, 3), "int32"),), InvalidArgumentError, "int32", {"full": False}),
    ],
    doc="The singular values s, in descending order, and vectors of A = U diag(s) V*: s, U, V.",
    notes="Equal singular values do not rotate their vectors; singular values of 0 do not turn theirs.",
)


def _singular_values_infer(x: Aval) -> list[Aval]:
    return _svd_infer(x, full=False)[:1]


def _singular_values(xp: Any, a: Any) -> Any:
    def run(a: Any) -> Any:
        return xp.linalg.svd(a, compute_uv=False)

    return each_matrix(xp, run, (1,), NOT_FOUND.format("singular_values"), a)


def _singular_values_vjp(node: Node, g: Value) -> list[Value | None]:
    _, u, v = apply(lookup("svd").bind(full=False), node.inputs)
    return [m.product(m.scaled_columns(u, g), m.adjoint(v))]


SINGULAR_VALUES = Opaque(
    "singular_values",
    _singular_values,
    infer=_singular_values_infer,
    vjp=_singular_values_vjp,
    signature="(m,n)->(k)",
    accumulate=True,
    samples=[
        Sample((general(2, 3, 2),)),
        Sample((general(2, 3),)),
        Sample((general(1, 1),)),
        Sample((general(0, 2, 2),)),
        Sample((general(0, 2),)),
    ],
    errors=[
        BadSample((((3,), "float32"),), InvalidArgumentError, "matrices"),
        BadSample((((2, 3), "int32"),), InvalidArgumentError, "int32"),
    ],
    doc="The singular values of matrices, in descending order.",
    notes="The gradient computes the singular vectors.",
)

# ------------------------------------------------------------------ orthogonal and triangular factors


def _qr(xp: Any, a: Any, full: bool) -> Any:
    n = a.shape[-1]
    q, r = xp.linalg.qr(a, mode="complete" if full else "reduced")
    if full and q.dtype.kind == "c":  # the phases of the columns beyond the span, which R does not settle
        q = xp.concatenate([q[..., :n], q[..., n:] * gauge.turning(xp, q[..., n:])], axis=-1)
    return q, r[..., :n, :]


def _qr_infer(x: Aval, full: bool) -> list[Aval]:
    m.matrix(x)
    if x.shape is None:
        return [aval(None, x.dtype), aval(None, x.dtype)]
    loops, (rows, columns) = x.shape[:-2], x.shape[-2:]
    if rows is not None and columns is not None and rows < columns:
        raise ValueError(f"wants at least as many rows as columns, got shape {shape_text(x.shape)}.")
    return [aval((*loops, rows, rows if full else columns), x.dtype), aval((*loops, columns, columns), x.dtype)]


def _qr_vjp(node: Node, q_g: Value | None, r_g: Value | None) -> list[Value | None]:
    """With C = Q* dA R⁻¹ = W + T, skew and upper triangular with a real diagonal: dR = T R and
    dQ = (1 - Q Q*) dA R⁻¹ + Q W, where W = L - L* + i Im diag C and L is C below its diagonal."""
    q, r = node.outputs
    n = r.aval.dims[-1]
    q_g, r_g = m.zeros(q) if q_g is None else q_g, m.zeros(r) if r_g is None else r_g
    q, q_g, other, other_g = _split(q, q_g, n)
    q_g = _handed_on(q, q_g, other, other_g)
    straight = m.product(m.upper(r_g), m.adjoint(r))
    across = m.product(m.adjoint(q), q_g)
    skewed = m.minus(across, straight)
    inner = m.plus(straight, m.lower(m.minus(skewed, m.adjoint(skewed)), -1))
    if q.aval.dtype.is_complex:
        inner = m.plus(inner, m.minus(_diagonal_of(skewed), m.real_diagonal(skewed)))
    total = m.product(q, inner)
    if q.aval.dims[-2] > n:
        total = m.plus(total, m.minus(q_g, m.product(q, across)))
    return [m.adjoint(emit("triangular_solve", r, m.adjoint(total), lower=False, adjoint=False))]


def _diagonal_of(v: Value) -> Value:
    return emit("undiagonal", emit("diagonal", v))


QR = Opaque(
    "qr",
    _qr,
    infer=_qr_infer,
    vjp=_qr_vjp,
    signature="(m,n)->(m,k),(n,n)",
    accumulate=True,
    samples=[
        Sample((general(2, 3, 3),), {"full": False}),
        Sample((general(4, 2),), {"full": False}),
        Sample((general(3, 2),), {"full": True}, "one vector beyond the span"),
        Sample((general(1, 1),), {"full": False}),
        Sample((general(0, 2, 2),), {"full": False}),
        Sample((general(2, 0),), {"full": False}),
    ],
    errors=[
        BadSample((((3,), "float32"),), InvalidArgumentError, "matrices", {"full": False}),
        BadSample((((2, 3), "float32"),), InvalidArgumentError, "as many rows", {"full": False}),
        BadSample((((3, 2), "int32"),), InvalidArgumentError, "int32", {"full": False}),
    ],
    doc="A = Q R with orthonormal columns of Q and an upper triangular R, of matrices with no more columns than rows.",
    notes="The diagonal of R is real, of either sign, as LAPACK's reflections leave it. `full` adds columns to Q that "
    "make it square.",
)
