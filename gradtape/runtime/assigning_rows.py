"""Methods of variables that combine rows or elements into the value at positions, or read them there. Floor:
runtime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from gradtape.runtime.tensor import Tensor

# By name, what the floor above makes of a value: `gather` and `gather_nd` read, the others give the value with updates
# at rows of positions.
AT_POSITIONS: dict[str, Callable[..., Tensor]] = {}


class RowAssigning:
    """The base of what can be assigned to."""

    def _scatter(self, how: str, delta: Any) -> Self:
        raise NotImplementedError

    def _updated(self, update: Callable[[Tensor], Any]) -> Self:
        """Assign what becomes of the value, which no other thread changes meanwhile."""
        raise NotImplementedError

    # ------------------------------------------------------------------ rows

    def scatter_add(self, sparse_delta: Any, use_locking: bool = False, name: str | None = None) -> Self:
        """Add the rows of `tf.IndexedSlices`; rows at one position add up.

        Raises:
          TypeError: what is no `IndexedSlices`, or is of another dtype.
          InvalidArgumentError: positions that do not exist, or rows of another shape.

        >>> import gradtape as tf
        >>> v = tf.Variable([1.0, 1.0])
        >>> print(v.scatter_add(tf.IndexedSlices([2.0, 3.0], [1, 1])).numpy())
        [1. 6.]
        """
        return self._scatter("add", sparse_delta)

    def scatter_sub(self, sparse_delta: Any, use_locking: bool = False, name: str | None = None) -> Self:
        """Subtract the rows of `tf.IndexedSlices`; rows at one position add up. Errors as of `scatter_add`."""
        return self._scatter("subtract", sparse_delta)

    def scatter_mul(self, sparse_delta: Any, use_locking: bool = False, name: str | None = None) -> Self:
        """Multiply rows by those of `tf.IndexedSlices`. Errors as of `scatter_add`."""
        return self._scatter("multiply", sparse_delta)

    def scatter_div(self, sparse_delta: Any, use_locking: bool = False, name: str | None = None) -> Self:
        """Divide rows by those of `tf.IndexedSlices`. Errors as of `scatter_add`."""
        return self._scatter("divide", sparse_delta)

    def scatter_max(self, sparse_delta: Any, use_locking: bool = False, name: str | None = None) -> Self:
        """Raise rows to those of `tf.IndexedSlices`. Errors as of `scatter_add`."""
        return self._scatter("maximum", sparse_delta)

    def scatter_min(self, sparse_delta: Any, use_locking: bool = False, name: str | None = None) -> Self:
        """Lower rows to those of `tf.IndexedSlices`. Errors as of `scatter_add`."""
        return self._scatter("minimum", sparse_delta)

    def scatter_update(self, sparse_delta: Any, use_locking: bool = False, name: str | None = None) -> Self:
        """Replace rows by those of `tf.IndexedSlices`; of several for one position the last one stays. Errors as
        of `scatter_add`."""
        return self._scatter("assign", sparse_delta)

    # ------------------------------------------------------------------ elements and slices at rows of positions

    def scatter_nd_add(self, indices: Any, updates: Any, name: str | None = None) -> Self:
        """Add updates at rows of positions, the last axis of `indices`; what meets at one place adds up.

        Raises:
          InvalidArgumentError: positions that do not exist, or updates of another shape.

        >>> import gradtape as tf
        >>> v = tf.Variable([1.0, 2.0, 3.0])
        >>> print(v.scatter_nd_add([[0], [2]], [10.0, 20.0]).numpy())
        [11.  2. 23.]
        """
        return self._at_positions("add", indices, updates)

    def scatter_nd_sub(self, indices: Any, updates: Any, name: str | None = None) -> Self:
        """Subtract updates at rows of positions. Errors as of `scatter_nd_add`."""
        return self._at_positions("subtract", indices, updates)

    def scatter_nd_update(self, indices: Any, updates: Any, name: str | None = None) -> Self:
        """Put updates at rows of positions; of several for one place the last one stays. Errors as of
        `scatter_nd_add`."""
        return self._at_positions("assign", indices, updates)

    def scatter_nd_max(self, indices: Any, updates: Any, name: str | None = None) -> Self:
        """Raise what is at rows of positions to the updates. Errors as of `scatter_nd_add`."""
        return self._at_positions("maximum", indices, updates)

    def scatter_nd_min(self, indices: Any, updates: Any, name: str | None = None) -> Self:
        """Lower what is at rows of positions to the updates. Errors as of `scatter_nd_add`."""
        return self._at_positions("minimum", indices, updates)

    def _at_positions(self, how: str, indices: Any, updates: Any) -> Self:
        return self._updated(lambda value: AT_POSITIONS[how](value, indices, updates))

    def gather_nd(self, indices: Any, name: str | None = None) -> Tensor:
        """What is at rows of positions: `tf.gather_nd` of the value.

        Raises:
          InvalidArgumentError: positions that do not exist.
        """
        return AT_POSITIONS["gather_nd"](self, indices)

    def sparse_read(self, indices: Any, name: str | None = None) -> Tensor:
        """The rows at positions: `tf.gather` of the value.

        Raises:
          InvalidArgumentError: positions that do not exist.

        >>> import gradtape as tf
        >>> print(tf.Variable([1.0, 2.0, 3.0]).sparse_read([2, 0]).numpy())
        [3. 1.]
        """
        return AT_POSITIONS["gather"](self, indices)
