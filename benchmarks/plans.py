"""Whole programs as plans: traced, fused and compiled, against the compilers of all peers; what they multiply, how they
start and what memory they take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradtape
from benchmarks import peaks, places, plan_training, products, starts
from benchmarks import plan_tasks as tasks
from benchmarks.harness import OURS
from benchmarks.plan_programs import jax_programs, tape_programs, torch_programs
from benchmarks.plan_tasks import Task
from benchmarks.workload import BEST, Build, Count, Race, Setting, Target


def _race(
    name: str,
    about: str,
    task: Task,
    *targets: Target,
    ours: Sequence[str] = ("function", "eager"),
    torch: Sequence[str] = ("eager", "compiled"),
    tensorflow: Sequence[str] = ("function", "xla"),
    tolerance: float = 3e-4,
    micro: bool = False,
    gpu: str = "",
) -> Race:
    programs: dict[str, Build] = {
        OURS: lambda setting: tape_programs(places.ours(gradtape, setting), OURS, task, setting.size, ours),
        "torch": lambda setting: torch_programs(places.of("torch", setting), task, setting.size, torch),
        "tensorflow": lambda setting: tape_programs(
            places.of("tensorflow", setting), "tensorflow", task, setting.size, tensorflow
        ),
        "jax": lambda setting: jax_programs(places.of("jax", setting), task, setting.size),
    }
    if not tensorflow:
        del programs["tensorflow"]

    def reference(setting: Setting) -> list[Sequence[Any]]:
        return [task.reference(task.inputs(setting.size))]

    unit, scale = ("µs", 1e6) if micro else ("ms", 1e3)
    return Race(name, about, programs, reference, tolerance, unit, scale, targets, gpu=gpu)


def _at_most(limit: float, against: str = BEST) -> Target:
    return Target(limit, "ratio", against)


SOLVER = "200 steps of Runge and Kutta's method for 10 numbers"
RACES = [
    _race(
        "grad_chain",
        "gradient of 20 elementwise operations, tanh and exp among them, 4·10⁶ numbers",
        tasks.chain,
        _at_most(0.5),
        tolerance=1e-3,
        gpu="gradient of 20 elementwise operations, tanh and exp among them, 128·10⁶ numbers",
    ),
    _race(
        "grad_chain_cheap",
        "gradient of 20 additions and multiplications, 4·10⁶ numbers",
        tasks.chain_cheap,
        _at_most(0.5),
        gpu="gradient of 20 additions and multiplications, 128·10⁶ numbers",
    ),
    _race(
        "softmax_xent_grad",
        "gradient of the mean cross-entropy of 4096 rows of 1000 logits",
        tasks.cross_entropy,
        _at_most(1),
        gpu="gradient of the mean cross-entropy of 131,072 rows of 1000 logits",
    ),
    _race(
        "layer_norm_grad",
        "gradients of a weighted sum of layer norm, 4096 rows of 1000, by input, scale and offset",
        tasks.layer_norm,
        _at_most(1),
        gpu="gradients of a weighted sum of layer norm, 131,072 rows of 1000, by input, scale and offset",
    ),
    _race(
        "logsumexp_grad",
        "gradient of a weighted sum of 4096 logsumexps of 1000",
        tasks.logsumexp,
        _at_most(1),
        gpu="gradient of a weighted sum of 131,072 logsumexps of 1000",
    ),
    Race(
        "train_mlp_adam",
        "one training step of a 784-512-512-10 network, relu, batch 128, cross-entropy, Adam",
        {
            OURS: lambda setting: plan_training.our_programs(places.ours(gradtape, setting), setting),
            "torch": lambda setting: plan_training.torch_programs(places.of("torch", setting), setting),
            "tensorflow": lambda setting: plan_training.tensorflow_programs(places.of("tensorflow", setting), setting),
            "jax": lambda setting: plan_training.jax_programs(places.of("jax", setting), setting),
        },
        plan_training.losses,
        tolerance=1e-4,
        targets=(_at_most(1), Target(1.3, "ratio", "function", "eager")),
        gpu="one training step of a 784-512-512-10 network, relu, batch 4,096, cross-entropy, Adam",
    ),
    _race(
        "overhead_100",
        "a scalar program of 100 small operations with its gradient",
        tasks.tiny,
        Target(10.0),
        tolerance=1e-3,
        micro=True,
    ),
    _race(
        "ode_grad",
        f"gradient of a scalar of the last point of {SOLVER}, as a Python loop",
        tasks.flow_gradient,
        _at_most(1.5),
        ours=("function", "eager"),
        torch=("eager", "compiled step"),
        tensorflow=("function while", "xla while"),
        tolerance=2e-3,
    ),
    _race(
        "ode_grad_while",
        f"the same of {SOLVER}, as a loop of each library",
        tasks.flow_gradient,
        _at_most(1.5),
        ours=("function while",),
        torch=("compiled step",),
        tensorflow=("function while", "xla while"),
        tolerance=2e-3,
    ),
    _race(
        "ode_jac",
        f"Jacobian of the last point by the first of {SOLVER}, as a Python loop",
        tasks.flow_jacobian,
        _at_most(1.5),
        ours=("function", "eager"),
        torch=("eager",),
        tensorflow=(),
        tolerance=2e-3,
    ),
    _race(
        "ode_jac_while",
        f"the same Jacobian of {SOLVER}, as a loop of each library",
        tasks.flow_jacobian,
        _at_most(1.5),
        ours=("function while",),
        torch=("eager",),
        tensorflow=(),
        tolerance=2e-3,
    ),
    _race(
        "third_order_grad",
        "third derivative of tanh(x)·sin(x), 1000 numbers, by three tapes",
        tasks.third,
        _at_most(1.5),
        tolerance=1e-3,
        micro=True,
    ),
]

# Plans that are measured with the Jacobians, where their programs are.
ELSEWHERE = ("third_order_jac", "mlp_jac_kernel", "per_example_grads", "conv_batch_jac")

STARTED = [r.name for r in RACES]

COUNTS: list[Count] = [
    starts.first_calls(STARTED),
    starts.second_starts(STARTED),
    peaks.count([*STARTED, *ELSEWHERE], ("torch", "tensorflow", "jax")),
    products.COUNT,
]

WORKLOADS = [*RACES, *COUNTS]
