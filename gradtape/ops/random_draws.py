"""Declarations: integers, and numbers of distributions that are drawn by rejection. Floor: ops.

Element i of a draw depends on key, counter and i alone, and on its own parameter: a method that rejects proposals takes
a further block of the element's own in each round, so that what one element needs does not shift the numbers of
another, and every backend draws the same ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from gradtape.ir.aval import Aval, aval
from gradtape.ir.dtypes import DType, float32, float64, int8, int32, int64, uint64
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.shapes import broadcast, shape_text, size_of
from gradtape.ops.opaque import Draw
from gradtape.ops.random_bits import MASK, blocks, check_state, halves, mixed, philox
from gradtape.ops.samples import BadSample, Sample, Spec

WORDS = 1 << 64  # how many words of 64 bits there are
Dims = tuple[int, ...]
STATE = Spec((2,), (0, 100), "uint64")


# ------------------------------------------------------------------ integers


def limit_of(span: int) -> int:
    """The last whole multiple of a range: words from there on are drawn again."""
    return WORDS - WORDS % span


def _wide_words(xp: Any, key: int, counter: int, count: int) -> Any:
    """`count` words of 64 bits: their high halves are drawn first, then their low ones."""
    words = philox(xp, halves(key), halves(counter), 2 * count).astype(xp.uint64)
    return words[:count] << 32 | words[count:]


def _integers(xp: Any, state: Any, shape: Dims, low: int, span: int, dtype: DType) -> Any:
    source, size, limit = (int(state[0]), int(state[1])), size_of(shape), limit_of(span)
    words = _wide_words(xp, *source, size)
    again = 1
    while limit < WORDS and (bad := words >= limit).any():
        words = xp.where(bad, _wide_words(xp, mixed(*source, again), 0, size), words)
        again += 1
    found = words if span == WORDS else words % span
    return (found + xp.uint64(low & MASK)).astype(dtype.numpy_dtype).reshape(shape)  # modulo 2⁶⁴, as the cast is


def _integers_infer(state: Aval, shape: Dims, low: int, span: int, dtype: DType) -> list[Aval]:
    check_state(state)
    if not dtype.is_integer or span < 1 or low < dtype.min or low + span - 1 > dtype.max:
        raise ValueError(f"wants integers that the dtype holds, got {span} from {low} on for {dtype.name}.")
    return [aval(shape, dtype)]


def _range(low: int, span: int, dtype: DType, *shape: int) -> dict[str, Any]:
    return {"shape": shape, "low": low, "span": span, "dtype": dtype}


RANDOM_INTEGERS = Draw(
    "random_integers",
    _integers,
    infer=_integers_infer,
    vjp=None,
    signature="(s)->(n)",
    source=True,
    samples=[
        Sample((STATE,), _range(-3, 10, int32, 3, 5)),
        Sample((STATE,), _range(-(2**62), 2**63 + 2**61, int64, 2, 7), "of which many are drawn again"),
        Sample((STATE,), _range(0, WORDS, uint64, 6), "all of them"),
        Sample((STATE,), _range(-128, 256, int8, 5), "all of a small dtype"),
        Sample((STATE,), _range(2, 1, int32), "one that is known"),
        Sample((STATE,), _range(0, 5, int32, 0)),
    ],
    errors=[BadSample((((2,), "uint64"),), InvalidArgumentError, "int8", _range(0, 200, int8, 3))],
    doc="Integers from `low` on, `span` of them equally likely.",
    notes="Words of 64 bits beyond the last whole multiple of `span` are drawn again.",
)

# ------------------------------------------------------------------ proposals


def _units(xp: Any, state: Any, purpose: int, index: Any) -> tuple[Any, Any]:
    """Two uniform numbers of 53 bits in [0, 1) for each element; one pair per purpose."""
    key = mixed(int(state[0]), int(state[1]), purpose)
    a, b, c, d = blocks(xp, halves(key), (0, 0), index)
    return _real(a, b), _real(c, d)


def _real(high: Any, low: Any) -> Any:
    return high * 2.0**-32 + (low >> 11) * 2.0**-53


def _gauss(xp: Any, state: Any, purpose: int, index: Any) -> Any:
    u, v = _units(xp, state, purpose, index)
    return xp.sqrt(-2.0 * xp.log(1.0 - u)) * xp.cos(2.0 * math.pi * v)


Proposal = Callable[[int, Any], tuple[Any, Any]]


def _until_accepted(xp: Any, count: int, propose: Proposal) -> Any:
    """Values for all elements. `propose(round, elements)` gives values and which of them are accepted."""
    found = xp.zeros(count)
    left = xp.arange(count, dtype=xp.uint64)
    attempt = 0
    while left.size:
        values, accepted = propose(attempt, left)
        found[left[accepted]] = values[accepted]
        left = left[~accepted]
        attempt += 1
    return found


def _each(xp: Any, parameter: Any, shape: Dims) -> Any:
    """A parameter for each element, in double precision."""
    return xp.broadcast_to(xp.asarray(parameter, xp.float64), shape).reshape(-1)


def _by_parameter(name: str, kinds: str) -> Callable[[Aval, Aval, Dims], None]:
    """What refuses operands of a draw for each element's own parameter."""

    def check(state: Aval, parameter: Aval, shape: Dims) -> None:
        check_state(state)
        if parameter.dtype.kind not in kinds:
            raise ValueError(f"wants real numbers as `{name}`, got a {parameter.dtype.cname} tensor.")
        if parameter.is_known and broadcast(parameter.dims, shape) != shape:
            raise ValueError(f"wants `{name}` to broadcast to {shape_text(shape)}, got {parameter!r}.")

    return check


# ------------------------------------------------------------------ truncated normal numbers


def _truncated(xp: Any, state: Any, shape: Dims, dtype: DType) -> Any:
    def propose(attempt: int, left: Any) -> tuple[Any, Any]:
        z = _gauss(xp, state, attempt, left)
        return z, xp.abs(z) <= 2.0

    return _until_accepted(xp, size_of(shape), propose).astype(dtype.numpy_dtype).reshape(shape)


def _truncated_infer(state: Aval, shape: Dims, dtype: DType) -> list[Aval]:
    check_state(state)
    if not dtype.is_floating:
        raise ValueError(f"wants a floating dtype, got {dtype.name}.")
    return [aval(shape, dtype)]


RANDOM_TRUNCATED_NORMAL = Draw(
    "random_truncated_normal",
    _truncated,
    infer=_truncated_infer,
    vjp=None,
    signature="(s)->(n)",
    source=True,
    samples=[
        Sample((STATE,), {"shape": (9, 11), "dtype": float64}),
        Sample((STATE,), {"shape": (), "dtype": float32}),
        Sample((STATE,), {"shape": (0, 2), "dtype": float32}),
    ],
    errors=[BadSample((((2,), "uint64"),), InvalidArgumentError, "int32", {"shape": (3,), "dtype": int32})],
    doc="Standard normal numbers of at most two deviations from 0.",
    notes="By the method of Box and Muller; what lies further away is drawn again.",
)

# ------------------------------------------------------------------ gamma


def _gamma(xp: Any, state: Any, alpha: Any, shape: Dims) -> Any:
    """Source: Marsaglia and Tsang, "A simple method for generating gamma variables" (2000); below 1 by Gamma(α) =
    Gamma(α + 1) · U^(1/α)."""
    a = _each(xp, alpha, shape)
    usable = (a > 0) & xp.isfinite(a)
    form = xp.where(usable, a, 1.0)
    d = xp.where(form < 1, form + 1, form) - 1 / 3
    c = 1 / xp.sqrt(9 * d)

    def propose(attempt: int, left: Any) -> tuple[Any, Any]:
        z, (u, _) = _gauss(xp, state, 2 * attempt + 2, left), _units(xp, state, 2 * attempt + 3, left)
        root = 1 + c[left] * z
        positive = root > 0
        v = xp.where(positive, root * root * root, 1.0)
        bound = 0.5 * z * z + d[left] * (1 - v + xp.log(v))
        return d[left] * v, positive & (xp.log(1 - u) < bound)

    x = _until_accepted(xp, a.size, propose)
    u, _ = _units(xp, state, 0, xp.arange(a.size, dtype=xp.uint64))
    boosted = xp.where(form < 1, xp.exp(xp.log(x) + xp.log(1 - u) / form), x)
    found = xp.where(usable, boosted, xp.where(a >= 0, a, xp.nan))
    return found.astype(alpha.dtype).reshape(shape)


_check_alpha = _by_parameter("alpha", "f")


def _gamma_infer(state: Aval, alpha: Aval, shape: Dims) -> list[Aval]:
    _check_alpha(state, alpha, shape)
    return [aval(shape, alpha.dtype)]


RANDOM_GAMMA = Draw(
    "random_gamma",
    _gamma,
    infer=_gamma_infer,
    vjp=None,
    signature="(s),(n)->(n)",
    source=True,
    samples=[
        Sample((STATE, Spec((7,), (0.5, 30.0))), {"shape": (9, 7)}),
        Sample((STATE, Spec((), (0.1, 0.9))), {"shape": (5,)}, "below 1"),
        Sample((STATE, Spec((1,), (1.0, 2.0))), {"shape": (1,)}),
        Sample((STATE, Spec((2, 1), (1.0, 2.0))), {"shape": (2, 0)}),
    ],
    errors=[
        BadSample((((2,), "uint64"), ((3,), "float32")), InvalidArgumentError, "broadcast", {"shape": (2,)}),
        BadSample((((2,), "uint64"), ((2,), "int32")), InvalidArgumentError, "int32", {"shape": (2,)}),
    ],
    doc="Numbers with the density x^(α-1) e^(-x) / Γ(α).",
    notes="By the method of Marsaglia and Tsang. Those for an α of 0 and of infinity are that; NaN for other α.",
)

# ------------------------------------------------------------------ Poisson

FEW = 10  # the rate from which counts are drawn by rejection
FACTORIALS = tuple(math.factorial(k) for k in range(FEW))


def _poisson(xp: Any, state: Any, rate: Any, shape: Dims, dtype: DType) -> Any:
    """By inversion for small rates, for others by transformed rejection.

    Source: Hörmann, "The transformed rejection method for generating Poisson random variables" (1993), PTRS."""
    lam = _each(xp, rate, shape)
    found = xp.where(lam == 0, 0.0, xp.nan)
    few, many = xp.flatnonzero((lam > 0) & (lam < FEW)), xp.flatnonzero((lam >= FEW) & xp.isfinite(lam))
    found[few] = _inverted(xp, lam[few], _units(xp, state, 0, few.astype(xp.uint64))[0])
    found[many] = _transformed(xp, lam[many], many.astype(xp.uint64), state)
    return found.astype(dtype.numpy_dtype).reshape(shape)


def _inverted(xp: Any, lam: Any, u: Any) -> Any:
    """The smallest k whose distribution function exceeds u, found from 0 upwards for all elements at once."""
    k, term = xp.zeros(lam.size), xp.exp(-lam)
    total = term.copy()
    left = xp.flatnonzero(u >= total)
    while left.size:
        k[left] += 1
        term[left] *= lam[left] / k[left]
        total[left] += term[left]
        left = left[(u[left] >= total[left]) & (term[left] > 1e-18)]
    return k


def _transformed(xp: Any, lam: Any, index: Any, state: Any) -> Any:
    b = 0.931 + 2.53 * xp.sqrt(lam)
    a = -0.059 + 0.02483 * b
    inverse = 1.1239 + 1.1328 / (b - 3.4)
    fast = 0.9277 - 3.6224 / (b - 2)

    def propose(attempt: int, left: Any) -> tuple[Any, Any]:
        u, v = _units(xp, state, attempt + 1, index[left])
        u = u - 0.5
        near = 0.5 - xp.abs(u)
        k = xp.floor((2 * a[left] / near + b[left]) * u + lam[left] + 0.43)
        sure = (near >= 0.07) & (v <= fast[left])
        left_over = (k >= 0) & ((near >= 0.013) | (v <= near))
        log_ratio = xp.log(v * inverse[left] / (a[left] / (near * near) + b[left]))
        fits = log_ratio <= k * xp.log(lam[left]) - lam[left] - _log_factorial(xp, k)
        return k, sure | (left_over & fits)

    return _until_accepted(xp, lam.size, propose)


def _log_factorial(xp: Any, k: Any) -> Any:
    """log k!, by Stirling's series from 10 on."""
    n = xp.maximum(k, 10.0)
    series = 1 / (12 * n) - 1 / (360 * n * n * n) + 1 / (1260 * n * n * n * n * n)
    large = n * xp.log(n) - n + 0.5 * xp.log(2 * math.pi * n) + series
    small = xp.log(xp.asarray(FACTORIALS, xp.float64))[xp.clip(k, 0, FEW - 1).astype(xp.int64)]
    return xp.where(k < FEW, small, large)


_check_rate = _by_parameter("rate", "fiu")


def _poisson_infer(state: Aval, rate: Aval, shape: Dims, dtype: DType) -> list[Aval]:
    _check_rate(state, rate, shape)
    if dtype.kind not in "fiu":
        raise ValueError(f"gives real numbers, not {dtype.name}.")
    return [aval(shape, dtype)]


RANDOM_POISSON = Draw(
    "random_poisson",
    _poisson,
    infer=_poisson_infer,
    vjp=None,
    signature="(s),(n)->(n)",
    source=True,
    samples=[
        Sample((STATE, Spec((7,), (0.5, 9.5))), {"shape": (9, 7), "dtype": float64}),
        Sample((STATE, Spec((6,), (10.5, 60.0))), {"shape": (9, 6), "dtype": int32}, "by rejection"),
        Sample((STATE, Spec((1,), (2.0, 12.0))), {"shape": (1,), "dtype": float32}),
        Sample((STATE, Spec((), (2.0, 12.0))), {"shape": (0,), "dtype": float32}),
    ],
    errors=[
        BadSample(
            (((2,), "uint64"), ((3,), "float32")),
            InvalidArgumentError,
            "broadcast",
            {"shape": (2,), "dtype": int32},
        )
    ],
    doc="Counts with the mean and variance λ.",
    notes="By inversion below 10, from there on by transformed rejection. NaN for negative and infinite λ.",
)
