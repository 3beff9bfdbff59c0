"""The cost of one recorded small operation with its gradient: programs of 100 of them, run as they are written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import gradtape
from benchmarks import peers
from benchmarks.harness import OURS, Program
from benchmarks.reference import gradient
from benchmarks.workload import Race, Setting, Target

OPERATIONS = 100


class Spelling(NamedTuple):
    """The functions of one library that the programs use; operators are the same everywhere."""

    sin: Callable[[Any], Any]
    tanh: Callable[[Any], Any]
    sigmoid: Callable[[Any], Any]
    total: Callable[[Any], Any]
    reshape: Callable[[Any, tuple[int, ...]], Any]
    matmul: Callable[[Any, Any], Any]


Function = Callable[[Spelling, Any, Any, Any], Any]


def chain(s: Spelling, x: Any, weight: Any, matrix: Any) -> Any:
    """25 times four operations of one operand and a Python number."""
    y = x
    for _ in range(25):
        y = y * 1.01
        y = y + 0.1
        y = s.sin(y)
        y = y - 0.05
    return y


def mixed(s: Spelling, x: Any, weight: Any, matrix: Any) -> Any:
    """10 times ten operations: two operands, a sum, a change of shape, a small product of matrices."""
    n = weight.shape[0]
    y = x
    for _ in range(10):
        y = y * weight
        y = y + x
        y = s.tanh(y)
        y = s.reshape(y, (1, n))
        y = s.matmul(y, matrix)
        y = s.reshape(y, (n,))
        t = s.total(y)
        t = t * 0.1
        y = y - t
        y = s.sigmoid(y)
    return y


NUMPY = Spelling(np.sin, np.tanh, lambda x: 1 / (1 + np.exp(-x)), np.sum, np.reshape, np.matmul)


def inputs(shape: tuple[int, ...]) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(20)
    x = (0.7 + 0.1 * rng.standard_normal(shape)).astype(np.float32)
    return x, rng.standard_normal(8).astype(np.float32), (rng.standard_normal((8, 8)) / 3).astype(np.float32)


def _tape(tf: Any, peer: str, function: Function, shape: tuple[int, ...]) -> list[Program]:
    """The program for TensorFlow's names: ours and TensorFlow's own are the same."""
    spelling = Spelling(tf.sin, tf.tanh, tf.sigmoid, tf.reduce_sum, tf.reshape, tf.matmul)
    x, weight, matrix = map(tf.constant, inputs(shape))

    def call() -> Sequence[Any]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(spelling, x, weight, matrix)
        return [tape.gradient(y, x).numpy()]

    return [Program(peer, call, "eager")]


def _torch(torch: Any, function: Function, shape: tuple[int, ...]) -> list[Program]:
    spelling = Spelling(torch.sin, torch.tanh, torch.sigmoid, torch.sum, torch.reshape, torch.matmul)
    x, weight, matrix = map(torch.tensor, inputs(shape))
    x.requires_grad_()

    def call() -> Sequence[Any]:
        y = function(spelling, x, weight, matrix)
        (g,) = torch.autograd.grad(y, x) if y.ndim == 0 else torch.autograd.grad(y, x, torch.ones_like(y))
        return [g.numpy()]

    return [Program("torch", call, "eager")]


def _race(name: str, about: str, function: Function, shape: tuple[int, ...]) -> Race:
    def reference(setting: Setting) -> list[list[Any]]:
        x, weight, matrix = (a.astype(np.float64) for a in inputs(shape))
        return [[gradient(lambda p: function(NUMPY, p, weight, matrix), x)]]

    return Race(
        name,
        about,
        {
            OURS: lambda setting: _tape(gradtape, OURS, function, shape),
            "torch": lambda setting: _torch(peers.load("torch", setting.threads), function, shape),
            "tensorflow": lambda setting: _tape(
                peers.load("tensorflow", setting.threads), "tensorflow", function, shape
            ),
        },
        reference,
        tolerance=1e-3,
        unit="µs/op",
        scale=1e6 / OPERATIONS,
        targets=(Target(5.0),),
    )


WORKLOADS = [
    _race("eager_vector", "100 small operations on a vector of 8, with their gradient", chain, (8,)),
    _race("eager_scalar", "100 small operations on a scalar, with their gradient", chain, ()),
    _race("eager_mixed", "100 small operations of ten kinds on a vector of 8, with their gradient", mixed, (8,)),
]
