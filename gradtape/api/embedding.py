"""Rows of tables at integer positions. Floor: api."""

from __future__ import annotations

from typing import Any

from gradtape.api.clipping import clip_by_norm
from gradtape.api.indexing import gather
from gradtape.api.layout import concat
from gradtape.runtime.convert import convert
from gradtape.runtime.tensor import Tensor


def embedding_lookup(params: Any, ids: Any, max_norm: Any = None, name: str | None = None) -> Tensor:
    """The rows of a table at integer positions; the gradient of the table is `tf.IndexedSlices`.

    Args:
      params: a table, or a list of tables that together are one, row after row.
      ids: integer positions, of any shape.
      max_norm: rows with a larger norm are scaled down to it.
      name: accepted for compatibility.

    Returns:
      A tensor of shape ids.shape + params.shape[1:].

    Raises:
      ValueError: an empty list of tables.
      InvalidArgumentError: a position that does not exist.

    >>> import gradtape as tf
    >>> table = tf.constant([[1.0], [2.0]])
    >>> print(tf.nn.embedding_lookup(table, [1, 1, 0]).numpy().tolist())
    [[2.0], [2.0], [1.0]]
    """
    at = convert(ids)
    rows = gather(_table(params), at, axis=0)
    return rows if max_norm is None else _clipped(rows, max_norm, at.ndim)


def _table(params: Any) -> Any:
    """One table; a list of tables joined."""
    if not isinstance(params, list | tuple):
        return params
    if not params:
        raise ValueError("`embedding_lookup` wants at least one table, got an empty list.")
    return params[0] if len(params) == 1 else concat(list(params), axis=0)


def _clipped(rows: Tensor, max_norm: Any, lead: int) -> Tensor:
    clipped: Tensor = clip_by_norm(rows, max_norm, axes=list(range(lead, rows.ndim)))
    return clipped
