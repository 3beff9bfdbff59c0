"""Random numbers of every distribution from a key and a counter. Floor: api.

A draw is a function of (key, counter) alone. Methods that reject proposals draw for each element from blocks of its
own, one block more per round, so that what one element needs does not shift the numbers of another."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gradtape.api.elementwise import cast, cos, log, sqrt
from gradtape.api.streams import Source, drawn, state_of
from gradtape.ir.aval import aval
from gradtape.ir.dtypes import DType, as_dtype, float32, float64, int64
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.shapes import size_of
from gradtape.ops.ordering import SEARCHSORTED
from gradtape.ops.random_bits import LOW, RANDOM_BITS, blocks, rounds
from gradtape.runtime.convert import convert
from gradtape.runtime.dispatch import binary, execute
from gradtape.runtime.operators import operand
from gradtape.runtime.placement import device
from gradtape.runtime.tensor import Tensor, from_array

MASK = (1 << 64) - 1
Dims = tuple[int, ...]


def mixed(*numbers: int) -> int:
    """64 bits that depend on all of the numbers: each is encrypted under a key made of those before."""
    key = 0
    for n in numbers:
        low, high = _halves(n & MASK)
        words = rounds((low, high, 0, 0), _halves(key))
        key = words[0] | words[1] << 32
    return key


def _halves(n: int) -> tuple[int, int]:
    return n & LOW, n >> 32


# ------------------------------------------------------------------ bits, uniform and normal numbers as ops


def bits(dims: Dims, source: Source | Tensor) -> Tensor:
    """Words of 32 random bits."""
    result: Tensor = execute(RANDOM_BITS.bind(shape=dims), (state_of(source),))
    return result


def wide_bits(dims: Dims, source: Source | Tensor) -> Any:
    """Words of 64 random bits, as an array."""
    with device("/CPU:0"):
        words = np.asarray(bits((2, *dims), source)).astype(np.uint64)
    return words[0] << np.uint64(32) | words[1]


def floating(dtype: Any) -> DType:
    """A floating dtype.

    Raises:
      InvalidArgumentError: for another one.
    """
    wanted = as_dtype(dtype)
    if not wanted.is_floating:
        raise InvalidArgumentError(f"Random real numbers have a floating dtype, got {wanted.name}.")
    return wanted


PRECISION = {"float16": 11, "bfloat16": 8, "float32": 24}  # as many bits as are exact: no number rounds up to 1


def unit(dims: Dims, dtype: DType, source: Source | Tensor) -> Tensor:
    """Uniform numbers in [0, 1)."""
    if dtype is float64:
        words = bits((2, *dims), source)
        return cast(words[0], float64) * 2.0**-32 + cast(words[1] // np.uint32(2048), float64) * 2.0**-53
    kept = PRECISION[dtype.name]
    return cast(cast(bits(dims, source) // np.uint32(1 << (32 - kept)), float32) * 2.0**-kept, dtype)


def normal(dims: Dims, dtype: DType, source: Source | Tensor) -> Tensor:
    """Standard normal numbers by the method of Box and Muller."""
    wide = float64 if dtype is float64 else float32
    u = unit((2, *dims), wide, source)
    return cast(sqrt(-2.0 * log(1.0 - u[0])) * cos(2.0 * math.pi * u[1]), dtype)


def scaled_normal(drawn: Tensor, mean: Any, stddev: Any) -> Tensor:
    """Standard normal numbers moved and stretched; gradients flow to both."""
    dtype = drawn._aval.dtype
    return drawn * operand(stddev, dtype) + operand(mean, dtype)


def between(drawn: Tensor, low: Any, high: Any) -> Tensor:
    """Numbers of [0, 1) moved to [low, high); gradients flow to both."""
    dtype = drawn._aval.dtype
    start = operand(low, dtype)
    return drawn * (operand(high, dtype) - start) + start


def integers_between(dims: Dims, low: int, high: int, dtype: DType, source: Source | Tensor) -> Tensor:
    """Integers in [low, high), all equally likely: words beyond the last whole multiple of the range are drawn
    again.

    Raises:
      ValueError: an empty range, or one that the dtype cannot hold.
    """
    span = high - low
    if span < 1:
        raise ValueError(f"Random integers want `minval` < `maxval`, got {low} and {high}.")
    if low < dtype.min or high - 1 > dtype.max:
        raise ValueError(f"{dtype.name} does not hold all integers from {low} to {high - 1}.")

    def draw(source: Source) -> Any:
        words = wide_bits((size_of(dims),), source)
        limit = (1 << 64) - (1 << 64) % span
        again = 1
        while limit <= MASK and (bad := words >= np.uint64(limit)).any():
            fresh = wide_bits((words.size,), Source(mixed(*source, again), 0))
            words = np.where(bad, fresh, words)
            again += 1
        found = words if span > MASK else words % np.uint64(span)
        moved = found + np.uint64(low & MASK)  # modulo 2⁶⁴, as the cast back to a signed dtype is
        return moved.astype(dtype.numpy_dtype).reshape(dims)

    return drawn(aval(dims, dtype), source, draw)


def full_integers(dims: Dims, dtype: DType, source: Source | Tensor) -> Tensor:
    """Integers of all values of a dtype."""
    return drawn(
        aval(dims, dtype), source, lambda s: wide_bits((size_of(dims),), s).astype(dtype.numpy_dtype).reshape(dims)
    )


def permutation(n: int, source: Source | Tensor) -> Tensor:
    """The numbers 0 to n - 1 in random order."""
    return drawn(aval((n,), int64), source, lambda s: np.argsort(wide_bits((n,), s), kind="stable"))


# ------------------------------------------------------------------ methods that reject


def _units(source: Source, purpose: int, index: Any) -> tuple[Any, Any]:
    """Two uniform numbers of 53 bits in [0, 1) for each element; one pair per purpose."""
    key = mixed(*source, purpose)
    a, b, c, d = blocks(np, _halves(key), (0, 0), index)
    return _real(a, b), _real(c, d)


def _real(high: Any, low: Any) -> Any:
    return high * 2.0**-32 + (low >> np.uint64(11)) * 2.0**-53


def _gauss(source: Source, purpose: int, index: Any) -> Any:
    u, v = _units(source, purpose, index)
    return np.sqrt(-2.0 * np.log(1.0 - u)) * np.cos(2.0 * math.pi * v)


Proposal = Callable[[int, Any], tuple[Any, Any]]


def _until_accepted(count: int, propose: Proposal) -> Any:
    """Values for all elements. `propose(round, elements)` gives values and which of them are accepted."""
    found = np.zeros(count)
    left = np.arange(count, dtype=np.uint64)
    attempt = 0
    while left.size:
        values, accepted = propose(attempt, left)
        found[left[accepted]] = values[accepted]
        left = left[~accepted]
        attempt += 1
    return found


def truncated_normal(dims: Dims, dtype: DType, source: Source | Tensor) -> Tensor:
    """Standard normal numbers of at most two deviations from 0."""

    def draw(source: Source) -> Any:
        def propose(attempt: int, left: Any) -> tuple[Any, Any]:
            z = _gauss(source, attempt, left)
            return z, np.abs(z) <= 2.0

        return _shaped(_until_accepted(size_of(dims), propose), dims, dtype)

    return drawn(aval(dims, dtype), source, draw)


def _shaped(values: Any, dims: Dims, dtype: DType) -> Any:
    return np.asarray(values.reshape(dims)).astype(dtype.numpy_dtype)


def gamma(dims: Dims, alpha: Any, dtype: DType, source: Source | Tensor) -> Tensor:
    """Numbers with the density x^(α-1) e^(-x) / Γ(α), for α that broadcasts to dims."""
    return drawn(aval(dims, dtype), source, lambda s, a: _gamma(dims, a, dtype, s), [alpha])


def _gamma(dims: Dims, alpha: Any, dtype: DType, source: Source) -> Any:
    """The numbers for an array of α.

    Source: Marsaglia and Tsang, "A simple method for generating gamma variables" (2000); below 1 by Gamma(α) =
    Gamma(α + 1) · U^(1/α)."""
    a = np.broadcast_to(np.asarray(alpha, np.float64), dims).reshape(-1)
    usable = a > 0
    shape = np.where(usable, a, 1.0)
    d = np.where(shape < 1, shape + 1, shape) - 1 / 3
    c = 1 / np.sqrt(9 * d)

    def propose(attempt: int, left: Any) -> tuple[Any, Any]:
        at = left.astype(np.int64)
        z, (u, _) = _gauss(source, 2 * attempt + 2, left), _units(source, 2 * attempt + 3, left)
        v = (1 + c[at] * z) ** 3
        positive = v > 0
        v = np.where(positive, v, 1.0)
        bound = 0.5 * z * z + d[at] * (1 - v + np.log(v))
        return d[at] * v, positive & (np.log(1 - u) < bound)

    x = _quietly(lambda: _until_accepted(a.size, propose))
    u, _ = _units(source, 0, np.arange(a.size, dtype=np.uint64))
    boosted = np.where(shape < 1, np.exp(np.log(x) + np.log(1 - u) / shape), x)
    return _shaped(np.where(usable, boosted, np.where(a == 0, 0.0, np.nan)), dims, dtype)


def _quietly(f: Callable[[], Any]) -> Any:
    with np.errstate(all="ignore"):
        return f()


def poisson(dims: Dims, rate: Any, dtype: DType, source: Source | Tensor) -> Tensor:
    """Counts with mean and variance λ, for λ that broadcasts to dims."""
    return drawn(aval(dims, dtype), source, lambda s, lam: _poisson(dims, lam, dtype, s), [rate])


def _poisson(dims: Dims, rate: Any, dtype: DType, source: Source) -> Any:
    """The counts for an array of λ: by inversion below 10, above by transformed rejection.

    Source: Hörmann, "The transformed rejection method for generating Poisson random variables" (1993), PTRS."""
    lam = np.broadcast_to(np.asarray(rate, np.float64), dims).reshape(-1)
    out = np.where(lam == 0, 0.0, np.nan)
    few, many = np.flatnonzero((lam > 0) & (lam < 10)), np.flatnonzero((lam >= 10) & np.isfinite(lam))
    out[few] = _inverted(lam[few], _units(source, 0, few.astype(np.uint64))[0])
    out[many] = _transformed(lam[many], many.astype(np.uint64), source)
    return _shaped(out, dims, dtype)


def _inverted(lam: Any, u: Any) -> Any:
    """The smallest k whose distribution function exceeds u, found from 0 upwards for all elements at once."""
    k, term = np.zeros(lam.size), np.exp(-lam)
    total = term.copy()
    left = np.flatnonzero(u >= total)
    while left.size:
        k[left] += 1
        term[left] *= lam[left] / k[left]
        total[left] += term[left]
        left = left[(u[left] >= total[left]) & (term[left] > 1e-18)]
    return k


def _transformed(lam: Any, index: Any, source: Source) -> Any:
    b = 0.931 + 2.53 * np.sqrt(lam)
    a = -0.059 + 0.02483 * b
    inverse = 1.1239 + 1.1328 / (b - 3.4)
    fast = 0.9277 - 3.6224 / (b - 2)

    def propose(attempt: int, left: Any) -> tuple[Any, Any]:
        at = left.astype(np.int64)
        u, v = _units(source, attempt + 1, index[at])
        u = u - 0.5
        near = 0.5 - np.abs(u)
        k = np.floor((2 * a[at] / near + b[at]) * u + lam[at] + 0.43)
        sure = (near >= 0.07) & (v <= fast[at])
        left_over = (k >= 0) & ((near >= 0.013) | (v <= near))
        log_ratio = np.log(v * inverse[at] / (a[at] / (near * near) + b[at]))
        fits = log_ratio <= k * np.log(lam[at]) - lam[at] - _log_factorial(k)
        return k, sure | (left_over & fits)

    return _quietly(lambda: _until_accepted(lam.size, propose))


_LOG_FACTORIALS = np.array([math.lgamma(k + 1) for k in range(10)])


def _log_factorial(k: Any) -> Any:
    """log k! by Stirling's series, by a table below 10."""
    n = np.maximum(k, 10.0)
    series = 1 / (12 * n) - 1 / (360 * n**3) + 1 / (1260 * n**5)
    large = n * np.log(n) - n + 0.5 * np.log(2 * math.pi * n) + series
    return np.where(k < 10, _LOG_FACTORIALS[np.clip(k, 0, 9).astype(np.int64)], large)


# ------------------------------------------------------------------ categories


def categorical(logits: Any, count: int, dtype: DType, source: Source | Tensor) -> Tensor:
    """For each row of unnormalised log probabilities `count` categories, by inversion.

    Raises:
      InvalidArgumentError: logits that are no matrix of floating numbers, or have no categories.
    """
    x = convert(logits)
    if x.ndim != 2 or not x._aval.dtype.is_floating or (not x._aval.dims[1] and count):
        raise InvalidArgumentError(
            f"`categorical` wants floating logits of shape (batch, categories), got {x._aval!r}."
        )
    rows, _ = x._aval.dims
    return drawn(aval((rows, count), dtype), source, lambda s, a: _categorical(a, count, dtype, s), [x])


def _categorical(logits: Any, count: int, dtype: DType, source: Source) -> Any:
    rows, n = logits.shape
    wide = logits.astype(np.float64)
    top = np.max(wide, axis=1, keepdims=True, initial=-np.inf)
    weights = np.exp(wide - np.where(np.isfinite(top), top, 0.0))
    sums = np.cumsum(weights, axis=1)
    drawn = np.asarray(unit((rows, count), float64, source)) * sums[:, -1:] if n else np.zeros((rows, count))
    step = SEARCHSORTED.bind(right=True, dtype=dtype)
    found = np.asarray(binary(step, from_array(sums), from_array(drawn)))
    last = n - 1 - np.argmax(weights[:, ::-1] > 0, axis=1) if n else np.zeros(rows)
    return np.minimum(found, last[:, None]).astype(dtype.numpy_dtype)
