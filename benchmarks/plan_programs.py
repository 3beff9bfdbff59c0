"""How each library's users ask for the derivatives of a task: as it is written, and compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.harness import Program
from benchmarks.places import Place
from benchmarks.plan_tasks import Inputs, Spelling, Task, python_loop
from benchmarks.sizes import Size

Answer = Callable[..., Sequence[Any]]


def _split(task: Task, size: Size) -> tuple[Inputs, Inputs]:
    """The arrays, and the numbers of rounds, which belong to the program."""
    given = task.inputs(size)
    return {k: v for k, v in given.items() if k != "rounds"}, {k: int(v) for k, v in given.items() if k == "rounds"}


# ------------------------------------------------------------------ tapes: gradtape and TensorFlow


def _spelled_tf(tf: Any, in_graph: bool) -> Spelling:
    def while_loop(rounds: int, step: Callable[[Any], Any], x: Any) -> Any:
        found = tf.while_loop(lambda k, x: k < rounds, lambda k, x: (k + 1, step(x)), (0, x), maximum_iterations=rounds)
        return found[1]

    m = tf.math
    return Spelling(
        m.exp,
        m.log,
        m.sin,
        m.sqrt,
        m.rsqrt,
        m.tanh,
        m.sigmoid,
        tf.reduce_sum,
        lambda x: tf.reduce_mean(x, axis=-1, keepdims=True),
        lambda x: tf.reduce_logsumexp(x, axis=-1),
        lambda labels, logits: tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits),
        tf.linalg.matvec,
        while_loop if in_graph else python_loop,
    )


def _tape_answer(tf: Any, task: Task, names: Sequence[str], numbers: Inputs, in_graph: bool) -> Answer:
    """The program in TensorFlow's words: ours and TensorFlow's own are the same."""
    s = _spelled_tf(tf, in_graph)

    def recorded(given: Inputs) -> tuple[Any, Any]:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch([given[name] for name in task.by])
            y = task.function(s, given | numbers)
        return tape, y

    def gradient(given: Inputs) -> Sequence[Any]:
        tape, y = recorded(given)
        return tape.gradient(y, [given[name] for name in task.by])  # type: ignore[no-any-return]

    def jacobian(given: Inputs) -> Sequence[Any]:
        tape, y = recorded(given)
        return [tape.jacobian(y, given[task.by[0]])]

    def third(given: Inputs) -> Sequence[Any]:
        x = given[task.by[0]]
        with tf.GradientTape(watch_accessed_variables=False) as outer:
            outer.watch(x)
            with tf.GradientTape(watch_accessed_variables=False) as middle:
                middle.watch(x)
                inner, y = recorded(given)
                first = inner.gradient(y, x)
            second = middle.gradient(first, x)
        return [outer.gradient(second, x)]

    answer = {"gradient": gradient, "jacobian": jacobian, "third": third}[task.question]
    return lambda *arrays: answer(dict(zip(names, arrays, strict=True)))


def tape_programs(place: Place, peer: str, task: Task, size: Size, variants: Sequence[str]) -> list[Program]:
    """Variants: "eager", "function" and "xla"; with "while", loops are the library's own. Results are read without a
    copy, as all here are; those without axes are numbers."""
    tf = place.module
    given, numbers = _split(task, size)
    arrays = [tf.constant(v) for v in given.values()]
    read: Callable[[Any], Any] | None = None
    if not any(given[name].ndim for name in task.by):
        read = lambda t: t.numpy()  # noqa: E731

    def program(variant: str) -> Program:
        how, *rest = variant.split()
        answer = _tape_answer(tf, task, list(given), numbers, rest == ["while"])
        run = answer if how == "eager" else tf.function(answer, jit_compile=how == "xla")
        return place.program(peer, lambda: run(*arrays), variant, read=read)

    return [program(v) for v in variants]


# ------------------------------------------------------------------ PyTorch


def torch_programs(place: Place, task: Task, size: Size, variants: Sequence[str]) -> list[Program]:
    """Variants: "eager", "compiled" (the function is, and PyTorch differentiates that) and "compiled step" (what a loop
    does in each round is)."""
    torch = place.module
    given, numbers = _split(task, size)
    arrays = {
        k: torch.tensor(v, dtype=torch.int64 if v.dtype == np.int32 else None, device=place.device)
        for k, v in given.items()
    }
    sources = [arrays[name].requires_grad_(task.question != "jacobian") for name in task.by]

    def program(variant: str) -> Program:
        f = torch.nn.functional
        rounds = _compiled_rounds(torch) if variant == "compiled step" else python_loop
        s = Spelling(
            torch.exp,
            torch.log,
            torch.sin,
            torch.sqrt,
            torch.rsqrt,
            torch.tanh,
            torch.sigmoid,
            torch.sum,
            lambda x: x.mean(-1, keepdim=True),
            lambda x: torch.logsumexp(x, -1),
            lambda labels, logits: f.cross_entropy(logits, labels, reduction="none"),
            torch.mv,
            rounds,
        )
        call = _torch_call(torch, task, s, arrays, sources, numbers, variant == "compiled")
        return place.program("torch", call, variant)

    return [program(v) for v in variants]


def _compiled_rounds(torch: Any) -> Callable[[int, Callable[[Any], Any], Any], Any]:
    return lambda rounds, step, x: python_loop(rounds, torch.compile(step), x)


def _torch_call(
    torch: Any, task: Task, s: Spelling, arrays: Inputs, sources: Sequence[Any], numbers: Inputs, whole: bool
) -> Callable[[], Sequence[Any]]:
    def function(*by: Any) -> Any:
        return task.function(s, arrays | numbers | dict(zip(task.by, by, strict=True)))

    if task.question == "gradient":
        forward = torch.compile(function) if whole else function

        def gradient() -> Sequence[Any]:
            y = forward(*sources)
            found: Sequence[Any] = torch.autograd.grad(y, sources, None if y.ndim == 0 else torch.ones_like(y))
            return found

        return gradient
    derived: Any = torch.func.jacfwd(function) if task.question == "jacobian" else _thrice(torch.func.grad, function)
    run = torch.compile(derived) if whole else derived
    return lambda: [run(*(x.detach() for x in sources))]


def _thrice(grad: Any, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    derived = function
    for _ in range(3):
        derived = grad(lambda x, f=derived: f(x).sum())
    return derived


# ------------------------------------------------------------------ JAX


def jax_programs(place: Place, task: Task, size: Size) -> list[Program]:
    """Compiled by `jit`; arrays are on the device before; a loop is a `scan`, and its Jacobian is taken forward."""
    jax = place.module
    given, numbers = _split(task, size)
    arrays = [jax.device_put(v) for v in given.values()]
    jnp = jax.numpy
    names = list(given)
    position = tuple(names.index(name) for name in task.by)

    def loop(rounds: int, step: Callable[[Any], Any], x: Any) -> Any:
        return jax.lax.scan(lambda x, _: (step(x), None), x, None, length=rounds)[0]

    def cross_entropy(labels: Any, logits: Any) -> Any:
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1)[:, 0]

    s = Spelling(
        jnp.exp,
        jnp.log,
        jnp.sin,
        jnp.sqrt,
        jax.lax.rsqrt,
        jnp.tanh,
        jax.nn.sigmoid,
        jnp.sum,
        lambda x: x.mean(-1, keepdims=True),
        lambda x: jax.nn.logsumexp(x, -1),
        cross_entropy,
        jnp.dot,
        loop,
    )

    def function(*given: Any) -> Any:
        return task.function(s, dict(zip(names, given, strict=True)) | numbers)

    if task.question == "jacobian":
        derived: Any = jax.jacfwd(function, argnums=position)
    elif task.question == "third":
        thrice = _thrice(jax.grad, function)
        derived = lambda *given: (thrice(*given),)  # noqa: E731
    else:
        derived = jax.grad(lambda *given: function(*given).sum(), argnums=position)
    run = jax.jit(derived)
    return [place.program("jax", lambda: run(*arrays), "jit")]
