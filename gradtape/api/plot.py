"""`gradtape.plot`: pictures of Jacobians and Hessians, by Matplotlib or as text for terminals. Floor: api.

Matplotlib is imported when a picture is drawn, and not for text."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.runtime.convert import convert
from gradtape.runtime.structured import Jacobian

__all__ = ["blocks", "hessian", "jacobian", "structure"]

Matrix = np.ndarray[Any, Any]
WIDTH = 72  # characters of a text at most
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # of a braille character, by row and column


def jacobian(j: Any, *, rows: int | None = None, text: bool = False, ax: Any = None) -> Any:
    """A Jacobian as a heat map whose colours have zero in the middle: one row for each element of the target, one
    column for each of the source.

    Args:
      j: a tensor of shape `target.shape + source.shape`, or a `gradtape.Jacobian`.
      rows: how many of its axes are the target's; by default half of them.
      text: return a text in braille, with a dot where an entry is not zero.
      ax: the axes of Matplotlib's to draw in; by default the present ones.

    Returns:
      Matplotlib's axes, or the text.

    Raises:
      ValueError: a number of axes that cannot be halved, where `rows` is not given.

    >>> import gradtape as tf
    >>> print(tf.plot.jacobian(tf.eye(8), text=True))
    ⠑⢄⠀⠀
    ⠀⠀⠑⢄
    """
    return _drawn(_matrix(j, rows, "jacobian"), text, ax, "source", "target")


def hessian(h: Any, *, text: bool = False, ax: Any = None) -> Any:
    """A Hessian as a square heat map whose colours have zero in the middle.

    Args:
      h: a tensor of shape `source.shape + source.shape`, or what `tape.hessian(..., flat=True)` gives.
      text, ax: as for `jacobian`.

    Returns:
      Matplotlib's axes, or the text.

    Raises:
      ValueError: it is not square.

    >>> import gradtape as tf
    >>> print(tf.plot.hessian(tf.ones([4, 4]), text=True))
    ⣿⣿
    """
    matrix = _matrix(getattr(h, "matrix", h), None, "hessian")
    if matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"`hessian` wants as many rows as columns, got {matrix.shape}. Use `jacobian`.")
    return _drawn(matrix, text, ax, "parameter", "parameter")


def blocks(j: Any, *, text: bool = False, ax: Any = None) -> Any:
    """A Jacobian over a batch as patches: one for each pair of an output and an input, each of shape (batch, batch).
    Where examples are independent, all patches are diagonal.

    Args:
      j: a tensor of shape (batch, outputs, batch, inputs).
      text, ax: as for `jacobian`.

    Returns:
      Matplotlib's axes, or the text.

    Raises:
      ValueError: another number of axes.

    >>> import gradtape as tf
    >>> j = tf.einsum("ab,oi->aobi", tf.eye(4), tf.ones([1, 3]))
    >>> print(tf.plot.blocks(j, text=True))
    ⠑⢄⠀⠑⢄⠀⠑⢄
    """
    array = _array(j)
    if array.ndim != 4:
        raise ValueError(f"`blocks` wants shape (batch, outputs, batch, inputs), got {array.shape}. Use `jacobian`.")
    patches = array.transpose(1, 0, 3, 2)
    below, beside, edge = (4, 2, 0.0) if text else (1, 1, -_limit(array))
    patches = np.pad(patches, [(0, 0), (0, below), (0, 0), (0, beside)], constant_values=edge)
    a, b, c, d = patches.shape
    return _drawn(patches.reshape(a * b, c * d)[:-below, :-beside], text, ax, "input, example", "output, example")


def structure(j: Any, *, text: bool = False, ax: Any = None) -> Any:
    """Which entries of a structured Jacobian can be other than zero, black on white.

    Args:
      j: what `tape.jacobian(..., structured=True)` gives.
      text, ax: as for `jacobian`.

    Returns:
      Matplotlib's axes, or the text, with the structure's spelling above.

    Raises:
      TypeError: a tensor, which does not know its structure.

    >>> import gradtape as tf
    >>> x = tf.constant([0.1, 0.2, 0.3, 0.4])
    >>> with tf.GradientTape() as tape:
    ...     tape.watch(x)
    ...     y = tf.sin(x)
    >>> print(tf.plot.structure(tape.jacobian(y, x, structured=True), text=True))
    a | a : (a)
    ⠑⢄
    """
    if not isinstance(j, Jacobian):
        raise TypeError(
            f"`structure` wants a Jacobian that was asked for with `structured=True`, got {type(j).__name__}."
            " Use `jacobian`."
        )
    pattern = np.asarray(j.pattern()).reshape(j.target_shape.num_elements(), -1)
    if text:
        return f"{j.structure}\n{braille(pattern)}"
    ax = _axes(ax)
    ax.imshow(pattern, cmap="gray_r", vmin=0, vmax=1, interpolation="nearest", aspect="auto")
    ax.set(xlabel="source", ylabel="target", title=j.structure)
    return ax


def _array(j: Any) -> Matrix:
    array = np.asarray(j.dense() if isinstance(j, Jacobian) else convert(j))
    return np.abs(array) if array.dtype.kind == "c" else array.astype(np.float64)


def _matrix(j: Any, rows: int | None, who: str) -> Matrix:
    array = _array(j)
    if rows is None and isinstance(j, Jacobian):
        rows = j.target_shape.rank
    if rows is None and array.ndim % 2:
        raise ValueError(
            f"`{who}` got shape {array.shape}, whose axes cannot be halved into those of a target and of a source. Say "
            "how many are the target's with `rows=`."
        )
    count = array.ndim // 2 if rows is None else rows
    height = int(np.prod(array.shape[:count]))
    return array.reshape(height, array.size // max(height, 1))


def _limit(array: Matrix) -> float:
    """The largest finite size, or 1 where there is none above 0."""
    finite = np.abs(array[np.isfinite(array)])
    return float(finite.max()) if finite.size and finite.max() > 0 else 1.0


def _axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as e:
        raise ImportError("Pictures want Matplotlib: `pip install matplotlib`, or `text=True` for terminals.") from e
    return plt.gca()


def _drawn(matrix: Matrix, text: bool, ax: Any, across: str, down: str) -> Any:
    if text:
        return braille(~(matrix == 0))
    ax, limit = _axes(ax), _limit(matrix)
    picture = ax.imshow(matrix, vmin=-limit, vmax=limit, cmap="seismic", interpolation="nearest", aspect="auto")
    ax.figure.colorbar(picture, ax=ax)
    ax.set(xlabel=across, ylabel=down)
    return ax


def braille(marks: Matrix) -> str:
    """A matrix of truth values in braille, two columns and four rows a character. A matrix that is too wide is made
    smaller: a dot stands for a square of entries, and is there if one of them is."""
    factor = max(1, -(-marks.shape[1] // (2 * WIDTH)))
    height, width = (-(-n // (k * factor)) for n, k in zip(marks.shape, (4, 2), strict=True))
    whole = np.zeros((height * 4 * factor, width * 2 * factor), bool)
    whole[: marks.shape[0], : marks.shape[1]] = marks
    dots = whole.reshape(height, 4, factor, width, 2, factor).any(axis=(2, 5))
    codes = (dots * np.array(DOTS)[None, :, None, :]).sum(axis=(1, 3))
    return "\n".join("".join(chr(0x2800 + int(c)) for c in row) for row in codes)
