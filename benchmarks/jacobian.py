"""Jacobians, Hessians and per-example gradients against every peer's best program, and what ours multiply."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import gradtape
from benchmarks import growth, places
from benchmarks import jacobian_tasks as tasks
from benchmarks.harness import OURS, Pace, Program
from benchmarks.jacobian_programs import (
    Answer,
    autograd_programs,
    jax_programs,
    our_examples,
    our_hessian,
    spelled_tf,
    tape_answer,
    tape_programs,
    tensorflow_programs,
    torch_programs,
)
from benchmarks.jacobian_tasks import Task
from benchmarks.sizes import Size
from benchmarks.workload import BEST, Build, Count, Figure, Race, Setting, Target

SIZES = (64, 128, 256, 512, 1024)
SLOW = Pace(0.01, 8, 24)  # for programs of which one call fills several slices


def _ours(task: Task, setting: Setting) -> list[Program]:
    names = list(task.inputs(setting.size))
    answer = tape_answer(gradtape, task, names)
    answers: dict[str, Answer] = {"eager": answer, "function": gradtape.function(answer)}
    if task.question == "hessian":
        answers["tape.hessian"] = our_hessian(gradtape, task, names)
    if task.question == "examples":
        answers["per_example_gradients"] = our_examples(gradtape, task, names)
    return tape_programs(places.ours(gradtape, setting), OURS, task, setting.size, answers)


def _race(
    name: str,
    about: str,
    task: Task,
    *targets: Target,
    torch: Sequence[str],
    jax: Sequence[str],
    tensorflow: Sequence[str] = ("function", "xla"),
    autograd: bool = False,
    tolerance: float = 3e-4,
    slow: bool = False,
    gpu: str = "",
) -> Race:
    programs: dict[str, Build] = {
        OURS: lambda setting: _ours(task, setting),
        "torch": lambda setting: torch_programs(places.of("torch", setting), task, setting.size, torch),
        "tensorflow": lambda setting: tensorflow_programs(
            places.of("tensorflow", setting), task, setting.size, tensorflow
        ),
        "jax": lambda setting: jax_programs(places.of("jax", setting), task, setting.size, jax),
    }
    if autograd:
        programs["autograd"] = lambda setting: autograd_programs(places.of("autograd", setting), task, setting.size)

    def reference(setting: Setting) -> list[Sequence[Any]]:
        return [task.reference(task.inputs(setting.size))]

    pace = SLOW if slow else None
    return Race(name, about, programs, reference, tolerance, targets=targets, pace=pace, gpu=gpu)


def _at_most(limit: float, against: str = BEST) -> Target:
    return Target(limit, "ratio", against)


NETWORK = "the 64-256-256-32 network with elu"
RACES = [
    _race(
        "scalar_source_201",
        "Jacobian of a curve of 201 points by one number",
        tasks.scalar_source(201),
        _at_most(1, "torch"),
        torch=("eager forward", "compiled forward"),
        jax=("forward",),
        tensorflow=("function", "xla", "function forward", "xla forward"),
        autograd=True,
    ),
    _race(
        "scalar_source_1e6",
        "Jacobian of a curve of 10⁶ points by one number",
        tasks.scalar_source(1_000_000, 32_000_000),
        _at_most(1, "torch"),
        torch=("eager forward",),
        jax=("forward",),
        tensorflow=("function forward", "xla forward"),
        gpu="Jacobian of a curve of 32·10⁶ points by one number",
    ),
    _race(
        "elementwise_jac_2048",
        "Jacobian of tanh(x)·exp(-x²), 2048 elements",
        tasks.elementwise(2048, 11_600),
        _at_most(1 / 1.5),
        torch=("eager reverse", "compiled reverse"),
        jax=("reverse", "forward"),
        autograd=True,
        gpu="Jacobian of tanh(x)·exp(-x²), 11,600 elements",
    ),
    _race(
        "mlp_jac_input",
        f"Jacobian by the input of {NETWORK}, batch 64",
        tasks.network_by_input,
        _at_most(0.1),
        torch=("eager reverse", "compiled reverse"),
        jax=("reverse",),
        slow=True,
        gpu=f"Jacobian by the input of {NETWORK}, batch 360",
    ),
    _race(
        "mlp_batch_jac",
        f"batch Jacobian of {NETWORK}, batch 512",
        tasks.network_batch,
        _at_most(1),
        _at_most(1 / 1.5, "jax"),
        torch=("eager map", "compiled map"),
        jax=("map",),
        gpu=f"batch Jacobian of {NETWORK}, batch 16,384",
    ),
    _race(
        "mlp_jac_kernel",
        f"Jacobian by the first kernel of {NETWORK}, batch 64",
        tasks.network_by_kernel,
        _at_most(1),
        torch=("eager map", "compiled map"),
        jax=("map",),
        tensorflow=("function map", "xla map"),
        slow=True,
        gpu=f"Jacobian by the first kernel of {NETWORK}, batch 512",
    ),
    _race(
        "layer_jac_kernel",
        "Jacobian of a layer of 64 units by its kernel, relu, batch 32",
        tasks.layer_by_kernel,
        _at_most(1 / 1.5),
        torch=("eager reverse", "compiled reverse"),
        jax=("reverse", "map"),
        tensorflow=("function", "xla", "xla map"),
        slow=True,
        gpu="Jacobian of a layer of 64 units by its kernel, relu, batch 1,024",
    ),
    _race(
        "bn_jac",
        "Jacobian by the input of dense 64, elu, batch norm, dense 16, elu; batch 64",
        tasks.batch_norm,
        _at_most(1 / 1.5),
        torch=("eager reverse", "compiled reverse"),
        jax=("forward",),
        slow=True,
        gpu="Jacobian by the input of dense 64, elu, batch norm, dense 16, elu; batch 360",
    ),
    _race(
        "mlp_hessian_kernel",
        "Hessian by the first kernel of a 28-32-28-8 network with elu, batch 32, mean of squares",
        tasks.hessian("W1"),
        _at_most(1 / 1.5),
        torch=("eager fr", "eager rr", "compiled fr"),
        jax=("fr", "rr"),
        tolerance=1e-3,
        slow=True,
        gpu="Hessian by the first kernel of a 28-32-28-8 network with elu, batch 1,024, mean of squares",
    ),
    _race(
        "mlp_hessian_all",
        "Hessian by all 2,084 parameters of that network",
        tasks.hessian("W1", "b1", "W2", "b2", "W3", "b3"),
        _at_most(1 / 1.5),
        torch=("eager fr", "compiled fr"),
        jax=("fr", "rr"),
        tolerance=1e-3,
        slow=True,
        gpu="Hessian by all 2,084 parameters of that network, batch 1,024",
    ),
    _race(
        "third_order_jac",
        "third derivatives of a 16-32-8 network with tanh",
        tasks.third_order,
        _at_most(1.5),
        torch=("eager ffr",),
        jax=("ffr",),
        tensorflow=("function",),
        tolerance=1e-3,
        gpu="third derivatives of a 48-128-64 network with tanh",
    ),
    _race(
        "conv_batch_jac",
        "batch Jacobian of a small convolutional network, 16 by 16 pixels, batch 32",
        tasks.conv_batch,
        _at_most(1),
        torch=("eager map",),  # torch.compile cannot trace the convolution's gradient under vmap
        jax=("map",),
        gpu="batch Jacobian of a small convolutional network, 16 by 16 pixels, batch 1,024",
    ),
    _race(
        "per_example_grads",
        "gradients of each example's loss, 784-256-10 network with relu, batch 256",
        tasks.example_gradients,
        _at_most(1),
        torch=("eager map", "compiled map"),
        jax=("map",),
        tensorflow=("function map", "xla map"),
        slow=True,
        gpu="gradients of each example's loss, 784-256-10 network with relu, batch 2,048",
    ),
    *(
        _race(
            f"scaling_{n}",
            f"Jacobian of three tanh layers of {n} units, one example",
            tasks.scaling(n),
            _at_most(1),
            torch=("eager reverse",),
            jax=("reverse", "forward"),
            tolerance=1e-3,
            gpu=f"Jacobian of three tanh layers of {4 * n} units, one example" if n == SIZES[-1] else "",
        )
        for n in SIZES
    ),
]

# ------------------------------------------------------------------ counted

LIMITS = {  # multiply-adds of Jacobians by one source; the plan's own count
    "scalar_source_1e6": 0,
    "elementwise_jac_2048": 0,
    "mlp_jac_input": 64 * 32 * (256 * 256 + 256 * 64),
    "mlp_jac_kernel": 64 * 32 * 256 * 256,
    "layer_jac_kernel": 0,
}
PLANNED: dict[str, Task] = {
    "scalar_source_1e6": tasks.scalar_source(1_000_000, 32_000_000),
    "elementwise_jac_2048": tasks.elementwise(2048, 11_600),
    "mlp_jac_input": tasks.network_by_input,
    "mlp_jac_kernel": tasks.network_by_kernel,
    "layer_jac_kernel": tasks.layer_by_kernel,
    "bn_jac": tasks.batch_norm,
    "scaling_1024": tasks.scaling(1024),
}


def plan_of(task: Task, size: Size) -> gradtape.JacobianPlan:
    given = {k: gradtape.constant(v) for k, v in task.inputs(size).items()}
    (name,) = task.by
    with gradtape.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(given[name])
        y = task.function(spelled_tf(gradtape), given)
    return tape.plan_jacobian(y, given[name])


def planned(setting: Setting) -> list[Figure]:
    found = []
    for name, task in PLANNED.items():
        plan = plan_of(task, setting.size)
        structure = plan.structure.replace("\n", " + ")
        note = f"{plan.mode} mode, {plan.rows:,} rows; {structure}"
        limit = None if setting.quick else LIMITS.get(name)
        found.append(Figure(f"{name}: multiply-adds", plan.multiply_adds, "", limit, note))
    return found


def small(setting: Setting) -> list[Figure]:
    """A Jacobian of a small network against one gradient, of the same tape."""
    rng = np.random.default_rng(48)
    x = gradtape.constant(rng.standard_normal((1, 8)).astype(np.float32))
    layers = [gradtape.constant(rng.standard_normal((8, 8)).astype(np.float32) / 3) for _ in range(2)]
    with gradtape.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = x
        for w in layers:
            y = gradtape.tanh(gradtape.matmul(y, w))
    rounds, repeats = (3, 10) if setting.quick else (60, 100)
    calls = [lambda: np.asarray(tape.jacobian(y, x)), lambda: np.asarray(tape.gradient(y, x))]
    jacobian, gradient = (np.array(t) for t in zip(*(_in_turns(calls, repeats) for _ in range(rounds)), strict=True))
    note = "8-8-8 network with tanh, one example; both calls on one persistent tape; processor time"
    return [
        Figure("jacobian in terms of a gradient, minimum", float(jacobian.min() / gradient.min()), "×", 2, note),
        Figure("jacobian in terms of a gradient, median", float(np.median(jacobian / gradient)), "×", 2, note),
    ]


def _in_turns(calls: Sequence[Callable[[], Any]], repeats: int) -> list[float]:
    """Processor seconds of this thread for each of several calls."""
    found = []
    for call in calls:
        call()
        begin = time.thread_time()
        for _ in range(repeats):
            call()
        found.append((time.thread_time() - begin) / repeats)
    return found


COUNTS = [
    Count("jacobian_plans", "multiply-adds of our Jacobians, as `tape.plan_jacobian` counts them", planned),
    growth.count([f"scaling_{n}" for n in SIZES], ("torch", "tensorflow", "jax")),
    Count("jacobian_small", "a repeated small `jacobian` against one `gradient` of the same tape", small),
]

WORKLOADS = [*RACES, *COUNTS]
