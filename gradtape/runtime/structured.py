"""Jacobians that hold only what is not zero by structure. Floor: runtime."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from gradtape.ir.dtypes import float32
from gradtape.ir.graph import Graph, Value
from gradtape.ir.shapes import shape_text, size_of
from gradtape.ops.layout import TRANSPOSE
from gradtape.runtime.backward import PROGRAMS
from gradtape.runtime.compiled import CompiledGraph
from gradtape.runtime.convert import convert
from gradtape.runtime.dispatch import unary
from gradtape.runtime.jacobian import Choice, chosen
from gradtape.runtime.pullback import Backward, Reads, traced_backward
from gradtape.runtime.record import Path, Recorder
from gradtape.runtime.tensor import Tensor
from gradtape.runtime.trie import TrieNode
from gradtape.transforms.rows.builder import Builder
from gradtape.transforms.rows.leaving import dense
from gradtape.transforms.rows.products import (
    batch_blocks,
    described,
    diagonal_of,
    entries,
    nonzeros,
    pattern,
    row_squares,
    running,
    times_vector,
)
from gradtape.transforms.rows.terms import Rows, Term
from gradtape.transforms.vectorize import swapped


class StructuredProgram:
    """The structured Jacobian of one slot by one other, and the graphs that were asked of it so far."""

    def __init__(self, backward: Backward, mode: str) -> None:
        self.used = False
        self.backward = backward
        (pulled,), (x,) = backward.pulled, backward.xs
        self.choice: Choice | None = None
        if pulled is not None and not backward.rules:
            self.choice = chosen(pulled, backward.y, x, backward.cotangent, backward.given, mode)
        self.graphs: dict[str, tuple[Reads, CompiledGraph]] = {}

    def answer(
        self, name: str, make: Callable[[Builder, Rows], list[Value]], saved: list[Tensor], *vectors: Tensor
    ) -> list[Tensor]:
        """The results of a graph over residuals (and vectors), made once per question."""
        assert self.choice is not None
        if name not in self.graphs:
            inputs = [Value(t._aval) for t in vectors]
            outputs = make(self.choice.builder, self.choice.rows, *inputs)
            reads = self.backward.reads(outputs)
            self.graphs[name] = (reads, self.backward.compiler(Graph([*reads.values, *inputs], outputs)))
        reads, compiled = self.graphs[name]
        return compiled([*reads.tensors(saved), *vectors])


class Jacobian:
    """A Jacobian of shape `target.shape + source.shape` of which only the part that is not zero by structure exists.

    `tape.jacobian(y, x, structured=True)` makes it. It answers questions without being written out; `dense()`
    writes it out. The residuals of the tape are kept as long as it lives."""

    def __init__(self, program: StructuredProgram, saved: list[Tensor], target: Any, source: Any) -> None:
        assert program.choice is not None
        self._program, self._saved = program, saved
        self._rows = program.choice.rows
        self.target_shape = target.shape
        self.source_shape = source.shape
        self.dtype = source.dtype

    @property
    def shape(self) -> Any:
        """The shape of the dense Jacobian: the target's axes, then the source's."""
        return self.target_shape.concatenate(self.source_shape)

    @property
    def nnz(self) -> int:
        """How many entries can be other than zero, counted by structure."""
        return min(nonzeros(self._rows), size_of(self._rows.rows + self._rows.shape))

    @property
    def structure(self) -> str:
        """The structure as text, one term a line: `target axes | source axes : factors`; axes that share a letter
        are zero unless their indices agree."""
        return described(self._rows)

    def dense(self) -> Tensor:
        """The whole Jacobian as a tensor."""
        choice = self._program.choice
        assert choice is not None
        return self._ask("dense", lambda b, v: [choice.dense])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """For NumPy: the dense Jacobian."""
        return np.asarray(self.dense(), dtype)

    def pattern(self) -> Tensor:
        """Of the dense Jacobian's shape: whether an entry can be other than zero, by structure."""

        def places(b: Builder, v: Rows) -> list[Value]:
            ones = Rows(tuple(Term((), t.rows, t.own) for t in v.terms), v.rows, v.shape, float32)
            return [b.emit("not_equal", dense(b, ones), b.constant(0, float32))]

        return self._ask("pattern", places)

    def diagonal(self) -> Tensor:
        """J[i, i]: of the source's shape.

        Raises:
          ValueError: target and source differ in shape.
        """
        if self._rows.rows != self._rows.shape:
            raise ValueError(
                f"Only a Jacobian of equal target and source shapes has a diagonal, got {self.target_shape} and "
                f"{self.source_shape}."
            )
        return self._ask("diagonal", lambda b, v: [diagonal_of(b, v)])

    def blocks(self) -> Tensor:
        """The blocks J[i, :, i, :] of a Jacobian over a batch: shape (batch, rest of target, rest of source).

        Raises:
          ValueError: target and source have no common first dimension.
        """
        rows, own = self._rows.rows, self._rows.shape
        if not rows or not own or rows[0] != own[0]:
            raise ValueError(
                f"Blocks want one first dimension, got shapes {self.target_shape} and {self.source_shape}."
            )
        return self._ask("blocks", lambda b, v: [batch_blocks(b, v)])

    def row_norms(self) -> Tensor:
        """The Euclidean norm of each row J[i, ...], of the target's shape, without writing rows out where a row is
        one product of factors."""
        squares = self._ask("row_squares", lambda b, v: [row_squares(b, v)])
        return squares**0.5

    def __matmul__(self, vector: Any) -> Tensor:
        """J @ vector: the vector has the source's shape, the result the target's."""
        return self._times(self._vector(vector, self.source_shape), transposed=False)

    @property
    def T(self) -> TransposedJacobian:
        """The transpose: `J.T @ u` takes a vector of the target's shape."""
        return TransposedJacobian(self)

    def to_scipy(self, linear: bool = False) -> Any:
        """The Jacobian as a SciPy matrix of shape (target size, source size): CSR, or with `linear` a LinearOperator.
        Half types, which SciPy does not know, become float32.

        Raises:
          ImportError: SciPy is not installed.
        """
        import scipy.sparse

        size = (size_of(self._rows.rows), size_of(self._rows.shape))
        own = np.promote_types(self.dtype.as_numpy_dtype, np.float32)
        if linear:
            import scipy.sparse.linalg

            return scipy.sparse.linalg.LinearOperator(
                size,
                matvec=lambda v: np.asarray(self @ v.reshape(self.source_shape.as_tuple()), own).reshape(-1),
                rmatvec=lambda u: np.conj(
                    np.asarray(self.T @ np.conj(u).reshape(self.target_shape.as_tuple()), own)
                ).reshape(-1),
                dtype=own,
            )
        answers = [np.asarray(a) for a in self._answers("entries", lambda b, v: [*entries(b, v), *running(v)])]
        terms = len(self._rows.terms)
        where = pattern(self._rows, answers[terms:])
        flat = [np.zeros(0, own), *(v.reshape(-1).astype(own) for v in answers[:terms])]
        return scipy.sparse.csr_matrix((np.concatenate(flat), where), shape=size)

    def _vector(self, vector: Any, shape: Any) -> Tensor:
        t = convert(vector, None if isinstance(vector, Tensor) else self.dtype)
        if t.shape != shape or t.dtype is not self.dtype:
            raise ValueError(
                f"The vector should have shape {shape} and dtype {self.dtype.name}, got {t.shape} and {t.dtype.name}."
            )
        return t

    def _times(self, vector: Tensor, transposed: bool) -> Tensor:
        def make(b: Builder, v: Rows, x: Value) -> list[Value]:
            return [times_vector(b, swapped(v) if transposed else v, x)]

        return self._ask("rmatvec" if transposed else "matvec", make, vector)

    def _ask(self, name: str, make: Any, *vectors: Tensor) -> Tensor:
        return self._answers(name, make, *vectors)[0]

    def _answers(self, name: str, make: Any, *vectors: Tensor) -> list[Tensor]:
        return self._program.answer(name, make, self._saved, *vectors)

    def __repr__(self) -> str:
        terms = self.structure.replace("\n", " + ")
        return f"<Jacobian shape={shape_text(self._rows.rows + self._rows.shape)}, nnz={self.nnz}, structure={terms}>"


class TransposedJacobian:
    """The transpose of a structured Jacobian."""

    def __init__(self, of: Jacobian) -> None:
        self._of = of

    @property
    def T(self) -> Jacobian:
        return self._of

    @property
    def shape(self) -> Any:
        """The source's axes, then the target's."""
        return self._of.source_shape.concatenate(self._of.target_shape)

    def dense(self) -> Tensor:
        """The whole transpose as a tensor."""
        rows = len(self._of._rows.rows)
        whole = self._of.dense()
        every = range(len(whole._aval.dims))
        return unary(TRANSPOSE.bind(perm=(*every[rows:], *every[:rows])), whole)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """For NumPy: the dense transpose."""
        return np.asarray(self.dense(), dtype)

    def __matmul__(self, vector: Any) -> Tensor:
        of = self._of
        return of._times(of._vector(vector, of.target_shape), transposed=True)


def structured(recorder: Recorder, target: Any, source: Any, mode: str) -> Jacobian | None:
    """The structured Jacobian of a recorded target; None where it does not depend on the source."""
    program = structured_program(recorder, recorder.slots[target._id], recorder.slots[source._id], mode)
    if program.choice is None:
        return None
    return Jacobian(program, list(recorder.saved), target, source)


def structured_program(recorder: Recorder, target: int, source: int, mode: str) -> StructuredProgram:
    """The program of a structured Jacobian, from the cache; with custom rules on the way, made for this call."""
    node = recorder.node
    make: Any = functools.partial(_cached, node, target, source, mode)
    found: Any = PROGRAMS.find(node, ("structured", target, source, mode), make)
    program: StructuredProgram = found
    rules = program.backward.rules
    if not rules:
        return program
    return StructuredProgram(traced_backward(recorder, rules, target, (source,), mode == "forward"), mode)


def _cached(end: TrieNode, target: int, source: int, mode: str) -> StructuredProgram:
    return StructuredProgram(Backward(Path(end, {}), target, (source,)), mode)
