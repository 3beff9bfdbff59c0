"""`jacobian` and its plans: the questions for all rows of a target. Floor: tape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import optree

from gradtape.batch_jacobians import BatchJacobians
from gradtape.hessians import Hessians
from gradtape.ir.aval import aval
from gradtape.questions import check_loop, check_rows
from gradtape.recording import (
    UnconnectedGradients,
    flatten,
    slot_of,
    sources_of,
    target_of,
    unconnected_of,
)
from gradtape.runtime.chunk_loops import chunks_in_loop
from gradtape.runtime.chunks import Chunking, budget_of, chunked, write_to
from gradtape.runtime.jacobian import jacobians, looped, zeros_of
from gradtape.runtime.plans import JacobianPlan
from gradtape.runtime.state import STATE
from gradtape.runtime.structured import structured as structured_of
from gradtape.runtime.tensor import NoPartsError, SymbolicTensor, Tensor, wrap
from gradtape.runtime.trace import function_tracer


class Jacobians(BatchJacobians, Hessians):
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
          parallel_iterations: how many rows are computed at once; by default all that `memory` allows. A traced
            function computes all of them, and shows no bar.
          experimental_use_pfor: False computes one gradient per element of the target, one after the other.
          mode: "auto", "reverse" or "forward".
          memory: a budget for what is computed at once: "2GiB", bytes, or a fraction of the free memory; rows are
            computed in chunks that fit. In a traced function that is a loop of the graph, where rows go along the
            first axis of the target in equal parts; else, and with `out`, the function runs op by op.
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
        check_rows(parallel_iterations, mode)
        check_loop(bool(experimental_use_pfor), self._persistent)
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
        slot, asked = slots.get(target._id, 0), [slot_of(slots, s) for s in sources]
        traced = [s for s in dict.fromkeys(asked) if s > 0]
        found: dict[int, Tensor | None] = {}
        if self._recorder and slot > 0 and traced and target._aval.size == 0:
            found = dict.fromkeys(traced)
            results = [_no_rows(target, s) if a in found else None for a, s in zip(asked, sources, strict=True)]
            return list(results)
        if STATE.overrides is not None and STATE.overrides.op_by_op:
            at_once = False
        if isinstance(target, SymbolicTensor):
            alone = bool(STATE.tracers) and function_tracer() is STATE.tracers[-1] and not STATE.recorders
            if how.budget is not None and how.out is None and at_once and alone and self._recorder and slot > 0:
                recorder, each = self._recorder, zip(asked, sources, strict=True)
                return [chunks_in_loop(recorder, target, s, mode, how) if a > 0 else None for a, s in each]
            if how.budget is not None or how.out is not None:
                raise NoPartsError(
                    "`out`, and `memory` in a map, are for Jacobians that are computed at once: no graph writes to an "
                    "array from outside. Leave them out, or ask outside of functions that are traced."
                )
            how = Chunking()  # how many rows at a time is a hint
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
        return [structured_of(found, target, s, mode) if slot_of(slots, s) > 0 else None for s in sources]

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
          ValueError: the tape has not recorded the target, does not watch the source, or there are several sources.

        >>> import gradtape as tf
        >>> x = tf.constant([1.0, 2.0])
        >>> with tf.GradientTape() as tape:
        ...     tape.watch(x)
        ...     y = tf.exp(x)
        >>> tape.plan_jacobian(y, x).structure
        'a | a : (a)'
        """
        self._usable()
        check_rows(parallel_iterations, mode)
        of = target_of(target)
        sources, _ = sources_of(source)
        if len(sources) != 1:
            raise ValueError(f"`plan_jacobian` takes one source, got {len(sources)}. Ask for the plan of each.")
        (x,) = sources
        slots: dict[int, int] = self._recorder.slots if self._recorder else {}
        if self._recorder is None or slots.get(of._id, 0) <= 0 or slots.get(x._id, 0) <= 0:
            raise ValueError("`plan_jacobian` wants a target that this tape has recorded and a source that it watches.")
        return JacobianPlan(self._recorder, of, x, mode, Chunking(parallel_iterations, budget_of(memory)))


def _no_rows(target: Any, source: Any) -> Tensor:
    """A Jacobian of zeros."""
    return zeros_of((*target._aval.dims, *source._aval.dims), source)


def _identity(source: Any) -> Tensor | None:
    """The Jacobian of a source by itself, though the tape never saw it."""
    if not source.dtype.is_differentiable:
        return None
    dims = source._aval.dims
    eye = np.eye(source._aval.size, dtype=source.dtype.numpy_dtype).reshape(*dims, *dims)
    return wrap(eye[()], aval((*dims, *dims), source.dtype))
