"""Fits the rational approximations of the special functions and writes `gradtape/ops/coefficients.py`.

Each is p(t) / q(t) with q(0) = 1, in most cases q = 1, interpolating in 60 digits at Chebyshev nodes, whose error is
within a small factor of the smallest possible. The largest error on a dense grid is written next to the coefficients.
One above 2⁻⁵⁶ (relative to what the approximation is a part of, see `share`), or above 2⁻⁵² once the coefficients are
rounded to double precision, is refused. Run it after a change here; a test in `tests/accuracy/` fails while the names
and degrees differ.

    python tools/fit_special.py
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import mpmath as mp

mp.mp.dps = 60
TARGET = Path(__file__).parents[1] / "gradtape" / "ops" / "coefficients.py"
ALLOWED = mp.mpf(2) ** -56  # with exact coefficients
ALLOWED_ROUNDED = mp.mpf(2) ** -52
TINY = mp.mpf(10) ** -25
HALF, QUARTER, EIGHTH = mp.mpf("0.5"), mp.mpf("0.25"), mp.mpf("0.125")

Function = Callable[[Any], Any]


@dataclass(frozen=True)
class Fit:
    """What is approximated, where, by which degrees, and how large it is in the value that it is a part of."""

    name: str
    what: str
    function: Function
    low: Any
    high: Any
    degrees: tuple[int, int]
    share: Any = None  # None: the error is relative; a number: the absolute error times this


# ------------------------------------------------------------------ error functions


def _erf(z: Any) -> Any:
    x = mp.sqrt(z)
    return (mp.erf(x) / x if x else 2 / mp.sqrt(mp.pi)) - 1


def _scaled_erfc(a: Any) -> Any:
    return mp.exp(a * a) * mp.erfc(a)


def moebius(a: Any, k: Any) -> Any:
    """The map of a > 0 to (-1, 1) with k at the centre."""
    return (mp.mpf(a) - k) / (mp.mpf(a) + k)


def unmoebius(t: Any, k: Any) -> Any:
    return k * (1 + t) / (1 - t)


def _erfc_near(t: Any) -> Any:
    a = unmoebius(t, 2)
    return _scaled_erfc(a) * (1 + 2 * a)


def _erfc_far(v: Any) -> Any:
    if v == 0:
        return 1 / mp.sqrt(mp.pi)
    a = 1 / mp.sqrt(v)
    return _scaled_erfc(a) * a


def _erfinv(t: Any) -> Any:
    x = mp.sqrt(t + EIGHTH)
    return mp.erfinv(x) / x if x else mp.sqrt(mp.pi) / 2


def _erfcinv_of_root(k: Any, t: Any) -> Any:
    """x / w where erfc(x) = exp(-w²), by Newton's method on the logarithms."""
    w = unmoebius(t, k)
    x = w * mp.mpf("0.9")
    for _ in range(80):
        tail = mp.erfc(x)
        step = (mp.log(tail) + w * w) * tail * mp.sqrt(mp.pi) / -2 * mp.exp(x * x)
        x -= step
        if abs(step) < mp.mpf(10) ** -50:
            break
    return x / w


# ------------------------------------------------------------------ the gamma function and its logarithm's derivatives

PSI_ROOT = mp.findroot(mp.digamma, mp.mpf("1.4616321449683623"))


def _lgamma(u: Any) -> Any:
    """log Γ(1+u) / (u (u-1))"""
    if abs(u) < TINY:
        return mp.euler + 0
    if abs(u - 1) < TINY:
        return 1 - mp.euler
    return mp.loggamma(1 + u) / (u * (u - 1))


def _stirling(v: Any) -> Any:
    """(log Γ(x) - (x - ½)(log x - 1) - ½ log 2π + ½) · x at x = 1/v"""
    if v == 0:
        return mp.mpf(1) / 12
    x = 1 / v
    return (mp.loggamma(x) - (x - mp.mpf("0.5")) * (mp.log(x) - 1) - mp.log(2 * mp.pi) / 2 + mp.mpf("0.5")) * x


def _gamma_stirling(v: Any) -> Any:
    """Γ(x) eˣ x^(½-x) / √2π at x = 1/v"""
    return mp.exp(_stirling(v) * v)


def _digamma(u: Any) -> Any:
    d = 1 + u - PSI_ROOT
    return mp.digamma(1 + u) / d if abs(d) > TINY else mp.psi(1, PSI_ROOT)


def _digamma_far(v: Any) -> Any:
    return mp.mpf("0.5") if v == 0 else (mp.log(1 / v) - mp.digamma(1 / v)) / v


def _trigamma(t: Any) -> Any:
    return mp.psi(1, 1 + unmoebius(t, 1))


def _trigamma_far(v: Any) -> Any:
    return mp.mpf("0.5") if v == 0 else (mp.psi(1, 1 / v) / v - 1) / v


# ------------------------------------------------------------------ modified Bessel functions


def _i0(z: Any) -> Any:
    return (mp.besseli(0, 2 * mp.sqrt(z)) - 1) / z if z else mp.mpf(1)


def _i1(z: Any) -> Any:
    x = 2 * mp.sqrt(z)
    return mp.besseli(1, x) / x if z else mp.mpf("0.5")


def _bessel_far(order: int) -> Function:
    def function(t: Any) -> Any:
        v = (t + 1) / 12
        return mp.besseli(order, 1 / v) * mp.exp(-1 / v) / mp.sqrt(v) if v else 1 / mp.sqrt(2 * mp.pi)

    return function


WIDEST = "27.4"  # √-log of the smallest subnormal number of double precision is 27.28

FITS = [
    Fit("ERF", "erf(x)/x - 1 in x² on |x| <= 1", _erf, 0, 1, (5, 5), share=1),
    Fit(
        "ERFC_NEAR",
        "exp(a²) erfc(a) (1 + 2a) in (a - 2)/(a + 2) on 0.25 <= a <= 3.5",
        _erfc_near,
        moebius("0.25", 2),
        moebius("3.5", 2),
        (18, 0),
    ),
    Fit("ERFC_FAR", "exp(a²) erfc(a) a in 1/a² on a >= 3.5", _erfc_far, 0, 1 / mp.mpf("12.25"), (16, 0)),
    Fit("ERFINV", "erfinv(x)/x in x² - 1/8 on |x| <= 0.5", _erfinv, -EIGHTH, EIGHTH, (14, 0)),
    *[
        Fit(
            f"ERFCINV_{name}",
            f"erfcinv(q)/w in (w - {k})/(w + {k}), w = √-log q, on {low} <= w <= {high}",
            partial(_erfcinv_of_root, mp.mpf(k)),
            moebius(low, mp.mpf(k)),
            moebius(high, mp.mpf(k)),
            (degree, 0),
        )
        for name, k, low, high, degree in (
            ("NEAR", "1.5", "0.83", "3", 20),
            ("MIDDLE", "5", "3", "8", 17),
            ("FAR", "14.75", "8", WIDEST, 20),
        )
    ],
    Fit(
        "LGAMMA_NEAR_ONE",
        "log Γ(1+u) / (u (u-1)) in u/(u + 2) on |u| <= 0.5",
        lambda t: _lgamma(2 * t / (1 - t)),
        -HALF / (2 - HALF),
        HALF / (2 + HALF),
        (12, 4),
    ),
    Fit("LGAMMA_TO_FOUR", "log Γ(1+u) / (u (u-1)) on 0.5 <= u <= 3", _lgamma, HALF, 3, (8, 8)),
    Fit("STIRLING", "x · (log Γ(x) less Stirling's main terms) in 1/x on x >= 4", _stirling, 0, QUARTER, (6, 6)),
    Fit("GAMMA_STIRLING", "Γ(x) over Stirling's main factor in 1/x on x >= 4", _gamma_stirling, 0, QUARTER, (6, 6)),
    Fit("DIGAMMA", "ψ(1+u) / (1 + u - root) on 0 <= u <= 3", _digamma, 0, 3, (8, 8)),
    Fit("DIGAMMA_FAR", "x (log x - ψ(x)) in 1/x on x >= 4", _digamma_far, 0, QUARTER, (6, 6)),
    Fit("TRIGAMMA", "ψ'(1+u) in (u - 1)/(u + 1) on 0 <= u <= 3", _trigamma, -1, HALF, (20, 0)),
    Fit("TRIGAMMA_FAR", "x (x ψ'(x) - 1) in 1/x on x >= 4", _trigamma_far, 0, QUARTER, (6, 6), share=QUARTER),
    Fit("BESSEL_I0", "(I0(x) - 1)/z in z = x²/4 on |x| <= 6", _i0, 0, 9, (13, 0)),
    Fit("BESSEL_I1", "I1(x)/x in z = x²/4 on |x| <= 6", _i1, 0, 9, (14, 0)),
    Fit("BESSEL_I0_FAR", "I0(x) exp(-x) √x in 12/x - 1 on x >= 6", _bessel_far(0), -1, 1, (30, 0)),
    Fit("BESSEL_I1_FAR", "I1(x) exp(-x) √x in 12/x - 1 on x >= 6", _bessel_far(1), -1, 1, (30, 0)),
]


# ------------------------------------------------------------------ fitting


def interpolate(fit: Fit) -> tuple[list[Any], list[Any]]:
    """p and q of which p(t) - f(t) q(t) vanishes at the Chebyshev nodes of the interval."""
    above, below = fit.degrees
    count = above + below + 1
    low, high = mp.mpf(fit.low), mp.mpf(fit.high)
    matrix, right = mp.matrix(count, count), mp.matrix(count, 1)
    for i in range(count):
        t = (low + high) / 2 + (high - low) / 2 * mp.cos(mp.pi * (2 * i + 1) / (2 * count))
        y = fit.function(t)
        for j in range(above + 1):
            matrix[i, j] = t**j
        for j in range(1, below + 1):
            matrix[i, above + j] = -y * t**j
        right[i] = y
    found = list(mp.lu_solve(matrix, right))
    return found[: above + 1], [mp.mpf(1), *found[above + 1 :]]


def evaluate(coefficients: list[Any], t: Any) -> Any:
    total = mp.mpf(0)
    for c in reversed(coefficients):
        total = total * t + c
    return total


def largest_error(fit: Fit, p: list[Any], q: list[Any], count: int = 500) -> Any:
    """The largest error on a grid."""
    worst = mp.mpf(0)
    for k in range(count + 1):
        t = fit.low + (mp.mpf(fit.high) - fit.low) * k / count
        below, y = evaluate(q, t), fit.function(t)
        if below <= 0:
            raise ArithmeticError(f"The denominator of {fit.name} has a zero near {mp.nstr(t, 5)}.")
        error = abs(evaluate(p, t) / below - y)
        worst = max(worst, error * fit.share if fit.share else error / abs(y))
    return worst


def in_double(coefficients: list[Any]) -> list[Any]:
    """The coefficients as they are written."""
    return [mp.mpf(float(c)) for c in coefficients]


HEAD = '''"""Coefficients of the special functions' rational approximations, lowest power first. Floor: ops.

Written by `tools/fit_special.py`, which says how they are found; do not edit. The error is that of the approximation
with these coefficients and exact arithmetic, relative to the function that it is a part of."""

# fmt: off

from __future__ import annotations

from typing import NamedTuple


class Ratio(NamedTuple):
    """p(t) / q(t)"""

    p: tuple[float, ...]
    q: tuple[float, ...]


# The positive root of the digamma function less 1: a part that every float type holds, and the rest.
PSI_ROOT = {high}
PSI_ROOT_REST = {rest}
'''


PER_LINE = 4


def text(fit: Fit, p: list[Any], q: list[Any], error: Any) -> str:
    lines = [f"\n# {fit.what}: error {mp.nstr(error, 2)}", f"{fit.name} = Ratio("]
    for part in (p, q):
        numbers = [f"{float(c)!r}," for c in part]
        rows = [" ".join(numbers[k : k + PER_LINE]) for k in range(0, len(numbers), PER_LINE)]
        lines += ["    (", *[f"        {row}" for row in rows], "    ),"]
    return "\n".join([*lines, ")"]) + "\n"


def main() -> None:
    high = mp.floor((PSI_ROOT - 1) * 2**20) / 2**20
    parts = [HEAD.format(high=repr(float(high)), rest=repr(float(PSI_ROOT - 1 - high)))]
    for fit in FITS:
        p, q = interpolate(fit)
        error, rounded = largest_error(fit, p, q), largest_error(fit, *map(in_double, (p, q)))
        print(f"{fit.name:16} {fit.degrees} error {mp.nstr(error, 3)}, rounded {mp.nstr(rounded, 3)}", flush=True)
        if error > ALLOWED or rounded > ALLOWED_ROUNDED:
            raise ArithmeticError(f"{fit.name} is not good enough. Give it other degrees or a smaller interval.")
        parts.append(text(fit, p, q, rounded))
    TARGET.write_text("".join(parts), encoding="utf-8")
    print(f"wrote {TARGET}")


if __name__ == "__main__":
    main()
