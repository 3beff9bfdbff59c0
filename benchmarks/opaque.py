"""Ops whose loops no array library fuses: gathering, scattering, segments, pooling and convolution, each with its
gradient. Sizes are those of an embedding of 100,000 rows and of the two layers of a small network for digits.

Results are read without a copy where a library offers that. PyTorch has images with channels last, as we have, which
is where it is fastest."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

import gradtape
from benchmarks import peers
from benchmarks.harness import OURS, Program
from benchmarks.workload import Race, Setting, Target

Arrays = Sequence[Any]


@dataclass(frozen=True)
class Task:
    """A function of arrays in three spellings, and what its gradient is by hand.

    `inputs`: floating operands, then integer ones; four axes are those of images (first) or a kernel (second)."""

    inputs: Callable[[bool], Arrays]
    tensorflow: Callable[..., Any]
    torch: Callable[..., Any]
    value: Callable[..., Any]
    gradient: Callable[..., Arrays]


def _random(rng: np.random.Generator, *shape: int) -> Any:
    return rng.standard_normal(shape).astype(np.float32)


def cotangent(shape: Sequence[int]) -> Any:
    return np.random.default_rng(31).standard_normal(tuple(shape)).astype(np.float32)


# ------------------------------------------------------------------ embeddings


def _embedding(quick: bool) -> Arrays:
    rng = np.random.default_rng(21)
    rows, width, count = (50, 4, 20) if quick else (100_000, 64, 10_000)
    return [_random(rng, rows, width), rng.integers(0, rows, count)]


def _scattered(quick: bool) -> Arrays:
    rng = np.random.default_rng(22)
    rows, width, count = (50, 4, 20) if quick else (100_000, 64, 10_000)
    return [_random(rng, count, width), rng.integers(0, rows, count), np.array(rows)]


def _segments(quick: bool) -> Arrays:
    rng = np.random.default_rng(23)
    rows, width, count = (5, 4, 20) if quick else (1000, 64, 10_000)
    return [_random(rng, count, width), rng.integers(0, rows, count), np.array(rows)]


def _added(x: Any, ids: Any, rows: Any) -> Any:
    out = np.zeros((int(rows), *x.shape[1:]))
    np.add.at(out, ids, x)
    return out


def _torch_added(torch: Any, x: Any, ids: Any, rows: Any) -> Any:
    return torch.zeros((int(rows), x.shape[1])).index_add(0, ids, x)


GATHER = Task(
    _embedding,
    lambda tf, x, ids: tf.gather(x, ids),
    lambda torch, x, ids: torch.nn.functional.embedding(ids, x),
    lambda x, ids: x[ids],
    lambda g, x, ids: [_added(g, ids, len(x))],
)
SCATTER = Task(
    _scattered,
    lambda tf, x, ids, rows: tf.scatter_nd(ids[:, None], x, [int(rows), x.shape[1]]),
    _torch_added,
    _added,
    lambda g, x, ids, rows: [g[ids]],
)
SEGMENTS = Task(
    _segments,
    lambda tf, x, ids, rows: tf.math.unsorted_segment_sum(x, ids, int(rows)),
    _torch_added,
    _added,
    lambda g, x, ids, rows: [g[ids]],
)

# ------------------------------------------------------------------ images


def _images(size: int, channels: int) -> Callable[[bool], Arrays]:
    def inputs(quick: bool) -> Arrays:
        rng = np.random.default_rng(24)
        shape = (2, 6, 6, min(channels, 3)) if quick else (64, size, size, channels)
        return [_random(rng, *shape)]

    return inputs


def _blocks(x: Any) -> Any:
    """Windows of 2 by 2 that do not overlap: (n, h, w, c, 4)."""
    n, h, w, c = x.shape
    return x.reshape(n, h // 2, 2, w // 2, 2, c).transpose(0, 1, 3, 5, 2, 4).reshape(n, h // 2, w // 2, c, 4)


def _unblocked(blocks: Any) -> Any:
    n, h, w, c, _ = blocks.shape
    return blocks.reshape(n, h, w, c, 2, 2).transpose(0, 1, 4, 2, 5, 3).reshape(n, 2 * h, 2 * w, c)


def _largest_gradient(g: Any, x: Any) -> Arrays:
    return [_unblocked(np.where(np.arange(4) == _blocks(x).argmax(-1)[..., None], g[..., None], 0.0))]


def _max_task(size: int, channels: int) -> Task:
    return Task(
        _images(size, channels),
        lambda tf, x: tf.nn.max_pool2d(x, 2, 2, "VALID"),
        lambda torch, x: torch.nn.functional.max_pool2d(x, 2),
        lambda x: _blocks(x).max(-1),
        _largest_gradient,
    )


def _mean_task(size: int, channels: int) -> Task:
    return Task(
        _images(size, channels),
        lambda tf, x: tf.nn.avg_pool2d(x, 2, 2, "VALID"),
        lambda torch, x: torch.nn.functional.avg_pool2d(x, 2),
        lambda x: _blocks(x).mean(-1),
        lambda g, x: [_unblocked(np.repeat(g[..., None] / 4, 4, -1))],
    )


def _layer(size: int, channels: int, results: int) -> Callable[[bool], Arrays]:
    def inputs(quick: bool) -> Arrays:
        rng = np.random.default_rng(25)
        n, s, c, o = (2, 5, min(channels, 3), 4) if quick else (64, size, channels, results)
        return [_random(rng, n, s, s, c), _random(rng, 3, 3, c, o)]

    return inputs


def _windows(x: Any) -> Any:
    """Windows of 3 by 3 around every element: (n, h, w, c, 3, 3)."""
    return sliding_window_view(np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))), (3, 3), axis=(1, 2))


def _convolved(x: Any, k: Any) -> Any:
    return np.tensordot(_windows(x), k, axes=([4, 5, 3], [0, 1, 2]))


def _convolution_gradient(g: Any, x: Any, k: Any) -> Arrays:
    wide = np.zeros((x.shape[0], x.shape[1] + 2, x.shape[2] + 2, x.shape[3]))
    for i, j in itertools.product(range(3), range(3)):
        wide[:, i : i + x.shape[1], j : j + x.shape[2]] += g @ k[i, j].T
    of_kernel = np.tensordot(_windows(x), g, axes=([0, 1, 2], [0, 1, 2]))
    return [wide[:, 1:-1, 1:-1], of_kernel.transpose(1, 2, 0, 3)]


def _convolution_task(size: int, channels: int, results: int) -> Task:
    return Task(
        _layer(size, channels, results),
        lambda tf, x, k: tf.nn.conv2d(x, k, 1, "SAME"),
        lambda torch, x, k: torch.nn.functional.conv2d(x, k, padding=1),
        _convolved,
        _convolution_gradient,
    )


# ------------------------------------------------------------------ programs


def _tape(tf: Any, peer: str, task: Task, quick: bool, wanted: tuple[int, ...] | None) -> list[Program]:
    """The program for TensorFlow's names: ours and TensorFlow's own are the same."""
    arrays = task.inputs(quick)
    operands = [tf.constant(a) if np.ndim(a) else a for a in arrays]
    seed = tf.constant(cotangent(_result_shape(task, arrays)))

    def value() -> Arrays:
        return [np.asarray(task.tensorflow(tf, *operands))]

    def gradient() -> Arrays:
        sources = [operands[k] for k in wanted or ()]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(sources)
            y = task.tensorflow(tf, *operands)
        return [np.asarray(tf.convert_to_tensor(g)) for g in tape.gradient(y, sources, seed)]

    return [Program(peer, value if wanted is None else gradient, "eager")]


def _result_shape(task: Task, arrays: Arrays) -> tuple[int, ...]:
    found: tuple[int, ...] = task.value(*arrays).shape
    return found


def _torch(torch: Any, task: Task, quick: bool, wanted: tuple[int, ...] | None) -> list[Program]:
    arrays = task.inputs(quick)
    operands = [_torch_operand(torch, a, k) for k, a in enumerate(arrays)]
    seed = _torch_operand(torch, cotangent(_result_shape(task, arrays)), 0)
    for k in wanted or ():
        operands[k].requires_grad_()

    def value() -> Arrays:
        with torch.no_grad():
            return [_read(task.torch(torch, *operands), 0)]

    def gradient() -> Arrays:
        found = torch.autograd.grad(task.torch(torch, *operands), [operands[k] for k in wanted or ()], seed)
        return [_read(g, k) for g, k in zip(found, wanted or (), strict=True)]

    return [Program("torch", value if wanted is None else gradient, "eager")]


def _torch_operand(torch: Any, array: Any, place: int) -> Any:
    """Images (place 0) and kernels (place 1) in PyTorch's order of axes, over memory with channels last."""
    if np.ndim(array) == 0:
        return array
    tensor = torch.tensor(array)
    if tensor.ndim < 4:
        return tensor
    if place == 0:
        return tensor.permute(0, 3, 1, 2)
    return tensor.permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)


def _read(tensor: Any, place: int) -> Any:
    if tensor.ndim < 4:
        return tensor.numpy()
    return tensor.permute(0, 2, 3, 1).numpy() if place == 0 else tensor.permute(2, 3, 1, 0).numpy()


def _reference(task: Task, setting: Setting, wanted: tuple[int, ...] | None) -> list[list[Any]]:
    arrays = task.inputs(setting.quick)
    wide = [a.astype(np.float64) if np.asarray(a).dtype.kind == "f" else a for a in arrays]
    if wanted is None:
        return [[task.value(*wide)]]
    g = cotangent(_result_shape(task, arrays)).astype(np.float64)
    found = task.gradient(g, *wide)
    return [[found[k] for k in wanted]]


def _race(name: str, about: str, task: Task, limit: float, wanted: tuple[int, ...] | None = None) -> Race:
    return Race(
        name,
        about,
        {
            OURS: lambda s: _tape(gradtape, OURS, task, s.quick, wanted),
            "torch": lambda s: _torch(peers.load("torch", s.threads), task, s.quick, wanted),
            "tensorflow": lambda s: _tape(peers.load("tensorflow", s.threads), "tensorflow", task, s.quick, wanted),
        },
        lambda s: _reference(task, s, wanted),
        tolerance=1e-4,
        targets=(Target(limit, "ratio"),),
    )


def _both(name: str, about: str, task: Task) -> list[Race]:
    return [
        _race(name, about, task, 2.0),
        _race(f"{name}_vjp", f"{about}, and the gradient", task, 2.0, (0,)),
    ]


def _convolutions(name: str, about: str, task: Task) -> list[Race]:
    return [
        _race(name, about, task, 4.0),
        _race(f"{name}_input", f"{about}, and the gradient in the images", task, 4.0, (0,)),
        _race(f"{name}_kernel", f"{about}, and the gradient in the kernel", task, 4.0, (1,)),
    ]


WORKLOADS = [
    *_both("gather", "10,000 rows of a table of 100,000 by 64", GATHER),
    *_both("scatter_add", "10,000 rows added up in a table of 100,000 by 64", SCATTER),
    *_both("segment_sum", "10,000 rows of 64 added up in 1,000 segments", SEGMENTS),
    *_both("max_pool", "windows of 2 by 2 in 64 images of 28 by 28 by 32", _max_task(28, 32)),
    *_both("avg_pool", "windows of 2 by 2 in 64 images of 28 by 28 by 32", _mean_task(28, 32)),
    *_convolutions("conv2d_first", "64 images of 28 by 28 by 1 to 32 channels, 3 by 3", _convolution_task(28, 1, 32)),
    *_convolutions(
        "conv2d_second", "64 images of 14 by 14 by 32 to 64 channels, 3 by 3", _convolution_task(14, 32, 64)
    ),
]
