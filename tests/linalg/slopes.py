"""Functions of tensors as functions of arrays, their gradients through a tape, and both orders against differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import gradtape as tf
from gradtape.ir.aval import aval_of
from tests.op_table.running import assert_near, noise, numeric_vjp

Function = Callable[..., Any]


def values(f: Function, arrays: Sequence[Any]) -> list[Any]:
    """The results of a function of tensors, as arrays."""
    results = f(*map(tf.constant, arrays))
    return [r.numpy() for r in (results if isinstance(results, tuple | list) else [results])]


def gradients(f: Function, arrays: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
    """What a tape gives for each array, as arrays."""
    xs = [tf.constant(a) for a in arrays]
    with tf.GradientTape() as tape:
        tape.watch(xs)
        results = f(*xs)
        results = list(results) if isinstance(results, tuple | list) else [results]
    given = [tf.constant(c) for c in cotangents]
    found = tape.gradient(results, xs, output_gradients=given, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    return [g.numpy() for g in found]


def second(f: Function, arrays: Sequence[Any], cotangents: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
    """The gradient of the gradient."""

    def first(*xs: Any) -> list[Any]:
        with tf.GradientTape() as tape:
            tape.watch(list(xs))
            results = f(*xs)
            results = list(results) if isinstance(results, tuple | list) else [results]
        given = [tf.constant(c) for c in cotangents]
        return list(tape.gradient(results, list(xs), output_gradients=given))

    return gradients(first, arrays, weights)


def differences(f: Function, arrays: Sequence[Any], cotangents: Sequence[Any], hermitian: Sequence[bool]) -> list[Any]:
    """The gradient by differences of what the host computes, wherever the gradient itself is computed."""
    with tf.device("/CPU:0"):
        return numeric_vjp(f, arrays, cotangents, hermitian)


def check_two_orders(
    f: Function, arrays: Sequence[Any], hermitian: Sequence[bool] = (), tolerance: float = 1e-7
) -> None:
    """Gradients and their gradients equal central differences, for random cotangents."""
    cotangents = noise([aval_of(v) for v in values(f, arrays)], 1)
    got = gradients(f, arrays, cotangents)
    want = differences(lambda *a: values(f, a), arrays, cotangents, hermitian)
    for k, (a, b) in enumerate(zip(got, want, strict=True)):
        assert_near(a, b, f"operand {k}", tolerance)
    weights = noise([aval_of(a) for a in arrays], 2)
    got = second(f, arrays, cotangents, weights)
    want = differences(lambda *a: gradients(f, a, cotangents), arrays, weights, hermitian)
    for k, (a, b) in enumerate(zip(got, want, strict=True)):
        assert_near(a, b, f"second order, operand {k}", tolerance)


def numbers(seed: int, *shape: int, kind: str = "real") -> Any:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape)
    return x + 1j * rng.normal(size=shape) if kind == "complex" else x


def definite(seed: int, n: int, *loops: int, kind: str = "real") -> Any:
    """Hermitian matrices whose eigenvalues are 1 or more."""
    x = numbers(seed, *loops, n, n, kind=kind)
    return x @ np.conj(np.swapaxes(x, -1, -2)) / n + np.eye(n)


def orthogonal(seed: int, n: int, kind: str = "real") -> Any:
    return np.linalg.qr(numbers(seed, n, n, kind=kind))[0]


def with_singular_values(seed: int, s: Sequence[float], kind: str = "real") -> Any:
    n = len(s)
    return orthogonal(seed, n, kind) @ np.diag(s) @ np.conj(orthogonal(seed + 1, n, kind).T)
