"""Declarations: inverses and linear systems. Floor: ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradtape.ir.aval import Aval, aval
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.graph import Node, Value
from gradtape.ir.shapes import Shape, shape_text, size_of
from gradtape.ops import matrix_algebra as m
from gradtape.ops.matrix_stack import each_matrix
from gradtape.ops.op import emit
from gradtape.ops.opaque import Opaque
from gradtape.ops.samples import BadSample, Sample, Spec

NOT_INVERTIBLE = (
    "`{}`: Input is not invertible. A matrix of a stack that has no inverse becomes NaN, but here none has one. "
    "Use `tf.linalg.pinv` or `tf.linalg.lstsq` for singular matrices."
)
BLOCK = 32  # triangles up to this size are solved at once


def regular(*shape: int) -> Spec:
    """Matrices well away from singular ones."""
    return Spec(shape, (-1.0, 1.0), structure="regular")


NOT_SQUARE = (
    BadSample((((2, 3), "float32"),), InvalidArgumentError, "square"),
    BadSample((((3,), "float32"),), InvalidArgumentError, "matrices"),
    BadSample((((3, 3), "int32"),), InvalidArgumentError, "int32"),
)


def same(x: Aval) -> list[Aval]:
    m.square(x)
    return [x]


# ------------------------------------------------------------------ inverse


def _inverse(xp: Any, a: Any) -> Any:
    return each_matrix(xp, xp.linalg.inv, (2,), NOT_INVERTIBLE.format("inverse"), a)


def _inverse_vjp(node: Node, g: Value) -> list[Value | None]:
    """d(A⁻¹) = -A⁻¹ dA A⁻¹, so Ā = -A⁻* g A⁻*."""
    back = m.adjoint(node.outputs[0])
    return [emit("negative", m.product(back, g, back))]


INVERSE = Opaque(
    "inverse",
    _inverse,
    infer=same,
    vjp=_inverse_vjp,
    signature="(n,n)->(n,n)",
    accumulate=True,
    samples=[
        Sample((regular(2, 3, 3),)),
        Sample((regular(1, 1),)),
        Sample((regular(0, 0),)),
        Sample((regular(0, 2, 2),)),
    ],
    errors=NOT_SQUARE,
    doc="The inverses of square matrices.",
    notes="A matrix that has none is NaN in a stack of others, an error where no matrix has one.",
)

# ------------------------------------------------------------------ systems


def _system(a: Aval, b: Aval, **_: Any) -> list[Aval]:
    m.square(a)
    m.matrix(b)
    m.one_dtype(a, b)
    if a.shape is None or b.shape is None:
        return [aval(None, a.dtype)]
    sizes = {n for n in (*a.shape[-2:], b.shape[-2]) if n is not None}
    if len(sizes) > 1:
        raise ValueError(
            f"wants a right-hand side with as many rows as the matrix, got {shape_text(a.shape)} and "
            f"{shape_text(b.shape)}. Vectors are matrices of one column."
        )
    loops: Shape = m.common_loops(a.shape[:-2], b.shape[:-2])
    return [aval((*(loops or ()), next(iter(sizes), None), b.shape[-1]), a.dtype)]


def _with_all_columns(xp: Any, run: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    """`run(a, b)`; one matrix with many right-hand sides is factorised once, their columns side by side."""
    if a.ndim > 2 or b.ndim == 2:
        return run(a, b)
    n, loops, k = b.shape[-2], b.shape[:-2], b.shape[-1]
    side_by_side = xp.moveaxis(b, -2, 0).reshape(n, size_of(loops) * k)
    return xp.moveaxis(run(a, side_by_side).reshape(n, *loops, k), 0, -2)


def _solve(xp: Any, a: Any, b: Any) -> Any:
    def run(a: Any, b: Any) -> Any:
        return _with_all_columns(xp, xp.linalg.solve, a, b)

    return each_matrix(xp, run, (2,), NOT_INVERTIBLE.format("solve"), a, b)


def _solve_vjp(node: Node, g: Value) -> list[Value | None]:
    """A dX + dA X = dB, so B̄ = A⁻* g and Ā = -B̄ X*."""
    a, b = node.inputs
    (x,) = node.outputs
    back = emit("solve", m.adjoint(a), g)
    return _to_system(a, b, back, m.product(back, m.adjoint(x)))


def _to_system(a: Value, b: Value, back: Value, spread: Value) -> list[Value | None]:
    return [emit("negative", m.summed_to(spread, a.aval.dims)), m.summed_to(back, b.aval.dims)]


_SYSTEM_ERRORS = (
    BadSample((((2, 2), "float32"), ((3, 1), "float32")), InvalidArgumentError, "as many rows"),
    BadSample((((2, 3), "float32"), ((2, 1), "float32")), InvalidArgumentError, "square"),
    BadSample((((2, 2), "float32"), ((2,), "float32")), InvalidArgumentError, "matrices"),
    BadSample((((2, 2, 2), "float32"), ((3, 2, 1), "float32")), InvalidArgumentError, "broadcast"),
    BadSample((((2, 2), "int32"), ((2, 1), "int32")), InvalidArgumentError, "int32"),
)
SOLVE = Opaque(
    "solve",
    _solve,
    infer=_system,
    vjp=_solve_vjp,
    signature="(n,n),(n,k)->(n,k)",
    accumulate=True,
    samples=[
        Sample((regular(2, 3, 3), Spec((2, 3, 2)))),
        Sample((regular(3, 3), Spec((2, 3, 1))), note="one matrix, many right-hand sides"),
        Sample((regular(2, 1, 2, 2), Spec((3, 2, 1))), note="loops that broadcast both ways"),
        Sample((regular(1, 1), Spec((1, 1)))),
        Sample((regular(2, 2), Spec((2, 0)))),
        Sample((regular(0, 0), Spec((2, 0, 3)))),
    ],
    errors=_SYSTEM_ERRORS,
    doc="The solutions of A X = B.",
    notes="A singular matrix gives NaN in a stack of others, an error where no matrix can be solved.",
)


def _triangular_solve(xp: Any, a: Any, b: Any, lower: bool, adjoint: bool) -> Any:
    """All cases are one: a lower triangle is an upper one with rows and columns in the opposite order."""
    if adjoint:
        a, lower = xp.conj(xp.swapaxes(a, -1, -2)), not lower
    if not lower:
        return _with_all_columns(xp, lambda a, b: _upper(xp, a, b), a, b)
    back = _with_all_columns(xp, lambda a, b: _upper(xp, a, b), a[..., ::-1, ::-1], b[..., ::-1, :])
    return back[..., ::-1, :]


def _upper(xp: Any, a: Any, b: Any) -> Any:
    """Halves, so that nearly all of the work is a matrix product."""
    n = a.shape[-1]
    if n <= BLOCK:
        return _small_upper(xp, a, b)
    half = n // 2
    last = _upper(xp, a[..., half:, half:], b[..., half:, :])
    first = _upper(xp, a[..., :half, :half], b[..., :half, :] - a[..., :half, half:] @ last)
    return xp.concatenate([first, last], axis=-2)


def _small_upper(xp: Any, a: Any, b: Any) -> Any:
    """The library's solver, whose pivots are the diagonal; row by row where one of them is 0."""
    try:
        return xp.linalg.solve(xp.triu(a), b)
    except np.linalg.LinAlgError:
        pass
    loops = xp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    x = xp.array(xp.broadcast_to(b, loops + b.shape[-2:]))
    for i in reversed(range(a.shape[-1])):
        known = a[..., i : i + 1, i + 1 :] @ x[..., i + 1 :, :]
        x[..., i : i + 1, :] = (x[..., i : i + 1, :] - known) / a[..., i : i + 1, i : i + 1]
    return x


def _triangular_solve_vjp(node: Node, g: Value) -> list[Value | None]:
    """As for `solve`, but only one triangle of the matrix is an operand; the adjoint's cotangent is the adjoint."""
    a, b = node.inputs
    (x,), p = node.outputs, node.step.params
    back = emit("triangular_solve", a, g, lower=p["lower"], adjoint=not p["adjoint"])
    spread = m.product(x, m.adjoint(back)) if p["adjoint"] else m.product(back, m.adjoint(x))
    return _to_system(a, b, back, m.lower(spread) if p["lower"] else m.upper(spread))


TRIANGULAR_SOLVE = Opaque(
    "triangular_solve",
    _triangular_solve,
    infer=_system,
    vjp=_triangular_solve_vjp,
    signature="(n,n),(n,k)->(n,k)",
    accumulate=True,
    samples=[
        Sample((regular(2, 3, 3), Spec((2, 3, 2))), {"lower": True, "adjoint": False}),
        Sample((regular(2, 3, 3), Spec((2, 3, 2))), {"lower": False, "adjoint": False}),
        Sample((regular(3, 3), Spec((2, 3, 1))), {"lower": True, "adjoint": True}),
        Sample((regular(2, 1, 2, 2), Spec((3, 2, 1))), {"lower": False, "adjoint": True}),
        Sample((regular(1, 1), Spec((1, 1))), {"lower": True, "adjoint": False}),
        Sample((regular(0, 0), Spec((0, 2))), {"lower": True, "adjoint": False}),
    ],
    errors=[BadSample(b.operands, b.error, b.says, {"lower": True, "adjoint": False}) for b in _SYSTEM_ERRORS],
    doc="The solutions of A X = B, or of A* X = B, where A is one triangle of a matrix; the other is not read.",
    notes="A zero on the diagonal divides as IEEE numbers do.",
)

# ------------------------------------------------------------------ the Cholesky factor

NOT_POSITIVE = (
    "`cholesky`: Cholesky decomposition was not successful. The input might not be valid. A matrix of a stack that is "
    "not positive definite becomes NaN, but here none is. Add a small multiple of the identity, or use "
    "`tf.linalg.eigh`."
)


def _cholesky(xp: Any, a: Any) -> Any:
    return each_matrix(xp, xp.linalg.cholesky, (2,), NOT_POSITIVE, a)


def _cholesky_vjp(node: Node, g: Value) -> list[Value | None]:
    """dL = L Φ(L⁻¹ dA L⁻*), where Φ keeps the lower triangle and half of the diagonal; so Ā is the Hermitian part
    of L⁻* Φ(L* g) L⁻¹ (Murray, Differentiation of the Cholesky decomposition, arXiv:1602.07527)."""
    (factor,) = node.outputs
    inner = m.product(m.adjoint(factor), g)
    half = m.plus(m.lower(inner, -1), m.on_diagonal(m.times(emit("diagonal", inner), 0.5), inner.aval.dtype))
    left = emit("triangular_solve", factor, half, lower=True, adjoint=True)
    return [m.hermitian(m.adjoint(emit("triangular_solve", factor, m.adjoint(left), lower=True, adjoint=True)))]


def positive(*shape: int) -> Spec:
    """Hermitian matrices with positive eigenvalues."""
    return Spec(shape, (-1.0, 1.0), structure="positive")


CHOLESKY = Opaque(
    "cholesky",
    _cholesky,
    infer=same,
    vjp=_cholesky_vjp,
    signature="(n,n)->(n,n)",
    accumulate=True,
    samples=[
        Sample((positive(2, 3, 3),)),
        Sample((positive(1, 1),)),
        Sample((positive(0, 0),)),
        Sample((positive(0, 2, 2),)),
    ],
    errors=NOT_SQUARE,
    doc="The lower triangular factors L of A = L L*, for Hermitian positive definite matrices.",
    notes="Reads the lower triangle; the gradient is Hermitian. A matrix that is not positive definite is NaN in a "
    "stack of others, an error where none is.",
)
