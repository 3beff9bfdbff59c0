"""Sequences of different lengths, grids, and blocks moved between batch and space. Floor: api."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.api.arguments import host, integers, one_axis, pairs
from gradtape.api.elementwise import cast
from gradtape.api.layout import pad
from gradtape.ir.dtypes import as_dtype, bool_, int64
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.shapes import shape_text, size_of
from gradtape.ops.indexing import GATHER
from gradtape.ops.layout import BROADCAST_TO, TRANSPOSE, inverse
from gradtape.runtime.contract import reshape
from gradtape.runtime.convert import convert
from gradtape.runtime.dispatch import binary, unary
from gradtape.runtime.subscript import positions
from gradtape.runtime.tensor import Tensor


def reverse_sequence(
    input: Any, seq_lengths: Any, seq_axis: Any = None, batch_axis: Any = None, name: str | None = None
) -> Tensor:
    """For each entry of a batch, the first elements along an axis in the opposite order, the others as they are.

    Args:
      input: a tensor of at least two axes.
      seq_lengths: how many elements of each entry are reversed.
      seq_axis: along which to reverse.
      batch_axis: along which the entries lie; 0 by default.
      name: accepted for compatibility.

    Raises:
      ValueError: no `seq_axis`.
      InvalidArgumentError: axes that are equal or do not exist, or lengths that do not fit.

    >>> import gradtape as tf
    >>> print(tf.reverse_sequence([[1, 2, 3], [4, 5, 6]], [2, 3], seq_axis=1).numpy())
    [[2 1 3]
     [6 5 4]]
    """
    if seq_axis is None:
        raise ValueError("`reverse_sequence` wants a `seq_axis`: the axis along which to reverse.")
    x = convert(input)
    instead = "Give lengths that are constants of that function."
    lengths = host(convert(seq_lengths), "reverse_sequence", instead).astype(np.int64)
    along, batch = one_axis(seq_axis, x.ndim, "seq_axis"), one_axis(batch_axis or 0, x.ndim, "batch_axis")
    if along == batch:
        raise InvalidArgumentError(f"`reverse_sequence`: batch_axis == seq_axis == {along}.")
    count, n = x._aval.dims[batch], x._aval.dims[along]
    if lengths.shape != (count,):
        raise InvalidArgumentError(f"`reverse_sequence` wants {count} lengths, got shape {shape_text(lengths.shape)}.")
    if lengths.size and (lengths.min() < 0 or lengths.max() > n):
        raise InvalidArgumentError(f"`reverse_sequence` wants lengths in [0, {n}], got {lengths.tolist()}.")
    place, ends = np.arange(n), lengths[:, None]
    at = np.where(place < ends, ends - 1 - place, place)
    perm = (batch, along, *(k for k in range(x.ndim) if k not in (batch, along)))
    moved = binary(GATHER.bind(axis=1, batch_dims=1), unary(TRANSPOSE.bind(perm=perm), x), positions(at))
    return unary(TRANSPOSE.bind(perm=inverse(perm)), moved)


def sequence_mask(lengths: Any, maxlen: Any = None, dtype: Any = bool_, name: str | None = None) -> Tensor:
    """A new last axis on which the first `lengths[...]` of `maxlen` entries are True.

    Args:
      lengths: integers.
      maxlen: size of the new axis; by default the largest length.
      dtype: of the result.
      name: accepted for compatibility.

    Raises:
      InvalidArgumentError: lengths that are no integers.

    >>> import gradtape as tf
    >>> print(tf.sequence_mask([1, 3], 4, dtype=tf.int32).numpy())
    [[1 0 0 0]
     [1 1 1 0]]
    """
    t = convert(lengths)
    if not t._aval.dtype.is_integer:
        raise InvalidArgumentError(f"`sequence_mask` wants integer lengths, got a {t.dtype.cname} tensor.")
    if maxlen is None:
        size = max(0, int(host(t, "sequence_mask", "Give `maxlen`.").max(initial=0)))
    else:
        size = integers(maxlen, "maxlen")[0]
    counts = reshape(cast(t, int64), (*t._aval.dims, 1))
    return cast(counts > positions(np.arange(size)), as_dtype(dtype))


def meshgrid(*args: Any, **kwargs: Any) -> list[Tensor]:
    """Vectors as the coordinates of a grid: for each a tensor of the grid's shape that varies along its own axis.

    Args:
      *args: vectors (tensors of more axes are flattened).
      indexing: "xy" (the first two axes change places) or "ij".
      name: accepted for compatibility.

    Raises:
      ValueError: another indexing.
      TypeError: another keyword.

    >>> import gradtape as tf
    >>> a, b = tf.meshgrid([1, 2, 3], [4, 5])
    >>> print(a.numpy(), b.numpy())
    [[1 2 3]
     [1 2 3]] [[4 4 4]
     [5 5 5]]
    """
    indexing = kwargs.pop("indexing", "xy")
    kwargs.pop("name", None)
    if kwargs:
        raise TypeError(f"`meshgrid` got an unknown keyword {next(iter(kwargs))!r}; it takes `indexing` and `name`.")
    if indexing not in ("xy", "ij"):
        raise ValueError(f"`indexing` should be 'xy' or 'ij', got {indexing!r}.")
    vectors = [convert(a) for a in args]
    sizes = [v._aval.size for v in vectors]
    axes = list(range(len(vectors)))
    if indexing == "xy" and len(axes) > 1:
        axes[:2] = [1, 0]
    shape = tuple(sizes[k] for k in axes)
    grids = []
    for v, axis in zip(vectors, axes, strict=True):
        line = reshape(v, tuple(v._aval.size if k == axis else 1 for k in range(len(axes))))
        grids.append(unary(BROADCAST_TO.bind(shape=shape), line))
    return grids


# ------------------------------------------------------------------ blocks


def space_to_batch(input: Any, block_shape: Any, paddings: Any, name: str | None = None) -> Tensor:
    """Space, padded with zeros, cut into blocks; places within a block become batch entries.

    Args:
      input: (batch, *space, ...).
      block_shape: one size per axis of space; a single number stands for two equal ones.
      paddings: how many zeros before and after each axis of space.
      name: accepted for compatibility.

    Returns:
      (batch · block sizes, *(padded space / block sizes), ...).

    Raises:
      InvalidArgumentError: padded sizes that the blocks do not divide.

    >>> import gradtape as tf
    >>> tf.space_to_batch(tf.zeros([1, 4, 6, 3]), [2, 3], [[0, 0], [0, 0]]).shape
    TensorShape([6, 2, 2, 3])
    """
    x, blocks = convert(input), _blocks(block_shape)
    m = len(blocks)
    _check_space(x, m, "space_to_batch")
    amounts = pairs(paddings, m, "paddings")
    x = pad(x, [(0, 0), *amounts, *[(0, 0)] * (x.ndim - 1 - m)])
    batch, space, rest = x._aval.dims[0], x._aval.dims[1 : 1 + m], x._aval.dims[1 + m :]
    if any(b < 1 or n % b for n, b in zip(space, blocks, strict=True)):
        raise InvalidArgumentError(f"`space_to_batch`: blocks {blocks} do not divide the padded space {space}.")
    apart = [s for n, b in zip(space, blocks, strict=True) for s in (n // b, b)]
    cut = reshape(x, (batch, *apart, *rest))
    perm = (*range(2, 2 * m + 1, 2), 0, *range(1, 2 * m, 2), *range(2 * m + 1, cut.ndim))
    moved = unary(TRANSPOSE.bind(perm=perm), cut)
    return reshape(moved, (batch * size_of(blocks), *(n // b for n, b in zip(space, blocks, strict=True)), *rest))


def batch_to_space(input: Any, block_shape: Any, crops: Any, name: str | None = None) -> Tensor:
    """Batch entries put back as places within blocks of space, which is then cropped: undoes `space_to_batch`.

    Args:
      input: (batch · block sizes, *space, ...).
      block_shape: one size per axis of space; a single number stands for two equal ones.
      crops: how many elements to leave out before and after each axis of space.
      name: accepted for compatibility.

    Raises:
      InvalidArgumentError: a batch that is no multiple of the blocks, or crops that leave less than nothing.

    >>> import gradtape as tf
    >>> tf.batch_to_space(tf.zeros([6, 2, 2, 3]), [2, 3], [[0, 0], [1, 0]]).shape
    TensorShape([1, 4, 5, 3])
    """
    x, blocks = convert(input), _blocks(block_shape)
    m = len(blocks)
    _check_space(x, m, "batch_to_space")
    cuts = pairs(crops, m, "crops")
    batch, space, rest = x._aval.dims[0], x._aval.dims[1 : 1 + m], x._aval.dims[1 + m :]
    entries = size_of(blocks)
    if entries < 1 or batch % entries:
        raise InvalidArgumentError(
            f"`batch_to_space`: a batch of {batch} is no multiple of {entries}, the block's size."
        )
    apart = reshape(x, (*blocks, batch // entries, *space, *rest))
    woven = [k for i in range(m) for k in (m + 1 + i, i)]
    joined = unary(TRANSPOSE.bind(perm=(m, *woven, *range(2 * m + 1, apart.ndim))), apart)
    full = tuple(n * b for n, b in zip(space, blocks, strict=True))
    if any(low < 0 or high < 0 or low + high > n for (low, high), n in zip(cuts, full, strict=True)):
        raise InvalidArgumentError(f"`batch_to_space`: crops {cuts} do not fit the space {full}.")
    whole = reshape(joined, (batch // entries, *full, *rest))
    part: Tensor = whole[(slice(None), *(slice(low, n - high) for (low, high), n in zip(cuts, full, strict=True)))]
    return part


def _blocks(block_shape: Any) -> tuple[int, ...]:
    blocks = integers(block_shape, "block_shape")
    return blocks * 2 if np.ndim(np.asarray(block_shape)) == 0 else blocks


def _check_space(x: Tensor, m: int, name: str) -> None:
    if x.ndim < 1 + m:
        raise InvalidArgumentError(f"`{name}` wants a batch axis and {m} axes of space, got shape {x.shape}.")
