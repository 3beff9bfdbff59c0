"""`GradientTape`: records what happens to watched tensors and pulls cotangents back. Floor: tape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import optree

from gradtape.explanations import Explanation, explain
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.shapes import shape_text
from gradtape.jacobians import Jacobians
from gradtape.ops.layout import BROADCAST_TO
from gradtape.recording import (
    UnconnectedGradients,
    leaves_beside,
    leaves_of,
    of_several_shapes,
    sources_of,
    target_of,
    unconnected_of,
)
from gradtape.runtime.backward import gradients
from gradtape.runtime.convert import convert
from gradtape.runtime.dispatch import execute, unary
from gradtape.runtime.tensor import Tensor
from gradtape.runtime.variable import Variable
from gradtape.transforms.differentiate import filled_step


class GradientTape(Jacobians):
    """Records operations for automatic differentiation.

    Operations are recorded while the tape is active (inside `with`) and at least one operand is watched.
    Trainable variables are watched when they are read; tensors by `watch`.

    Args:
      persistent: whether `gradient` may be called more than once; the tape keeps what it needs until it
        is deleted. Otherwise its resources are freed by the first call.
      watch_accessed_variables: whether trainable variables are watched as soon as they are read.
      debug: whether files and lines of ops are noted for `explain`; each op costs more then.

    >>> import gradtape as tf
    >>> x = tf.constant(3.0)
    >>> with tf.GradientTape() as tape:
    ...     tape.watch(x)
    ...     y = x * x
    >>> float(tape.gradient(y, x))
    6.0
    """

    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        unconnected_gradients: Any = UnconnectedGradients.NONE,
    ) -> Any:
        """The gradient of a target (the sum of all its elements) with respect to sources.

        Args:
          target: a tensor, or a structure of them.
          sources: a tensor or variable, or a structure of them; need not have been made inside the block.
          output_gradients: one cotangent per target, in the structure of `target` or, where that has no dicts, as a
            list; by default ones.
          unconnected_gradients: what stands for gradients of sources that the target does not depend on.

        Returns:
          In the structure of `sources`: tensors of the sources' shapes and dtypes, or None. Where a source was
          only looked up by `tf.gather` along axis 0 (or `tf.nn.embedding_lookup`), its gradient is
          `tf.IndexedSlices`, and a tensor while an outer tape records it.

        Raises:
          RuntimeError: the second use of a tape that is not persistent, or a tape that was never entered.
          TypeError: a target or source that is no tensor.
          ValueError: an unknown `unconnected_gradients`, or not one entry of `output_gradients` per target, by the
            target's keys.
          InvalidArgumentError: `output_gradients` whose shape or dtype does not fit its target.
        """
        self._usable()
        unconnected = unconnected_of(unconnected_gradients)
        if self._recording and not self._persistent:
            self._pop()
        if target is None:
            raise TypeError("Argument `target` should be a list or nested structure of Tensors or Variables, got None.")
        targets = [target_of(t) for t in leaves_of(target)]
        wanted, structure = sources_of(sources)
        given = _given(output_gradients, target, targets)
        results = self._gradients(targets, wanted, given)
        if not self._persistent:
            self._finish()
        if unconnected is UnconnectedGradients.ZERO:
            results = [_zeros(s) if g is None else g for s, g in zip(wanted, results, strict=True)]
        return results[0] if structure is None else optree.tree_unflatten(structure, results)

    def explain(self, target: Any, source: Any) -> Explanation:
        """Why the gradient of a target by a source is None, zero, or neither. Also of a tape that was used: it keeps
        what was recorded, without tensors.

        Args:
          target, source: a tensor or variable each.

        Returns:
          An `Explanation`; printed, it says in words what stands in the way and what to do about it, with files and
          lines if the tape was made with `debug=True`.

        Raises:
          RuntimeError: a tape that was never entered.
          TypeError: a target or source that is no tensor.

        >>> import gradtape as tf
        >>> x = tf.constant(10)
        >>> with tf.GradientTape() as tape:
        ...     tape.watch(x)
        ...     y = x * x
        >>> tape.explain(y, x).cause
        'dtype'
        """
        past = [*self._past, self._recorder] if self._recorder is not None else self._past
        if not past:
            raise RuntimeError("The tape has recorded nothing: enter it with `with tape:` before asking.")
        (of,), (by,) = (_one(t, name) for t, name in ((target, "target"), (source, "source")))
        return explain(past, target_of(of), by, self._stops, self._watch_accessed)

    def _gradients(
        self, targets: Sequence[Any], sources: Sequence[Any], given: Sequence[Tensor | None]
    ) -> list[Tensor | None]:
        slots: dict[int, int] = self._recorder.slots if self._recorder else {}
        asked = [[slots.get(k, 0) for k in (s._id, *getattr(s, "former", ()))] for s in sources]
        reached = [(slots.get(t._id, 0), g) for t, g in zip(targets, given, strict=True)]
        traced = [s for s in dict.fromkeys(s for parts in asked for s in parts) if s > 0]
        inside = [(t, g) for t, g in reached if t > 0]
        found: list[Tensor | None] = []
        if self._recorder and traced and inside:
            found = gradients(self._recorder, [t for t, _ in inside], traced, [g for _, g in inside], slices=True)
        by_slot = dict(zip(traced, found, strict=False))
        outside = [(t, g) for (s, _), t, g in zip(reached, targets, given, strict=True) if s <= 0]
        results = [_of_one_shape([by_slot.get(s) for s in parts], s) for parts, s in zip(asked, sources, strict=True)]
        return [_with_itself(r, s, outside) for r, s in zip(results, sources, strict=True)] if outside else results


def _one(t: Any, name: str) -> list[Any]:
    found = leaves_of(t)
    if len(found) != 1 or not isinstance(found[0], Tensor | Variable):
        raise TypeError(f"`explain` wants one tensor or variable as `{name}`, got {type(t).__name__}.")
    return found


def _of_one_shape(parts: list[Tensor | None], source: Any) -> Tensor | None:
    """The gradient by what was read of a source; of one that had several shapes, by the one that was read."""
    found = [g for g in parts if g is not None]
    if len(found) > 1:
        raise of_several_shapes(source)
    return found[0] if found else None


def _with_itself(result: Tensor | None, source: Any, outside: Sequence[tuple[Any, Tensor | None]]) -> Tensor | None:
    """The gradient of a source that is a target itself, though the tape never saw it: its own cotangent."""
    for target, given in outside:
        if target._id == source._id and source.dtype.is_differentiable:
            own = execute(filled_step(source._aval, 1), ()) if given is None else given
            result = own if result is None else convert(result) + own
    return result


def _given(output_gradients: Any, structure: Any, targets: Sequence[Any]) -> list[Tensor | None]:
    """One cotangent per target, or None for ones."""
    if output_gradients is None:
        return [None] * len(targets)
    parts = leaves_beside(output_gradients, structure, "output_gradients", "the target")
    if len(parts) != len(targets):
        raise ValueError(
            f"`output_gradients` should have one tensor per target: got {len(parts)} for {len(targets)} targets."
        )
    return [None if g is None else _cotangent(g, t) for g, t in zip(parts, targets, strict=True)]


def _cotangent(g: Any, target: Any) -> Tensor:
    tensor = convert(g, None if isinstance(g, Tensor | Variable) else target.dtype)
    if tensor._aval is not target._aval:
        if tensor._aval.dtype is not target._aval.dtype:
            raise InvalidArgumentError(
                f"`output_gradients` should be of the target's dtype {target.dtype.name}, got {tensor.dtype.name}. "
                "Use `tf.cast`."
            )
        try:
            return unary(BROADCAST_TO.bind(shape=target._aval.dims), tensor)
        except InvalidArgumentError:
            raise InvalidArgumentError(
                f"`output_gradients` should have the target's shape {shape_text(target._aval.shape)}, "
                f"got {shape_text(tensor._aval.shape)}, which does not broadcast to it."
            ) from None
    return tensor


def _zeros(source: Any) -> Tensor:
    result: Tensor = execute(filled_step(source._aval, 0), ())
    return result
