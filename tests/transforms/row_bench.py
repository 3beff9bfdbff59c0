"""Operands with numbers, and dense arrays of rows over them: what the tests of the algebra share."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.ir.aval import aval
from gradtape.ir.dtypes import float64, int64
from gradtape.ir.graph import Graph, Value
from gradtape.transforms.rows.builder import Builder
from gradtape.transforms.rows.leaving import dense
from gradtape.transforms.rows.terms import Rows, Term, normal, rows_of
from tests.op_table.running import compiled


class Bench:
    """Operands with numbers, and dense arrays of rows over them."""

    def __init__(self) -> None:
        self.b = Builder()
        self.inputs: list[Value] = []
        self.arrays: list[Any] = []
        self.rng = np.random.default_rng(0)

    def operand(self, *shape: int) -> Value:
        return self.given(np.asarray(self.rng.integers(1, 5, shape).astype(np.float64)))

    def given(self, array: Any) -> Value:
        v = Value(aval(array.shape, int64 if array.dtype.kind == "i" else float64))
        self.inputs.append(v)
        self.arrays.append(array[()])
        return v

    def array(self, v: Value) -> np.ndarray:
        for i, a in zip(self.inputs, self.arrays, strict=True):
            if i is v:
                return np.asarray(a)
        raise AssertionError("no operand")

    def read(self, rows: Rows) -> np.ndarray:
        return self.value(dense(self.b, rows))

    def value(self, v: Value) -> np.ndarray:
        return np.asarray(compiled(Graph(self.inputs, [v]))(*self.arrays)[0])

    def term(self, t: Term, rows: tuple[int, ...], shape: tuple[int, ...]) -> Rows:
        return rows_of([normal(self.b, t, float64)], rows, shape, float64)
