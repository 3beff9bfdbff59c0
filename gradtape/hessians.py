"""`tape.hessian`: second derivatives in blocks, or as one matrix. Floor: tape."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import optree

from gradtape.ops.layout import RESHAPE
from gradtape.recording import (
    Recording,
    leaves_of,
    slot_of,
    sources_of,
    target_of,
)
from gradtape.runtime.convert import convert
from gradtape.runtime.dispatch import unary
from gradtape.runtime.hessian import Part, hessian_blocks, hessian_matrix
from gradtape.runtime.jacobian import zeros_of
from gradtape.runtime.record import Recorder
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
        asked = [slot_of(slots, s) for s in wanted]
        traced = [s for s in dict.fromkeys(asked) if s > 0]
        answer = self._matrix if flat else self._blocks
        result = answer(self._recorder, slot, wanted, asked, traced, structure)
        if not self._persistent:
            self._finish()
        return result

    def _blocks(
        self, recorder: Recorder, slot: int, wanted: Sequence[Any], asked: list[int], traced: list[int], structure: Any
    ) -> Any:
        found = hessian_blocks(recorder, slot, traced) if traced else []
        at = {s: k for k, s in enumerate(traced)}
        blocks = [
            [_block(found[at[a]][at[c]] if a > 0 and c > 0 else None, s, t) for c, t in zip(asked, wanted, strict=True)]
            for a, s in zip(asked, wanted, strict=True)
        ]
        if structure is None:
            return blocks[0][0]
        return optree.tree_unflatten(structure, [optree.tree_unflatten(structure, row) for row in blocks])

    def _matrix(
        self, recorder: Recorder, slot: int, wanted: Sequence[Any], asked: list[int], traced: list[int], structure: Any
    ) -> FlatHessian:
        dtypes = list(dict.fromkeys(s._aval.dtype.name for s in wanted))
        if len(dtypes) > 1:
            raise ValueError(f"`flat=True` wants sources of one dtype, got {' and '.join(dtypes)}. Leave it out.")
        parts = [Part(traced.index(a) if a > 0 else None, s._aval.size) for a, s in zip(asked, wanted, strict=True)]
        found = hessian_matrix(recorder, slot, traced, parts) if traced else None
        n = sum(p.size for p in parts)
        matrix = zeros_of((n, n), wanted[0]) if found is None else found
        return FlatHessian(matrix, functools.partial(_unflatten, wanted, structure))


def _block(found: Tensor | None, row: Any, column: Any) -> Tensor:
    return zeros_of((*row._aval.dims, *column._aval.dims), row) if found is None else found


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
