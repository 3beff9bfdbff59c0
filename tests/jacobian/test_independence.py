"""The verdict on a batch against the whole Jacobian, on random programs that move, cut and mix the batch axis."""

import math
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from gradtape.batch_jacobians import BatchDependenceWarning
from tests.devices import SESSION

N = 4  # examples
Step = tuple[str, Callable[[Any], Any]]


def verdict_of(tape: Any, y: Any, x: Any, **how: Any) -> str:
    """ "proved", or the text of the warning."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        tape.batch_jacobian(y, x, **how)
    texts = [str(w.message) for w in found if issubclass(w.category, BatchDependenceWarning)]
    assert len(texts) <= 1
    return texts[0] if texts else "proved"


def meets(tape: Any, y: Any, x: Any) -> bool:
    """Whether an entry of the whole Jacobian outside the batch's blocks is other than zero."""
    full = tape.jacobian(y, x).numpy()
    blocks = full.reshape(N, y.shape.num_elements() // N, N, x.shape.num_elements() // N)
    return any(blocks[i, :, j].any() for i in range(N) for j in range(N) if i != j)


# ------------------------------------------------------------------ random programs


def _axis(rng: np.random.Generator, x: Any) -> int:
    return int(rng.integers(x.ndim))


def _elementwise(rng: np.random.Generator, x: Any) -> Step:
    return "sin", tf.sin


def _weights(rng: np.random.Generator, x: Any) -> Step:
    k = _axis(rng, x)
    w = tf.constant(rng.normal(size=[n if j == k else 1 for j, n in enumerate(x.shape)]))
    return f"weights {k}", lambda v: v * w


def _with_itself(rng: np.random.Generator, x: Any) -> Step:
    return "plus itself", lambda v: v * v + tf.cos(v)


def _permute(rng: np.random.Generator, x: Any) -> Step:
    perm = [int(k) for k in rng.permutation(x.ndim)]
    return f"transpose {perm}", lambda v: tf.transpose(v, perm)


def _merge(rng: np.random.Generator, x: Any) -> Step:
    if x.ndim < 2:
        return _split(rng, x)
    k = int(rng.integers(x.ndim - 1))
    shape = [*x.shape[:k], x.shape[k] * x.shape[k + 1], *x.shape[k + 2 :]]
    return f"reshape {shape}", lambda v: tf.reshape(v, shape)


def _split(rng: np.random.Generator, x: Any) -> Step:
    k = _axis(rng, x)
    n = int(x.shape[k])
    parts = [d for d in range(2, n) if n % d == 0]
    if not parts:
        return _elementwise(rng, x)
    d = int(rng.choice(parts))
    shape = [*x.shape[:k], d, n // d, *x.shape[k + 1 :]]
    return f"reshape {shape}", lambda v: tf.reshape(v, shape)


def _flatten_back(rng: np.random.Generator, x: Any) -> Step:
    size = math.prod(x.shape)
    if size % N:
        return _elementwise(rng, x)
    return "reshape back", lambda v: tf.reshape(v, [N, size // N])


def _roll(rng: np.random.Generator, x: Any) -> Step:
    k, by = _axis(rng, x), int(rng.integers(-1, 3))
    return f"roll {by} along {k}", lambda v: tf.roll(v, by, k)


def _reverse(rng: np.random.Generator, x: Any) -> Step:
    k = _axis(rng, x)
    return f"reverse {k}", lambda v: tf.reverse(v, [k])


def _cut_and_join(rng: np.random.Generator, x: Any) -> Step:
    k = _axis(rng, x)
    at, swap = int(rng.integers(x.shape[k] + 1)), bool(rng.integers(2))

    def f(v: Any) -> Any:
        parts = tf.split(v, [at, v.shape[k] - at], axis=k)
        return tf.concat(parts[::-1] if swap else parts, axis=k)

    return f"cut {k} at {at}, swap {swap}", f


def _unstacked(rng: np.random.Generator, x: Any) -> Step:
    k, swap = _axis(rng, x), bool(rng.integers(2))
    return f"unstack {k}, swap {swap}", lambda v: tf.stack(tf.unstack(v, axis=k)[:: -1 if swap else 1], axis=k)


def _gathered(rng: np.random.Generator, x: Any) -> Step:
    k = _axis(rng, x)
    n = int(x.shape[k])
    ids = list(range(n)) if rng.integers(2) else [int(i) for i in rng.integers(n, size=n)]
    return f"gather {ids} along {k}", lambda v: tf.gather(v, ids, axis=k)


def _summed_by_segments(rng: np.random.Generator, x: Any) -> Step:
    n = int(x.shape[0])
    ids = list(range(n)) if rng.integers(2) else [int(i) for i in rng.integers(n, size=n)]
    return f"segments {ids}", lambda v: tf.math.unsorted_segment_sum(v, ids, n)


def _strided(rng: np.random.Generator, x: Any) -> Step:
    k = _axis(rng, x)
    where = (*[slice(None)] * k, slice(None, None, -1) if rng.integers(2) else slice(0, max(1, int(x.shape[k]) - 1)))
    return f"subscript {where}", lambda v: v[where]


def _padded(rng: np.random.Generator, x: Any) -> Step:
    k, n = _axis(rng, x), int(rng.integers(1, 3))
    pads = [[n, 0] if j == k else [0, 0] for j in range(x.ndim)]
    return f"pad {k} by {n}", lambda v: tf.pad(v, pads)


def _normalized(rng: np.random.Generator, x: Any) -> Step:
    k = _axis(rng, x)
    return f"minus mean {k}", lambda v: v - tf.reduce_mean(v, k, keepdims=True)


def _scaled(rng: np.random.Generator, x: Any) -> Step:
    k = _axis(rng, x)
    return f"times norm {k}", lambda v: v * tf.norm(v, axis=k, keepdims=True)


def _stopped(rng: np.random.Generator, x: Any) -> Step:
    k = _axis(rng, x)
    return f"minus a constant mean {k}", lambda v: v - tf.stop_gradient(tf.reduce_mean(v, k, keepdims=True))


def _softmax(rng: np.random.Generator, x: Any) -> Step:
    k = _axis(rng, x)
    return f"softmax {k}", lambda v: tf.nn.softmax(v, axis=k)


def _cumsum(rng: np.random.Generator, x: Any) -> Step:
    k = _axis(rng, x)
    return f"cumsum {k}", lambda v: tf.cumsum(v, axis=k)


def _sort(rng: np.random.Generator, x: Any) -> Step:
    k = _axis(rng, x)
    return f"sort {k}", lambda v: tf.sort(v, axis=k)


def _matmul(rng: np.random.Generator, x: Any) -> Step:
    if x.ndim < 2:
        return _elementwise(rng, x)
    w = tf.constant(rng.normal(size=(int(x.shape[-1]), 2)))
    return "matmul", lambda v: tf.matmul(tf.reshape(v, [-1, v.shape[-1]]), w)


def _gram(rng: np.random.Generator, x: Any) -> Step:
    if x.ndim < 2:
        return _elementwise(rng, x)
    return "gram", lambda v: tf.matmul(v, v, transpose_b=True)


def _decomposed(rng: np.random.Generator, x: Any) -> Step:
    """Several results of different shapes, of which the second is used."""
    if x.ndim < 3:
        return _with_itself(rng, x)
    return "svd", lambda v: tf.abs(tf.linalg.svd(v)[1])


def _first_example(rng: np.random.Generator, x: Any) -> Step:
    return "minus the first", lambda v: v - v[:1]


def _in_a_function(rng: np.random.Generator, x: Any) -> Step:
    name, f = random_step(rng, x)
    return f"a function of {name}", lambda v: tf.function(f)(v)


def _mapped(rng: np.random.Generator, x: Any) -> Step:
    if x.ndim < 2:
        return _elementwise(rng, x)
    return "a map", lambda v: tf.vectorized_map(lambda r: r * tf.reduce_sum(r), v)


STEPS = [
    _elementwise,
    _weights,
    _with_itself,
    _permute,
    _merge,
    _split,
    _flatten_back,
    _roll,
    _reverse,
    _cut_and_join,
    _unstacked,
    _gathered,
    _summed_by_segments,
    _strided,
    _padded,
    _normalized,
    _scaled,
    _stopped,
    _softmax,
    _cumsum,
    _sort,
    _matmul,
    _gram,
    _decomposed,
    _first_example,
    _in_a_function,
    _mapped,
]


def random_step(rng: np.random.Generator, x: Any) -> Step:
    return STEPS[int(rng.integers(len(STEPS)))](rng, x)


def random_program(seed: int) -> tuple[list[str], Any, Any, Any]:
    """The names of its steps, a tape, its result with the batch axis in front, and the batch."""
    rng = np.random.default_rng(seed)
    x = tf.constant(rng.normal(size=(N, *rng.integers(2, 4, size=rng.integers(1, 3)))))
    names = []
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = x
        for _ in range(int(rng.integers(1, 6))):
            name, f = random_step(rng, y)
            names.append(name)
            y = f(y)
            if y.shape.num_elements() > 400:
                break
        if y.ndim < 2 or y.shape[0] != N:
            size = y.shape.num_elements()
            left = [k for k in range(y.ndim) if y.shape[k] == N]
            if y.ndim > 1 and left:
                y = tf.transpose(y, [left[0], *(k for k in range(y.ndim) if k != left[0])])
            elif size % N == 0:
                y = tf.reshape(y, [N, size // N])
            else:
                y = tf.reshape(y, [1, size]) * tf.ones([N, 1], tf.float64)
    return names, tape, y, x


@pytest.mark.parametrize("first", range(0, 600 if SESSION["device"] == "cpu" else 50, 50))
def test_what_is_proved_is_so_and_what_is_mixed_is_mixed(first: int) -> None:
    kinds: Counter[str] = Counter()
    for seed in range(first, first + 50):
        names, tape, y, x = random_program(seed)
        said = verdict_of(tape, y, x)
        kind = "proved" if said == "proved" else "mixed" if "are mixed" in said else "unknown"
        kinds[kind] += 1
        if kind == "proved":
            assert not meets(tape, y, x), (seed, names)
        if kind == "mixed":
            assert meets(tape, y, x), (seed, names, said)
    assert kinds["proved"] >= 5 and kinds["mixed"] >= 5
    assert kinds["unknown"] == 0, "all positions are known"
