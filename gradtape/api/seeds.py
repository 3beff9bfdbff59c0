"""The global seed, and the seeds of single calls. Floor: api.

A call without a seed takes the next draw under the global seed. Calls of one function with one seed are a sequence of
their own, which other draws do not disturb; with a seed a sequence is the same in every process, whether or not there
is a global seed. `set_seed` starts all of them anew."""

from __future__ import annotations

import functools
import secrets
import threading
import zlib
from collections import Counter

from gradtape.api.streams import Source, Stream
from gradtape.ir.determinism import DETERMINISM
from gradtape.ops.random_bits import MASK, mixed
from gradtape.runtime.tensor import Tensor
from gradtape.runtime.trace import state_tracer

NO_GLOBAL_SEED = 0x6772616474617065  # what stands for the global seed of seeded calls while there is none


class Seeds:
    """How many draws were made from which sequence."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.streams: dict[tuple[str, int] | None, Stream] = {}  # of traced functions, by sequence
        self.reset(None)

    def reset(self, seed: int | None) -> None:
        with self.lock:
            self.is_set = seed is not None
            self.seed = NO_GLOBAL_SEED if seed is None else seed & MASK
            self.key = secrets.randbits(64) if seed is None else mixed(self.seed)
            self.drawn: Counter[tuple[str, int] | None] = Counter()

    def next(self, function: str, seed: int | None) -> Source | Tensor:
        """The source of the next draw of a function, with a seed of its own or without; while a function is traced,
        of its next draw in each call, in a map of each slice's."""
        if state_tracer() is None:
            return self.drawn_next(function, seed)
        return self.stream(None if seed is None else (function, int(seed))).next()

    def stream(self, sequence: tuple[str, int] | None) -> Stream:
        """The stream of a sequence in traced functions."""
        found = self.streams.get(sequence)
        if found is None:
            function, seed = ("", None) if sequence is None else sequence
            fresh = Stream(functools.partial(self.drawn_next, function, seed))
            found = self.streams.setdefault(sequence, fresh)
        return found

    def sequence_of(self, stream: Stream) -> tuple[str, int] | None:
        """The sequence that a stream is of."""
        return next(k for k, s in self.streams.items() if s is stream)

    def drawn_next(self, function: str, seed: int | None) -> Source:
        """The source of the next draw outside of traced functions, and that of a call of one.

        Raises:
          RuntimeError: no seed was set, and determinism is enabled.
        """
        if seed is None and not self.is_set:
            DETERMINISM.refuse(
                "Random ops require a seed to be set",
                "Please set a seed before running the op, e.g. by calling `tf.random.set_seed(1)`.",
            )
        sequence = None if seed is None else (function, int(seed))
        with self.lock:
            counter = self.drawn[sequence]
            self.drawn[sequence] += 1
        if seed is None:
            return Source(self.key, counter)
        return Source(mixed(self.seed, int(seed), zlib.crc32(function.encode())), counter)


SEEDS = Seeds()


def set_seed(seed: int) -> None:
    """Make what follows repeatable: the same global seed, then the same calls, give the same numbers.

    Args:
      seed: an integer.

    >>> import gradtape as tf
    >>> tf.random.set_seed(7)
    >>> first = tf.random.uniform([3])
    >>> tf.random.set_seed(7)
    >>> bool(tf.reduce_all(first == tf.random.uniform([3])))
    True
    """
    SEEDS.reset(int(seed))
