"""What elementwise functions do at zeros, poles, ties and ends: values, gradients, and gradients of gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np
import pytest

import gradtape as tf

INF, NAN = math.inf, math.nan


def derivatives(f: Callable[..., Any], *at: float) -> tuple[float, list[float], list[list[float]]]:
    """The value of a function of numbers, its gradient and its Hessian, by a tape in a tape."""
    xs = [tf.constant(x, tf.float64) for x in at]
    with tf.GradientTape(persistent=True) as outer:
        outer.watch(xs)
        with tf.GradientTape() as inner:
            inner.watch(xs)
            y = f(*xs)
        first = inner.gradient(y, xs, unconnected_gradients="zero")
    second = [[float(h) for h in outer.gradient(g, xs, unconnected_gradients="zero")] for g in first]
    return float(y), [float(g) for g in first], second


def same(got: Any, want: Any) -> None:
    """Equal numbers, in lists and tuples of any depth."""
    if isinstance(want, list | tuple):
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            same(g, w)
        return
    np.testing.assert_allclose(np.array(got), np.array(want), rtol=1e-12, atol=1e-300)


# ------------------------------------------------------------------ powers


@pytest.mark.parametrize(
    ("x", "y", "value", "first", "second"),
    [
        (0.0, 0.0, 1, [0, 0], [[0, INF], [INF, 0]]),
        (0.0, 1.0, 0, [1, 0], [[0, 0], [1, 0]]),
        (0.0, 2.0, 0, [0, 0], [[2, 0], [0, 0]]),
        (0.0, 3.0, 0, [0, 0], [[0, 0], [0, 0]]),
        (0.0, 0.5, 0, [INF, 0], None),
        (0.0, -1.0, INF, [-INF, NAN], None),
        (-2.0, 0.0, 1, [0, 0], [[0, -0.5], [-0.5, 0]]),
        (2.0, 0.0, 1, [0, math.log(2)], [[0, 0.5], [0.5, math.log(2) ** 2]]),
        (-2.0, 1.0, -2, [1, 0], [[0, 1], [1, 0]]),
        (-2.0, 2.0, 4, [-4, 0], [[2, -2], [-2, 0]]),
        (-2.0, 3.0, -8, [12, 0], [[-12, 4], [4, 0]]),
        (-2.0, -2.0, 0.25, [0.25, 0], None),
    ],
)
def test_powers_of_zero_and_negative_bases(x: float, y: float, value: float, first: Any, second: Any) -> None:
    """The slope by the exponent is 0 where there is no logarithm; a square's curvature is there at 0 as well."""
    got = derivatives(tf.pow, x, y)
    same(got[0], value)
    same(got[1][0], first[0])
    if not math.isnan(first[1]):
        same(got[1][1], first[1])
    if second is not None:
        same(got[2][0][0], second[0][0])
        same(got[2][1][1], second[1][1])
    constant = derivatives(lambda v: v**y, x)
    same(constant[:2], (value, [first[0]]))


def test_root_of_zero() -> None:
    same(derivatives(lambda x: x**0.5, 0.0)[:2], (0.0, [INF]))
    same(derivatives(tf.sqrt, 0.0)[:2], (0.0, [INF]))
    same(derivatives(lambda x: 0.0 * tf.sqrt(x), 0.0), (0.0, [0.0], [[0.0]]))


# ------------------------------------------------------------------ products and quotients that are 0 at 0


@pytest.mark.parametrize("y", [0.0, -1.0, INF, NAN, 2.0])
@pytest.mark.parametrize("name", ["xlogy", "xlog1py", "xdivy"])
def test_nothing_flows_where_the_first_operand_is_zero(name: str, y: float) -> None:
    value, first, second = derivatives(getattr(tf.math, name), 0.0, y)
    assert (value, first, second) == (0.0, [0.0, 0.0], [[0.0, 0.0], [0.0, 0.0]])


def test_guarded_functions_elsewhere() -> None:
    x, y = 1.5, 0.7
    same(derivatives(tf.math.xlogy, x, y), (x * math.log(y), [math.log(y), x / y], [[0, 1 / y], [1 / y, -x / y**2]]))
    z = y + 1
    same(derivatives(tf.math.xlog1py, x, y), (x * math.log(z), [math.log(z), x / z], [[0, 1 / z], [1 / z, -x / z**2]]))
    second = [[0, -1 / y**2], [-1 / y**2, 2 * x / y**3]]
    same(derivatives(tf.math.xdivy, x, y), (x / y, [1 / y, -x / y**2], second))
    assert np.isneginf(tf.math.xlogy(2.0, 0.0))
    same(derivatives(tf.math.divide_no_nan, 2.0, 0.0), (0.0, [0.0, 0.0], [[0.0, 0.0], [0.0, 0.0]]))
    same(derivatives(tf.math.reciprocal_no_nan, 0.0), (0.0, [0.0], [[0.0]]))


# ------------------------------------------------------------------ kinks, ties and ends


def test_kinks() -> None:
    same(derivatives(tf.abs, 0.0), (0.0, [0.0], [[0.0]]))
    same(derivatives(tf.sign, 0.0), (0.0, [0.0], [[0.0]]))
    same(derivatives(tf.nn.elu, 0.0), (0.0, [1.0], [[0.0]]))
    x = tf.constant([-1.0, 0.0, 2.0])
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = tf.nn.leaky_relu(x)
        slope = inner.gradient(y, x)
    np.testing.assert_array_equal(slope, np.float32([0.2, 0.2, 1.0]))
    np.testing.assert_array_equal(outer.gradient(slope, x), np.zeros(3))  # connected, and flat
    for x in (-3.0, 2.0):
        size = 1 + abs(x)
        same(derivatives(tf.nn.softsign, x), (x / size, [1 / size**2], [[-2 * math.copysign(1, x) / size**3]]))


def test_slopes_at_the_ends_of_inverse_functions() -> None:
    """They are infinite there, and so are theirs, as in TensorFlow."""
    same(derivatives(tf.asin, 1.0), (math.pi / 2, [INF], [[INF]]))
    same(derivatives(tf.asin, -1.0), (-math.pi / 2, [INF], [[-INF]]))
    same(derivatives(tf.acos, 1.0), (0.0, [-INF], [[-INF]]))
    same(derivatives(tf.acosh, 1.0), (0.0, [INF], [[-INF]]))


@pytest.mark.parametrize("f", [tf.maximum, tf.minimum])
def test_ties_go_to_the_first(f: Any) -> None:
    same(derivatives(f, 2.0, 2.0)[:2], (2.0, [1.0, 0.0]))


@pytest.mark.parametrize(("x", "slope"), [(-2.0, 0.0), (-1.0, 1.0), (0.3, 1.0), (1.0, 1.0), (1.5, 0.0)])
def test_both_bounds_of_clip_pass(x: float, slope: float) -> None:
    _, (by_x, by_low, by_high), _ = derivatives(tf.clip_by_value, x, -1.0, 1.0)
    assert (by_x, by_low, by_high) == (slope, float(x < -1), float(x > 1))


@pytest.mark.parametrize(("y", "x"), [(1.0, 0.0), (-1.0, 0.0), (0.0, 1.0), (0.0, -1.0), (-0.0, -1.0), (2.0, -3.0)])
def test_angles_on_the_axes(y: float, x: float) -> None:
    """The angle and its slopes, also by the Hessian, which has no trace: an angle is harmonic."""
    value, first, second = derivatives(tf.math.atan2, y, x)
    square = x * x + y * y
    same(value, math.atan2(y, x))
    same(first, [x / square, -y / square])
    same(second[0][0] + second[1][1], 0.0)
    same(second[0][1], (y * y - x * x) / square**2)


def test_angles_of_numbers() -> None:
    assert tf.math.angle(tf.constant([1.0, -1.0, 0.0])).numpy().tolist() == [0.0, np.float32(math.pi), 0.0]
    z = tf.constant([3 - 4j])
    with tf.GradientTape() as tape:
        tape.watch(z)
        y = tf.math.angle(z)
    np.testing.assert_allclose(tape.gradient(y, z), [1j * (3 - 4j) / 25])


def test_sign_of_complex_numbers_has_a_slope() -> None:
    """z / |z| turns with z: moving along the circle counts, moving outwards does not."""
    z = tf.constant([3 + 4j, 0j])
    with tf.GradientTape() as tape:
        tape.watch(z)
        y = tf.math.imag(tf.sign(z))
    np.testing.assert_allclose(tf.sign(z), [0.6 + 0.8j, 0])
    np.testing.assert_allclose(tape.gradient(y, z), [(-12 + 9j) / 125, 0], atol=1e-15)


def test_logarithm_near_one_of_complex_numbers() -> None:
    """Both parts of log(1 + z) keep their digits where z is small."""
    z = np.array([1e-20 + 1e-22j, -9e-12 + 8e-21j, 1e-9j, 0.3 - 0.4j, -0.49 + 0.01j, 2 - 5j])
    with mp.workdps(60):
        want = [complex(mp.log(1 + mp.mpc(complex(v)))) for v in z]
    got = tf.math.log1p(z).numpy()
    np.testing.assert_allclose(got.real, np.real(want), rtol=4e-15)
    np.testing.assert_allclose(got.imag, np.imag(want), rtol=4e-15)


# ------------------------------------------------------------------ special functions


def test_poles_and_ends() -> None:
    def values(f: Callable[..., Any], *xs: float) -> list[float]:
        return [float(v) for v in f(tf.constant(xs, tf.float64)).numpy()]

    same(values(tf.math.lgamma, 0.0, -1.0, -7.0, INF, -INF), [INF] * 5)
    same(values(tf.math.digamma, 0.0, -1.0, -7.0, INF, -INF), [NAN, NAN, NAN, INF, NAN])
    same(values(tf.math.erfinv, -1.0, 1.0, 1.5, -2.0), [-INF, INF, NAN, NAN])
    same(values(tf.math.erfcinv, 0.0, 2.0, -0.1, 2.5), [INF, -INF, NAN, NAN])
    same(values(tf.math.ndtri, 0.0, 1.0, 0.5, 1.5, -0.1), [-INF, INF, 0.0, NAN, NAN])
    same(values(lambda x: tf.math.polygamma(x, 2.0 * x), 0.5, -1.0), [NAN, NAN])
    same(values(lambda x: tf.math.polygamma(3.0 + 0 * x, x), 0.0, -2.0), [INF, INF])
    same(values(lambda x: tf.math.polygamma(2.0 + 0 * x, x), 0.0, -2.0), [NAN, NAN])
    same(values(lambda x: tf.math.zeta(x, 1.0 + 0 * x), 1.0, 0.5, NAN), [INF, NAN, NAN])
    same(values(tf.math.erfc, 27.0, 30.0, -30.0), [float(mp.erfc(27)), 0.0, 2.0])


@pytest.mark.parametrize("x", [-4.3, -0.4, -1e-3, 1e-6, 0.3, 1.0, 1.4616321449683622, 2.0, 3.7, 12.5, 1e5])
def test_derivatives_of_lgamma(x: float) -> None:
    """digamma, trigamma and what follows, on both sides of 0, at the zeros of lgamma and of digamma."""
    t = tf.constant(x, tf.float64)
    f = tf.math.lgamma
    for order in range(4):
        with tf.GradientTape() as tape:
            tape.watch(t)
            y = f(t)
        got = float(tape.gradient(y, t))
        with mp.workdps(40):
            want = float(mp.psi(order, mp.mpf(x)))
        assert got == pytest.approx(want, rel=1e-13, abs=1e-15)
        f = [tf.math.digamma, *[lambda v, n=n: tf.math.polygamma(tf.constant(n, tf.float64), v) for n in (1.0, 2.0)]][
            min(order, 2)
        ]


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_gelu_keeps_its_left_tail(dtype: Any) -> None:
    """1 + erf(x) would be 0 from -4 on in single precision; the function and its slope are not."""
    x = tf.constant([-12.0, -8.0, -5.0, -1.0], dtype)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.nn.gelu(x)
    density = np.exp(-(x.numpy().astype(float) ** 2) / 2) / math.sqrt(2 * math.pi)
    tail = np.array([float(mp.ncdf(v)) for v in (-12, -8, -5, -1)])
    np.testing.assert_allclose(y, x.numpy() * tail, rtol=5e-6)
    np.testing.assert_allclose(tape.gradient(y, x), tail + x.numpy() * density, rtol=5e-6)


def test_inverses_undo() -> None:
    p = tf.constant(np.concatenate([10.0 ** -np.arange(1, 300, 13), np.linspace(0.01, 0.99, 30)]))
    np.testing.assert_allclose(tf.math.erfc(tf.math.erfcinv(p)), p, rtol=2e-12)
    x = tf.constant(np.linspace(-0.999, 0.999, 41))
    np.testing.assert_allclose(tf.math.erf(tf.math.erfinv(x)), x, rtol=1e-14)


# ------------------------------------------------------------------ bits and casts


def test_bytes_of_another_dtype() -> None:
    x = np.random.default_rng(3).normal(size=(2, 4))
    assert tf.bitcast(x, tf.float64).numpy().tolist() == x.tolist()
    assert (tf.bitcast(x, tf.int64).numpy() == x.view(np.int64)).all()
    assert (tf.bitcast(x, tf.uint16).numpy() == x.view(np.uint16).reshape(2, 4, 4)).all()
    assert (tf.bitcast(x[:, :2], tf.complex128).numpy() == x[:, :2].copy().view(np.complex128)[:, 0]).all()
    for smaller in (tf.int8, tf.float16, tf.bfloat16, tf.uint32, tf.complex64):
        assert (tf.bitcast(tf.bitcast(x, smaller), tf.float64).numpy() == x).all()
    turned = tf.transpose(tf.constant(x))
    assert (tf.bitcast(turned, tf.int32).numpy() == np.ascontiguousarray(x.T).view(np.int32).reshape(4, 2, 2)).all()
    with pytest.raises(tf.errors.InvalidArgumentError, match="last axis must have size 4"):
        tf.bitcast(tf.constant([[1, 2]], tf.int16), tf.int64)
    with pytest.raises(tf.errors.InvalidArgumentError, match="bool"):
        tf.bitcast([True], tf.int8)


@pytest.mark.parametrize("target", [tf.int8, tf.uint8, tf.int16, tf.int32, tf.uint32, tf.int64, tf.uint64])
@pytest.mark.parametrize("source", [tf.float32, tf.float64, tf.int64])
def test_saturate_cast_stops_at_the_ends(source: Any, target: Any) -> None:
    """What does not fit becomes the nearest number of both dtypes, never a wrapped one."""
    ends = [0, 1, -1, 100, 2**31 - 1, -(2**31), 2**62, -(2**62)]
    x = np.array(ends + [2**63, -(2**65)] * source.is_floating, source.as_numpy_dtype)
    got = tf.saturate_cast(x, target).numpy()
    assert got.dtype == target.as_numpy_dtype
    info = np.iinfo(got.dtype)
    for before, after in zip(x, got, strict=True):
        exact = min(max(int(before), info.min), info.max)
        spacing = abs(int(np.spacing(before))) if source.is_floating and abs(before) >= 1 else 0
        assert abs(int(after) - exact) <= spacing, (before, after)
        assert info.min <= int(after) <= info.max


def test_saturate_cast_of_floats() -> None:
    x = tf.constant([1e300, -1e300, 2.5, INF], tf.float64)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.saturate_cast(x, tf.float32)
    largest = np.finfo(np.float32).max
    assert y.numpy().tolist() == [largest, -largest, 2.5, largest]
    assert tape.gradient(y, x).numpy().tolist() == [0.0, 0.0, 1.0, 0.0]
    assert tf.saturate_cast(tf.constant([300 + 4j]), tf.uint8).numpy().tolist() == [255]
    assert tf.saturate_cast([1, 2], tf.float32).dtype == tf.float32


def test_shifts_by_the_width() -> None:
    one = tf.constant([1, -8], tf.int32)
    assert tf.bitwise.left_shift(one, 31).numpy().tolist() == [-(2**31), 0]
    assert tf.bitwise.left_shift(one, 32).numpy().tolist() == [0, 0]
    assert tf.bitwise.right_shift(one, 40).numpy().tolist() == [0, -1]
    with pytest.raises(tf.errors.InvalidArgumentError, match="does not take float"):
        tf.bitwise.bitwise_and(1.0, 2.0)


def test_truncation_drops_the_fraction_exactly() -> None:
    big = tf.constant([2**62 + 1, -(2**62) - 1], tf.int64)
    assert tf.truncatediv(big, 3).numpy().tolist() == [(2**62 + 1) // 3, -((2**62 + 1) // 3)]
    assert tf.truncatemod(big, 3).numpy().tolist() == [(2**62 + 1) % 3, -((2**62 + 1) % 3)]
    assert tf.truncatediv(tf.constant([0.3, -0.3], tf.float64), 0.1).numpy().tolist() == [2.0, -2.0]
    same(derivatives(tf.truncatemod, -7.5, 2.0)[:2], (-1.5, [1.0, 3.0]))


def test_accumulate_n_checks_its_operands() -> None:
    with pytest.raises(ValueError, match="shape"):
        tf.math.accumulate_n([[1.0], [1.0, 2.0]])
    with pytest.raises(ValueError, match="int32"):
        tf.math.accumulate_n([[1.0]], tensor_dtype=tf.int32)
    with pytest.raises(ValueError, match="non-empty"):
        tf.math.accumulate_n([])
    with pytest.raises(tf.errors.InvalidArgumentError, match="one shape"):
        tf.math.approximate_equal([1.0], [1.0, 2.0])


def test_polynomials() -> None:
    x = tf.constant([0.5, -2.0])
    assert tf.math.polyval([1.0, -3.0, x], x).numpy().tolist() == [-0.75, 8.0]
    assert tf.math.polyval([], x).numpy().tolist() == [0.0, 0.0]
    with pytest.raises(ValueError, match="list"):
        tf.math.polyval(1.0, x)


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32, tf.float64], ids=lambda d: d.name)
@pytest.mark.parametrize("shape", [(), (4,), (4096,)])
def test_the_power_one_half_is_that_of_c(dtype: Any, shape: tuple[int, ...]) -> None:
    def half(x: float) -> Any:
        return tf.cast(tf.fill(shape, tf.constant(x, dtype)) ** 0.5, tf.float64).numpy()

    assert np.all(half(-INF) == INF) and np.all(half(INF) == INF) and np.all(half(4.0) == 2)
    assert np.all(half(-0.0) == 0) and not np.any(np.signbit(half(-0.0)))
    assert np.all(np.isnan(half(-1.0)))
    x = tf.constant(-INF, dtype)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x**1.5
    assert float(tape.gradient(y, x)) == INF


def test_atanh_is_infinitely_steep_at_its_ends() -> None:
    same(derivatives(tf.atanh, 1.0), (INF, [INF], [[INF]]))
    same(derivatives(tf.atanh, -1.0), (-INF, [INF], [[-INF]]))
    same(derivatives(tf.atanh, 0.5), (math.atanh(0.5), [4 / 3], [[16 / 9]]))
