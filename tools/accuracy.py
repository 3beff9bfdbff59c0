"""Measures the worst error of every pointwise op of floating tensors, in units in the last place, against mpmath.

    python tools/accuracy.py                 # measure all, write docs/accuracy.md
    python tools/accuracy.py erf lgamma      # measure and print these

Operands are drawn over the whole range of the dtype (log-spaced, both signs, subnormal and huge numbers), over
moderate intervals, and at and next to the places where something happens: integers, halves, multiples of π/2, and those
listed in `PLACES`. The reference is that of the op table's tests, in as many digits as it takes until it settles."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402  (the path above has to come first)

import gradtape.ops  # noqa: E402, F401  (declares the built-in ops)
from gradtape.backends.cpu import lower  # noqa: E402
from gradtape.ir.dtypes import DType, float32, float64  # noqa: E402
from gradtape.ops.accuracy import Bound, bound_of  # noqa: E402
from gradtape.ops.op import all_ops, lookup  # noqa: E402
from gradtape.ops.pointwise import Pointwise  # noqa: E402
from gradtape.runtime.state import STATE  # noqa: E402
from tests.op_table.scalar_reference import MP, scalar  # noqa: E402

PAGE = ROOT / "docs" / "accuracy.md"
POINTS = 3000  # of the page; tests take fewer
DIGITS = (40, 120, 400, 900)  # tried in turn

# Ops that change no number, or make none that is real: there is nothing to measure.
UNMEASURED = {
    "assigned": "one of two numbers",
    "bitcast": "moves bytes",
    "cast": "one rounding by the array library",
    "complex": "joins two numbers",
    "conj": "the number itself",
    "identity": "the number itself",
    "imag": "the number itself",
    "real": "the number itself",
    "select": "one of two numbers",
    "stop_gradient": "the number itself",
}

# Where an op has zeros, poles, branch points or a change of formula that the general places miss.
PLACES: dict[str, tuple[float, ...]] = {
    "digamma": (1.4616321449683622, -0.504083008264455, -1.573498473162391, 4.0),
    "elu": (-0.7, 0.7),
    "erfinv": (0.5, -0.5, 0.9999, -0.9999),
    "erfcinv": (0.5, 1.5, 1e-30, 1e-7, 1.9999),
    "gelu": (-37.0, -14.0, -38.2),
    "lgamma": (-2.4570247382208006, -2.7476826467274127, -3.1435808883499798, 4.0),
    "ndtri": (0.25, 0.75, 1e-8, 1e-30, 0.9999),
    "bessel_i0": (6.0, 700.0, 88.0),
    "bessel_i1": (6.0, 700.0, 88.0),
}
# Operands that must be whole numbers or stay in an interval for the op to be defined at all.
WHOLE: dict[str, dict[int, tuple[float, float]]] = {"polygamma": {0: (0, 20)}}
INSIDE: dict[str, dict[int, tuple[float, float]]] = {"zeta": {0: (1.0, 30.0)}, "sigmoid_cross_entropy": {0: (0, 1)}}
POSITIVE = {"polygamma": {1}, "zeta": {1}}  # on the negative axis the two sides of a pole cancel


@dataclass(frozen=True)
class Found:
    """The worst error of an op in one dtype, where it is, and how many numbers were compared."""

    ulps: float
    at: tuple[float, ...]
    count: int


def measured_ops() -> list[Pointwise]:
    """Every pointwise op with a real floating result."""
    return [
        op
        for op in all_ops()
        if isinstance(op, Pointwise) and "f" in op.accepts and op.result != "bool" and op.name not in UNMEASURED
    ]


# ------------------------------------------------------------------ operands


def _neighbours(places: Any, dtype: Any) -> Any:
    places = np.asarray(places, dtype)
    up, down = np.nextafter(places, dtype.type(np.inf)), np.nextafter(places, dtype.type(-np.inf))
    near = places * (1 + np.array([1e-3, -1e-3, 1e-6, -1e-6], dtype))[:, None]
    return np.concatenate([places, up, down, near.ravel()])


def general(rng: np.random.Generator, dtype: Any, count: int) -> Any:
    """Numbers from everywhere, shuffled."""
    limits = np.finfo(dtype)
    low, high = np.log(float(limits.smallest_subnormal)), np.log(float(limits.max))
    wide = np.exp(rng.uniform(low, high, count // 4))
    middle = np.exp(rng.uniform(np.log(1e-9), np.log(1e4), count // 4))
    signs = rng.choice([-1.0, 1.0], count // 4)
    spans = [rng.uniform(-r, r, count // 10) for r in (1.0, 3.0, 10.0, 40.0, 800.0)]
    with np.errstate(over="ignore"):
        drawn = np.concatenate([wide * signs, middle * signs, *spans]).astype(dtype)
    halves = np.arange(-12, 13) / 2
    places = _neighbours(np.concatenate([halves, np.arange(-8, 9) * (np.pi / 2)]), dtype)
    ends = np.array([limits.max, limits.smallest_normal, limits.smallest_subnormal], dtype)
    numbers = np.concatenate([drawn, places, ends, -ends])
    rng.shuffle(numbers)
    return numbers


def operands(op: Pointwise, dtype: Any, count: int, seed: int = 0) -> list[Any]:
    """One array per operand of the op."""
    rng = np.random.default_rng([seed, *op.name.encode()])
    columns = []
    for i in range(len(op.operands)):
        numbers = general(rng, dtype, count)
        if i == 0 and op.name in PLACES:
            numbers = np.concatenate([_neighbours(PLACES[op.name], dtype), numbers])
        if i in WHOLE.get(op.name, {}):
            low, high = WHOLE[op.name][i]
            numbers = rng.integers(int(low), int(high) + 1, numbers.size).astype(dtype)
        if i in INSIDE.get(op.name, {}):
            low, high = INSIDE[op.name][i]
            numbers = rng.uniform(low, high, numbers.size).astype(dtype)
        columns.append(np.abs(numbers) if i in POSITIVE.get(op.name, ()) else numbers)
    size = min(c.size for c in columns)
    columns = [c[:size] for c in columns]
    if len(columns) == 2 and not WHOLE.get(op.name) and not INSIDE.get(op.name):
        # A third of the pairs are close to each other, where differences and remainders cancel.
        close = slice(0, size // 3)
        columns[1][close] = columns[0][close] * (1 - rng.uniform(0, 1e-3, size // 3)).astype(dtype)
    return columns


# ------------------------------------------------------------------ errors


def exact(op: Pointwise, xs: tuple[float, ...]) -> Any:
    """The reference's value once more digits do not change it; None where it is no finite real number."""
    previous = None
    for digits in DIGITS:
        MP.dps = digits
        try:
            value = scalar(op)(*[MP.mpf(x) for x in xs])
        finally:
            MP.dps = DIGITS[0]
        if value is None or isinstance(value, MP.mpc) or value != value or MP.isinf(value):
            return None
        value = MP.mpf(value)
        if previous is not None and abs(value - previous) <= abs(value) * MP.mpf("1e-25"):
            return value
        previous = value
    raise ArithmeticError(f"The reference of `{op.name}` does not settle at {xs}.")


def ulps(got: float, want: Any, dtype: Any, floor: float) -> float:
    """|got - want| in units in the last place of `want`, or of `floor` where that is larger."""
    limits = np.finfo(dtype)
    if abs(want) > MP.mpf(float(limits.max)):
        return 0.0 if np.isinf(got) or abs(got) == float(limits.max) else float("inf")
    if not np.isfinite(got):
        return float("inf")
    return float(abs(MP.mpf(got) - want) / MP.mpf(spacing(max(abs(float(want)), floor), dtype)))


def spacing(size: float, dtype: Any) -> float:
    """The distance to the next smaller number of the dtype at a size that may lie between two of its numbers."""
    limits = np.finfo(dtype)
    exponent = max(int(np.frexp(size)[1]), int(limits.minexp) + 1)
    return float(np.ldexp(1.0, exponent - 1 - limits.nmant))


def measure(op: Pointwise, dtype: DType, count: int, seed: int = 0) -> Found:
    """The worst error of an op among `count` drawn operands, give or take the special places."""
    kind = dtype.numpy_dtype
    columns = operands(op, kind, count, seed)
    results = STATE.run(lower(op.bind()), *columns)
    floor = bound_of(op.name).floor
    worst, at, compared = 0.0, (float("nan"),) * len(columns), 0
    for got, xs in zip(results, zip(*columns, strict=True), strict=True):
        numbers = tuple(float(x) for x in xs)
        want = exact(op, numbers)
        if want is None:
            continue
        compared += 1
        error = ulps(float(got), want, kind, floor)
        if error > worst:
            worst, at = error, numbers
    return Found(worst, at, compared)


# ------------------------------------------------------------------ the page

HEAD = """# Accuracy

The worst error found of every elementwise op, in units in the last place (ulp): half a unit is a correctly rounded
result. Operands cover the whole range of the dtype, subnormal and huge numbers, zeros, poles and branch points;
mpmath says what is right. The bounds are those of the declarations, and the tests hold the ops to them. Measured with
NumPy {numpy} on one machine; where NumPy's own function is the op, other processors may differ a little.

Written by `python tools/accuracy.py`.

| op | float32 | float64 | worst operand in float64 | bounds | why |
|---|---|---|---|---|---|
"""
TAIL = """
Ops that change no number, or make none that is real, are not measured: {names}.
"""


def row(op: Pointwise, single: Found, double: Found) -> str:
    bound = bound_of(op.name)
    at = ", ".join(f"{x:.6g}" for x in double.at) if double.ulps else ""
    limits = f"{bound.single:g} / {bound.double:g}"
    why = remark(bound) + ("measured for positive operands" if op.name in POSITIVE else "")
    return f"| `{op.name}` | {single.ulps:.2f} | {double.ulps:.2f} | {at} | {limits} | {why} |"


def remark(bound: Bound) -> str:
    relative = f"relative to {bound.floor:g} where the result is smaller" if bound.floor else ""
    return "; ".join(part for part in (relative, bound.reason) if part)


def rows(ops: list[Pointwise], count: int) -> Iterator[str]:
    for op in ops:
        yield row(op, measure(op, float32, count), measure(op, float64, count))


def main(names: list[str]) -> None:
    if names:
        chosen = [op for name in names if isinstance(op := lookup(name), Pointwise)]
        for line in rows(chosen, POINTS):
            print(line, flush=True)
        return
    lines = []
    for line in rows(measured_ops(), POINTS):
        print(line, flush=True)
        lines.append(line)
    tail = TAIL.format(names=", ".join(f"`{n}` ({why})" for n, why in sorted(UNMEASURED.items())))
    PAGE.write_text(HEAD.format(numpy=np.__version__) + "\n".join(lines) + "\n" + tail, encoding="utf-8")
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main(sys.argv[1:])
