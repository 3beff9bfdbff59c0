"""Sample and error inputs that declarations carry, from which the table-driven tests are made. Floor: ops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np


class Spec(NamedTuple):
    """One array operand: its shape, the interval its values come from, and what is special about it."""

    shape: tuple[int, ...]
    domain: tuple[float, float] = (-2.0, 2.0)
    dtype: str = "float"  # "float" (the dtype under test), "int", "uint64" or "bool"
    avoid: tuple[float, ...] = ()  # places where the op has a kink or a jump
    structure: str = ""  # of matrices: "general", "regular" (far from singular), "positive" (Hermitian definite)

    def draw(self, rng: np.random.Generator) -> np.ndarray[Any, Any]:
        """Values in float64 (or int64, bool), at least 0.05 away from kinks so that differences stay inside."""
        low, high = self.domain
        if self.dtype == "bool":
            return rng.random(self.shape) < 0.5
        if self.dtype == "uint64":
            return rng.integers(int(low), int(high), self.shape).astype(np.uint64)
        if self.dtype == "int":
            return rng.integers(int(low), int(high), self.shape)
        margin = 0.02 * (high - low)
        values = np.asarray(rng.uniform(low + margin, high - margin, self.shape))
        for place in self.avoid:
            near = np.abs(values - place) < 0.05
            values = np.where(near, place + 0.1, values)
        return values

    @property
    def is_hermitian(self) -> bool:
        """The operand stays a Hermitian matrix: whoever moves an element moves the one across the diagonal."""
        return self.structure == "positive"

    def structured(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Drawn values (by now complex, perhaps) as matrices of the declared structure."""
        if self.structure in ("", "general"):
            return values
        unit = np.eye(*values.shape[-2:])
        if self.structure == "regular":
            return np.asarray(values + 2 * unit)
        return np.asarray(values @ np.conj(np.swapaxes(values, -1, -2)) + unit)


@dataclass(frozen=True)
class Sample:
    """Operands and static parameters for which an op must be right."""

    specs: tuple[Spec, ...]
    params: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class BadSample:
    """Operands that must be refused: shapes and dtypes, parameters, the error's type and a part of its text."""

    operands: tuple[tuple[tuple[int, ...], str], ...]
    error: type[Exception]
    says: str
    params: Mapping[str, Any] = field(default_factory=dict)
