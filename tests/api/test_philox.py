"""Philox by its published answers; draws of one sequence and of neighbouring seeds are not correlated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradtape as tf
from gradtape.ops.random_bits import RANDOM_BITS, rounds
from gradtape.runtime.dispatch import execute

# Key, counter and encrypted block: the known answers of Random123 for philox4x32 with 10 rounds.
KNOWN: list[tuple[tuple[int, int], tuple[int, int, int, int], tuple[int, int, int, int]]] = [
    ((0, 0), (0, 0, 0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 2, (0xFFFFFFFF,) * 4, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0xA4093822, 0x299F31D0),
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("key", "counter", "words"), KNOWN)
def test_known_answers(key: Any, counter: Any, words: Any) -> None:
    assert tuple(rounds(counter, key)) == words
    many: Any = [np.full(3, c, np.uint64) for c in counter]
    assert [a.tolist() for a in rounds((many[0], many[1], many[2], many[3]), key)] == [[w] * 3 for w in words]


def test_bits_depend_on_key_counter_and_place_alone() -> None:
    def bits(shape: tuple[int, ...], key: int, counter: int) -> Any:
        return execute(RANDOM_BITS.bind(shape=shape), (tf.constant(np.array([key, counter], np.uint64)),)).numpy()

    long = bits((1001,), 5, 7)
    assert np.array_equal(bits((10,), 5, 7), long[:10])
    assert np.array_equal(bits((7, 11, 13), 5, 7).ravel(), long)
    assert not np.array_equal(bits((10,), 5, 8), long[:10])
    assert not np.array_equal(bits((10,), 5 + 2**32, 7), long[:10])
    assert tuple(bits((4,), 0, 0).tolist()) == KNOWN[0][2]
    assert bits((0,), 1, 1).shape == (0,)


def test_consecutive_draws_are_not_correlated() -> None:
    tf.random.set_seed(6)
    draws = np.stack([tf.random.normal([20_000]).numpy() for _ in range(6)])
    across = np.corrcoef(draws) - np.eye(6)
    assert np.abs(across).max() < 0.04
    within = [np.corrcoef(draws[0, :-lag], draws[0, lag:])[0, 1] for lag in (1, 2, 3, 4, 8)]
    assert np.abs(within).max() < 0.04
    for seed in (7, 8):
        tf.random.set_seed(seed)
        other = tf.random.normal([20_000]).numpy()
        assert np.abs(np.corrcoef(other, draws)[0, 1:]).max() < 0.04


def test_the_global_generator() -> None:
    kept = tf.random.get_global_generator()
    try:
        made = tf.random.Generator.from_seed(5)
        tf.random.set_global_generator(made)
        assert tf.random.get_global_generator() is made
        first = made.normal([6]).numpy()
        assert not np.array_equal(made.normal([6]), first)
        assert np.array_equal(tf.random.Generator.from_seed(5).normal([6]), first)
    finally:
        tf.random.set_global_generator(kept)
