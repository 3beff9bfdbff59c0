"""Special functions, guarded quotients and bitwise functions against mpmath and NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np

from tests.api.calls import Call, call, draw, positive, unit


def exactly(f: Callable[..., Any]) -> Callable[..., Any]:
    """A function of mpmath over arrays that broadcast."""

    def over(*xs: Any) -> Any:
        arrays = np.broadcast_arrays(*xs)
        out = np.empty(arrays[0].shape)
        for at in np.ndindex(*out.shape):
            out[at] = float(f(*[mp.mpf(float(a[at])) for a in arrays]))
        return out

    return over


ROOT_HALF = float(np.float32(math.sqrt(0.5)))  # as TensorFlow rounds it
CUBE = float(np.float32(0.044715))


def gelu(x: Any) -> Any:
    return x * (1 + mp.erf(ROOT_HALF * x)) / 2


def gelu_tanh(x: Any) -> Any:
    return x * (1 + mp.tanh(mp.sqrt(2 / mp.pi) * (x + CUBE * x**3))) / 2


ONE: dict[str, tuple[Any, Any]] = {
    "math.bessel_i0": (exactly(lambda x: mp.besseli(0, x)), lambda *s: 5 * draw(*s)),
    "math.bessel_i0e": (exactly(lambda x: mp.besseli(0, x) * mp.exp(-x)), lambda *s: 5 * positive(*s)),
    "math.bessel_i1": (exactly(lambda x: mp.besseli(1, x)), lambda *s: 5 * draw(*s)),
    "math.bessel_i1e": (exactly(lambda x: mp.besseli(1, x) * mp.exp(-x)), lambda *s: 5 * positive(*s)),
    "math.digamma": (exactly(mp.digamma), positive),
    "math.erf": (exactly(mp.erf), draw),
    "math.erfc": (exactly(mp.erfc), draw),
    "math.erfcinv": (exactly(lambda q: mp.erfinv(1 - q)), lambda *s: 1 + unit(*s)),
    "math.erfinv": (exactly(mp.erfinv), unit),
    "math.lgamma": (exactly(mp.loggamma), positive),
    "math.ndtri": (exactly(lambda p: mp.sqrt(2) * mp.erfinv(2 * p - 1)), lambda *s: (1 + unit(*s)) / 2),
    "math.special.bessel_i0": (exactly(lambda x: mp.besseli(0, x)), draw),
    "math.special.bessel_i1": (exactly(lambda x: mp.besseli(1, x)), draw),
    "nn.gelu": (exactly(gelu), draw),
}
TWO: dict[str, tuple[Any, Any]] = {
    "math.xdivy": (np.divide, positive),
    "math.xlog1py": (lambda x, y: x * np.log1p(y), positive),
    "math.xlogy": (lambda x, y: x * np.log(y), positive),
    "truncatemod": (np.fmod, positive),
}
INTEGERS: dict[str, Any] = {
    "bitwise.bitwise_and": np.bitwise_and,
    "bitwise.bitwise_or": np.bitwise_or,
    "bitwise.bitwise_xor": np.bitwise_xor,
    "truncatediv": lambda x, y: np.trunc(x / y).astype(x.dtype),
    "truncatemod": np.fmod,
}
SHAPES: tuple[tuple[int, ...], ...] = ((2, 3), (), (0, 2))
PAIRS: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (((2, 3), (2, 3)), ((2, 1, 3), (4, 1)), ((0, 2), (1, 2)))
WHOLE = np.array([[7, -7, 12], [-12, 100, 1]], "int32")
ODD = np.array([3, -5, 9], "int32")
COMPLEX = np.array([1 + 2j, -3 - 4j, 1e-3j, -2.0])


def lbeta(x: Any) -> Any:
    terms = exactly(mp.loggamma)
    return np.sum(terms(x), axis=-1) - terms(np.sum(x, axis=-1))


def crelu(x: Any) -> Any:
    return np.concatenate([np.maximum(x, 0), np.maximum(-x, 0)], axis=-1)


CALLS: tuple[Call, ...] = (
    *(call(n, want, draw_(*s)) for n, (want, draw_) in ONE.items() for s in SHAPES),
    *(call(n, want, draw_(*a), 0.83 * draw_(*b) + 0.171) for n, (want, draw_) in TWO.items() for a, b in PAIRS),
    *(call(n, want, WHOLE, ODD, slopes=False) for n, want in INTEGERS.items()),
    call("bitwise.left_shift", np.left_shift, WHOLE, np.array([0, 1, 5], "int32"), slopes=False),
    call("bitwise.right_shift", np.right_shift, WHOLE, np.array([0, 1, 5], "int32"), slopes=False),
    call("bitwise.invert", np.invert, WHOLE, slopes=False),
    call("truncatediv", lambda x, y: np.trunc(x / y), draw(2, 3) * 4, positive(3), slopes=False),
    call("nn.gelu", exactly(gelu_tanh), draw(2, 3), approximate=True),
    call("nn.crelu", crelu, draw(2, 3)),
    call("nn.crelu", lambda x: np.concatenate([np.maximum(x, 0), np.maximum(-x, 0)]), draw(2, 3), axis=0),
    call("math.lbeta", lbeta, positive(2, 3)),
    call("math.lbeta", lbeta, positive(4)),
    call("math.zeta", exactly(mp.zeta), np.array([2.0, 3.0, 5.0]), positive(2, 1), slopes=False),
    call("math.polygamma", exactly(mp.psi), np.array([0.0, 1.0, 2.0, 5.0]), positive(2, 1), slopes=False),
    call("math.nextafter", np.nextafter, draw(2, 3), draw(3) + 5, slopes=False),
    call("math.angle", np.angle, COMPLEX, slopes=False),
    call("math.angle", np.angle, draw(2, 3), slopes=False),
    call(
        "math.approximate_equal", lambda x, y: np.abs(x - y) < 0.3, draw(6), draw(6) + 0.2, tolerance=0.3, slopes=False
    ),
    call("math.accumulate_n", lambda *xs: sum(xs), draw(2, 3), positive(2, 3), draw(2, 3), listed=True),
    call("math.is_non_decreasing", lambda x: np.bool_(True), np.sort(draw(6)), slopes=False),
    call(
        "math.is_non_decreasing", lambda x: np.bool_(False), -np.sort(draw(2, 3), axis=None).reshape(2, 3), slopes=False
    ),
    call("math.is_strictly_increasing", lambda x: np.bool_(True), np.sort(draw(6)), slopes=False),
    call("math.is_strictly_increasing", lambda x: np.bool_(False), np.array([1.0, 1.0]), slopes=False),
    call("sign", lambda z: z / np.abs(z), COMPLEX),
)
