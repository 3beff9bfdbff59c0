"""The exponential of matrices on a device, as a graph around a call of the library. Floor: backends.

How often a matrix is squared is known on the device only, and nobody waits for it: all are squared as often as any may
need it, and each keeps what it had once it is done. Matrices so large that no digit of the answer would be right are
NaN."""

from __future__ import annotations

import functools
import math

from gradtape.backends.cuda import library
from gradtape.backends.cuda.matrices import (
    Expand,
    called,
    common_loops,
    expansion,
    identity,
    in_loops,
    marked,
    on_the_diagonal,
    over,
    precision,
    size_of,
    sound,
)
from gradtape.ir.dtypes import DType, float64, int32, int64
from gradtape.ir.graph import Value
from gradtape.ops import matrix_algebra as m
from gradtape.ops.matrix_functions import DOUBLE, SINGLE, log2_of_error
from gradtape.ops.op import constant, emit

LOG_2 = math.log(2.0)
ROUNDS = {"float32": 24, "float64": 50}  # of squaring: sizes up to 1 / (the distance of 1 to the next number)


def expm(a: Value, *along: Value) -> Value:
    """As the host has it: a derivative along X is a block of the exponential of a larger matrix."""
    n = a.aval.dims[-1]
    loops = common_loops(a, *along)
    whole = in_loops(a, loops)
    sizes = []
    for x in along:
        size = _size(x)
        sizes.append(in_loops(size, loops))
        times = whole.aval.dims[-1] // n if n else 1
        whole = _in_blocks(whole, in_loops(_repeated(emit("divide", x, size), times), loops))
    if not whole.aval.size:
        return emit("identity", in_loops(a, loops))
    ok, safe = sound(whole)
    bound, coefficients = DOUBLE if a.aval.dtype.real_dtype is float64 else SINGLE
    squarings = _squarings(safe, bound, len(coefficients) - 1)
    few = emit("less_equal", squarings, constant(ROUNDS[a.aval.dtype.real_dtype.name], int32))
    result = marked(_scaled_and_squared(safe, squarings, coefficients), emit("logical_and", ok, few), 2)
    if not along:
        return result
    corner = m.columns(m.rows(result, 0, n), whole.aval.dims[-1] - n, whole.aval.dims[-1])
    return functools.reduce(lambda v, size: emit("multiply", v, size), sizes, corner)


def _size(x: Value) -> Value:
    """(..., 1, 1): the largest element, which x is divided by; 1 where that is 0 or not finite."""
    if not x.aval.size:
        return constant(1, x.aval.dtype, (*x.aval.dims[:-2], 1, 1))
    size = over("reduce_max", size_of(x), -2, -1)
    real = size.aval.dtype
    usable = emit("logical_and", emit("greater", size, constant(0, real)), emit("is_finite", size))
    return m.cast(emit("select", usable, size, constant(1, real)), x.aval.dtype)


def _repeated(x: Value, times: int) -> Value:
    """A block diagonal matrix with `times` copies of x."""
    if times == 1:
        return x
    *loops, n, _ = x.aval.dims
    one = emit("reshape", x, shape=(*loops, 1, n, 1, n))
    place = emit("reshape", on_the_diagonal(times, times), shape=(times, 1, times, 1))
    return emit("reshape", emit("select", place, one, constant(0, x.aval.dtype)), shape=(*loops, times * n, times * n))


def _in_blocks(a: Value, x: Value) -> Value:
    """[[A, X], [0, A]]"""
    return m.stacked(m.beside(a, x), m.beside(m.zeros(a), a))


# ------------------------------------------------------------------ scaling and squaring


def _scaled_and_squared(a: Value, squarings: Value, coefficients: tuple[float, ...]) -> Value:
    """exp(A) = exp(A / 2^s)^(2^s), every matrix with its own s."""
    scale = m.cast(_power_of_half(squarings, a.aval.dtype.real_dtype), a.aval.dtype)
    result = _approximant(emit("multiply", scale, a), coefficients)
    for done in range(ROUNDS[a.aval.dtype.real_dtype.name]):
        going = emit("greater", squarings, constant(done, int32))
        result = emit("select", going, m.product(result, result), result)
    return result


def _power_of_half(k: Value, real: DType) -> Value:
    """2^-k, exactly: the bits of its exponent."""
    whole, bias, digits = (int64, 1023, 52) if real is float64 else (int32, 127, 23)
    exponent = emit("subtract", constant(bias, whole), m.cast(k, whole))
    return emit("bitcast", emit("left_shift", exponent, constant(digits, whole)), dtype=real)


def _squarings(a: Value, bound: float, degree: int) -> Value:
    """(..., 1, 1), whole numbers: what `ops.matrix_functions` finds, from the powers of the matrix."""
    real = a.aval.dtype.real_dtype

    def number(value: float) -> Value:
        return constant(value, real)

    norm = emit("minimum", _norm(a), number(float(real.max)))
    positive = emit("greater", norm, number(0))
    unit = emit("divide", a, m.cast(emit("select", positive, norm, number(1)), a.aval.dtype))
    square = m.product(unit, unit)
    fourth = m.product(square, square)
    powers = ((4, fourth), (6, m.product(fourth, square)), (8, m.product(fourth, fourth)))
    d4, d6, d8 = (emit("pow", _norm(power), number(1 / k)) for k, power in powers)
    size = emit("minimum", emit("maximum", d4, d6), emit("maximum", d6, d8))
    size = emit("multiply", norm, size)
    least = emit("ceil", _log2(emit("maximum", m.times(size, 1 / bound), number(1))))
    more = _log2(_norm_of_power(size_of(unit), 2 * degree + 1))
    more = m.plus(more, m.times(m.minus(_log2(norm), least), 2.0 * degree))
    more = emit("add", more, number(log2_of_error(degree) - math.log2(precision(real) / 2)))
    further = emit("maximum", emit("ceil", m.times(more, 1 / (2 * degree))), number(0))
    found = emit("minimum", emit("add", least, further), number(100))  # of which 2 to minus this is an ordinary number
    return m.cast(emit("select", positive, found, number(0)), int32)


def _log2(v: Value) -> Value:
    return m.times(emit("log", v), 1 / LOG_2)


def _norm(a: Value) -> Value:
    """(..., 1, 1): the largest column sum."""
    return over("reduce_max", over("reduce_sum", size_of(a), -2), -1)


def _norm_of_power(a: Value, power: int) -> Value:
    """The norm of a power of a matrix without negative elements, by products with a vector."""
    sums = constant(1, a.aval.dtype, (*a.aval.dims[:-2], 1, a.aval.dims[-1]))
    for _ in range(power):
        sums = m.product(sums, a)
    return over("reduce_max", sums, -2, -1)


def _approximant(a: Value, coefficients: tuple[float, ...]) -> Value:
    """(V - U)⁻¹ (V + U) with the odd powers in U and the even ones in V."""
    square = m.product(a, a)
    power = identity(a.aval.dims, a.aval.dtype)
    odd: Value | None = None
    even: Value | None = None
    for k in range(0, len(coefficients), 2):
        even = m.plus(even, m.times(power, coefficients[k]))
        odd = m.plus(odd, m.times(power, coefficients[k + 1]))
        if k + 2 < len(coefficients):
            power = m.product(power, square)
    assert odd is not None and even is not None
    odd = m.product(a, odd)
    found: Value = called(library.SOLVE, m.minus(even, odd), emit("add", even, odd))
    return found


EXPANSIONS: dict[str, Expand] = {"expm": expansion(expm)}
