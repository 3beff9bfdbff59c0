"""`ForwardAccumulator`: tangents carried along with the computation. Floor: tape."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import optree

from gradtape.ir.shapes import shape_text
from gradtape.recording import UnconnectedGradients, flatten, leaves_beside, leaves_of, unconnected_of
from gradtape.runtime.convert import convert
from gradtape.runtime.dispatch import execute
from gradtape.runtime.forward import pushforward
from gradtape.runtime.record import Recorder
from gradtape.runtime.state import STATE, new_id
from gradtape.runtime.tensor import Tensor
from gradtape.runtime.variable import Variable
from gradtape.transforms.differentiate import filled_step


class ForwardAccumulator:
    """Jacobian-vector products by forward mode.

    Args:
      primals: a tensor or variable, or a structure of them, that the computation starts from.
      tangents: the vectors, in the same structure, shapes and dtypes.

    Raises:
      ValueError: a primal given twice, or a tangent of another shape or dtype than its primal.

    >>> import gradtape as tf
    >>> x = tf.constant([1.0, 2.0])
    >>> with tf.autodiff.ForwardAccumulator(x, tf.constant([1.0, 0.0])) as acc:
    ...     y = x * x
    >>> print(acc.jvp(y).numpy())
    [2. 0.]

    Source: `tf.autodiff.ForwardAccumulator` of TensorFlow 2.
    """

    def __init__(self, primals: Any, tangents: Any) -> None:
        self._structure, self._primals = primals, leaves_of(primals)
        self._tangents = self._paired(tangents)
        if len({p._id for p in self._primals}) < len(self._primals):
            raise ValueError("A primal was given multiple times. Give each tensor once, with the sum of its tangents.")
        self._recorder = Recorder(watch_accessed=False)
        self._recording = False
        for p in self._primals:
            self._recorder.watch_variable(p) if isinstance(p, Variable) else self._recorder.watch(p)

    def __enter__(self) -> ForwardAccumulator:
        if self._recording:
            raise ValueError("The accumulator is recording already.")
        STATE.recorders = (*STATE.recorders, self._recorder)
        STATE.scope = new_id()
        self._recording = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        STATE.recorders = tuple(r for r in STATE.recorders if r is not self._recorder)
        STATE.scope = new_id()
        self._recording = False

    def with_tangents(self, tangents: Any) -> ForwardAccumulator:
        """The same recording for other tangents."""
        other = ForwardAccumulator.__new__(ForwardAccumulator)
        other._structure, other._primals = self._structure, self._primals
        other._recorder, other._recording = self._recorder, False
        other._tangents = other._paired(tangents)
        return other

    def _paired(self, tangents: Any) -> list[Tensor]:
        """A tangent for each primal."""
        found = leaves_beside(tangents, self._structure, "tangents", "the structure of primals")
        if len(found) != len(self._primals):
            raise ValueError(
                f"Each primal wants one tangent: got {len(self._primals)} primals and {len(found)} tangents."
            )
        return [_tangent(t, p) for t, p in zip(found, self._primals, strict=True)]

    def jvp(self, primals: Any, unconnected_gradients: Any = UnconnectedGradients.NONE) -> Any:
        """The tangents of what was computed in the block.

        Args:
          primals: a tensor or variable, or a structure of them.
          unconnected_gradients: what stands for tangents of what does not depend on the primals.

        Returns:
          Tensors of the same shapes and dtypes in the same structure, or None.
        """
        unconnected = unconnected_of(unconnected_gradients)
        targets, structure = flatten(primals)
        results = [self._tangent_of(t) for t in targets]
        if unconnected is UnconnectedGradients.ZERO:
            results = [
                execute(filled_step(t._aval, 0), ()) if r is None else r for t, r in zip(targets, results, strict=True)
            ]
        return results[0] if structure is None else optree.tree_unflatten(structure, results)

    def _tangent_of(self, target: Any) -> Tensor | None:
        slots = self._recorder.slots
        slot = slots.get(target._id, 0)
        if slot <= 0:
            return None
        for p, t in zip(self._primals, self._tangents, strict=True):
            if p._id == target._id:
                return t
        return pushforward(self._recorder, slot, [slots[p._id] for p in self._primals], self._tangents)


def _tangent(tangent: Any, primal: Any) -> Tensor:
    if not isinstance(primal, Tensor | Variable):
        raise TypeError(f"A primal should be a tensor or a variable, got {type(primal).__name__}.")
    t = convert(tangent, None if isinstance(tangent, Tensor | Variable) else primal.dtype)
    if t._aval is not primal._aval:
        raise ValueError(
            f"A tangent should have the shape and dtype of its primal: got {t.dtype.name}{shape_text(t._aval.shape)} "
            f"for {primal.dtype.name}{shape_text(primal._aval.shape)}."
        )
    return t
