"""`batch_jacobian`: the Jacobians of each example, and whether examples are independent. Floor: tape."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import optree

from gradtape.questions import check_loop, check_rows
from gradtape.recording import (
    Recording,
    UnconnectedGradients,
    slot_of,
    sources_of,
    target_of,
    unconnected_of,
)
from gradtape.runtime.independence import independence
from gradtape.runtime.jacobian import batch_looped, jacobians, zeros_of
from gradtape.runtime.state import STATE
from gradtape.runtime.tensor import Tensor
from gradtape.transforms.independence import Verdict


class BatchDependenceWarning(UserWarning):
    """Examples of a batch depend on each other, or may do so, where `batch_jacobian` takes them for independent."""


class BatchJacobians(Recording):
    """A recording that is asked for the Jacobians of each example."""

    def batch_jacobian(
        self,
        target: Any,
        source: Any,
        unconnected_gradients: Any = UnconnectedGradients.NONE,
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
        *,
        on_dependence: str = "warn",
        batch_axes: int | Sequence[int] = 0,
    ) -> Any:
        """The Jacobians of each example of a batch: `target[i]` with respect to `source[i]`, stacked.

        What target[i] owes to source[j] for other j is added to the result, as TensorFlow does; it is zero where
        examples are independent.

        Args:
          target: a tensor of shape (batch, ...) with at least two dimensions.
          source: a tensor or variable of shape (batch, ...) with at least two dimensions, or a structure of them.
          unconnected_gradients: accepted for compatibility; unconnected sources give zeros.
          parallel_iterations: accepted for compatibility; a positive number.
          experimental_use_pfor: False computes one gradient per element of an example, one after the other.

          on_dependence: what happens where examples are not independent, or where that cannot be proved: "warn",
            "error" or "ignore".
          batch_axes: the axis, or the axes, that target and source share as batch.

        Returns:
          In the structure of `source`: tensors of shape (batch, target's other dimensions, source's other dimensions).

        Warns:
          BatchDependenceWarning: naming the op at which examples meet, or because of which nothing could be proved.

        Raises:
          ValueError: shapes without a common first dimension, or of fewer than two; a target that this tape has
            not recorded.
          RuntimeError: the second use of a tape that is not persistent.

        >>> import gradtape as tf
        >>> x = tf.constant([[1.0, 2.0], [3.0, 4.0]])
        >>> with tf.GradientTape() as tape:
        ...     tape.watch(x)
        ...     y = x * x
        >>> print(tape.batch_jacobian(y, x).numpy())
        [[[2. 0.]
          [0. 4.]]
        <BLANKLINE>
         [[6. 0.]
          [0. 8.]]]
        """
        self._usable()
        unconnected_of(unconnected_gradients)
        check_rows(parallel_iterations, "auto")
        check_loop(bool(experimental_use_pfor), self._persistent)
        if self._recording and not self._persistent:
            self._pop()
        of = target_of(target)
        wanted, structure = sources_of(source)
        axes = (int(batch_axes),) if isinstance(batch_axes, int | np.integer) else tuple(batch_axes)
        for x in wanted:
            _check_batch(of, x, axes)
        axes = tuple(k % of.ndim for k in axes)
        results = []
        for x in wanted:  # no comprehension, which would be a frame between a warning and the caller
            results.append(self._batch_jacobian(of, x, axes, bool(experimental_use_pfor), on_dependence))
        if not self._persistent:
            self._finish()
        return results[0] if structure is None else optree.tree_unflatten(structure, results)

    def _batch_jacobian(
        self, target: Any, source: Any, axes: tuple[int, ...], at_once: bool, on_dependence: str
    ) -> Tensor:
        slots: dict[int, int] = self._recorder.slots if self._recorder else {}
        slot, asked = slots.get(target._id, 0), slot_of(slots, source)
        found: Tensor | None = None
        if slot <= 0 or self._recorder is None:
            raise ValueError(
                "This tape has not recorded the target of `batch_jacobian`: nothing in it depends on what the tape "
                "watches, or it was computed outside the tape's block. Compute it inside the block."
            )
        if asked > 0 and target._aval.size:
            _report(independence(self._recorder, slot, asked, axes), on_dependence)
            if at_once and not (STATE.overrides is not None and STATE.overrides.op_by_op):
                (found,) = jacobians(self._recorder, slot, [asked], batch=axes)
            else:
                (found,) = batch_looped(self._recorder, target, [asked], axes)
        if found is not None:
            return found
        batch = [target._aval.dims[k] for k in axes]
        rest = [n for x in (target, source) for k, n in enumerate(x._aval.dims) if k not in axes]
        return zeros_of((*batch, *rest), source)


def _check_batch(target: Any, source: Any, axes: tuple[int, ...]) -> None:
    for x in (target, source):
        if x.ndim < 1 + len(axes):
            raise ValueError(
                f"Shape {x.shape} must have rank at least {1 + len(axes)}: `batch_jacobian` wants (batch, ...). "
                "Use `jacobian`."
            )
        if any(not isinstance(k, int) or not -x.ndim <= k < x.ndim for k in axes) or len(set(axes)) < len(axes):
            raise ValueError(f"`batch_axes` {list(axes)} are not different axes of a tensor of shape {x.shape}.")
    if axes == (0,) and target._aval.dims[0] != source._aval.dims[0]:
        raise ValueError(
            f"Need first dimension of target shape ({target.shape}) and source shape ({source.shape}) to match."
        )
    for k in axes:
        if k % target.ndim != k % source.ndim or target._aval.dims[k] != source._aval.dims[k]:
            raise ValueError(
                f"Batch axis {k} should be one axis of one size in target and source, got shapes {target.shape} and "
                f"{source.shape}."
            )


def _report(verdict: Verdict, on_dependence: str) -> None:
    if on_dependence not in ("warn", "error", "ignore"):
        raise ValueError(f"`on_dependence` should be 'warn', 'error' or 'ignore', got {on_dependence!r}.")
    if verdict.kind == "proved" or on_dependence == "ignore":
        return
    text = (
        f"In `batch_jacobian` {verdict}: what an example owes to others is added to its block. Use `jacobian` for all "
        'blocks, or `on_dependence="ignore"` where this is meant.'
    )
    if on_dependence == "error":
        raise ValueError(text)
    warnings.warn(text, BatchDependenceWarning, stacklevel=4)
