"""`tape.hessian`: second derivatives in blocks, or as one matrix. Floor: tape."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import optree

from gradtape.ops.layout import CONCAT, RESHAPE
from gradtape.recording import (
    Recording,
    leaves_of,
    sources_of,
    target_of,
)
from gradtape.runtime.convert import convert
from gradtape.runtime.dispatch import execute, unary
from gradtape.runtime.hessian import hessian_blocks
from gradtape.runtime.jacobian import zeros_of
from gradtape.runtime.subscript import subscript
from gradtape.runtime.tensor import Tensor


class FlatHessian(NamedTuple):
    """A Hessian over all sources as one matrix, and what gives a vector over all sources their shapes."""

    matrix: Tensor
    unflatten: Callable[[Any], Any]


class Hessians(Recording):
    """A recording that is asked for Hessians."""

    def hessian(self, target: Any, sources: Any, *, flat: bool = False) -> Any:
        """The second derivatives of a scalar with respect to sources, from this tape alone.

        The Hessian is the Jacobian of the recorded program's gradient; modes are chosen by cost, blocks below the
        diagonal are the transposes of those above.

        Args:
          target: a scalar tensor.
          sources: a tensor or variable, or a structure of them.
          flat: return a `FlatHessian`: one symmetric matrix over all elements of all sources, in order, and
            `unflatten(vector)`, which gives a vector of that length the structure and shapes of the sources.

        Returns:
          For a single source a tensor of shape `source.shape + source.shape`. Else the structure of `sources` twice:
          block [i][j] has shape `sources[i].shape + sources[j].shape`; zeros where a block is not connected.

        Raises:
          ValueError: a target that is no scalar, or that this tape has not recorded.

        >>> import gradtape as tf
        >>> x = tf.constant([1.0, 2.0])
        >>> with tf.GradientTape() as tape:
        ...     tape.watch(x)
        ...     y = x[0] * x[0] * x[1]
        >>> print(tape.hessian(y, x).numpy())
        [[4. 2.]
         [2. 0.]]
        """
        self._usable()
        if self._recording and not self._persistent:
            self._pop()
        (of,) = [target_of(t) for t in leaves_of(target)]
        wanted, structure = sources_of(sources)
        slots: dict[int, int] = self._recorder.slots if self._recorder else {}
        slot = slots.get(of._id, 0)
        if of._aval.shape != () or slot <= 0 or self._recorder is None:
            raise ValueError(
                f"`hessian` wants a scalar that this tape has recorded, got a tensor of shape {of.shape}"
                f"{'' if slot > 0 else ' that it has not'}. Reduce the target inside the block."
            )
        asked = [slots.get(s._id, 0) for s in wanted]
        traced = [s for s in dict.fromkeys(asked) if s > 0]
        found = hessian_blocks(self._recorder, slot, traced) if traced else []
        at = {s: k for k, s in enumerate(traced)}
        blocks = [
            [_block(found[at[a]][at[c]] if a > 0 and c > 0 else None, s, t) for c, t in zip(asked, wanted, strict=True)]
            for a, s in zip(asked, wanted, strict=True)
        ]
        if not self._persistent:
            self._finish()
        if flat:
            return FlatHessian(_matrix(blocks, wanted), functools.partial(_unflatten, wanted, structure))
        if structure is None:
            return blocks[0][0]
        return optree.tree_unflatten(structure, [optree.tree_unflatten(structure, row) for row in blocks])


def _block(found: Tensor | None, row: Any, column: Any) -> Tensor:
    return zeros_of((*row._aval.dims, *column._aval.dims), row) if found is None else found


def _matrix(blocks: Sequence[Sequence[Tensor]], sources: Sequence[Any]) -> Tensor:
    """Blocks as one matrix."""
    sizes = [s._aval.size for s in sources]
    lines = [
        joined([unary(RESHAPE.bind(shape=(m, n)), block) for block, n in zip(row, sizes, strict=True)], 1)
        for row, m in zip(blocks, sizes, strict=True)
    ]
    return joined(lines, 0)


def _unflatten(sources: Sequence[Any], structure: Any, vector: Any) -> Any:
    """A vector over all elements of all sources, in their structure and shapes."""
    sizes = [s._aval.size for s in sources]
    flat = convert(vector)
    if flat._aval.shape != (sum(sizes),):
        raise ValueError(f"`unflatten` wants a vector of {sum(sizes)} elements, got shape {flat.shape}.")
    parts, start = [], 0
    for s, n in zip(sources, sizes, strict=True):
        parts.append(unary(RESHAPE.bind(shape=s._aval.dims), subscript(flat, slice(start, start + n))))
        start += n
    return parts[0] if structure is None else optree.tree_unflatten(structure, parts)


def joined(parts: Sequence[Tensor], axis: int) -> Tensor:
    if len(parts) == 1:
        return parts[0]
    result: Tensor = execute(CONCAT.bind(axis=axis), parts)
    return result
