"""Memory: what a plan says is held at most is what the allocator sees."""

from __future__ import annotations

import gc
import time
import tracemalloc
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from gradtape.kernels.background import BACKGROUND
from gradtape.kernels.memory import POOL, empty
from gradtape.runtime.devices import DEVICES

RNG = np.random.default_rng(11)


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """With several the plan says what is held if they all work at once, and the allocator sees it only if they do."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="module", autouse=True)
def weights_are_where_tensors_are() -> None:
    """What is made while modules are imported is on the host, and would be copied to a device by each call."""
    for weights in (KERNELS, HEADS, FILTERS):
        weights[:] = [tf.constant(w.numpy()) for w in weights]


def _weights(*shape: int) -> Any:
    return tf.constant(RNG.normal(size=shape).astype(np.float32) / shape[0] ** 0.5)


KERNELS = [_weights(64, 256), _weights(256, 256), _weights(256, 32)]
HEADS = [_weights(64, 64) for _ in range(3)]


def network(x: Any) -> Any:
    for w in KERNELS:
        x = tf.tanh(tf.matmul(x, w))
    return x


def attention(x: Any) -> Any:
    q, k, v = (tf.matmul(x, w) for w in HEADS)
    return tf.matmul(tf.nn.softmax(tf.matmul(q, k, transpose_b=True)), v)


def normalized(x: Any) -> Any:
    mean, variance = tf.nn.moments(x, [0])
    return (x - mean) * tf.math.rsqrt(variance + 1e-3)


def normalized_twice(x: Any) -> Any:
    return normalized(tf.nn.relu(tf.matmul(normalized(tf.matmul(x, HEADS[0])), HEADS[1])))


def residual(x: Any) -> Any:
    for w in HEADS:
        x = x + tf.tanh(tf.matmul(x, w))
    return x


FILTERS = [_weights(3, 3, 4, 16), _weights(3, 3, 16, 32), _weights(5, 5, 4, 1)]


def convolved(x: Any) -> Any:
    x = tf.tanh(tf.nn.conv2d(x, FILTERS[0], 1, "SAME"))
    return tf.reduce_mean(tf.nn.conv2d(x, FILTERS[1], 2, "SAME"), axis=[1, 2])


def convolved_each(x: Any) -> Any:
    return tf.reduce_sum(tf.nn.depthwise_conv2d(x, FILTERS[2], [1, 1, 1, 1], "SAME"), axis=2)


def convolved_back(x: Any) -> Any:
    x = tf.nn.conv2d_transpose(x, FILTERS[0][:, :, :4], (len(x), 24, 24, 4), 2, "SAME")
    return tf.reduce_mean(x, axis=[1])


PROGRAMS: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "network": (network, (64, 64)),
    "attention": (attention, (48, 64)),
    "normalized": (normalized, (64, 64)),
    "normalized twice": (normalized_twice, (40, 64)),
    "residual": (residual, (48, 64)),
    "sorted, which is written by index": (lambda x: tf.sort(tf.matmul(x, HEADS[0]), axis=1), (40, 64)),
    "gathered with repetitions": (lambda x: tf.gather(network(x), [3, 1, 1, 0] * 8, axis=1), (48, 64)),
    "convolved": (convolved, (8, 12, 12, 4)),
    "convolved channel by channel": (convolved_each, (4, 20, 20, 4)),
    "convolved in the other direction": (convolved_back, (4, 12, 12, 16)),
    "a sum of all": (lambda x: network(x) * tf.reduce_sum(x), (40, 64)),
}


def examples_of(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Fewer where each element is a thread's, and it is one of an emulated device."""
    return shape if DEVICES.device is None else (shape[0] // 4, *shape[1:])


def seen(run: Callable[[], Any]) -> int:
    """The bytes that are allocated at most while something runs again, with an empty pool."""
    run()
    if DEVICES.device is not None:
        gc.collect()
        return seen_on(DEVICES.device.cuda.xp, run)
    while BACKGROUND.running:  # loops that are compiled would count
        time.sleep(0.01)
    run()
    gc.collect()
    return seen_on_host(run)


def seen_on_host(run: Callable[[], Any]) -> int:
    POOL.clear()
    tracemalloc.start()
    result = run()
    peak: int = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    del result
    return peak


def seen_on(xp: Any, run: Callable[[], Any]) -> int:
    pool, held = xp.cuda.MemoryPool(), [0]

    def allocated(size: int) -> Any:
        made = pool.malloc(size)
        held.append(pool.used_bytes())
        return made

    with xp.cuda.using_allocator(allocated):
        result = run()
    del result
    return max(held)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("parts", [None, 8])
def test_the_peak_is_what_the_plan_says(name: str, parts: int | None) -> None:
    f, shape = PROGRAMS[name]
    x = _weights(*examples_of(shape))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = f(x)
    rows: Any = {} if parts is None else {"parallel_iterations": -(-int(np.prod(y.shape)) // parts)}
    plan = tape.plan_jacobian(y, x, **rows)
    assert plan.chunks >= (parts or 1)  # whole runs of axes
    found = seen(lambda: tape.jacobian(y, x, **rows))
    if DEVICES.device is None:
        assert plan.peak_bytes == pytest.approx(found, rel=0.1)
    else:  # whether a product is given copies is only known when it runs
        assert found / 1.1 <= plan.peak_bytes <= 1.7 * found


def test_rows_of_eight_times_the_budget_are_computed_within_it(tmp_path: Any) -> None:
    x = _weights(64, 64)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = network(x)
    whole = tape.jacobian(y, x).numpy()
    budget = whole.nbytes // 8
    out = np.memmap(tmp_path / "jacobian", np.float32, "w+", shape=whole.shape)
    peak = seen(lambda: tape.jacobian(y, x, memory=budget, out=out))
    assert peak <= 1.1 * budget
    np.testing.assert_allclose(np.asarray(out), whole, rtol=0, atol=2e-6 * float(np.abs(whole).max()))


@pytest.mark.parametrize(
    "part", [4, pytest.param(16, marks=pytest.mark.host("more rounds of the same loop, and many bytes to check"))]
)
def test_rows_are_computed_within_a_budget_in_a_traced_function(part: int) -> None:
    x = _weights(32, 64)

    def rows(x: Any, memory: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = network(x)
        return tape.jacobian(y, x, memory=memory)

    whole = rows(x, None).numpy()
    budget = whole.nbytes + whole.nbytes // part
    traced = tf.function(lambda x: rows(x, budget))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing runs op by op
        np.testing.assert_allclose(traced(x), whole, rtol=0, atol=2e-6 * float(np.abs(whole).max()))
    assert [n.step.name for n in traced.get_concrete_function(x).graph.nodes].count("while") == 1
    assert seen(lambda: traced(x)) <= 1.1 * budget


def test_parts_that_do_not_lie_together_run_op_by_op() -> None:
    x = _weights(4, 64)

    @tf.function
    def rows(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = network(x)  # of shape (4, 32)
        return tape.jacobian(y, x, memory=whole.nbytes + whole.nbytes // 8)

    with tf.GradientTape() as tape:
        tape.watch(x)
        y = network(x)
    whole = tape.jacobian(y, x).numpy()
    with pytest.warns(UserWarning, match="along axis 1"):
        np.testing.assert_allclose(rows(x), whole, rtol=0, atol=2e-6 * float(np.abs(whole).max()))


def test_what_other_work_left_in_the_pool_does_not_come_on_top() -> None:
    x = _weights(64, 64)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = network(x)
    rows = int(np.prod(y.shape))
    whole = rows * 64 * 64 * 4
    budget = whole + whole // 4
    tape.jacobian(y, x, memory=budget)
    gc.collect()
    POOL.clear()
    tracemalloc.start()
    try:
        blocks = [empty((1 << 21,), np.dtype(np.uint8)) for _ in range(20)]
        del blocks
        assert POOL.bytes == 20 << 21
        tracemalloc.reset_peak()
        tape.jacobian(y, x, memory=budget)
        assert tracemalloc.get_traced_memory()[1] <= 1.1 * budget
    finally:
        tracemalloc.stop()
