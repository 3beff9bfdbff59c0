"""Declaration: counter-based random bits, Philox 4x32 with 10 rounds. Floor: ops.

Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). Element i of a
draw depends on key, counter and i alone, so that every backend draws equal numbers."""

from __future__ import annotations

from typing import Any

from gradtape.ir.aval import Aval, aval
from gradtape.ir.dtypes import uint32, uint64
from gradtape.ir.shapes import TensorShape, size_of
from gradtape.ops.opaque import Draw
from gradtape.ops.samples import Sample, Spec

M0, M1 = 0xD2511F53, 0xCD9E8D57  # multipliers of the rounds
W0, W1 = 0x9E3779B9, 0xBB67AE85  # what the key grows by from round to round
LOW = 0xFFFFFFFF
MASK = (1 << 64) - 1
ROUNDS = 10


def philox(xp: Any, key: tuple[int, int], counter: tuple[int, int], count: int) -> Any:
    """`count` words of 32 bits: those of blocks 0, 1, 2, ..."""
    index = xp.arange(-(-count // 4), dtype=xp.uint64)
    return xp.stack(blocks(xp, key, counter, index), axis=1).reshape(-1)[:count].astype(xp.uint32)


def blocks(xp: Any, key: tuple[int, int], counter: tuple[int, int], index: Any) -> list[Any]:
    """Four words (below 2³², as uint64) for each block: block i encrypts the 128-bit counter (i, counter) under
    the key."""
    return rounds((index & LOW, index >> 32, xp.full_like(index, counter[0]), xp.full_like(index, counter[1])), key)


def rounds(counter: tuple[Any, Any, Any, Any], key: tuple[int, int]) -> list[Any]:
    """Four words of counter encrypted: arrays of uint64 or Python integers, all below 2³²."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        p0, p1 = c0 * M0, c2 * M1  # 32 x 32 bits fit in 64
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & LOW, (p0 >> 32) ^ c3 ^ k1, p0 & LOW
        k0, k1 = (k0 + W0) & LOW, (k1 + W1) & LOW
    return [c0, c1, c2, c3]


def halves(n: int) -> tuple[int, int]:
    """The low and the high 32 bits of 64."""
    return n & LOW, n >> 32


def mixed(*numbers: int) -> int:
    """64 bits that depend on all of the numbers: each is encrypted under a key made of those before."""
    key = 0
    for n in numbers:
        words = rounds((*halves(n & MASK), 0, 0), halves(key))
        key = words[0] | words[1] << 32
    return key


def _value(xp: Any, state: Any, shape: tuple[int, ...]) -> Any:
    words = philox(xp, halves(int(state[0])), halves(int(state[1])), size_of(shape))
    return words.reshape(shape)


def check_state(state: Aval) -> None:
    """Raises:
    ValueError: it is no key and counter.
    """
    if state.dtype is not uint64 or not TensorShape(state.shape).is_compatible_with((2,)):
        raise ValueError(f"wants a key and a counter as a uint64 tensor of shape (2,), got {state!r}.")


def _infer(state: Aval, shape: tuple[int, ...]) -> list[Aval]:
    check_state(state)
    return [aval(shape, uint32)]


RANDOM_BITS = Draw(
    "random_bits",
    _value,
    infer=_infer,
    vjp=None,
    signature="(s)->(n)",
    source=True,
    samples=[
        Sample((Spec((2,), (0, 100), "uint64"),), {"shape": (3, 5)}),
        Sample((Spec((2,), (0, 9), "uint64"),), {"shape": (0,)}),
    ],
    doc="Uniform words of 32 bits, from a key and a counter.",
)
