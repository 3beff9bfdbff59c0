"""Contractions as products of cuBLAS: on views wherever strides allow, without a copy. Floor: backends."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from gradtape.backends.cuda.blas import KINDS, PLAIN, TRANSPOSED, Matrices
from gradtape.backends.cuda.device import Cuda
from gradtape.ops.contraction import parts


def is_product(subscripts: str, dtype: Any) -> bool:
    """Whether cuBLAS does a contraction: it sums over something, and both operands have letters that the other lacks
    (all else is a product of elements, or a sum of such products, and bound by memory)."""
    left, right, out = parts(subscripts)
    return (
        dtype in KINDS
        and any(c in right and c not in out for c in left)
        and any(c not in right for c in left)
        and any(c not in left for c in right)
    )


class Groups(NamedTuple):
    """Letters of a contraction by what they do."""

    batch: str
    rows: str
    columns: str
    summed: str


def contraction(cuda: Cuda, subscripts: str) -> Callable[[Any, Any], Any]:
    """The function of two device arrays."""
    left, right, out = parts(subscripts)
    groups = Groups(
        "".join(c for c in out if c in left and c in right),
        "".join(c for c in out if c in left and c not in right),
        "".join(c for c in out if c in right and c not in left),
        "".join(c for c in left if c in right and c not in out),
    )
    canonical = groups.batch + groups.rows + groups.columns
    back = tuple(canonical.index(c) for c in out)

    def run(a: Any, b: Any) -> Any:
        a, b = cuda.array(a), cuda.array(b)
        sizes = dict(zip(left + right, a.shape + b.shape, strict=True))
        shape = tuple(sizes[c] for c in out)
        if not all(sizes[c] for c in groups.summed):
            return cuda.zeros(shape, a.dtype)
        result = cuda.empty(shape, a.dtype)
        if not result.size:
            return result
        target = _strides(result, out, (groups.batch, groups.rows, groups.columns))
        counts = _count(sizes, groups.rows), _count(sizes, groups.columns)
        if target is None or not _is_matrix(target, counts):
            del result  # before the other one is made beside it
            result = cuda.empty(tuple(sizes[c] for c in canonical), a.dtype)
            _multiply(cuda, groups, sizes, (a, left), (b, right), (result, canonical))
            return result.transpose(back)
        _multiply(cuda, groups, sizes, (a, left), (b, right), (result, out))
        return result

    return run


def _count(sizes: dict[str, int], letters: str) -> int:
    return math.prod(sizes[c] for c in letters)


Lettered = tuple[Any, str]


def _multiply(cuda: Cuda, g: Groups, sizes: dict[str, int], a: Lettered, b: Lettered, c: Lettered) -> None:
    batch, m, n, k = (_count(sizes, letters) for letters in g)
    a, a_strides = _readable(cuda, a, (g.batch, g.rows, g.summed), (m, k))
    b, b_strides = _readable(cuda, b, (g.batch, g.summed, g.columns), (k, n))
    c_strides = _strides(*c, (g.batch, g.rows, g.columns))
    assert c_strides is not None
    left, right = _by_columns(a, a_strides, (m, k)), _by_columns(b, b_strides, (k, n))
    made = _by_columns(c, c_strides, (m, n))
    if made.operation == PLAIN:
        cuda.blas.gemm(c[0].dtype, (m, n, k), left, right, made, batch)
        return
    cuda.blas.gemm(c[0].dtype, (n, m, k), _turned(right), _turned(left), _turned(made), batch)


def _turned(x: Matrices) -> Matrices:
    return x._replace(operation=TRANSPOSED - x.operation)


def _readable(
    cuda: Cuda, x: Lettered, groups: tuple[str, str, str], counts: tuple[int, int]
) -> tuple[Lettered, tuple[int, int, int]]:
    """An operand as cuBLAS can read it, a copy if need be, with the steps of each group."""
    found = _strides(*x, groups)
    if found is not None and _is_matrix(found, counts):
        return x, found
    array, letters = x
    order = "".join(groups)
    x = cuda.xp.ascontiguousarray(array.transpose([letters.index(c) for c in order])), order
    found = _strides(*x, groups)
    assert found is not None
    return x, found


def _strides(array: Any, letters: str, groups: Sequence[str]) -> tuple[int, int, int] | None:
    """The step, in elements, of each group of letters run through as one; None where there is no such step."""
    found = []
    for group in groups:
        step = None
        extent = 1
        for c in reversed(group):
            axis = letters.index(c)
            n, own = array.shape[axis], array.strides[axis] // array.itemsize
            if n == 1:
                continue
            if step is None:
                step = own
            elif own != step * extent:
                return None
            extent *= n
        found.append(1 if step is None else step)
    return found[0], found[1], found[2]


def _is_matrix(strides: tuple[int, int, int], counts: tuple[int, int]) -> bool:
    """Whether rows or columns are in one piece, and do not overlap."""
    batch, row, column = strides
    rows, columns = counts
    if batch < 0:
        return False
    return (rows == 1 or row >= 1) and (columns == 1 or column >= 1) and _operation(row, column, rows, columns) >= 0


def _operation(row: int, column: int, rows: int, columns: int) -> int:
    if (column == 1 or columns == 1) and (rows == 1 or row >= columns):
        return TRANSPOSED
    if (row == 1 or rows == 1) and (columns == 1 or column >= rows):
        return PLAIN
    return -1


def _by_columns(x: Lettered, strides: tuple[int, int, int], counts: tuple[int, int]) -> Matrices:
    """Matrices as cuBLAS sees them: those whose rows are in one piece are transposed ones."""
    batch, row, column = strides
    rows, columns = counts
    operation = _operation(row, column, rows, columns)
    leading = (max(row, columns) if rows > 1 else columns) if operation == TRANSPOSED else max(column, rows)
    return Matrices(x[0].data.ptr, operation, leading if leading else 1, batch)
