"""matmul, einsum and tensordot as contractions. Floor: runtime."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

import opt_einsum

from gradtape.ir.aval import Aval
from gradtape.ir.dtypes import wider
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.shapes import broadcast, shape_text
from gradtape.ops.arithmetic import CONJ
from gradtape.ops.contractions import CONTRACT
from gradtape.ops.layout import DIAGONAL, RESHAPE, TRANSPOSE
from gradtape.ops.op import MAX_CACHED, Step
from gradtape.ops.reductions import REDUCE_SUM
from gradtape.runtime.dispatch import binary, unary
from gradtape.runtime.tensor import Tensor
from gradtape.runtime.trace import open_tracer_of

LETTERS = string.ascii_letters


def contract(a: Tensor, b: Tensor, subscripts: str) -> Tensor:
    return binary(CONTRACT.bind(subscripts=subscripts), a, b)


def reshape(x: Tensor, shape: Sequence[int]) -> Tensor:
    return x if x._aval.shape == tuple(shape) else unary(RESHAPE.bind(shape=tuple(shape)), x)


# ------------------------------------------------------------------ matmul

_matmuls: dict[Any, tuple[tuple[int, ...] | None, tuple[int, ...] | None, Step]] = {}


def matmul(
    a: Tensor,
    b: Tensor,
    transpose_a: bool = False,
    transpose_b: bool = False,
    adjoint_a: bool = False,
    adjoint_b: bool = False,
) -> Tensor:
    """The product of matrices in the last two axes; axes before them broadcast."""
    if adjoint_a and a._aval.dtype.is_complex:
        a = unary(CONJ.bind(), a)
    if adjoint_b and b._aval.dtype.is_complex:
        b = unary(CONJ.bind(), b)
    key = (a._aval, b._aval, transpose_a or adjoint_a, transpose_b or adjoint_b)
    spelling = _matmuls.get(key)
    if spelling is None:
        if (tracer := open_tracer_of(a) or open_tracer_of(b)) is not None:
            found: Tensor = tracer.perform(matmul, (a, b, *key[2:]), {})
            return found
        if len(_matmuls) >= MAX_CACHED:
            _matmuls.clear()
        spelling = _matmuls[key] = _spell_matmul(*key)
    shape_a, shape_b, step = spelling
    if shape_a is not None:
        a = reshape(a, shape_a)
    if shape_b is not None:
        b = reshape(b, shape_b)
    return binary(step, a, b)


def _spell_matmul(
    a: Aval, b: Aval, flip_a: bool, flip_b: bool
) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None, Step]:
    """The contraction of a matmul. Batch axes of size 1 that broadcast are reshaped away first."""
    for name, x in (("a", a), ("b", b)):
        if x.ndim is None or x.ndim < 2:
            raise InvalidArgumentError(
                f"`matmul` wants 2 or more dimensions, got `{name}` with shape {shape_text(x.shape)}. "
                "Use `tf.linalg.matvec` or `tf.tensordot` for vectors."
            )
    if a.dtype is not b.dtype:
        raise InvalidArgumentError(
            f"`matmul` wants matrices of one dtype: `a` is a {a.dtype.cname} tensor, `b` a {b.dtype.cname} tensor. "
            f"Convert one of them with `tf.cast(x, tf.{wider(a.dtype, b.dtype).name})`."
        )
    inner_a, inner_b = a.dims[-2 if flip_a else -1], b.dims[-1 if flip_b else -2]
    try:
        batch = broadcast(a.dims[:-2], b.dims[:-2]) or ()
    except ValueError:
        inner_a, inner_b, batch = 0, 1, ()
    if inner_a != inner_b:
        raise InvalidArgumentError(
            f"`matmul` got incompatible shapes: {shape_text(a.shape)} vs. {shape_text(b.shape)}"
            f"{' with `a` transposed' * flip_a}{' with `b` transposed' * flip_b}. The inner dimensions must be equal "
            "and the batch dimensions must broadcast."
        )
    lead = LETTERS[3 : 3 + len(batch)]
    left, shape_a = _batch_letters(a.dims, batch, lead)
    right, shape_b = _batch_letters(b.dims, batch, lead)
    left += "ba" if flip_a else "ab"
    right += "cb" if flip_b else "bc"
    return shape_a, shape_b, CONTRACT.bind(subscripts=f"{left},{right}->{lead}ac")


def _batch_letters(
    dims: tuple[int, ...], batch: tuple[int | None, ...], lead: str
) -> tuple[str, tuple[int, ...] | None]:
    """The letters of an operand's batch axes and the shape without those that broadcast (None: nothing to drop)."""
    offset = len(batch) - (len(dims) - 2)
    kept = [k for k, n in enumerate(dims[:-2]) if n == batch[offset + k]]
    letters = "".join(lead[offset + k] for k in kept)
    if len(kept) == len(dims) - 2:
        return letters, None
    return letters, (*(dims[k] for k in kept), *dims[-2:])


# ------------------------------------------------------------------ einsum


def einsum(subscripts: str, operands: Sequence[Tensor]) -> Tensor:
    """Any einsum: diagonals and lone sums first, then pairs in opt_einsum's order."""
    spelled = subscripts.replace(" ", "")
    ins, out, dots = _parsed(spelled, operands)
    ins, operands = _without_repeats(ins, operands, dots)
    items = [_prepared(letters, x, out, ins, k) for k, (letters, x) in enumerate(zip(ins, operands, strict=True))]
    if len(items) == 1:
        return _arranged(*items[0], out)
    text = ",".join(letters for letters, _ in items) + "->" + out
    path = opt_einsum.contract_path(text, *[x._aval.dims for _, x in items], shapes=True)[0]
    for pair in path:
        chosen = [items[i] for i in pair]
        items = [item for i, item in enumerate(items) if i not in pair]
        later = set(out).union(*[letters for letters, _ in items])
        items.append(_joined(chosen, later if items else None, out))
    return _arranged(*items[0], out)


def _joined(chosen: list[tuple[str, Tensor]], later: set[str] | None, out: str) -> tuple[str, Tensor]:
    letters, x = chosen[0]
    for other, y in chosen[1:]:
        keep = out if later is None else "".join(c for c in dict.fromkeys(letters + other) if c in later)
        x = contract(x, y, f"{letters},{other}->{keep}")
        letters = keep
    return letters, x


def _prepared(letters: str, x: Tensor, out: str, ins: Sequence[str], k: int) -> tuple[str, Tensor]:
    """An operand with its repeated letters taken to the diagonal and the letters that nobody else has summed."""
    while len(set(letters)) < len(letters):
        c = next(c for c in letters if letters.count(c) > 1)
        i, j = [n for n, d in enumerate(letters) if d == c][:2]
        rest = [n for n in range(len(letters)) if n not in (i, j)]
        x = unary(DIAGONAL.bind(), _permuted(x, (*rest, i, j)))
        letters = "".join(letters[n] for n in rest) + c
    others = set(out).union(*[s for n, s in enumerate(ins) if n != k])
    lone = tuple(n for n, c in enumerate(letters) if c not in others)
    if lone:
        x = unary(REDUCE_SUM.bind(axes=lone, keepdims=False), x)
        letters = "".join(c for c in letters if c in others)
    return letters, x


def _arranged(letters: str, x: Tensor, out: str) -> Tensor:
    return _permuted(x, tuple(letters.index(c) for c in out))


def _permuted(x: Tensor, perm: tuple[int, ...]) -> Tensor:
    return x if perm == tuple(range(len(perm))) else unary(TRANSPOSE.bind(perm=perm), x)


def _without_repeats(ins: Sequence[str], operands: Sequence[Tensor], dots: str) -> tuple[list[str], Sequence[Tensor]]:
    """Axes under `...` that are 1 in one operand and more in another broadcast: they are taken away.

    Raises:
      InvalidArgumentError: for other axes of different sizes.
    """
    sizes: dict[str, int] = {}
    for letters, x in zip(ins, operands, strict=True):
        for c, n in zip(letters, x._aval.dims, strict=True):
            have = sizes.setdefault(c, n)
            if have != n and not (c in dots and 1 in (have, n)):
                shapes = ", ".join(shape_text(x._aval.shape) for x in operands)
                raise InvalidArgumentError(
                    f"`einsum` got incompatible shapes {shapes}: axis `{c}` has size {have} in one place and {n} in "
                    "another."
                )
            sizes[c] = n if have == 1 else have
    kept, smaller = [], []
    for letters, x in zip(ins, operands, strict=True):
        stays = [k for k, n in enumerate(x._aval.dims) if n == sizes[letters[k]]]
        kept.append("".join(letters[k] for k in stays))
        smaller.append(reshape(x, [x._aval.dims[k] for k in stays]))
    return kept, smaller


def _parsed(subscripts: str, operands: Sequence[Tensor]) -> tuple[list[str], str, str]:
    """The letters of each operand and of the result, `...` written out, and the letters that stand for it."""
    left, arrow, out = subscripts.partition("->")
    ins = left.split(",")
    if len(ins) != len(operands):
        raise ValueError(f"`einsum` got {len(operands)} operands for `{subscripts}`, which names {len(ins)}.")
    strange = set("".join(s.replace("...", "", 1) for s in [*ins, out])) - set(LETTERS)
    if strange:
        raise ValueError(f"`einsum` subscripts `{subscripts}` are letters, `,`, `...` and `->`, got {sorted(strange)}.")
    widths = [x.ndim - len(s.replace("...", "")) for s, x in zip(ins, operands, strict=True)]
    if any(w < 0 or (w and "..." not in s) for w, s in zip(widths, ins, strict=True)):
        shapes = ", ".join(shape_text(x._aval.shape) for x in operands)
        raise InvalidArgumentError(f"`einsum` subscripts `{subscripts}` do not fit operands of shapes {shapes}.")
    free = [c for c in LETTERS if c not in subscripts]
    dots = "".join(free[: max(widths, default=0)])
    ins = [s.replace("...", dots[len(dots) - w :] if w else "") for s, w in zip(ins, widths, strict=True)]
    if not arrow:
        text = "".join(ins)
        out = "..." * bool(dots) + "".join(sorted(c for c in set(text) if text.count(c) == 1 and c not in dots))
    out = out.replace("...", dots)
    unknown = [c for c in out if c not in "".join(ins)]
    if unknown or len(set(out)) < len(out):
        raise ValueError(f"`einsum` result `{out}` of `{subscripts}` names a letter twice or one that no operand has.")
    return ins, out, dots


def tensordot(a: Tensor, b: Tensor, axes: Any) -> Tensor:
    """Sums of products over pairs of axes: an integer (the last of a with the first of b) or two lists."""
    over_a, over_b = _dot_axes(a, b, axes)
    left = list(LETTERS[: a.ndim])
    right = list(LETTERS[a.ndim : a.ndim + b.ndim])
    for i, j in zip(over_a, over_b, strict=True):
        right[j] = left[i]
    out = [c for k, c in enumerate(left) if k not in over_a] + [c for k, c in enumerate(right) if k not in over_b]
    return contract(a, b, f"{''.join(left)},{''.join(right)}->{''.join(out)}")


def _dot_axes(a: Tensor, b: Tensor, axes: Any) -> tuple[list[int], list[int]]:
    if isinstance(axes, int):
        if not 0 <= axes <= min(a.ndim, b.ndim):
            raise ValueError(f"`tensordot` cannot contract {axes} axes of tensors with {a.ndim} and {b.ndim}.")
        return list(range(a.ndim - axes, a.ndim)), list(range(axes))
    first, second = ([int(k) for k in (e if hasattr(e, "__len__") else [e])] for e in axes)
    if len(first) != len(second):
        raise ValueError(f"`tensordot` wants as many axes of `a` as of `b`, got {first} and {second}.")
    for x, picked in ((a, first), (b, second)):
        if any(not -x.ndim <= k < x.ndim for k in picked):
            raise ValueError(
                f"`tensordot` axes {picked} do not exist in a tensor of shape {shape_text(x._aval.shape)}."
            )
    return [k % a.ndim for k in first], [k % b.ndim for k in second]
