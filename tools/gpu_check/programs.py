"""Small programs of many kinds, whose results are compared between two runs and between a GPU and the emulated device,
and which compute-sanitizer looks at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

import gradtape as tf

Array = np.ndarray[Any, Any]


class Drawn:
    """Numbers for programs, the same ones in each run."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def __call__(self, *shape: int, dtype: str = "float32", scale: float = 1.0) -> Any:
        return tf.constant((scale * self.rng.standard_normal(shape)).astype(dtype))

    def below(self, limit: int, *shape: int) -> Any:
        """Indices; on the device, however few they are."""
        with tf.device("/GPU:0"):
            return tf.constant(self.rng.integers(0, limit, shape).astype(np.int32))


class Program(NamedTuple):
    """A program of numbers that are drawn and a size; `tolerance`: how far two devices' results may be apart, in terms
    of the largest (0: no bit may differ)."""

    run: Callable[[Drawn, int], Sequence[Any]]
    tolerance: float = 1e-5


def _slopes(f: Callable[..., Any], *sources: Any) -> list[Any]:
    """A function's values with the gradients of their sum."""
    with tf.GradientTape() as tape:
        tape.watch(sources)
        y = f(*sources)
    return [y, *tape.gradient(y, sources)]


def pointwise(draw: Drawn, n: int) -> Sequence[Any]:
    return _slopes(
        lambda x, b: tf.tanh(x * b) * tf.exp(-x * x) + tf.math.log1p(x * x) / (1.0 + tf.abs(tf.sin(b))),
        draw(n, 33),
        draw(33),
    )


def softmax(draw: Drawn, n: int) -> Sequence[Any]:
    labels = draw.below(40, n)
    return _slopes(lambda x: tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=x), draw(n, 40))


def layer_norm(draw: Drawn, n: int) -> Sequence[Any]:
    def normalized(x: Any, gain: Any, bias: Any) -> Any:
        mean, variance = tf.nn.moments(x, [-1], keepdims=True)
        return (x - mean) * tf.math.rsqrt(variance + 1e-5) * gain + bias

    return _slopes(normalized, draw(n, 35), draw(35), draw(35))


def batch_norm(draw: Drawn, n: int) -> Sequence[Any]:
    def normalized(x: Any, gain: Any, bias: Any) -> Any:
        mean, variance = tf.nn.moments(x, [0])
        return tf.nn.batch_normalization(x, mean, variance, bias, gain, 1e-3)

    return _slopes(normalized, draw(n, 35), draw(35), draw(35))


def sums(draw: Drawn, n: int) -> Sequence[Any]:
    x = draw(n, 37)
    return [
        tf.reduce_sum(x),
        tf.reduce_sum(x, axis=0),
        tf.reduce_mean(x, axis=1),
        tf.reduce_max(x, axis=0),
        tf.reduce_logsumexp(x, axis=1),
        tf.argmax(x, axis=1),
        tf.math.count_nonzero(x > 0),
    ]


def products(draw: Drawn, n: int) -> Sequence[Any]:
    return [
        *_slopes(tf.matmul, draw(n, 24), draw(24, 17)),
        *_slopes(lambda a, b: tf.einsum("bij,bkj->bik", a, b), draw(n, 5, 7), draw(n, 3, 7)),
    ]


def convolution(draw: Drawn, n: int) -> Sequence[Any]:
    n = min(n, 64)
    return _slopes(
        lambda x, k: tf.nn.max_pool2d(tf.nn.conv2d(x, k, 1, "SAME"), 2, 2, "VALID"), draw(n, 6, 6, 3), draw(3, 3, 3, 4)
    )


def moves(draw: Drawn, n: int) -> Sequence[Any]:
    x, rows = draw(n, 9), draw.below(n, 2 * n)
    return [
        tf.transpose(x),
        tf.reverse(x, [0]),
        tf.gather(x, rows),
        tf.concat([x[1:], x[:1]], 0),
        tf.pad(x, [[1, 2], [0, 1]]),
        tf.tile(x, [2, 1]),
        tf.roll(x, 3, 0),
        tf.where(x > 0, x, tf.zeros_like(x)),
    ]


def scattered(draw: Drawn, n: int) -> Sequence[Any]:
    rows = draw.below(max(1, n // 4), 2 * n)
    found = _slopes(lambda table: tf.gather(table, rows) * 2.0, draw(n, 6))
    return [tf.convert_to_tensor(t) for t in found] + [tf.math.unsorted_segment_sum(draw(2 * n, 6), rows, n)]


def scans(draw: Drawn, n: int) -> Sequence[Any]:
    return [*_slopes(lambda x: tf.cumsum(x, axis=1), draw(7, n)), tf.cumsum(draw(n, 5), axis=0, reverse=True)]


def sorting(draw: Drawn, n: int) -> Sequence[Any]:
    x = draw(5, n)
    return [tf.sort(x), tf.argsort(x), *tf.math.top_k(x, min(4, n)), *_slopes(tf.sort, x)[1:]]


def complex_numbers(draw: Drawn, n: int) -> Sequence[Any]:
    z = tf.complex(draw(n, 16), draw(n, 16))
    return [z * tf.math.conj(z) + tf.exp(z), tf.abs(z), tf.signal.fft(z)]


def halves(draw: Drawn, n: int) -> Sequence[Any]:
    x = tf.cast(draw(n, 33), tf.bfloat16)
    return [*_slopes(tf.tanh, tf.cast(x, tf.float16)), tf.reduce_sum(x, axis=1), tf.nn.softmax(x)]


def integers(draw: Drawn, n: int) -> Sequence[Any]:
    a, b = draw.below(1000, n, 11), draw.below(50, n, 11)
    return [a * b - b, a // (b + 1), tf.reduce_sum(a, axis=0), tf.bitwise.bitwise_xor(a, b), tf.cumsum(a, axis=0)]


def matrices(draw: Drawn, n: int) -> Sequence[Any]:
    a = draw(min(n, 64), 4, 4, dtype="float64")
    positive = tf.matmul(a, a, transpose_b=True) + 2.0 * tf.eye(4, dtype=tf.float64)
    return [
        tf.linalg.cholesky(positive),
        tf.linalg.inv(positive),
        tf.linalg.solve(positive, a),
        tf.linalg.slogdet(positive)[1],
        tf.linalg.eigvalsh(positive),
    ]


def random_numbers(draw: Drawn, n: int) -> Sequence[Any]:
    seed = [3, n]
    return [tf.random.stateless_uniform([n, 7], seed), tf.random.stateless_uniform([n], seed, 0, 99, tf.int32)]


def network(draw: Drawn, n: int) -> tuple[list[Any], Any]:
    return [draw(8, 16, scale=0.3), draw(16, scale=0.1), draw(16, 5, scale=0.3)], draw(n, 8)


def jacobians(draw: Drawn, n: int) -> Sequence[Any]:
    (w1, b1, w2), x = network(draw, n)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([x, w2])
        y = tf.nn.elu(tf.matmul(tf.tanh(tf.matmul(x, w1) + b1), w2))
        few, loss = y[:5], tf.reduce_mean(y * y)
    return [tape.batch_jacobian(y, x), tape.jacobian(few, w2), tape.hessian(loss, w2)]


def training(draw: Drawn, n: int) -> Sequence[Any]:
    weights, x = network(draw, n)
    variables = [tf.Variable(w) for w in weights]
    labels = draw.below(5, n)
    optimizer = tf.keras.optimizers.Adam(0.01)

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as tape:
            w1, b1, w2 = variables
            logits = tf.matmul(tf.nn.relu(tf.matmul(x, w1) + b1), w2)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return loss

    losses = [step() for _ in range(3)]
    return [*losses, *(v.read_value() for v in variables)]


PROGRAMS: dict[str, Program] = {
    "pointwise": Program(pointwise),
    "softmax": Program(softmax),
    "layer norm": Program(layer_norm, 3e-5),
    "batch norm": Program(batch_norm, 3e-5),
    "sums": Program(sums),
    "products": Program(products),
    "convolution": Program(convolution),
    "moves": Program(moves, 0.0),
    "scattered": Program(scattered),
    "scans": Program(scans),
    "sorting": Program(sorting, 0.0),
    "complex numbers": Program(complex_numbers),
    "halves": Program(halves, 1e-2),
    "integers": Program(integers, 0.0),
    "matrices": Program(matrices, 1e-10),
    "random numbers": Program(random_numbers, 0.0),
    "jacobians": Program(jacobians, 3e-5),
    "training": Program(training, 1e-3),
}


def results(n: int, names: Sequence[str] | None = None) -> Iterator[tuple[str, Array]]:
    """Each result by its name, on the host; of the programs with these names, or of all."""
    for k, name in enumerate(PROGRAMS):
        if names is None or name in names:
            for j, found in enumerate(PROGRAMS[name].run(Drawn(k), n)):
                yield f"{name} {j}", np.asarray(found.numpy())


def tolerance(result: str) -> float:
    """That of the program that a result belongs to."""
    return PROGRAMS[result.rsplit(" ", 1)[0]].tolerance


def asked(words: Sequence[str]) -> tuple[bool, tuple[str, ...] | None]:
    """What `Setting.words` says: whether it is a dry run, and which programs."""
    names = tuple(word for word in words if word != "--dry-run")
    return len(names) < len(words), names or None
