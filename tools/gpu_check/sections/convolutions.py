"""Convolutions and their gradients by cuDNN, where it is installed: the numbers of im2col and cuBLAS, the same bits
where there may be no chance, steps captured into a graph, and the time that both ways take."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import gradtape as tf
from gradtape.backends.cuda.blas import MATH
from gradtape.backends.cuda.device import Cuda
from gradtape.backends.cuda.lowering import Lowering
from gradtape.backends.cuda.table import OPS
from gradtape.ir.determinism import DETERMINISM
from gradtape.ir.dtypes import bfloat16, float16, float32
from gradtape.ops.convolution import CONVOLVE, CONVOLVE_INPUT, CONVOLVE_KERNEL
from gradtape.ops.op import Step
from gradtape.ops.windows import Windows
from gradtape.runtime.devices import DEVICES, Device, prepared
from tests.cuda_emulator import cudnn_stand_in
from tests.cuda_emulator.devices import emulated
from tools.gpu_check.comparing import agree
from tools.gpu_check.meter import Meter
from tools.gpu_check.outcome import Found, NotRun
from tools.gpu_check.setting import Setting

FIRST_BFLOAT16 = 80  # the first architecture with units for it, A100's
DTYPES = (float32, float16, bfloat16)
# How far results may be apart, in terms of the largest: sums in another order, and TF32's ten bits.
DIGITS = {"float32": 1e-4, "float16": 5e-3, "bfloat16": 4e-2}
TEN_BITS = 5e-3
STEPS = 4


class Layer(NamedTuple):
    """Images (batch, *space, channels), the window and its stride; as many windows as cover the images."""

    images: tuple[int, ...]
    window: tuple[int, ...]
    results: int
    groups: int = 1
    stride: int = 1


LAYERS: dict[str, Layer] = {
    "first of a ResNet": Layer((32, 224, 224, 3), (7, 7), 64, 1, 2),
    "3 x 3 of a ResNet": Layer((64, 28, 28, 128), (3, 3), 128),
    "depthwise": Layer((64, 56, 56, 96), (3, 3), 96, 96),
    "over a line": Layer((32, 4000, 64), (9,), 64),
    "over a volume": Layer((4, 16, 32, 32, 16), (3, 3, 3), 32),
}
SMALL: dict[str, Layer] = {
    "first of a ResNet": Layer((2, 9, 9, 3), (7, 7), 8, 1, 2),
    "depthwise": Layer((2, 5, 5, 4), (3, 3), 4, 4),
    "over a line": Layer((2, 20, 4), (9,), 4),
}


class Case(NamedTuple):
    """A convolution, or one of its gradients, with operands on the host."""

    name: str
    step: Step
    operands: tuple[Any, Any]


def cases(name: str, layer: Layer, dtype: Any) -> Iterator[Case]:
    """A layer, and its gradients."""
    n, *space, channels = layer.images
    more = [
        max(0, (-(-m // layer.stride) - 1) * layer.stride + k - m) for m, k in zip(space, layer.window, strict=True)
    ]
    low, one = tuple(m // 2 for m in more), (1,) * len(space)
    high = tuple(m - a for m, a in zip(more, low, strict=True))
    w = Windows(layer.window, (layer.stride,) * len(space), one, low, high)
    counts, shared = w.counts(tuple(space)), layer.results // layer.groups
    assert counts is not None
    rng = np.random.default_rng(len(name))

    def drawn(*shape: int) -> Any:
        return rng.uniform(-1, 1, shape).astype(dtype.numpy_dtype)

    x = drawn(n, *space, layer.groups, channels // layer.groups)
    k = drawn(*layer.window, channels // layer.groups, layer.groups, shared)
    g = drawn(n, *counts, layer.groups, shared)
    text = f"{name}, {dtype.name}"
    yield Case(text, CONVOLVE.bind(**w._asdict()), (x, k))
    yield Case(f"{text}, by images", CONVOLVE_INPUT.bind(shape=tuple(space), **w._asdict()), (g, k))
    yield Case(f"{text}, by filters", CONVOLVE_KERNEL.bind(**w._asdict()), (x, g))


@contextlib.contextmanager
def switched(tf32: bool, determinism: bool = False) -> Iterator[None]:
    """A block in which products are computed like this."""
    before = MATH.tf32, DETERMINISM.required
    MATH.tf32, DETERMINISM.required = tf32, determinism
    try:
        yield
    finally:
        MATH.tf32, DETERMINISM.required = before


@contextlib.contextmanager
def with_cudnn(s: Setting) -> Iterator[Cuda]:
    """A block with a device that has cuDNN; in a dry run its stand-in."""
    if not s.emulated:
        if s.cuda.cudnn.module is None:
            raise NotRun(
                "nvidia-cudnn-frontend is not installed, or not wanted: im2col and cuBLAS do convolutions. With cuDNN: "
                "pip install 'gradtape[cudnn-cu13]'"
            )
        yield s.cuda
        return
    before, own = DEVICES.device, emulated(cudnn_stand_in)
    DEVICES.use(own)
    try:
        yield own
    finally:
        DEVICES.use(None if before is None else before.cuda)


def compared(cuda: Cuda, case: Case) -> tuple[float, tuple[Callable[[], Any], Callable[[], Any]]]:
    """How far results are apart at most, and what computes one: by cuDNN, and without it."""
    dtype = case.operands[0].dtype.name
    given = [cuda.array(a) for a in case.operands]
    ways = Device(cuda).lowering.alone(case.step), Lowering(cuda, prepared, OPS).alone(case.step)
    calls = tuple((lambda way=way: way(*given)) for way in ways)
    with switched(tf32=False):
        wanted = cuda.host(calls[1]())
        worst = agree(case.name, cuda.host(calls[0]()), wanted, DIGITS[dtype])
    with switched(tf32=False, determinism=True):
        found = [cuda.host(calls[0]()) for _ in range(2)]
        assert found[0].tobytes() == found[1].tobytes(), f"{case.name}: other bits again, though there may be no chance"
    if dtype == "float32":
        with switched(tf32=True):
            agree(f"{case.name}, with TF32", cuda.host(calls[0]()), wanted, TEN_BITS)
    return worst, (calls[0], calls[1])


def captured() -> None:
    """Steps of training, by launches of a graph: the numbers of those that run one by one."""
    losses = []
    for wanted in (True, False):
        rng = np.random.default_rng(5)
        k = tf.Variable(rng.uniform(-0.3, 0.3, (3, 3, 4, 8)).astype(np.float32))

        @tf.function(jit_compile=wanted)
        def step(x: Any, k: Any = k) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(tf.nn.conv2d(x, k, 2, "SAME")))
            k.assign_sub(0.1 * tape.gradient(loss, k))
            return loss

        batches = [rng.uniform(-1, 1, (8, 12, 12, 4)).astype(np.float32) for _ in range(STEPS)]
        losses.append([float(step(tf.constant(x))) for x in batches])
    assert losses[0] == losses[1], f"by launches of a graph losses are {losses[0]}, and {losses[1]} one by one"


def run(s: Setting) -> Found:
    layers = SMALL if s.emulated else LAYERS
    number = int(s.xp.cuda.Device().compute_capability)
    dtypes = [d for d in DTYPES if d is not bfloat16 or number >= FIRST_BFLOAT16]
    meter, worst, rates, count = Meter(s), dict.fromkeys(DIGITS, 0.0), [], 0
    rows: list[list[str]] = [["convolution", "cuDNN, ms", "im2col, ms", "of im2col's"]]
    with with_cudnn(s) as cuda, warnings.catch_warnings():
        warnings.filterwarnings("error", ".*cuDNN")  # something was done without it
        with switched(tf32=False, determinism=True):
            captured()
        for name, layer in layers.items():
            for dtype in dtypes:
                for case in cases(name, layer, dtype):
                    apart, calls = compared(cuda, case)
                    worst[dtype.name] = max(worst[dtype.name], apart)
                    count += 1
                    if not s.emulated:
                        with switched(tf32=True):
                            times = [meter.cost(call) for call in calls]
                        rates.append(times[0] / times[1])
                        rows.append([case.name, *(f"{t:.3f}" for t in times), f"{rates[-1]:.2f}"])
    figures: dict[str, Any] = {"apart": worst, "cuDNN": cuda.cudnn.module.backend_version()}
    text = f"{count} convolutions and gradients by cuDNN are those of im2col, and a captured step that of one by one"
    if rates:
        mean = math.exp(sum(map(math.log, rates)) / len(rates))
        figures["table"] = rows
        text += f"; cuDNN takes {min(rates):.2f} to {max(rates):.2f} of im2col's time, {mean:.2f} in the geometric mean"
    return Found(text, figures)
