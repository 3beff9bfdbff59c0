"""Contractions as NumPy products: matmul on views where letters allow, so that BLAS sees no copy. Floor: backends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradtape.backends import one_thread
from gradtape.backends.formula import HALF
from gradtape.backends.memory import empty
from gradtape.backends.one_thread import multiply
from gradtape.backends.writing import product
from gradtape.ir.aval import Aval
from gradtape.kernels.loops import share
from gradtape.kernels.memory import LARGE
from gradtape.kernels.products import SMALL
from gradtape.ops.contraction import parts

PLENTY = 1 << 16  # elements of a result from which its memory is worth a question
REUSED = 16  # so many rows of results for each row of a second matrix, and BLAS takes it faster in order
PER_ELEMENT = 8  # multiply-adds that take as long as touching an element
WAKES = 9216  # elements of a matrix from which BLAS wakes its threads for a product with a vector
TOGETHER = 12  # rows that BLAS has in registers at a time; it sums up those that are left over in another order
MATRIX = 32  # rows, columns and summed elements from which one product is worth a call of BLAS


def _matrix(a: Any, b: Any) -> Any:
    rows, inner, columns = a.shape[0], a.shape[1], b.shape[1]
    if rows * inner * columns >= SMALL:
        return _large(a, b, empty((rows, columns), a.dtype))
    if rows * columns < PLENTY:
        return np.matmul(a, b)
    return np.matmul(a, b, out=empty((rows, columns), a.dtype))


def _large(a: Any, b: Any, out: Any) -> Any:
    """out = a @ b for one product of matrices. Results do not depend on how many threads share its rows; with columns
    apart they would, where BLAS has no AVX-512."""
    rows, inner, columns = a.shape[0], a.shape[1], b.shape[1]

    def run(first: int, end: int) -> None:
        some = slice(first * TOGETHER, end * TOGETHER)
        np.matmul(a[some], b, out=out[some])

    multiply(-(-rows // TOGETHER), rows * inner * columns, run)
    return out


def _vector(a: Any, v: Any) -> Any:
    """a @ v for a matrix and a vector, which nobody shares: the sums of some rows would be others."""
    if a.size < WAKES:
        return np.matmul(a, v)
    out = np.empty(len(a), a.dtype)
    multiply(1, a.size * PER_ELEMENT, lambda start, stop: np.matmul(a, v, out=out))
    return out


# Products of two matrices: whether the operands change places, and which of them, then, are transposed.
FORMS = {
    "ab,bc->ac": (False, False, False),
    "ab,cb->ac": (False, False, True),
    "ba,bc->ac": (False, True, False),
    "ba,cb->ac": (False, True, True),
    "ab,bc->ca": (True, True, True),
    "ab,cb->ca": (True, False, True),
    "ba,bc->ca": (True, True, False),
    "ba,cb->ca": (True, False, False),
}


def _of_form(swapped: bool, left: bool, right: bool) -> Callable[[Any, Any], Any]:
    def run(a: Any, b: Any) -> Any:
        if swapped:
            a, b = b, a
        return _matrix(a.T if left else a, b.T if right else b)

    return run


PLAIN: dict[str, Callable[[Any, Any], Any]] = {
    **{subscripts: _of_form(*form) for subscripts, form in FORMS.items()},
    "ab,b->a": lambda a, b: _vector(a, b),
    "ab,a->b": lambda a, b: _vector(a.T, b),
    "a,ab->b": lambda a, b: _vector(b.T, a),
    "a,ba->b": lambda a, b: _vector(b, a),
    "a,a->": lambda a, b: np.matmul(a, b),
}


def compile_contraction(subscripts: str) -> Callable[[Any, Any], Any]:
    """The NumPy function of two arrays for the subscripts; half types are carried in float32."""
    contracted = PLAIN.get(_canonical(subscripts)) or _general(subscripts)

    def run(a: Any, b: Any) -> Any:
        if a.dtype in HALF:
            return contracted(a.astype(np.float32), b.astype(np.float32)).astype(a.dtype)
        return contracted(a, b)

    return run


def contraction_of(subscripts: str, avals: Sequence[Aval]) -> Callable[[Any, Any], Any]:
    """The same for operands of these shapes and dtypes: a large product of matrices goes to BLAS at once, where no
    other thread has a part in it."""
    form, dtype = FORMS.get(_canonical(subscripts)), avals[0].dtype.numpy_dtype
    if form is None or dtype in HALF or not all(a.is_known for a in avals):
        return compile_contraction(subscripts)
    swapped, left, right = form
    first, second = (avals[1], avals[0]) if swapped else avals
    rows, inner = first.dims[::-1] if left else first.dims
    shape = rows, second.dims[0 if right else 1]
    work = inner * _size(shape)
    if work < SMALL:
        return PLAIN[_canonical(subscripts)]
    matmul, made = np.matmul, empty if _size(shape) * dtype.itemsize >= LARGE else np.empty

    def run(a: Any, b: Any) -> Any:
        if swapped:
            a, b = b, a
        if left:
            a = a.T
        if right:
            b = b.T
        if one_thread.ONE_THREAD.suits(work):
            return matmul(a, b, made(shape, dtype))
        return _large(a, b, made(shape, dtype))

    return run


def _canonical(subscripts: str) -> str:
    """The same subscripts with letters named a, b, c, ... so that equal patterns are equal text: letters are
    named by their first place in `left`, `right`; patterns with one summed letter call it b, as in PLAIN."""
    left, right, out = parts(subscripts)
    best = subscripts
    letters = list(dict.fromkeys(left + right))
    for names in ("abc", "bac"):
        if len(letters) > len(names):
            return best
        table = str.maketrans(dict(zip(letters, names, strict=False)))
        renamed = f"{left.translate(table)},{right.translate(table)}->{out.translate(table)}"
        if renamed in PLAIN:
            return renamed
    return best


def _general(subscripts: str) -> Callable[[Any, Any], Any]:
    left, right, out = parts(subscripts)
    summed = [c for c in left if c in right and c not in out]
    batch = [c for c in out if c in left and c in right]
    lfree = [c for c in out if c in left and c not in right]
    rfree = [c for c in out if c in right and c not in left]
    if not summed:
        return _multiply(left, right, out)
    without = {ord(c): None for c in summed}
    outer = _multiply(left.translate(without), right.translate(without), out)
    axes_a, axes_b = (tuple(letters.index(c) for c in summed) for letters in (left, right))
    if not lfree and not rfree:
        inner: Callable[[Any, Any], Any] = lambda a, b: np.einsum(subscripts, a, b)  # noqa: E731
    else:
        inner = _in_order(left, right, out, batch, lfree, rfree, summed)

    def run(a: Any, b: Any) -> Any:
        if _size([a.shape[k] for k in axes_a]) == 1:  # a sum over one element is none
            return outer(a.squeeze(axes_a), b.squeeze(axes_b))
        return inner(a, b)

    return run


def _multiply(left: str, right: str, out: str) -> Callable[[Any, Any], Any]:
    """No letter is summed: a broadcast product."""
    perm_a, index_a = _aligned(left, out)
    perm_b, index_b = _aligned(right, out)

    def run(a: Any, b: Any) -> Any:
        a, b = a.transpose(perm_a)[index_a], b.transpose(perm_b)[index_b]
        made = empty(np.broadcast_shapes(a.shape, b.shape), a.dtype)
        product(a, b, made)
        return made

    return run


def _aligned(letters: str, out: str) -> tuple[list[int], tuple[Any, ...]]:
    """How to move an operand's axes and add new ones so that it broadcasts over the letters of the result."""
    perm = [letters.index(c) for c in out if c in letters]
    return perm, tuple(slice(None) if c in letters else None for c in out)


def _in_order(
    left: str, right: str, out: str, batch: list[str], lfree: list[str], rfree: list[str], summed: list[str]
) -> Callable[[Any, Any], Any]:
    """The product whose result is made with its axes in order, if matrices large enough for that remain; else one
    product, and a view with its axes moved."""
    if rfree and lfree and out.index(rfree[0]) < out.index(lfree[0]):
        swapped = _matmul(right, left, out, batch, rfree, lfree, summed)
        whole: Callable[[Any, Any], Any] = lambda a, b: swapped(b, a)  # noqa: E731
    else:
        whole = _matmul(left, right, out, batch, lfree, rfree, summed)
    count = _leading(out, batch, lfree, rfree)
    if count == len(batch) and out.startswith("".join(batch)):
        return whole
    stacked, rows, columns = _stacked(left, right, out, count, summed)

    def run(a: Any, b: Any) -> Any:
        sizes = dict(zip(left + right, a.shape + b.shape, strict=True))
        small = min(_size([sizes[c] for c in letters]) for letters in (rows, columns, summed))
        return stacked(a, b) if small >= MATRIX else whole(a, b)

    return run


def _leading(out: str, batch: Sequence[str], lfree: Sequence[str], rfree: Sequence[str]) -> int:
    """How many of the result's letters come before the rows and columns of one matrix: the letters that follow are
    of one operand, then of the other."""
    at = len(out)
    for side in ("".join(rfree), "".join(lfree)) if out[-1:] in rfree else ("".join(lfree), "".join(rfree)):
        while at and out[at - 1] in side:
            at -= 1
    return at


def _stacked(
    left: str, right: str, out: str, count: int, summed: list[str]
) -> tuple[Callable[[Any, Any], Any], str, str]:
    """Matrices in a stack over the first letters of the result, of which an operand may lack some; with the letters
    of a matrix's rows and columns."""
    stack, rest = out[:count], out[count:]
    first, second = (left, right) if rest[:1] in left else (right, left)
    rows, columns = ("".join(c for c in rest if c in letters) for letters in (first, second))
    inner = "".join(summed)
    perm_a, index_a = _aligned(first, stack + rows + inner)
    perm_b, index_b = _aligned(second, stack + inner + columns)
    na, nb = (sum(c in letters for c in stack) for letters in (first, second))
    fill_a, fill_b = index_a[:count], index_b[:count]

    def run(a: Any, b: Any) -> Any:
        if first is right:
            a, b = b, a
        a, b = a.transpose(perm_a), b.transpose(perm_b)
        row_sizes, inner_size = a.shape[na : na + len(rows)], _size(b.shape[nb : nb + len(inner)])
        column_sizes = b.shape[nb + len(inner) :]
        a = a.reshape(*a.shape[:na], _size(row_sizes), inner_size)[fill_a]
        b = b.reshape(*b.shape[:nb], inner_size, _size(column_sizes))[fill_b]
        lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        if b.strides[-1] != b.itemsize and b.size * REUSED <= _size(lead) * a.shape[-2] * b.shape[-1]:
            b = np.ascontiguousarray(b)
        return _product(a, b, lead).reshape(*lead, *row_sizes, *column_sizes)

    return run, rows, columns


def _product(a: Any, b: Any, lead: tuple[int, ...]) -> Any:
    """Stacked matrices, into memory that was used before where there is some. BLAS runs small ones in the thread that
    asks: threads of ours share them."""
    rows, inner, columns = a.shape[-2], a.shape[-1], b.shape[-1]
    out = empty((*lead, rows, columns), a.dtype)
    each = rows * inner * columns
    if not lead and each >= SMALL:
        return _large(a, b, out)
    if not lead:
        return np.matmul(a, b, out=out)

    def run(start: int, stop: int) -> None:
        some = slice(start, stop)
        np.matmul(_within(a, some, out.ndim), _within(b, some, out.ndim), out=out[some])

    if each < SMALL:
        share(lead[0], _size(lead) * each // PER_ELEMENT, run)
    else:
        multiply(lead[0], _size(lead) * each, run)
    return out


def _within(a: Any, some: slice, ndim: int) -> Any:
    """The matrices of a stack that belong to some places of the whole stack's first axis."""
    return a[some] if a.ndim == ndim and len(a) > 1 else a


def _matmul(
    left: str, right: str, out: str, batch: list[str], lfree: list[str], rfree: list[str], summed: list[str]
) -> Callable[[Any, Any], Any]:
    """Stacked matrices: (batch, left, summed) @ (batch, summed, right), then the axes in the result's order."""
    perm_a = [left.index(c) for c in batch + lfree + summed]
    perm_b = [right.index(c) for c in batch + summed + rfree]
    made = batch + lfree + rfree
    perm_out = [made.index(c) for c in out]
    nb, nl, ns = len(batch), len(lfree), len(summed)
    straight = perm_out == list(range(len(made)))

    def run(a: Any, b: Any) -> Any:
        a, b = a.transpose(perm_a), b.transpose(perm_b)
        shape = a.shape[: nb + nl] + b.shape[nb + ns :]
        rows, inner, columns = _size(a.shape[nb : nb + nl]), _size(b.shape[nb : nb + ns]), _size(b.shape[nb + ns :])
        lead = a.shape[:nb]
        c = _product(a.reshape(*lead, rows, inner), b.reshape(*lead, inner, columns), lead).reshape(shape)
        return c if straight else c.transpose(perm_out)

    return run


def _size(shape: Sequence[int]) -> int:
    n = 1
    for d in shape:
        n *= d
    return n
