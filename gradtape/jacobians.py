"""The questions for many rows: `jacobian`, `batch_jacobian`, `hessian` and plans. Floor: tape."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import optree

from gradtape.ir.aval import aval
from gradtape.ops.layout import CONCAT, RESHAPE
from gradtape.recording import (
    Recording,
    UnconnectedGradients,
    flatten,
    leaves_of,
    sources_of,
    target_of,
    unconnected_of,
)
from gradtape.runtime.chunks import Chunking, budget_of, chunked, write_to
from gradtape.runtime.convert import convert
from gradtape.runtime.dispatch import execute, unary
from gradtape.runtime.hessian import hessian_blocks
from gradtape.runtime.independence import independence
from gradtape.runtime.jacobian import MODES, batch_looped, jacobians, looped, zeros_of
from gradtape.runtime.plans import JacobianPlan
from gradtape.runtime.state import STATE
from gradtape.runtime.structured import structured as structured_of
from gradtape.runtime.subscript import subscript
from gradtape.runtime.tensor import Tensor, wrap
from gradtape.transforms.independence import Verdict


class BatchDependenceWarning(UserWarning):
    """Examples of a batch depend on each other, or may do so, where `batch_jacobian` takes them for independent."""


class FlatHessian(NamedTuple):
    """A Hessian over all sources as one matrix, and what gives a vector over all sources their shapes."""

    matrix: Tensor
    unflatten: Callable[[Any], Any]


class Jacobians(Recording):
    """A recording that is asked for Jacobians and Hessians."""

    def jacobian(
        self,
        target: Any,
        sources: Any,
        unconnected_gradients: Any = UnconnectedGradients.NONE,
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
        *,
        mode: str = "auto",
        structured: bool = False,
        memory: Any = None,
        out: Any = None,
        progress: bool = False,
    ) -> Any:
        """The Jacobian of a target with respect to sources: all partial derivatives of all of its elements.

        The rows are computed at once, and what is zero by structure is not computed. Rows and columns are chosen
        as seeds (reverse or forward mode) by the cost of both graphs.

        Args:
          target: a tensor or variable, or a structure of them.
          sources: a tensor or variable, or a structure of them.
          unconnected_gradients: what stands for Jacobians of sources that the target does not depend on.
          parallel_iterations: how many rows are computed at once; by default all that `memory` allows.
          experimental_use_pfor: False computes one gradient per element of the target, one after the other.
          mode: "auto", "reverse" or "forward".
          memory: a budget for what is computed at once: "2GiB", bytes, or a fraction of the free memory; rows are
            computed in chunks that fit.
          out: a NumPy array (a `np.memmap` for instance) that receives the result; for a single source.
          progress: show a bar over rows.
          structured: return `gradtape.Jacobian` objects, which hold only the part that is not zero by structure.

        Returns:
          In the structure of `sources`: tensors of shape `target.shape + source.shape`, or None. For a structure of
          targets that structure, with one of these for each target.

        Raises:
          RuntimeError: the second use of a tape that is not persistent.
          ValueError: an unknown mode, or `parallel_iterations` below 1.

        >>> import gradtape as tf
        >>> x = tf.constant([1.0, 2.0])
        >>> with tf.GradientTape() as tape:
        ...     tape.watch(x)
        ...     y = x * x
        >>> print(tape.jacobian(y, x).numpy())
        [[2. 0.]
         [0. 4.]]
        """
        self._usable()
        unconnected = unconnected_of(unconnected_gradients)
        _check_rows(parallel_iterations, mode)
        self._check_loop(experimental_use_pfor)
        if self._recording and not self._persistent:
            self._pop()
        targets, of_targets = flatten(target)
        targets = [target_of(t) for t in targets]
        wanted, structure = sources_of(sources)
        how = Chunking(parallel_iterations, budget_of(memory), out, bool(progress))
        if out is not None and len(wanted) * len(targets) != 1:
            raise ValueError(
                f"`out` takes the Jacobian of one target by one source, got {len(targets)} and {len(wanted)}."
            )
        if structured and (how.is_asked or unconnected is UnconnectedGradients.ZERO):
            raise ValueError(
                "`structured=True` holds no rows: `memory`, `parallel_iterations`, `out`, `progress` and "
                "`unconnected_gradients='zero'` are for dense Jacobians. Leave them out."
            )
        if how.budget is not None and STATE.recorders:
            raise ValueError(
                "Another tape is recording and would keep what the Jacobian needs, so that `memory` cannot be kept. "
                "Leave `memory` out, or ask outside of the other tape."
            )
        answers = []
        for of in targets:
            if structured:
                results: list[Any] = self._structured(of, wanted, mode)
            else:
                results = self._jacobians(of, wanted, bool(experimental_use_pfor), mode, how)
            if unconnected is UnconnectedGradients.ZERO and not structured:
                results = [_no_rows(of, s) if g is None else g for s, g in zip(wanted, results, strict=True)]
            if out is not None and isinstance(results[0], Tensor):
                write_to(out, results[0])
            answers.append(results[0] if structure is None else optree.tree_unflatten(structure, results))
        if not self._persistent:
            self._finish()
        return answers[0] if of_targets is None else optree.tree_unflatten(of_targets, answers)

    def _jacobians(
        self, target: Any, sources: Sequence[Any], at_once: bool, mode: str, how: Chunking
    ) -> list[Tensor | None]:
        slots: dict[int, int] = self._recorder.slots if self._recorder else {}
        slot, asked = slots.get(target._id, 0), [slots.get(s._id, 0) for s in sources]
        traced = [s for s in dict.fromkeys(asked) if s > 0]
        found: dict[int, Tensor | None] = {}
        if self._recorder and slot > 0 and traced and target._aval.size == 0:
            found = dict.fromkeys(traced)
            results = [_no_rows(target, s) if a in found else None for a, s in zip(asked, sources, strict=True)]
            return list(results)
        if self._recorder and slot > 0 and traced and how.is_asked and at_once and not STATE.recorders:
            recorder = self._recorder
            return [
                chunked(recorder, target, s, mode, how) if a > 0 else None for a, s in zip(asked, sources, strict=True)
            ]
        if self._recorder and slot > 0 and traced:
            found = dict(zip(traced, self._rows(slot, target, traced, at_once, mode), strict=True))
        return [
            _identity(s) if slot <= 0 and s._id == target._id else found.get(a)
            for a, s in zip(asked, sources, strict=True)
        ]

    def _rows(self, slot: int, target: Any, traced: list[int], at_once: bool, mode: str) -> list[Tensor | None]:
        assert self._recorder is not None
        if at_once:
            return jacobians(self._recorder, slot, traced, mode=mode)
        return looped(self._recorder, target, traced)

    def _structured(self, target: Any, sources: Sequence[Any], mode: str) -> list[Any]:
        slots: dict[int, int] = self._recorder.slots if self._recorder else {}
        if self._recorder is None or slots.get(target._id, 0) <= 0:
            return [None] * len(sources)
        found = self._recorder
        return [structured_of(found, target, s, mode) if slots.get(s._id, 0) > 0 else None for s in sources]

    def plan_jacobian(
        self,
        target: Any,
        source: Any,
        *,
        mode: str = "auto",
        memory: Any = None,
        parallel_iterations: int | None = None,
    ) -> JacobianPlan:
        """How the Jacobian of a target by a source would be computed, without computing it: mode and why, structure,
        rows, chunks, multiply-adds, bytes, peak memory, steps. The arguments are those of `jacobian`.

        Raises:
          ValueError: the tape has not recorded the target, or does not watch the source.

        >>> import gradtape as tf
        >>> x = tf.constant([1.0, 2.0])
        >>> with tf.GradientTape() as tape:
        ...     tape.watch(x)
        ...     y = tf.exp(x)
        >>> tape.plan_jacobian(y, x).structure
        'a | a : (a)'
        """
        self._usable()
        _check_rows(parallel_iterations, mode)
        of = target_of(target)
        ((x,), _) = sources_of(source)
        slots: dict[int, int] = self._recorder.slots if self._recorder else {}
        if self._recorder is None or slots.get(of._id, 0) <= 0 or slots.get(x._id, 0) <= 0:
            raise ValueError("`plan_jacobian` wants a target that this tape has recorded and a source that it watches.")
        return JacobianPlan(self._recorder, of, x, mode, Chunking(parallel_iterations, budget_of(memory)))

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
        _check_rows(parallel_iterations, "auto")
        self._check_loop(experimental_use_pfor)
        if self._recording and not self._persistent:
            self._pop()
        of = target_of(target)
        wanted, structure = sources_of(source)
        axes = (batch_axes,) if isinstance(batch_axes, int) else tuple(batch_axes)
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
        slot, asked = slots.get(target._id, 0), slots.get(source._id, 0)
        if slot <= 0 or self._recorder is None:
            raise ValueError(
                "This tape has not recorded the target of `batch_jacobian`: nothing in it depends on what the tape "
                "watches, or it was computed outside the tape's block. Compute it inside the block."
            )
        found: Tensor | None = None
        if asked > 0 and target._aval.size:
            _report(independence(self._recorder, slot, asked, axes), on_dependence)
            if at_once:
                (found,) = jacobians(self._recorder, slot, [asked], batch=axes)
            else:
                (found,) = batch_looped(self._recorder, target, [asked], axes)
        if found is not None:
            return found
        batch = [target._aval.dims[k] for k in axes]
        rest = [n for x in (target, source) for k, n in enumerate(x._aval.dims) if k not in axes]
        return zeros_of((*batch, *rest), source)

    def _check_loop(self, at_once: bool) -> None:
        if not at_once and not self._persistent:
            raise RuntimeError(
                "`experimental_use_pfor=False` asks for one gradient per row, for which the tape must have been made "
                "with `persistent=True`. Leave the argument out to compute all rows at once."
            )

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


def _check_rows(parallel_iterations: int | None, mode: str) -> None:
    if parallel_iterations is not None and int(parallel_iterations) < 1:
        raise ValueError(f"`parallel_iterations` should be a positive number or None, got {parallel_iterations}.")
    if mode not in MODES:
        raise ValueError(f"`mode` should be one of {', '.join(map(repr, MODES))}, got {mode!r}.")


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


def _no_rows(target: Any, source: Any) -> Tensor:
    """A Jacobian of zeros."""
    return zeros_of((*target._aval.dims, *source._aval.dims), source)


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


def _identity(source: Any) -> Tensor | None:
    """The Jacobian of a source by itself, though the tape never saw it."""
    if not source.dtype.is_differentiable:
        return None
    dims = source._aval.dims
    eye = np.eye(source._aval.size, dtype=source.dtype.numpy_dtype).reshape(*dims, *dims)
    return wrap(eye[()], aval((*dims, *dims), source.dtype))
