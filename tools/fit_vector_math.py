"""Fits the polynomials of the vectorised elementary functions and writes `kernels/vector_coefficients.py`.

Each interpolates at Chebyshev nodes in 60 digits, whose error is within a small factor of the smallest possible. There
is one for each float type, of the lowest degree whose error is at most 2⁻²⁷ or 2⁻⁵⁷ of the value that it is a part of
(see `share`), or what `targets` says. Run it after a change here; a test makes some of them again.

    python tools/fit_vector_math.py
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mpmath as mp
import numpy as np

mp.mp.dps = 60
TARGET = Path(__file__).parents[1] / "kernels" / "vector_coefficients.py"
TINY = mp.mpf(10) ** -12  # below which a quotient is taken as its limit: no node comes so close to 0
TYPES: dict[str, Any] = {"single": np.float32, "double": np.float64}

Function = Callable[[Any], Any]


@dataclass(frozen=True)
class Fit:
    """What is approximated, where, and how large its error is in the value that it is a part of.

    Args:
      low, high: the interval; `high` may differ between the types.
      share: what an error of this part is multiplied by in the value, relative to that; None: the error is relative.
      targets: the exponents of the largest error by type; a type that is not named has no table.
    """

    name: str
    what: str
    function: Function
    low: Any
    high: Any
    share: Any
    targets: dict[str, int] = field(default_factory=lambda: {"single": -27, "double": -57})

    def interval(self, kind: str) -> tuple[Any, Any]:
        high = self.high[kind] if isinstance(self.high, dict) else self.high
        return mp.mpf(self.low), mp.mpf(high)


# ------------------------------------------------------------------ what is approximated


def _exp(r: Any) -> Any:
    return (mp.expm1(r) - r) / r**2 if abs(r) > TINY else mp.mpf(1) / 2


def _log(f: Any) -> Any:
    return (mp.log1p(f) - f + f * f / 2) / f**3 if abs(f) > TINY else mp.mpf(1) / 3


def _log_of_ratio(z: Any) -> Any:
    s = mp.sqrt(z)
    return (2 * mp.atanh(s) / s - 2) / z if z > TINY else mp.mpf(2) / 3


def _rest_of_log(z: Any) -> Any:
    return (_log_of_ratio(z) - mp.mpf(2) / 3) / z if z > TINY else mp.mpf(2) / 5


def _sin(z: Any) -> Any:
    r = mp.sqrt(z)
    return (mp.sin(r) / r - 1) / z if z > TINY else -mp.mpf(1) / 6


def _cos(z: Any) -> Any:
    return (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2 if z > TINY else mp.mpf(1) / 24


def _atan(z: Any) -> Any:
    a = mp.sqrt(z)
    return (mp.atan(a) / a - 1) / z if z > TINY else -mp.mpf(1) / 3


def _asin(z: Any) -> Any:
    s = mp.sqrt(z)
    return (mp.asin(s) / s - 1) / z if z > TINY else mp.mpf(1) / 6


def _sinh(z: Any) -> Any:
    x = mp.sqrt(z)
    return (mp.sinh(x) / x - 1) / z if z > TINY else mp.mpf(1) / 6


def _erf(z: Any) -> Any:
    x = mp.sqrt(z)
    return mp.erf(x) / x - 1 if z > TINY else 2 / mp.sqrt(mp.pi) - 1


ERFC_CENTRE = 2  # of the variable (a - 2)/(a + 2)


def moebius(a: Any, centre: int) -> Any:
    return (mp.mpf(a) - centre) / (mp.mpf(a) + centre)


def _scaled_erfc(t: Any) -> Any:
    a = ERFC_CENTRE * (1 + t) / (1 - t)
    return mp.exp(a * a) * mp.erfc(a) * (a + ERFC_CENTRE)


NORMAL_CENTRE = 3


def _scaled_normal_tail(t: Any) -> Any:
    a = NORMAL_CENTRE * (1 + t) / (1 - t)
    return mp.exp(a * a / 2) * mp.erfc(a / mp.sqrt(2)) / 2 * (a + NORMAL_CENTRE)


HALF_LOG_2 = mp.log(2) / 2 + mp.mpf("0.0005")  # and what the rounding of a quotient adds
EIGHTH_TURN = mp.pi / 4 + mp.mpf("0.001")
LOW, HIGH = mp.sqrt(mp.mpf("0.5")) - 1, mp.sqrt(2) - 1 + mp.mpf(10) ** -6  # of f = m - 1, m the mantissa
RATIO = (HIGH / (2 + HIGH)) ** 2 * (1 + mp.mpf(10) ** -6)

FITS = [
    Fit("EXP", "(exp(r) - 1 - r)/r² on |r| <= log(2)/2", _exp, -HALF_LOG_2, HALF_LOG_2, HALF_LOG_2),
    Fit(
        "EXP_POW",
        "(exp(r) - 1 - r)/r² on |r| <= log(2)/2, for powers of single precision in double precision",
        _exp,
        -HALF_LOG_2,
        HALF_LOG_2,
        HALF_LOG_2**2,
        {"double": -36},
    ),
    Fit("LOG", "(log(1+f) - f + f²/2)/f³ on √½ <= 1 + f <= √2", _log, LOW, HIGH, HIGH**2, {"single": -27}),
    Fit(
        "LOG_RATIO",
        "(log((1+s)/(1-s))/s - 2)/z in z = s² on the same",
        _log_of_ratio,
        0,
        RATIO,
        RATIO / 2,
        {"double": -58},
    ),
    Fit(
        "LOG_POW",
        "the same, for powers of single precision in double precision",
        _log_of_ratio,
        0,
        RATIO,
        RATIO / 2,
        {"double": -38},
    ),
    Fit(
        "LOG_POW_REST",
        "(log((1+s)/(1-s))/s - 2 - z·2/3)/z² in z = s² on the same, for powers of double precision",
        _rest_of_log,
        0,
        RATIO,
        RATIO**2 / 2,
        {"double": -67},
    ),
    Fit("SIN", "(sin(r)/r - 1)/z in z = r² on |r| <= π/4", _sin, 0, EIGHTH_TURN**2, EIGHTH_TURN**2),
    Fit(
        "COS", "(cos(r) - 1 + z/2)/z² in z = r² on |r| <= π/4", _cos, 0, EIGHTH_TURN**2, EIGHTH_TURN**4 / mp.mpf("0.7")
    ),
    Fit("ATAN", "(atan(a)/a - 1)/z in z = a² on 0 <= a <= 1", _atan, 0, 1, mp.mpf("1.3")),
    Fit("ASIN", "(asin(s)/s - 1)/z in z = s² on 0 <= s <= ½", _asin, 0, mp.mpf("0.25"), mp.mpf("0.25")),
    Fit("SINH", "(sinh(x)/x - 1)/z in z = x² on 0 <= x <= 1", _sinh, 0, 1, 1),
    Fit("ERF", "erf(x)/x - 1 in x² on |x| <= 1", _erf, 0, 1, 1),
    Fit(
        "ERFC",
        f"exp(a²) erfc(a) (a + {ERFC_CENTRE}) in (a - {ERFC_CENTRE})/(a + {ERFC_CENTRE}), from ½ to where erfc(a) is 0",
        _scaled_erfc,
        moebius("0.49", ERFC_CENTRE),
        {"single": moebius("10.3", ERFC_CENTRE), "double": moebius("27.7", ERFC_CENTRE)},
        None,
        {"single": -26, "double": -57},
    ),
    Fit(
        "NORMAL",
        f"exp(a²/2) P(X > a) (a + {NORMAL_CENTRE}) in (a - {NORMAL_CENTRE})/(a + {NORMAL_CENTRE}), from 0.7 on",
        _scaled_normal_tail,
        moebius("0.7", NORMAL_CENTRE),
        {"single": moebius("14.6", NORMAL_CENTRE), "double": moebius("39.1", NORMAL_CENTRE)},
        None,
        {"single": -26, "double": -56},
    ),
]

# ------------------------------------------------------------------ numbers that are split


def parts(value: Any, count: int, kind: str = "double") -> list[float]:
    """`count` numbers of a float type whose sum is the value: each the rest, rounded."""
    found: list[float] = []
    for _ in range(count):
        found.append(float(TYPES[kind](mp.nstr(value - sum(map(mp.mpf, found)), 40))))
    return found


def constants() -> dict[str, list[float]]:
    return {
        # The heads have places to spare: a whole number times one of them is exact.
        "LOG_2_SINGLE": _head_and_rest(mp.log(2), 16, "single"),
        "LOG_2_DOUBLE": _head_and_rest(mp.log(2), 42, "double"),
        "LOG_2_PARTS_SINGLE": parts(mp.log(2), 2, "single"),
        "LOG_2_PARTS_DOUBLE": parts(mp.log(2), 2),
        "HALF_PI_SINGLE": parts(mp.pi / 2, 2, "single"),
        "HALF_PI_DOUBLE": parts(mp.pi / 2, 3),
        "TWO_THIRDS": parts(mp.mpf(2) / 3, 2),
    }


def _head_and_rest(value: Any, bits: int, kind: str) -> list[float]:
    """The value in so many binary places, and the rest rounded."""
    head = mp.nint(value * mp.mpf(2) ** bits) / mp.mpf(2) ** bits
    return [float(head), *parts(value - head, 1, kind)]


# ------------------------------------------------------------------ fitting


def interpolate(fit: Fit, kind: str, degree: int) -> list[Any]:
    """The polynomial through the Chebyshev nodes of the interval, lowest power first."""
    low, high = fit.interval(kind)
    count = degree + 1
    matrix, right = mp.matrix(count, count), mp.matrix(count, 1)
    for i in range(count):
        t = (low + high) / 2 + (high - low) / 2 * mp.cos(mp.pi * (2 * i + 1) / (2 * count))
        right[i] = fit.function(t)
        for j in range(count):
            matrix[i, j] = t**j
    return list(mp.lu_solve(matrix, right))


def evaluate(coefficients: Sequence[Any], t: Any) -> Any:
    total = mp.mpf(0)
    for c in reversed(coefficients):
        total = total * t + c
    return total


def largest_error(fit: Fit, kind: str, coefficients: Sequence[Any], count: int = 200) -> Any:
    """The largest error on a grid."""
    low, high = fit.interval(kind)
    worst = mp.mpf(0)
    for k in range(count + 1):
        t = low + (high - low) * k / count
        y = fit.function(t)
        error = abs(evaluate(coefficients, t) - y)
        worst = max(worst, error * fit.share if fit.share else error / abs(y))
    return worst


def rounded(coefficients: Sequence[Any], kind: str) -> list[float]:
    """The coefficients as they are written."""
    return [float(TYPES[kind](mp.nstr(c, 40))) for c in coefficients]


def lowest(fit: Fit, kind: str) -> tuple[list[float], Any]:
    """The coefficients of the lowest degree that keeps the target, and their error once they are rounded."""
    allowed = mp.mpf(2) ** fit.targets[kind]
    for degree in range(1, 40):
        found = interpolate(fit, kind, degree)
        if largest_error(fit, kind, found) <= allowed:
            written = rounded(found, kind)
            return written, largest_error(fit, kind, [mp.mpf(c) for c in written])
    raise ArithmeticError(f"{fit.name} needs too many terms in {kind} precision. Give it a smaller interval.")


HEAD = '''"""Coefficients of the vectorised functions' polynomials, lowest power first, and constants. Floor: kernels.

Written by `tools/fit_vector_math.py`, which says how they are found; do not edit. The error is that of the polynomial
with these coefficients and exact arithmetic, relative to the value that it is a part of."""

# fmt: off

from __future__ import annotations
'''
PER_LINE = 4


def text(name: str, remark: str, numbers: Sequence[float]) -> str:
    words = [f"{c!r}," for c in numbers]
    rows = [" ".join(words[k : k + PER_LINE]) for k in range(0, len(words), PER_LINE)]
    return "\n".join([f"\n# {remark}", f"{name} = (", *[f"    {row}" for row in rows], ")"]) + "\n"


def main() -> None:
    lines = [HEAD]
    for name, numbers in constants().items():
        lines.append(f"\n{name} = ({', '.join(map(repr, numbers))})\n")
    for fit in FITS:
        for kind in fit.targets:
            numbers, error = lowest(fit, kind)
            print(f"{fit.name:14} {kind} degree {len(numbers) - 1}, error {mp.nstr(error, 3)}", flush=True)
            remark = f"{fit.what}: error {mp.nstr(error, 2)}"
            lines.append(text(f"{fit.name}_{kind.upper()}", remark, numbers))
    TARGET.write_text("".join(lines), encoding="utf-8")
    print(f"wrote {TARGET}")


if __name__ == "__main__":
    main()
