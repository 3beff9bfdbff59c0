"""Index vectors: where each value of a letter stands on an axis, known while a graph is made. Floor: ir."""

from __future__ import annotations

from typing import Any

import numpy as np


class Index:
    """A vector of positions that compares and hashes by its numbers, so that it can be a static parameter."""

    __slots__ = ("_hash", "array")

    def __init__(self, positions: Any) -> None:
        array = np.ascontiguousarray(positions, np.int64)
        array.flags.writeable = False
        self.array = array
        self._hash = hash(array.tobytes())

    @property
    def step(self) -> int | None:
        """The common difference, if there is one: positions are `array[0] + step * l`. One position: 1."""
        if len(self.array) < 2:
            return 1
        steps = np.diff(self.array)
        return int(steps[0]) if (steps == steps[0]).all() else None

    @property
    def counts(self) -> bool:
        """Whether the positions are 0, 1, 2 and so on."""
        return bool((self.array == np.arange(len(self.array))).all())

    @property
    def distinct(self) -> bool:
        """No position stands there twice."""
        return len(np.unique(self.array)) == len(self.array)

    def __len__(self) -> int:
        return len(self.array)

    def __iter__(self) -> Any:
        return iter(self.array.tolist())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Index) and (self is other or np.array_equal(self.array, other.array))

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        text = ", ".join(map(str, self.array[:4])) + (", ..." if len(self.array) > 4 else "")
        return f"Index([{text}], {len(self.array)})"
