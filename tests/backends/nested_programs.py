"""Random programs of small arrays with branches and loops in one another, written in the public functions; all numbers
stay small. The same seed gives the same program."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import gradtape as tf


class State(NamedTuple):
    """What blocks of a program are given, and give."""

    x: Any  # a vector
    m: Any  # a matrix
    y: Any  # a number
    k: Any  # a whole number


SIZE = 3
Block = Callable[[State], State]


def start(dtype: Any) -> list[Any]:
    """The operands of a program, for its signature."""
    return [tf.zeros([SIZE], dtype), tf.zeros([SIZE, SIZE], dtype), tf.zeros([], dtype), tf.zeros([], tf.int32)]


class Draws(Random):
    """Random numbers, and what straight lines are drawn from."""

    steps: list[Block]


def program(seed: int, depth: int = 2, has_parts: bool = False) -> Callable[..., Any]:
    """A function of a vector, a matrix, a number and a whole number to a vector."""

    def run(x: Any, m: Any, y: Any, k: Any) -> Any:
        rng = Draws(seed)
        rng.steps = [*STEPS, *PARTS] if has_parts else STEPS
        state = _nested(rng, depth)(State(x, m, y, k))
        state = _steps(rng)(state)
        return state.x + state.y * tf.linalg.matvec(state.m, tf.ones_like(x))

    return run


def _nested(rng: Draws, depth: int) -> Block:
    blocks: list[Block] = [_steps(rng)]
    for _ in range(rng.randint(1, 2)):
        blocks += [rng.choice([_branch, _loop, _loop])(rng, depth), _steps(rng)]

    def run(state: State) -> State:
        for block in blocks:
            state = block(state)
        return state

    return run


def _inner(rng: Draws, depth: int) -> Block:
    return _nested(rng, depth - 1) if depth > 1 and rng.random() < 0.7 else _steps(rng)


# ------------------------------------------------------------------ straight lines


def rows(m: Any) -> Any:
    """The rows of a matrix as an array."""
    return tf.TensorArray(m.dtype, SIZE).unstack(m)


STEPS: list[Block] = [
    lambda s: s._replace(x=tf.sin(s.x + s.y)),
    lambda s: s._replace(x=tf.tanh(tf.linalg.matvec(s.m, s.x))),
    lambda s: s._replace(x=tf.where(s.x > s.y, s.x, s.y * s.x)),
    lambda s: s._replace(x=s.x * tf.cast(tf.minimum(s.k, 3), s.x.dtype) * 0.5),
    lambda s: s._replace(m=tf.transpose(s.m)),
    lambda s: s._replace(m=tf.tanh(s.m + s.x[:, None])),
    lambda s: s._replace(m=tf.reshape(tf.transpose(s.m), [SIZE, SIZE]) * 0.9),
    lambda s: s._replace(y=tf.reduce_sum(s.x) * 0.3),
    lambda s: s._replace(y=tf.cos(s.y), x=s.x),
    lambda s: s._replace(y=tf.reduce_max(s.x)),
    lambda s: s._replace(x=tf.zeros_like(s.x) + 0.7),
    lambda s: s._replace(k=s.k + 1),
    lambda s: s._replace(k=tf.maximum(s.k * 2 - 3, 0)),
]


# Rows, slices and concatenations.
PARTS: list[Block] = [
    lambda s: s._replace(x=s.m[tf.minimum(s.k, SIZE - 1)] * 0.5 + s.x, y=s.x[1]),
    lambda s: s._replace(m=rows(s.m).write(tf.minimum(s.k, SIZE - 1), s.x).stack()),
    lambda s: s._replace(x=tf.concat([s.x[1:], s.x[:1]], 0)),
    lambda s: s._replace(x=tf.pad(s.x[1:] * s.m[::2, 1], [[1, 0]])),
]


def _steps(rng: Draws) -> Block:
    chosen = rng.choices(rng.steps, k=rng.randint(0, 3))

    def run(state: State) -> State:
        for step in chosen:
            state = step(state)
        return state

    return run


# ------------------------------------------------------------------ branches and loops


def _branch(rng: Draws, depth: int) -> Block:
    true, false = _inner(rng, depth), _inner(rng, depth)
    by_count = rng.random() < 0.4

    def run(state: State) -> State:
        pred = state.k > 2 if by_count else tf.reduce_sum(state.x) > state.y
        return State(*tf.cond(pred, lambda: tuple(true(state)), lambda: tuple(false(state))))

    return run


def _loop(rng: Draws, depth: int) -> Block:
    body = _inner(rng, depth)
    trips, swaps = rng.choice([0, 1, 2, 3, 70]) if depth == 1 else rng.randint(0, 3), rng.random() < 0.3
    by_value = rng.random() < 0.5

    def run(state: State) -> State:
        def goes_on(i: Any, z: Any, *now: Any) -> Any:
            more = i < trips
            return tf.logical_and(more, tf.reduce_sum(now[0]) < 2.0) if by_value else more

        def once(i: Any, z: Any, *now: Any) -> Any:
            new = body(State(*now))
            if swaps:
                return i + 1, new.x, new._replace(x=z)
            return i + 1, z * 0.5 + new.x, new

        found = tf.while_loop(
            lambda i, z, s: goes_on(i, z, *s), lambda i, z, s: once(i, z, *s), (0, state.x * 0.5, state)
        )
        return found[2]._replace(x=found[2].x + found[1])

    return run
