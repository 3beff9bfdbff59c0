"""Discrete Fourier transforms. Floor: api."""

from __future__ import annotations

from typing import Any

from gradtape.api.arguments import integers
from gradtape.api.layout import pad
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.shapes import shape_text
from gradtape.ops.fourier import FFT, IRFFT, RFFT
from gradtape.ops.layout import TRANSPOSE
from gradtape.runtime.convert import convert
from gradtape.runtime.dispatch import unary
from gradtape.runtime.tensor import Tensor

__all__ = ["fft", "fft2d", "ifft", "ifft2d", "irfft", "irfft2d", "rfft", "rfft2d"]


def fft(input: Any, name: str | None = None) -> Tensor:
    """The Fourier transform along the last axis: y_k = Σ x_j exp(-2πi jk / n).

    Args:
      input: a complex tensor (..., n).
      name: accepted for compatibility.

    Raises:
      InvalidArgumentError: a scalar, or a tensor that is not complex.

    >>> import gradtape as tf
    >>> print(tf.signal.fft([1 + 0j, 0j]).numpy())
    [1.+0.j 1.+0.j]
    """
    return unary(FFT.bind(inverse=False), convert(input))


def ifft(input: Any, name: str | None = None) -> Tensor:
    """The inverse of `fft`: x_j = Σ y_k exp(2πi jk / n) / n.

    Raises:
      InvalidArgumentError: a scalar, or a tensor that is not complex.

    >>> import gradtape as tf
    >>> print(tf.signal.ifft([1 + 0j, 1 + 0j]).numpy())
    [1.+0.j 0.+0.j]
    """
    x = unary(FFT.bind(inverse=True), convert(input))
    return x / max(x._aval.dims[-1], 1)


def rfft(input_tensor: Any, fft_length: Any = None, name: str | None = None) -> Tensor:
    """The first n // 2 + 1 numbers of the Fourier transform of real numbers along the last axis.

    Args:
      input_tensor: a float32 or float64 tensor (..., m).
      fft_length: [n], by default m; the input is cut, or filled up with zeros, to this size.
      name: accepted for compatibility.

    Returns:
      A complex tensor (..., n // 2 + 1).

    Raises:
      InvalidArgumentError: a scalar, another dtype, or a length below 1.

    >>> import gradtape as tf
    >>> print(tf.signal.rfft([1.0, 0.0, 0.0]).numpy())
    [1.+0.j 1.+0.j]
    """
    x = _with_axes(input_tensor, 1, "rfft")
    (n,) = _lengths(fft_length, x._aval.dims[-1:], "rfft")
    return unary(RFFT.bind(), _fitted(x, -1, n))


def irfft(input_tensor: Any, fft_length: Any = None, name: str | None = None) -> Tensor:
    """The inverse of `rfft`: n real numbers from the first n // 2 + 1 of their transform.

    Args:
      input_tensor: a complex tensor (..., m).
      fft_length: [n], by default 2 (m - 1); the input is cut, or filled up with zeros, to n // 2 + 1.
      name: accepted for compatibility.

    Returns:
      A real tensor (..., n).

    Raises:
      InvalidArgumentError: a scalar, a tensor that is not complex, or a length below 1.

    >>> import gradtape as tf
    >>> print(tf.signal.irfft([1 + 0j, 1 + 0j], [3]).numpy().round(5))
    [1. 0. 0.]
    """
    x = _with_axes(input_tensor, 1, "irfft")
    (n,) = _lengths(fft_length, (2 * (x._aval.dims[-1] - 1),), "irfft")
    return unary(IRFFT.bind(length=n), _fitted(x, -1, n // 2 + 1)) / n


def fft2d(input: Any, name: str | None = None) -> Tensor:
    """The Fourier transform along the last two axes.

    Args:
      input: a complex tensor (..., m, n).
      name: accepted for compatibility.

    Raises:
      InvalidArgumentError: fewer than two axes, or a tensor that is not complex.

    >>> import gradtape as tf
    >>> print(tf.signal.fft2d([[1 + 0j, 0j]]).numpy())
    [[1.+0.j 1.+0.j]]
    """
    return fft(_along_rows(_with_axes(input, 2, "fft2d"), inverse=False))


def ifft2d(input: Any, name: str | None = None) -> Tensor:
    """The inverse of `fft2d`.

    Raises:
      InvalidArgumentError: fewer than two axes, or a tensor that is not complex.

    >>> import gradtape as tf
    >>> print(tf.signal.ifft2d([[1 + 0j, 1 + 0j]]).numpy())
    [[1.+0.j 0.+0.j]]
    """
    x = _with_axes(input, 2, "ifft2d")
    return ifft(_along_rows(x, inverse=True) / max(x._aval.dims[-2], 1))


def rfft2d(input_tensor: Any, fft_length: Any = None, name: str | None = None) -> Tensor:
    """The Fourier transform of real numbers along the last two axes, the first n // 2 + 1 columns of it.

    Args:
      input_tensor: a float32 or float64 tensor.
      fft_length: [m, n], by default the sizes of the last two axes; the input is cut, or filled up with zeros.
      name: accepted for compatibility.

    Returns:
      A complex tensor (..., m, n // 2 + 1).

    Raises:
      InvalidArgumentError: fewer than two axes, another dtype, or a length below 1.

    >>> import gradtape as tf
    >>> print(tf.signal.rfft2d([[1.0, 0.0]]).numpy())
    [[1.+0.j 1.+0.j]]
    """
    x = _with_axes(input_tensor, 2, "rfft2d")
    m, n = _lengths(fft_length, x._aval.dims[-2:], "rfft2d")
    return _along_rows(unary(RFFT.bind(), _fitted(_fitted(x, -2, m), -1, n)), inverse=False)


def irfft2d(input_tensor: Any, fft_length: Any = None, name: str | None = None) -> Tensor:
    """The inverse of `rfft2d`.

    Args:
      input_tensor: a complex tensor (..., p, q).
      fft_length: [m, n], by default [p, 2 (q - 1)]; the input is cut, or filled up with zeros, to (m, n // 2 + 1).
      name: accepted for compatibility.

    Returns:
      A real tensor (..., m, n).

    Raises:
      InvalidArgumentError: fewer than two axes, a tensor that is not complex, or a length below 1.

    >>> import gradtape as tf
    >>> print(tf.signal.irfft2d([[1 + 0j, 1 + 0j]]).numpy())
    [[1. 0.]]
    """
    x = _with_axes(input_tensor, 2, "irfft2d")
    rows, columns = x._aval.dims[-2:]
    m, n = _lengths(fft_length, (rows, 2 * (columns - 1)), "irfft2d")
    half = _fitted(_fitted(x, -2, m), -1, n // 2 + 1)
    return unary(IRFFT.bind(length=n), _along_rows(half, inverse=True)) / (m * n)


def _with_axes(value: Any, count: int, name: str) -> Tensor:
    x = convert(value)
    if x.ndim < count:
        raise InvalidArgumentError(f"`{name}` wants {count} axes or more, got shape {shape_text(x._aval.shape)}.")
    return x


def _lengths(given: Any, usual: tuple[int, ...], name: str) -> tuple[int, ...]:
    lengths = usual if given is None else integers(given, "fft_length")
    if len(lengths) != len(usual) or any(n < 1 for n in lengths):
        raise InvalidArgumentError(
            f"`{name}` wants {len(usual)} transform lengths of 1 or more, got {list(lengths)}. Give `fft_length`."
        )
    return lengths


def _fitted(x: Tensor, axis: int, n: int) -> Tensor:
    """The first n places along one of the last axes, zeros where there are none."""
    missing = n - x._aval.dims[axis]
    if missing > 0:
        amounts = [[0, 0]] * x.ndim
        amounts[axis] = [0, missing]
        return pad(x, amounts)
    behind = (slice(None),) * (-axis - 1)
    return x[(..., slice(0, n), *behind)] if missing else x


def _along_rows(x: Tensor, inverse: bool) -> Tensor:
    """The transform along the last axis but one, not divided by its size."""
    swap = TRANSPOSE.bind(perm=(*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))
    return unary(swap, unary(FFT.bind(inverse=inverse), unary(swap, x)))
