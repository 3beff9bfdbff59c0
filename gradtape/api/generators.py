"""`tf.random.Generator`: a stream of random numbers whose state is a variable. Floor: api."""

from __future__ import annotations

import secrets
import threading
from typing import Any

import numpy as np

from gradtape.api import draws
from gradtape.api.arguments import dimensions, integer, integers
from gradtape.api.streams import of_slice
from gradtape.ir.determinism import DETERMINISM
from gradtape.ir.dtypes import as_dtype, float32, uint64
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ops.random_bits import MASK, mixed
from gradtape.ops.random_states import RANDOM_NEXT
from gradtape.runtime.convert import convert
from gradtape.runtime.dispatch import execute
from gradtape.runtime.tensor import Tensor, from_array
from gradtape.runtime.variable import Variable

PHILOX = 1  # the number of the one algorithm
_NAMES = (PHILOX, "philox", "auto_select")


def _check_algorithm(alg: Any) -> None:
    if alg not in _NAMES:
        raise ValueError(f"`alg` should be 'philox' or 'auto_select', got {alg!r}.")


class Generator:
    """A stream of random numbers. Its state is a vector of three int64: a counter of 128 bits (low half first) and
    a key of 64; each draw counts one up.

    Make one with `from_seed`, `from_state`, `from_key_counter` or `from_non_deterministic_state`.

    >>> import gradtape as tf
    >>> g = tf.random.Generator.from_seed(1)
    >>> same = tf.random.Generator.from_state(g.state, alg="philox")
    >>> bool(tf.reduce_all(g.normal([2, 3]) == same.normal([2, 3])))
    True

    Source: `tf.random.Generator` of TensorFlow 2.
    """

    def __init__(self, copy_from: Generator | None = None, state: Any = None, alg: Any = None) -> None:
        if (copy_from is None) == (state is None):
            raise ValueError("A Generator is made from another one (`copy_from`) or from a `state` and an `alg`.")
        if copy_from is not None:
            self._state = Variable(copy_from.state.numpy(), trainable=False, name="generator")
            return
        _check_algorithm(alg)
        self._state = Variable(_words(state), trainable=False, name="generator")

    @classmethod
    def from_state(cls, state: Any, alg: Any) -> Generator:
        """A generator that goes on from a state."""
        return cls(state=state, alg=alg)

    @classmethod
    def from_seed(cls, seed: Any, alg: Any = None) -> Generator:
        """A generator for a seed: an integer."""
        return cls(state=_state(0, mixed(integer(seed, "seed"))), alg=PHILOX if alg is None else alg)

    @classmethod
    def from_key_counter(cls, key: Any, counter: Any, alg: Any) -> Generator:
        """A generator for a key and a counter (two integers, low half first)."""
        words = integers(counter, "counter")
        return cls(state=[*words, *[0] * (2 - len(words)), integer(key, "key")], alg=alg)

    @classmethod
    def from_non_deterministic_state(cls, alg: Any = None) -> Generator:
        """A generator with a state that nobody can know before.

        Raises:
          RuntimeError: determinism is enabled.
        """
        DETERMINISM.refuse("`from_non_deterministic_state` cannot be called", "Use `Generator.from_seed`.")
        return cls(state=_state(0, secrets.randbits(64)), alg=PHILOX if alg is None else alg)

    @classmethod
    def of_variable(cls, state: Variable) -> Generator:
        """A generator whose state is in a variable that is there already."""
        made = cls(state=state, alg=PHILOX)
        made._state = state
        return made

    # ------------------------------------------------------------------ state

    @property
    def state(self) -> Variable:
        """The variable that holds the state."""
        return self._state

    @property
    def algorithm(self) -> int:
        return PHILOX

    @property
    def key(self) -> Tensor:
        """The key, as a scalar of uint64."""
        return from_array(self._state.numpy()[2].astype(np.uint64))

    def reset(self, state: Any) -> None:
        """Go on from another state."""
        self._state.assign(_words(state))

    def reset_from_seed(self, seed: Any) -> None:
        """Start anew from a seed."""
        self.reset(_state(0, mixed(integer(seed, "seed"))))

    def reset_from_key_counter(self, key: Any, counter: Any) -> None:
        """Go on from a key and a counter (two integers, low half first)."""
        words = integers(counter, "counter")
        self.reset([*words, *[0] * (2 - len(words)), integer(key, "key")])

    def skip(self, delta: Any) -> Tensor:
        """Count up without drawing.

        Returns:
          The state before.
        """
        before = self._state.read()
        self._advanced(before, integer(delta, "delta"))
        return before

    def _next(self) -> Tensor:
        return of_slice(self._advanced(self._state.read(), 1))

    def _advanced(self, state: Tensor, by: int) -> Tensor:
        """Go on so many draws from a state; the source of the draw there."""
        after, source = execute(RANDOM_NEXT.bind(by=by), (state,))
        self._state.assign(after)
        made: Tensor = source
        return made

    # ------------------------------------------------------------------ numbers

    def normal(
        self, shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = float32, name: str | None = None
    ) -> Tensor:
        """Normally distributed numbers, as `tf.random.normal`."""
        drawn = draws.normal(dimensions(shape, "shape"), draws.floating(dtype), self._next())
        return draws.scaled_normal(drawn, mean, stddev)

    def truncated_normal(
        self, shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = float32, name: str | None = None
    ) -> Tensor:
        """Normally distributed numbers within two deviations, as `tf.random.truncated_normal`."""
        drawn = draws.truncated_normal(dimensions(shape, "shape"), draws.floating(dtype), self._next())
        return draws.scaled_normal(drawn, mean, stddev)

    def uniform(
        self, shape: Any, minval: Any = 0, maxval: Any = None, dtype: Any = float32, name: str | None = None
    ) -> Tensor:
        """Uniformly distributed numbers in [minval, maxval), as `tf.random.uniform`.

        Raises:
          ValueError: integers without `maxval`, or an empty interval of them.
        """
        wanted, dims = as_dtype(dtype), dimensions(shape, "shape")
        if not wanted.is_integer:
            drawn = draws.unit(dims, draws.floating(wanted), self._next())
            return draws.between(drawn, minval, 1 if maxval is None else maxval)
        if maxval is None:
            raise ValueError(f"Must specify `maxval` for integer dtype {wanted.name}.")
        low, high = integer(minval, "minval"), integer(maxval, "maxval")
        return draws.integers_between(dims, low, high, wanted, self._next())

    def uniform_full_int(self, shape: Any, dtype: Any = uint64, name: str | None = None) -> Tensor:
        """Integers of all values of a dtype.

        Raises:
          InvalidArgumentError: a dtype that is no integer.
        """
        wanted = as_dtype(dtype)
        if not wanted.is_integer:
            raise InvalidArgumentError(f"`uniform_full_int` wants an integer dtype, got {wanted.name}.")
        return draws.full_integers(dimensions(shape, "shape"), wanted, self._next())

    def make_seeds(self, count: Any = 1) -> Tensor:
        """Seeds for the stateless functions: a tensor of int64 of shape (2, count)."""
        return draws.full_integers((2, integer(count, "count")), as_dtype("int64"), self._next())

    def split(self, count: Any = 1) -> list[Generator]:
        """Independent generators."""
        keys = draws.full_integers((integer(count, "count"),), uint64, self._next())
        return [Generator(state=_state(0, int(k)), alg=PHILOX) for k in keys.numpy()]

    def __repr__(self) -> str:
        return f"<tf.random.Generator: state={self._state.numpy().tolist()}>"


def _state(counter: int, key: int) -> Any:
    words = [counter & MASK, counter >> 64 & MASK, key & MASK]
    return np.array(words, np.uint64).astype(np.int64)


def _words(state: Any) -> Any:
    """A state as three int64, from a variable, a tensor or a list of integers.

    Raises:
      InvalidArgumentError: anything else.
    """
    if isinstance(state, list | tuple):
        state = np.array([int(n) & MASK for n in state], np.uint64)
    words = np.asarray(state if isinstance(state, np.ndarray) else convert(state))
    if words.shape != (3,) or words.dtype.kind not in "iu":
        raise InvalidArgumentError(f"A generator's state is three integers, got {words!r}.")
    return words.astype(np.int64)


_lock = threading.Lock()
_global: list[Generator] = []


def get_global_generator() -> Generator:
    """The generator that all share; made at the first call, with a state that nobody can know before.

    Raises:
      RuntimeError: it is not there yet, and determinism is enabled.

    >>> import gradtape as tf
    >>> tf.random.get_global_generator() is tf.random.get_global_generator()
    True
    """
    with _lock:
        if not _global:
            DETERMINISM.refuse(
                "`get_global_generator` cannot be called first", "Call `tf.random.set_global_generator` before."
            )
            _global.append(Generator.from_non_deterministic_state())
        return _global[0]


def set_global_generator(generator: Generator) -> None:
    """Let all share another generator.

    >>> import gradtape as tf
    >>> tf.random.set_global_generator(tf.random.Generator.from_seed(3))
    """
    with _lock:
        _global[:] = [generator]
