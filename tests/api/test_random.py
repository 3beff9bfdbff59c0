"""Random numbers: sequences and seeds, generators, distributions (with wide margins), bounds, dtypes, gradients."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

import gradtape as tf

N = 100_000
WIDE = 6.0  # deviations by which a mean of N draws may be off: once in 5e8 tests
r = tf.random


@pytest.fixture(autouse=True)
def seed() -> None:
    r.set_seed(1234)


def assert_moments(x: Any, mean: float, variance: float, fourth: float) -> None:
    """The mean and the variance of many draws; `fourth` is the fourth central moment."""
    x = np.asarray(x, np.float64).ravel()
    assert abs(x.mean() - mean) <= WIDE * math.sqrt(variance / x.size)
    assert abs(((x - mean) ** 2).mean() - variance) <= WIDE * math.sqrt((fourth - variance**2) / x.size)


def assert_shares(counts: Any, shares: Any, n: int) -> None:
    """How often each outcome came in n draws, against its probability."""
    p = np.asarray(shares)
    assert np.all(np.abs(counts - n * p) <= WIDE * np.sqrt(n * p * (1 - p)) + 1)


# Draws with a global seed, of every function of a sequence.
CALLS: dict[str, Callable[..., Any]] = {
    "normal": lambda **k: r.normal([4], **k),
    "uniform": lambda **k: r.uniform([4], **k),
    "integers": lambda **k: r.uniform([4], 0, 1 << 40, tf.int64, **k),
    "truncated_normal": lambda **k: r.truncated_normal([4], **k),
    "gamma": lambda **k: r.gamma([4], 0.7, **k),
    "poisson": lambda **k: r.poisson([4], 100.0, **k),
    "categorical": lambda **k: r.categorical(np.zeros((1, 1000)), 4, **k),
    "shuffle": lambda **k: r.shuffle(np.arange(50), **k),
}


@pytest.mark.parametrize("name", CALLS)
def test_sequences(name: str) -> None:
    call = CALLS[name]
    first = [call().numpy() for _ in range(3)]
    assert not np.array_equal(first[0], first[1]) and not np.array_equal(first[1], first[2])
    r.set_seed(1234)
    assert all(np.array_equal(call(), x) for x in first)
    r.set_seed(1235)
    assert not np.array_equal(call(), first[0])


@pytest.mark.parametrize("name", CALLS)
def test_seeded_sequences_are_their_own(name: str) -> None:
    """Other draws do not disturb them, they are no part of the others, and each seed has another."""
    call = CALLS[name]
    seeded = [call(seed=0).numpy() for _ in range(2)]
    assert not np.array_equal(*seeded)
    unseeded = call().numpy()
    r.set_seed(1234)
    assert np.array_equal(call(), unseeded)
    assert all(np.array_equal(call(seed=0), x) for x in seeded)
    r.set_seed(1234)
    assert not np.array_equal(call(seed=1), seeded[0])
    assert not np.array_equal(seeded[0], unseeded)


@pytest.mark.host("processes of their own, without a device")
def test_seeds_hold_in_every_process() -> None:
    """With a seed of its own a call needs no global one; without any seed two processes differ."""
    script = (
        "import gradtape as tf; print(tf.random.uniform([2], seed=3).numpy().tolist());"
        "print(tf.random.uniform([2]).numpy().tolist())"
    )
    runs = [subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True) for _ in "ab"]
    (seeded, free), (seeded_again, free_again) = (run.stdout.splitlines() for run in runs)
    assert seeded == seeded_again and free != free_again


STATELESS: dict[str, Callable[[Any], Any]] = {
    "uniform": lambda s: r.stateless_uniform([5], s),
    "integers": lambda s: r.stateless_uniform([5], s, None, None, tf.int32),
    "normal": lambda s: r.stateless_normal([5], s, dtype=tf.float64),
    "truncated_normal": lambda s: r.stateless_truncated_normal([5], s),
    "gamma": lambda s: r.stateless_gamma([5], s, 2.0),
    "poisson": lambda s: r.stateless_poisson([5], s, 1e6),
    "categorical": lambda s: r.stateless_categorical(np.zeros((1, 1000)), 5, s),
    "split": lambda s: r.split(s, 3),
    "fold_in": lambda s: r.fold_in(s, 3),
}


@pytest.mark.parametrize("name", STATELESS)
def test_stateless(name: str) -> None:
    f = STATELESS[name]
    first = f([1, 2]).numpy()
    r.normal([3])
    assert np.array_equal(f(tf.constant([1, 2])), first)
    for other in ([2, 1], [1, 3], [-1, 2], [1 << 33, 2]):
        assert not np.array_equal(f(np.array(other)), first)
    with pytest.raises(tf.errors.InvalidArgumentError, match="two integers"):
        f([1])


def test_generators() -> None:
    g = r.Generator.from_seed(5)
    state = g.state.numpy()
    draws = [g.normal([3]).numpy(), g.normal([3]).numpy()]
    assert not np.array_equal(*draws)
    for same in (r.Generator.from_state(state, "philox"), r.Generator.from_key_counter(state[2], state[:2], "philox")):
        assert np.array_equal(same.normal([3]), draws[0])
    g.reset(state)
    g.skip(1)
    assert np.array_equal(g.normal([3]), draws[1])
    g.reset_from_seed(5)
    assert np.array_equal(g.normal([3]), draws[0])
    g.reset_from_key_counter(state[2], [0, 0])
    assert np.array_equal(g.normal([3]), draws[0])
    copy = r.Generator(copy_from=g)
    assert np.array_equal(copy.uniform([3]), g.uniform([3]))
    parts = g.split(3)
    numbers = {float(p.uniform([])) for p in [*parts, g]}
    assert len(numbers) == 4
    assert g.make_seeds(4).shape == (2, 4) and g.algorithm == 1 and g.key.dtype == tf.uint64
    assert g.uniform_full_int([2]).dtype == tf.uint64 and g.uniform([2], 0, 3, tf.int32).dtype == tf.int32
    assert float(tf.reduce_max(tf.abs(g.truncated_normal([100], stddev=0.5)))) <= 1.0
    with pytest.raises(ValueError, match="alg"):
        r.Generator.from_seed(1, alg="threefry")
    with pytest.raises(tf.errors.InvalidArgumentError, match="three integers"):
        g.reset([1, 2])


def test_the_counter_carries() -> None:
    g = r.Generator.from_state([-1, 0, 7], "philox")  # the low half of the counter is all ones
    g.uniform([1])
    assert g.state.numpy().tolist() == [0, 1, 7]
    low, high = r.Generator.from_state([0, 0, 7], "philox"), r.Generator.from_state([0, 1, 7], "philox")
    assert not np.array_equal(low.uniform([4]), high.uniform([4]))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_normal_and_uniform(dtype: str) -> None:
    x = r.normal([N], 1.0, 2.0, dtype)
    assert x.dtype == dtype
    assert_moments(x, 1.0, 4.0, 48.0) if dtype != "bfloat16" else None
    u = r.uniform([N], dtype=dtype)
    assert u.dtype == dtype and float(tf.reduce_min(u)) >= 0 and float(tf.reduce_max(u)) < 1
    grid = 2.0 ** -{"float16": 11, "bfloat16": 8}.get(dtype, 24)
    assert_moments(np.asarray(u, np.float64) + grid / 2, 0.5, (1 - grid**2) / 12, 1 / 80)


def test_truncated_normal() -> None:
    x = r.truncated_normal([N], dtype=tf.float64)
    assert float(tf.reduce_max(tf.abs(x))) <= 2
    phi, mass = math.exp(-2) / math.sqrt(2 * math.pi), math.erf(math.sqrt(2))
    variance = 1 - 4 * phi / mass
    fourth = 3 - 28 * phi / mass
    assert_moments(x, 0.0, variance, fourth)


@pytest.mark.parametrize("alpha", [0.05, 0.5, 1.0, 3.0, 1e4])
def test_gamma(alpha: float) -> None:
    x = r.gamma([N], alpha, beta=2.0, dtype=tf.float64)
    assert_moments(x, alpha / 2, alpha / 4, (3 * alpha**2 + 6 * alpha) / 16)
    assert float(tf.reduce_min(x)) >= 0


@pytest.mark.parametrize("rate", [0.01, 1.0, 9.9, 10.0, 50.0, 1e5])
def test_poisson(rate: float) -> None:
    x = r.poisson([N], rate, dtype=tf.float64)
    assert_moments(x, rate, rate, rate * (1 + 3 * rate))
    assert np.array_equal(x, np.floor(x)) and float(tf.reduce_min(x)) >= 0
    if rate < 100:
        shares = [math.exp(k * math.log(rate) - rate - math.lgamma(k + 1)) for k in range(60)]
        assert_shares(np.bincount(x.numpy().astype(int), minlength=60)[:60], shares, N)


def test_odd_parameters() -> None:
    assert r.poisson([3], [0.0, np.nan, -1.0]).shape == (3, 3)
    np.testing.assert_array_equal(r.poisson([1], [0.0, np.nan, -1.0]), [[0.0, np.nan, np.nan]])
    np.testing.assert_array_equal(r.gamma([1], [0.0, np.nan, -1.0]), [[0.0, np.nan, np.nan]])
    assert r.gamma([0], [1.0, 2.0]).shape == (0, 2) and r.gamma([2], [[1.0], [2.0]], [1.0, 2.0, 3.0]).shape == (2, 2, 3)
    assert r.poisson([2], 3.0, tf.int32).dtype == tf.int32


def test_categorical() -> None:
    p = np.array([[0.1, 0.2, 0.0, 0.7], [0.25, 0.25, 0.25, 0.25]])
    with np.errstate(divide="ignore"):
        logits = np.log(p) + 3.0
    x = r.categorical(logits, N)
    assert x.shape == (2, N) and x.dtype == tf.int64
    for row, shares in zip(x.numpy(), p, strict=True):
        assert_shares(np.bincount(row, minlength=4), shares, N)
    assert r.categorical([[0.0]], 2, dtype=tf.int32).numpy().tolist() == [[0, 0]]
    with pytest.raises(tf.errors.InvalidArgumentError, match="batch, categories"):
        r.categorical([0.0], 2)


@pytest.mark.parametrize(("low", "high"), [(0, 6), (-3, 4), (5, 6), (-(2**62), 2**62 + 2**60)])
def test_integers(low: int, high: int) -> None:
    x = r.uniform([N], low, high, tf.int64).numpy()
    assert low <= x.min() and x.max() < high
    parts = min(high - low, 7)
    edges = [low + (high - low) * k // parts for k in range(parts + 1)]
    counts = [int(np.sum((a <= x) & (x < b))) for a, b in itertools.pairwise(edges)]
    assert_shares(np.array(counts), np.full(parts, 1 / parts), N)


def test_integer_bounds() -> None:
    assert set(r.uniform([2000], 0, 256, tf.uint8).numpy()) == set(range(256))
    assert set(r.uniform([2000], -128, 128, tf.int8).numpy()) == set(range(-128, 128))
    assert r.uniform([], 3, 4, tf.int32).numpy() == 3
    for bad in (
        lambda: r.uniform([1], 0, 257, tf.uint8),
        lambda: r.uniform([1], 2, 2, tf.int32),
        lambda: r.uniform([1], dtype=tf.int32),
        lambda: r.stateless_uniform([1], [1, 2], None, 3, tf.int32),
    ):
        with pytest.raises(ValueError, match=r"maxval|hold"):
            bad()


def test_shuffle() -> None:
    x = np.arange(24).reshape(6, 4)
    got = r.shuffle(x).numpy()
    assert sorted(map(tuple, got)) == sorted(map(tuple, x))
    places = np.array([r.shuffle(np.arange(3)).numpy() for _ in range(3000)])
    orders, counts = np.unique(places, axis=0, return_counts=True)
    assert len(orders) == 6
    assert_shares(counts, np.full(6, 1 / 6), 3000)


def test_gradients_of_parameters() -> None:
    mean, deviation, rate = tf.Variable(1.0), tf.Variable([2.0, 3.0]), tf.Variable(2.0)
    with tf.GradientTape(persistent=True) as tape:
        x = r.normal([4, 2], mean, deviation)
        y = r.gamma([3], 1.5, rate)
    assert float(tape.gradient(x, mean)) == 8.0
    np.testing.assert_allclose(tape.gradient(x, deviation), tf.reduce_sum((x - mean) / deviation, 0), rtol=1e-5)
    np.testing.assert_allclose(tape.gradient(y, rate), -tf.reduce_sum(y) / rate, rtol=1e-5)


SHAPES = [1e-3, 0.05, 0.3, 0.9, 1.0, 1.1, 2.5, 8.0, 40.0, 1e3, 1e5]


def quantile_slope(alpha: float, x: float) -> float:
    """dx/dα where the distribution function stays, by differences of it with 40 digits."""
    with mpmath.workdps(40):
        a, z, h = mpmath.mpf(alpha), mpmath.mpf(x), mpmath.mpf(10) ** -12 * alpha

        def share(a: Any) -> Any:
            return mpmath.gammainc(a, 0, z, regularized=True) if x < alpha else -mpmath.gammainc(a, z, regularized=True)

        density = mpmath.exp((a - 1) * mpmath.log(z) - z - mpmath.loggamma(a))
        return float(-(share(a + h) - share(a - h)) / (2 * h) / density)


@pytest.mark.parametrize("alpha", SHAPES)
def test_the_gradient_of_gamma_keeps_the_distribution_function(alpha: float) -> None:
    a = tf.Variable(np.full(5, alpha))
    with tf.GradientTape(persistent=True) as tape:
        x = r.stateless_gamma([2, 5], [1, 2], a, dtype=tf.float64)
    rows = tape.jacobian(x, a).numpy()
    want = np.zeros((2, 5, 5))
    for i, k in np.ndindex(2, 5):
        if float(x[i, k]) > 1e-290:
            want[i, k, k] = quantile_slope(alpha, float(x[i, k]))
    np.testing.assert_allclose(rows, want, rtol=1e-11, atol=1e-280)


@pytest.mark.host("many numbers; tests/backends/cuda has the moments of gamma on the device")
def test_the_gradient_of_gamma_by_its_mean() -> None:
    """E[x] = α / β and E[x²] = α (α + 1) / β², whose derivatives in α are those of the draws on average."""
    alpha, beta = tf.Variable([0.4, 3.0]), 2.0
    with tf.GradientTape(persistent=True) as tape:
        x = r.gamma([N], alpha, beta, seed=3)
        first, second = tf.reduce_mean(x, 0), tf.reduce_mean(x**2, 0)
    np.testing.assert_allclose(tape.gradient(first, alpha), [0.5, 0.5], atol=0.02)
    np.testing.assert_allclose(tape.gradient(second, alpha), [0.45, 1.75], atol=0.1)


@pytest.mark.host("many numbers; tests/backends/cuda has the moments of gamma on the device")
def test_second_derivatives_of_gamma_are_those_along_the_quantile() -> None:
    """E[x³] = α (α + 1) (α + 2): the second derivative in α is 6 α + 6."""
    alpha = tf.Variable(1.5, dtype=tf.float64)
    with tf.GradientTape() as outer:
        with tf.GradientTape() as tape:
            y = tf.reduce_mean(r.gamma([N], alpha, dtype=tf.float64, seed=3) ** 3)
        g = tape.gradient(y, alpha)
    np.testing.assert_allclose(outer.gradient(g, alpha), 15.0, rtol=0.1)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_the_gradient_of_gamma_in_other_dtypes(dtype: str) -> None:
    alpha = tf.Variable([0.5, 4.0], dtype=dtype)
    with tf.GradientTape() as tape:
        x = r.stateless_gamma([2], [1, 2], alpha, dtype=dtype)
    got = tape.gradient(x, alpha)
    assert x.dtype == got.dtype == dtype
    want = [quantile_slope(a, float(z)) for a, z in zip((0.5, 4.0), x, strict=True)]
    np.testing.assert_allclose(
        tf.cast(got, tf.float64), want, rtol={"float16": 1e-3, "bfloat16": 8e-3}.get(dtype, 1e-6)
    )


def test_no_numbers_have_no_slope() -> None:
    alpha = tf.Variable([1.0, 2.0])
    with tf.GradientTape() as tape:
        x = r.gamma([0], alpha)
    assert tape.gradient(x, alpha).numpy().tolist() == [0.0, 0.0]


def test_only_floating_dtypes() -> None:
    for f in (r.normal, r.truncated_normal):
        with pytest.raises(tf.errors.InvalidArgumentError, match="int32"):
            f([2], dtype=tf.int32)
    with pytest.raises(tf.errors.InvalidArgumentError, match="int32"):
        r.gamma([2], 1.0, dtype=tf.int32)
