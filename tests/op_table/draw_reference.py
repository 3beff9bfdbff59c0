"""Random numbers element by element: the published algorithms in Python's integers and numbers of 40 digits; a part of
the table in `opaque_reference.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.op_table.scalar_reference import INF, MP, NAN

Places = tuple[int, ...]


def _filled(shape: Places, value: Callable[[int], Any]) -> Any:
    """An array of what a function gives for the number of each element."""
    out = np.empty(shape, object)
    for number, at in enumerate(np.ndindex(*shape)):
        out[at] = value(number)
    return out


def philox(counter: Sequence[int], key: Sequence[int]) -> list[int]:
    """One block of Philox 4x32 with 10 rounds, from the paper's own description."""
    c, k = list(counter), list(key)
    for _ in range(10):
        high0, low0 = divmod(0xD2511F53 * c[0], 2**32)
        high1, low1 = divmod(0xCD9E8D57 * c[2], 2**32)
        c = [high1 ^ c[1] ^ k[0], low1, high0 ^ c[3] ^ k[1], low0]
        k = [(k[0] + 0x9E3779B9) % 2**32, (k[1] + 0xBB67AE85) % 2**32]
    return c


def _words(n: int) -> list[int]:
    """The low and the high 32 bits."""
    return [n % 2**32, n // 2**32]


def _block(key: int, counter: int, number: int) -> list[int]:
    return philox([*_words(number), *_words(counter)], _words(key))


def _word(key: int, counter: int, number: int) -> int:
    return _block(key, counter, number // 4)[number % 4]


def _mixed(*numbers: int) -> int:
    key = 0
    for n in numbers:
        low, high, *_ = _block(key, 0, n)
        key = low + (high << 32)
    return key


def _random_bits(operands: Sequence[Any], result: Places, shape: Places) -> Any:
    key, counter = map(int, operands[0])
    return _filled(result, lambda i: _word(key, counter, i))


def _integers(operands: Sequence[Any], result: Places, shape: Places, low: int, span: int, dtype: Any) -> Any:
    key, counter = map(int, operands[0])
    size = int(np.prod(result, dtype=int))

    def value(i: int) -> int:
        word, again = 2**64, 0
        while word >= 2**64 - 2**64 % span:
            source = (_mixed(key, counter, again), 0) if again else (key, counter)
            word = (_word(*source, i) << 32) + _word(*source, size + i)
            again += 1
        return low + word % span

    return _filled(result, value)


def _units(state: Any, purpose: int, i: int) -> tuple[Any, Any]:
    a, b, c, d = _block(_mixed(int(state[0]), int(state[1]), purpose), 0, i)
    return tuple(MP.mpf((high << 21) + (low >> 11)) / 2**53 for high, low in ((a, b), (c, d)))


def _gauss(state: Any, purpose: int, i: int) -> Any:
    u, v = _units(state, purpose, i)
    return MP.sqrt(-2 * MP.log(1 - u)) * MP.cos(2 * MP.pi * v)


def _truncated(operands: Sequence[Any], result: Places, shape: Places, dtype: Any) -> Any:
    def value(i: int) -> Any:
        rounds = iter(range(1000))
        return next(z for z in (_gauss(operands[0], k, i) for k in rounds) if abs(z) <= 2)

    return _filled(result, value)


def _gamma(operands: Sequence[Any], result: Places, shape: Places) -> Any:
    state, alpha = operands[0], np.broadcast_to(operands[1], result).reshape(-1)

    def value(i: int) -> Any:
        a = alpha[i]
        if not 0 < a < INF:
            return a if a >= 0 else NAN
        d = (a + 1 if a < 1 else a) - MP.mpf(1) / 3
        for k in range(1000):
            z, u = _gauss(state, 2 * k + 2, i), _units(state, 2 * k + 3, i)[0]
            v = (1 + z / MP.sqrt(9 * d)) ** 3
            if v > 0 and MP.log(1 - u) < z * z / 2 + d * (1 - v + MP.log(v)):
                return d * v * ((1 - _units(state, 0, i)[0]) ** (1 / a) if a < 1 else 1)
        raise AssertionError("rejected too often")

    return _filled(result, value)


def _poisson(operands: Sequence[Any], result: Places, shape: Places, dtype: Any) -> Any:
    state, rates = operands[0], np.broadcast_to(operands[1], result).reshape(-1)

    def value(i: int) -> int:
        rate = MP.mpf(rates[i])
        return _inverted(rate, _units(state, 0, i)[0]) if rate < 10 else _rejected(rate, state, i)

    return _filled(result, value)


def _inverted(rate: Any, u: Any) -> int:
    k, total = 0, MP.exp(-rate)
    while u >= total:
        k += 1
        total += MP.exp(-rate) * rate**k / MP.factorial(k)
    return k


def _rejected(rate: Any, state: Any, i: int) -> int:
    b = MP.mpf("0.931") + MP.mpf("2.53") * MP.sqrt(rate)
    a = MP.mpf("-0.059") + MP.mpf("0.02483") * b
    inverse, fast = MP.mpf("1.1239") + MP.mpf("1.1328") / (b - 3.4), MP.mpf("0.9277") - MP.mpf("3.6224") / (b - 2)
    for attempt in range(1000):
        u, v = _units(state, attempt + 1, i)
        u -= MP.mpf("0.5")
        near = MP.mpf("0.5") - abs(u)
        k = int(MP.floor((2 * a / near + b) * u + rate + MP.mpf("0.43")))
        if near >= 0.07 and v <= fast:
            return k
        if k < 0 or (near < 0.013 and v > near):
            continue
        if MP.log(v * inverse / (a / near**2 + b)) <= k * MP.log(rate) - rate - MP.log(MP.factorial(k)):
            return k
    raise AssertionError("rejected too often")


def _next(operands: Sequence[Any], after: Places, sources: Places, by: int) -> tuple[Any, Any]:
    rows = np.array(operands[0]).reshape(-1, 3)
    states, keys = np.empty((len(rows), 3), object), np.empty((len(rows), 2), object)
    for k, row in enumerate(rows):
        low, high, key = (int(n) % 2**64 for n in row)
        count = (low + (high << 64) + by) % 2**128
        states[k] = [(n + 2**63) % 2**64 - 2**63 for n in (count % 2**64, count >> 64, key)]
        keys[k] = [_mixed(key, high), low]
    return states.reshape(after), keys.reshape(sources)


def _source(operands: Sequence[Any], result: Places, purpose: int) -> Any:
    seed, *data = operands
    out = np.empty(result, object)
    for at in np.ndindex(*result[:-1]):
        more = [d[tuple(0 if n == 1 else k for k, n in zip(at[len(at) - d.ndim :], d.shape))] for d in data]
        numbers = [int(n) % 2**64 for n in (*seed[at[len(at) - seed.ndim + 1 :]], purpose, *more)]
        out[at] = [_mixed(*numbers), 0]
    return out


DRAWS: dict[str, Callable[..., Any]] = {
    "random_bits": _random_bits,
    "random_gamma": _gamma,
    "random_integers": _integers,
    "random_next": _next,
    "random_poisson": _poisson,
    "random_source": _source,
    "random_truncated_normal": _truncated,
}
