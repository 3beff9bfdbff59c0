"""A training step that each library compiles as a whole: loss, gradients and Adam of a network of three layers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.harness import OURS, Program
from benchmarks.places import Place
from benchmarks.sizes import pick
from benchmarks.workload import Setting

RATE, BETA1, BETA2 = 1e-3, 0.9, 0.999
EPSILON = 1e-9  # so small that it does not matter to which root it is added
CHECKED = 4  # steps whose losses are compared
LAYERS = 3

Arrays = dict[str, Any]
NAMES = [name for k in range(1, LAYERS + 1) for name in (f"W{k}", f"b{k}")]


def inputs(setting: Setting) -> Arrays:
    wide = (784, 512, 512, 10)
    batch, sizes = pick(setting.size, (8, (12, 8, 6, 4)), (128, wide), (4096, wide))
    rng = np.random.default_rng(67)
    given: Arrays = {"x": rng.random((batch, sizes[0]), np.float32)}
    given["labels"] = rng.integers(0, sizes[-1], batch).astype(np.int32)
    for k, (a, b) in enumerate(itertools.pairwise(sizes), 1):
        given[f"W{k}"] = (rng.standard_normal((a, b)) * a**-0.5).astype(np.float32)
        given[f"b{k}"] = (0.1 * rng.standard_normal(b)).astype(np.float32)
    return given


def losses(setting: Setting) -> list[list[Any]]:
    """The losses of the first steps, in float64 and by hand."""
    given = inputs(setting)
    x, labels, rows = given["x"].astype(np.float64), given["labels"], np.arange(len(given["x"]))
    p = {name: given[name].astype(np.float64) for name in NAMES}
    first, second = ({name: np.zeros_like(v) for name, v in p.items()} for _ in range(2))
    found = []
    for t in range(1, CHECKED + 1):
        entering = [x]
        for k in range(1, LAYERS + 1):
            z = entering[-1] @ p[f"W{k}"] + p[f"b{k}"]
            entering.append(np.maximum(z, 0) if k < LAYERS else z)
        logits = entering.pop()
        logits = logits - logits.max(1, keepdims=True)
        logs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        found.append([np.asarray(-logs[rows, labels].mean())])
        cotangent = np.exp(logs)
        cotangent[rows, labels] -= 1
        cotangent /= len(rows)
        gradients: Arrays = {}
        for k in range(LAYERS, 0, -1):
            gradients[f"W{k}"], gradients[f"b{k}"] = entering[k - 1].T @ cotangent, cotangent.sum(0)
            cotangent = (cotangent @ p[f"W{k}"].T) * (entering[k - 1] > 0)
        for name, g in gradients.items():
            m, v = first[name], second[name]
            m += (1 - BETA1) * (g - m)
            v += (1 - BETA2) * (g * g - v)
            p[name] -= RATE * (m / (1 - BETA1**t)) / (np.sqrt(v / (1 - BETA2**t)) + EPSILON)
    return found


# ------------------------------------------------------------------ tapes: gradtape and TensorFlow


def _loss(tf: Any, p: Arrays, x: Any, labels: Any) -> Any:
    h = x
    for k in range(1, LAYERS + 1):
        h = tf.matmul(h, p[f"W{k}"]) + p[f"b{k}"]
        h = tf.nn.relu(h) if k < LAYERS else h
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=h))


class _Network:
    """The variables of one program, with those of Adam where it is written out."""

    def __init__(self, tf: Any, setting: Setting) -> None:
        given = inputs(setting)
        self.tf, self.x, self.labels = tf, tf.constant(given["x"]), tf.constant(given["labels"])
        self.start = [given[name] for name in NAMES]
        self.p = {name: tf.Variable(v) for name, v in zip(NAMES, self.start)}
        self.variables = list(self.p.values())

    def restart(self) -> None:
        for variable, value in zip(self.variables, self.start):
            variable.assign(value)

    def slopes(self, x: Any, labels: Any) -> tuple[Any, Sequence[Any]]:
        with self.tf.GradientTape() as tape:
            loss = _loss(self.tf, self.p, x, labels)
        return loss, tape.gradient(loss, self.variables)


def by_hand(place: Place, peer: str, setting: Setting, variant: str, **options: Any) -> Program:
    """Adam written out in operations, in a function."""
    tf = place.module
    network = _Network(tf, setting)
    moments = [[tf.Variable(np.zeros_like(v), trainable=False) for v in network.start] for _ in range(2)]
    count = tf.Variable(np.float32(0), trainable=False)

    @tf.function(**options)
    def step(x: Any, labels: Any) -> Any:
        loss, gradients = network.slopes(x, labels)
        count.assign_add(1.0)
        rate = RATE * tf.math.sqrt(1.0 - BETA2**count) / (1.0 - BETA1**count)
        for p, m, v, g in zip(network.variables, *moments, gradients):
            m.assign_add((g - m) * (1.0 - BETA1))
            v.assign_add((g * g - v) * (1.0 - BETA2))
            p.assign_sub(rate * m / (tf.math.sqrt(v) + EPSILON))
        return loss

    def prepare() -> None:
        network.restart()
        count.assign(0.0)
        for variable in (*moments[0], *moments[1]):
            variable.assign(np.zeros(variable.shape, np.float32))

    return place.program(peer, lambda: [step(network.x, network.labels)], variant, prepare, _number)


def with_optimizer(place: Place, peer: str, setting: Setting, variant: str, traced: bool) -> Program:
    """The library's own Adam, on a tape or in a function. It begins anew by taking its first state again."""
    tf = place.module
    network = _Network(tf, setting)
    optimizer = tf.keras.optimizers.Adam(learning_rate=RATE, beta_1=BETA1, beta_2=BETA2, epsilon=EPSILON)
    optimizer.build(network.variables)
    start = [(v, v.numpy().copy()) for v in optimizer.variables]

    def step(x: Any, labels: Any) -> Any:
        loss, gradients = network.slopes(x, labels)
        optimizer.apply_gradients(zip(gradients, network.variables))
        return loss

    def prepare() -> None:
        network.restart()
        for variable, value in start:
            variable.assign(value)

    run = tf.function(step) if traced else step
    return place.program(peer, lambda: [run(network.x, network.labels)], variant, prepare, _number)


def _number(loss: Any) -> Any:
    return loss.numpy()


def our_programs(place: Place, setting: Setting) -> list[Program]:
    return [
        with_optimizer(place, OURS, setting, "function", True),
        with_optimizer(place, OURS, setting, "eager", False),
        by_hand(place, OURS, setting, "function by hand"),
    ]


def tensorflow_programs(place: Place, setting: Setting) -> list[Program]:
    return [
        by_hand(place, "tensorflow", setting, "function"),
        by_hand(place, "tensorflow", setting, "xla", jit_compile=True),
    ]


# ------------------------------------------------------------------ PyTorch, JAX


def torch_programs(place: Place, setting: Setting) -> list[Program]:
    return [_torch(place, setting, variant) for variant in ("eager", "compiled")]


def _torch(place: Place, setting: Setting, variant: str) -> Program:
    torch, given = place.module, inputs(setting)
    x, labels = (torch.tensor(given[name], device=place.device) for name in ("x", "labels"))
    labels = labels.to(torch.int64)
    p = {name: torch.tensor(given[name], requires_grad=True, device=place.device) for name in NAMES}
    optimizer: Any = None

    def loss_of(x: Any, labels: Any) -> Any:
        h = x
        for k in range(1, LAYERS + 1):
            h = h @ p[f"W{k}"] + p[f"b{k}"]
            h = torch.relu(h) if k < LAYERS else h
        return torch.nn.functional.cross_entropy(h, labels)

    forward = torch.compile(loss_of) if variant == "compiled" else loss_of

    def prepare() -> None:
        nonlocal optimizer
        with torch.no_grad():
            for name, tensor in p.items():
                tensor.copy_(torch.tensor(given[name]))
        optimizer = torch.optim.Adam(p.values(), lr=RATE, betas=(BETA1, BETA2), eps=EPSILON, fused=True)

    def call() -> Sequence[Any]:
        optimizer.zero_grad()
        loss = forward(x, labels)
        loss.backward()
        optimizer.step()
        return [loss]

    return place.program("torch", call, variant, prepare)


def jax_programs(place: Place, setting: Setting) -> list[Program]:
    jax, given = place.module, inputs(setting)
    jnp = jax.numpy
    x, labels = jax.device_put(given["x"]), jax.device_put(given["labels"])

    def loss_of(p: Arrays, x: Any, labels: Any) -> Any:
        h = x
        for k in range(1, LAYERS + 1):
            h = h @ p[f"W{k}"] + p[f"b{k}"]
            h = jax.nn.relu(h) if k < LAYERS else h
        return -jnp.take_along_axis(jax.nn.log_softmax(h), labels[:, None], 1).mean()

    def step(state: Any, x: Any, labels: Any) -> Any:
        p, first, second, count = state
        loss, g = jax.value_and_grad(loss_of)(p, x, labels)
        count = count + 1
        rate = RATE * jnp.sqrt(1 - BETA2**count) / (1 - BETA1**count)
        first = {k: m + (1 - BETA1) * (g[k] - m) for k, m in first.items()}
        second = {k: v + (1 - BETA2) * (g[k] * g[k] - v) for k, v in second.items()}
        p = {k: w - rate * first[k] / (jnp.sqrt(second[k]) + EPSILON) for k, w in p.items()}
        return (p, first, second, count), loss

    run: Callable[..., Any] = jax.jit(step, donate_argnums=0)
    state: Any = None

    def prepare() -> None:
        nonlocal state
        zeros = [{name: jnp.zeros(given[name].shape) for name in NAMES} for _ in range(2)]
        state = ({name: jnp.array(given[name]) for name in NAMES}, *zeros, jnp.float32(0))

    def call() -> Sequence[Any]:
        nonlocal state
        state, loss = run(state, x, labels)
        return [loss]

    return [place.program("jax", call, "jit", prepare)]
