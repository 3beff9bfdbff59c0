"""Where the diagonals of a band stand in matrices, and where in the rows that hold them. Floor: api."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gradtape.api.arguments import integers
from gradtape.ir.errors import InvalidArgumentError

ALIGNS = ("RIGHT_LEFT", "LEFT_RIGHT", "LEFT_LEFT", "RIGHT_RIGHT")


@dataclass(frozen=True)
class Band:
    """The diagonals `low` to `high` of matrices (rows, columns).

    They are kept as rows from the highest diagonal down, each as long as the longest; `align` says for those above the
    main one and for those below it on which side of their row shorter ones stand. A main diagonal has the length of
    the longest, so that its side does not matter."""

    low: int
    high: int
    rows: int
    columns: int
    align: str

    @property
    def count(self) -> int:
        return self.high - self.low + 1

    @property
    def length(self) -> int:
        """Of the longest diagonal."""
        return min(self.rows + min(self.high, 0), self.columns - max(self.low, 0))

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the rows that hold the diagonals; one diagonal alone is a vector."""
        return (self.length,) if self.count == 1 else (self.count, self.length)

    def inside(self) -> Any:
        """Which elements of a matrix belong to the band."""
        offsets = self._offsets()
        return (offsets >= self.low) & (offsets <= self.high)

    def places(self) -> Any:
        """For each element of a matrix its place among the flattened rows of diagonals; -1 outside the band."""
        offsets = self._offsets()
        along = np.arange(self.columns) - np.maximum(offsets, 0) + self._shift(offsets)
        return np.where(self.inside(), (self.high - offsets) * self.length + along, -1)

    def elements(self) -> Any:
        """For each place in the rows of diagonals its element of the flattened matrix; -1 where it is padding."""
        offsets = np.arange(self.high, self.low - 1, -1)[:, None]
        along = np.arange(self.length) - self._shift(offsets)
        row, column = along + np.maximum(-offsets, 0), along + np.maximum(offsets, 0)
        found = (along >= 0) & (row < self.rows) & (column < self.columns)
        return np.where(found, row * self.columns + column, -1).reshape(self.shape)

    def _offsets(self) -> Any:
        """How far right of the main diagonal each element lies."""
        return np.arange(self.columns) - np.arange(self.rows)[:, None]

    def _shift(self, offsets: Any) -> Any:
        """How far from the start of its row a diagonal begins."""
        above, below = self.align.split("_")
        right = np.where(offsets > 0, above == "RIGHT", below == "RIGHT")
        lengths = np.minimum(self.rows + np.minimum(offsets, 0), self.columns - np.maximum(offsets, 0))
        return np.where(right, self.length - lengths, 0)


def band_of(k: Any, rows: int, columns: int, align: str, name: str) -> Band:
    """The band of matrices of a given size.

    Raises:
      InvalidArgumentError: diagonals that the matrices do not have, or an alignment that does not exist.
    """
    low, high = limits(k, align, name)
    for d in (low, high):
        if not -rows < d < columns and d:
            raise InvalidArgumentError(
                f"`{name}` got `k` = {d}; matrices of shape ({rows}, {columns}) have diagonals {1 - rows} to "
                f"{columns - 1}."
            )
    return Band(low, high, rows, columns, align)


def limits(k: Any, align: str, name: str) -> tuple[int, int]:
    """The lowest and the highest diagonal, from one number or two."""
    if align not in ALIGNS:
        raise InvalidArgumentError(f"`{name}` takes an `align` of {', '.join(map(repr, ALIGNS))}, got {align!r}.")
    numbers = integers(k, "k")
    if len(numbers) not in (1, 2) or numbers[0] > numbers[-1]:
        raise InvalidArgumentError(
            f"`{name}` takes one diagonal `k`, or the lowest and the highest of a band, got {list(numbers)}."
        )
    return numbers[0], numbers[-1]


def band_around(k: Any, shape: tuple[int, ...], size: tuple[int, int], align: str) -> Band:
    """The band of matrices that rows of diagonals make up; sizes of -1 are the least that fit, in square matrices
    where neither is given.

    Raises:
      InvalidArgumentError: as many rows as there are no diagonals, or sizes of matrices in which none of the diagonals
        is whole.
    """
    low, high = limits(k, align, "diag")
    n = shape[-1]
    if low < high and (len(shape) < 2 or shape[-2] != high - low + 1):
        raise InvalidArgumentError(
            f"`diag` wants one row for each of the {high - low + 1} diagonals from {low} to {high}, got shape {shape}."
        )
    least = (n - min(high, 0), n + max(low, 0))
    usual = (max(least),) * 2 if size == (-1, -1) else least
    rows, columns = (u if m == -1 else m for m, u in zip(size, usual, strict=True))
    if rows < least[0] or columns < least[1] or (rows > least[0] and columns > least[1]):
        raise InvalidArgumentError(
            f"`diag` got {n} elements for `k` = {low if low == high else (low, high)}, which are no whole diagonal of "
            f"matrices of shape ({rows}, {columns})."
        )
    return Band(low, high, rows, columns, align)
