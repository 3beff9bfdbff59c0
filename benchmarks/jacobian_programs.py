"""How each library's users ask for the derivatives of a task: natural and expert programs, eager and compiled."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.harness import Program
from benchmarks.jacobian_tasks import EPSILON, Inputs, Spelling, Task
from benchmarks.places import Place
from benchmarks.sizes import Size

Answer = Callable[..., Sequence[Any]]

# ------------------------------------------------------------------ tapes: gradtape and TensorFlow


def spelled_tf(tf: Any) -> Spelling:
    def batch_norm(h: Any, gamma: Any, beta: Any) -> Any:
        mean, variance = tf.nn.moments(h, [0])
        return tf.nn.batch_normalization(h, mean, variance, beta, gamma, EPSILON)

    return Spelling(
        tf.math.tanh,
        tf.math.exp,
        tf.math.sigmoid,
        tf.nn.elu,
        tf.nn.relu,
        tf.matmul,
        tf.reshape,
        tf.reduce_mean,
        lambda x, kernel, stride: tf.nn.conv2d(x, kernel, strides=stride, padding="VALID"),
        batch_norm,
        lambda labels, logits: tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits),
    )


def tape_answer(tf: Any, task: Task, names: Sequence[str]) -> Answer:
    """The program in TensorFlow's words: ours and TensorFlow's own are the same."""
    s = spelled_tf(tf)

    def recorded(given: Inputs) -> tuple[Any, Any, list[Any]]:
        sources = [given[name] for name in task.by]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(sources)
            y = task.function(s, given)
        return tape, y, sources

    def jacobian(given: Inputs) -> Sequence[Any]:
        tape, y, sources = recorded(given)
        return tape.jacobian(y, sources)  # type: ignore[no-any-return]

    def batch(given: Inputs) -> Sequence[Any]:
        tape, y, (x,) = recorded(given)
        return [tape.batch_jacobian(y, x)]

    def hessian(given: Inputs) -> Sequence[Any]:
        sources = [given[name] for name in task.by]
        with tf.GradientTape(watch_accessed_variables=False) as outer:
            outer.watch(sources)
            inner, loss, _ = recorded(given)
            slopes = inner.gradient(loss, sources)
            flat = tf.concat([tf.reshape(g, [-1]) for g in slopes], 0)
        n = flat.shape[0]
        return [tf.concat([tf.reshape(h, [n, -1]) for h in outer.jacobian(flat, sources)], 1)]

    def third(given: Inputs) -> Sequence[Any]:
        (name,) = task.by
        x = given[name]
        with tf.GradientTape(watch_accessed_variables=False) as outer:
            outer.watch(x)
            with tf.GradientTape(watch_accessed_variables=False) as middle:
                middle.watch(x)
                inner, y, _ = recorded(given)
                first = inner.jacobian(y, x)
            second = middle.jacobian(first, x)
        return [outer.jacobian(second, x)]

    kinds = {"jacobian": jacobian, "batch": batch, "examples": jacobian, "hessian": hessian, "third": third}
    answer = kinds[task.question]
    return lambda *arrays: answer(dict(zip(names, arrays, strict=True)))


def mapped_tape_answer(tf: Any, task: Task, names: Sequence[str]) -> Answer:
    """One example's derivative, mapped over all of them: what an expert writes."""
    s = spelled_tf(tf)

    def answer(*arrays: Any) -> Sequence[Any]:
        given = dict(zip(names, arrays, strict=True))

        def one(example: Sequence[Any]) -> Any:
            inside = given | {k: e[None] for k, e in zip(task.examples, example, strict=True)}
            sources = [inside[name] for name in task.by]
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(sources)
                y = task.function(s, inside)[0]
            return tape.gradient(y, sources) if task.question == "examples" else tape.jacobian(y, sources)

        return list(tf.vectorized_map(one, tuple(given[k] for k in task.examples)))

    return answer


def our_hessian(tf: Any, task: Task, names: Sequence[str]) -> Answer:
    """From one tape."""
    s = spelled_tf(tf)

    def answer(*arrays: Any) -> Sequence[Any]:
        given = dict(zip(names, arrays, strict=True))
        sources = [given[name] for name in task.by]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(sources)
            loss = task.function(s, given)
        return [tape.hessian(loss, sources, flat=True).matrix]

    return answer


def our_examples(tf: Any, task: Task, names: Sequence[str]) -> Answer:
    s = spelled_tf(tf)

    def answer(*arrays: Any) -> Sequence[Any]:
        given = dict(zip(names, arrays, strict=True))

        def loss(example: Sequence[Any]) -> Any:
            inside = {k: e[None] for k, e in zip(task.examples, example, strict=True)}
            return task.function(s, given | inside)[0]

        sources = [given[name] for name in task.by]
        return tf.per_example_gradients(loss, sources, tuple(given[k] for k in task.examples))  # type: ignore[no-any-return]

    return answer


def tape_programs(place: Place, peer: str, task: Task, size: Size, answers: dict[str, Answer]) -> list[Program]:
    arrays = [place.module.constant(v) for v in task.inputs(size).values()]
    return [place.program(peer, lambda a=a: a(*arrays), name) for name, a in answers.items()]  # type: ignore[misc]


def tensorflow_programs(place: Place, task: Task, size: Size, variants: Sequence[str]) -> list[Program]:
    """Variants: "function", "xla", and both of them with "map" or "forward" (one row per source element)."""
    tf, names = place.module, list(task.inputs(size))
    found: dict[str, Answer] = {}
    for variant in variants:
        way, *rest = variant.split()
        make = {"map": mapped_tape_answer, "forward": _forward_answer}[rest[0]] if rest else tape_answer
        found[variant] = tf.function(make(tf, task, names), jit_compile=way == "xla")
    return tape_programs(place, "tensorflow", task, size, found)


def _forward_answer(tf: Any, task: Task, names: Sequence[str]) -> Answer:
    """The derivative by one number."""
    s = spelled_tf(tf)

    def answer(*arrays: Any) -> Sequence[Any]:
        given = dict(zip(names, arrays, strict=True))
        x = given[task.by[0]]
        with tf.autodiff.ForwardAccumulator(x, tf.ones_like(x)) as accumulator:
            y = task.function(s, given)
        return [accumulator.jvp(y)]

    return answer


# ------------------------------------------------------------------ PyTorch and JAX: functions of functions


def _functional(task: Task, given: Sequence[str], lib: Any, s: Spelling, way: str) -> Answer:
    """`lib` has jacrev, jacfwd, grad and vmap, with PyTorch's names of arguments. Ways: "reverse", "forward", "map",
    and for derivatives of higher order one letter per level, the outermost first: "fr" is forward over reverse."""
    position = [given.index(name) for name in task.by]

    def function(*arrays: Any) -> Any:
        return task.function(s, dict(zip(given, arrays, strict=True)))

    if way == "map":
        return _mapped(task, given, lib, s)
    if task.question == "third":
        f: Any = function
        for letter in reversed(way):
            f = _levels(lib)[letter](f, argnums=position[0])
        return lambda *arrays: [f(*arrays)]
    if task.question == "hessian":
        return _hessian(task, given, lib, function, way, position)
    f = _levels(lib)[way[0]](function, argnums=tuple(position))
    return lambda *arrays: list(f(*arrays))


def _levels(lib: Any) -> dict[str, Any]:
    return {"r": lib.jacrev, "f": lib.jacfwd}


def _mapped(task: Task, given: Sequence[str], lib: Any, s: Spelling) -> Answer:
    def one(*arrays: Any) -> Any:
        inside = dict(zip(given, arrays, strict=True))
        return task.function(s, inside | {k: inside[k][None] for k in task.examples})[0]

    position = tuple(given.index(name) for name in task.by)
    derivative = (lib.grad if task.question == "examples" else lib.jacrev)(one, argnums=position)
    f = lib.vmap(derivative, tuple(0 if name in task.examples else None for name in given))
    return lambda *arrays: list(f(*arrays))


def _hessian(task: Task, given: Sequence[str], lib: Any, function: Any, way: str, position: Sequence[int]) -> Answer:
    """The Jacobian of the gradient by one vector of all parameters, as those who want a matrix write it."""

    def answer(*arrays: Any) -> Sequence[Any]:
        shapes = [tuple(arrays[k].shape) for k in position]

        def of_flat(flat: Any) -> Any:
            filled, at = list(arrays), 0
            for k, shape in zip(position, shapes, strict=True):
                filled[k] = flat[at : at + math.prod(shape)].reshape(shape)
                at += math.prod(shape)
            return function(*filled)

        flat = lib.concatenate([arrays[k].reshape(-1) for k in position])
        return [_levels(lib)[way[0]](lib.grad(of_flat))(flat)]

    return answer


class _Torch:
    def __init__(self, torch: Any) -> None:
        f = torch.func
        self.jacrev, self.jacfwd, self.grad, self.vmap = f.jacrev, f.jacfwd, f.grad, f.vmap
        self.concatenate = torch.cat


class _Jax:
    def __init__(self, jax: Any) -> None:
        self.jacrev, self.jacfwd, self.grad, self.vmap = jax.jacrev, jax.jacfwd, jax.grad, jax.vmap
        self.concatenate = jax.numpy.concatenate


def torch_programs(place: Place, task: Task, size: Size, variants: Sequence[str]) -> list[Program]:
    """Variants: "eager WAY" and "compiled WAY"."""
    torch, given = place.module, task.inputs(size)
    arrays = [
        torch.tensor(v, dtype=torch.int64 if v.dtype == np.int32 else None, device=place.device) for v in given.values()
    ]
    f = torch.nn.functional

    def conv(x: Any, kernel: Any, stride: int) -> Any:
        return f.conv2d(x.permute(0, 3, 1, 2), kernel.permute(3, 2, 0, 1), stride=stride).permute(0, 2, 3, 1)

    def batch_norm(h: Any, gamma: Any, beta: Any) -> Any:
        return (h - h.mean(0)) * torch.rsqrt(h.var(0, correction=0) + EPSILON) * gamma + beta

    s = Spelling(
        torch.tanh,
        torch.exp,
        torch.sigmoid,
        f.elu,
        f.relu,
        torch.matmul,
        torch.reshape,
        torch.mean,
        conv,
        batch_norm,
        lambda labels, logits: f.cross_entropy(logits, labels, reduction="none"),
    )

    def program(variant: str) -> Program:
        how, way = variant.split()
        answer = _functional(task, list(given), _Torch(torch), s, way)
        run = torch.compile(answer) if how == "compiled" else answer
        return place.program("torch", lambda: run(*arrays), variant)

    return [program(v) for v in variants]


def jax_programs(place: Place, task: Task, size: Size, ways: Sequence[str]) -> list[Program]:
    """Compiled by `jit`; arrays are on the device before."""
    jax, given = place.module, task.inputs(size)
    arrays = [jax.device_put(v) for v in given.values()]
    jnp = jax.numpy

    def conv(x: Any, kernel: Any, stride: int) -> Any:
        layout = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, kernel, (stride, stride), "VALID", dimension_numbers=layout)

    def batch_norm(h: Any, gamma: Any, beta: Any) -> Any:
        return (h - h.mean(0)) * jax.lax.rsqrt(h.var(0) + EPSILON) * gamma + beta

    def cross_entropy(labels: Any, logits: Any) -> Any:
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1)[:, 0]

    s = Spelling(
        jnp.tanh,
        jnp.exp,
        jax.nn.sigmoid,
        jax.nn.elu,
        jax.nn.relu,
        jnp.matmul,
        jnp.reshape,
        jnp.mean,
        conv,
        batch_norm,
        cross_entropy,
    )

    def program(way: str) -> Program:
        run = jax.jit(_functional(task, list(given), _Jax(jax), s, way))
        return place.program("jax", lambda: run(*arrays), f"jit {way}")

    return [program(w) for w in ways]


# ------------------------------------------------------------------ autograd


def autograd_programs(place: Place, task: Task, size: Size) -> list[Program]:
    """One row after the other; only for what is small."""
    autograd, given = place.module, task.inputs(size)
    np_ = autograd.numpy

    def missing(*_: Any) -> Any:
        raise NotImplementedError("autograd has no such function")

    s = Spelling(
        np_.tanh,
        np_.exp,
        lambda x: 1 / (1 + np_.exp(-x)),
        lambda x: np_.where(x > 0, x, np_.exp(np_.minimum(x, 0)) - 1),
        lambda x: np_.maximum(x, 0),
        np_.matmul,
        np_.reshape,
        np_.mean,
        missing,
        missing,
        missing,
    )
    (name,) = task.by

    def of_source(x: Any) -> Any:
        return task.function(s, given | {name: x})

    jacobian = autograd.jacobian(of_source)
    return [place.program("autograd", lambda: [jacobian(given[name])], "loop")]
