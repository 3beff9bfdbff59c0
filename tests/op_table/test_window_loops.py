"""The compiled loops of convolution against the graph: channels by themselves, and patches that are added up.

Windows of every kind are drawn: one to three axes, steps, gaps, padding on one side only, windows wider than the image.
Runs of windows are cut short so that their ends, and the elements before and behind, come up."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gradtape.backends.cpu import lower
from gradtape.backends.program import compile_graph
from gradtape.kernels import convolution, depthwise, loops, products, windows
from gradtape.ops.composite import Composite
from gradtape.ops.op import lookup
from tests.op_table.cases import avals_of
from tests.op_table.running import assert_near, assert_same_bits


@pytest.fixture(params=["one thread", "several threads"], autouse=True)
def threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "SHARE", 1 if request.param == "several threads" else 1 << 60)
    monkeypatch.setattr(loops, "threads", lambda: 3)


Drawn = tuple[dict[str, Any], tuple[int, ...], tuple[int, ...]]


def drawn(seed: int, channels: tuple[int, ...], groups: tuple[int, ...]) -> Drawn:
    """Parameters, and the shapes of images and kernel."""
    r = random.Random(seed)
    rank = r.choice([1, 2, 2, 2, 3])

    def some(*numbers: int) -> tuple[int, ...]:
        return tuple(r.choice(numbers) for _ in range(rank))

    params = {
        "window": some(1, 2, 3, 3, 4, 5),
        "strides": some(1, 1, 2, 3),
        "dilations": some(1, 1, 2),
        "low": some(0, 0, 1, 2),
        "high": some(0, 0, 1, 3),
    }
    space, g, c = some(1, 6, 8, 9, 11), r.choice(groups), r.choice(channels)
    return params, (r.choice([0, 1, 2, 3]), *space, g, c), (*params["window"], c, g, r.choice([1, 1, 2, 3]))


def arrays(dtype: str, seed: int, *shapes: tuple[int, ...]) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(s).astype(dtype) for s in shapes]


def by_graph(name: str, operands: list[Any], params: dict[str, Any]) -> Any:
    op = lookup(name)
    assert isinstance(op, Composite)
    return compile_graph(op.expand(avals_of(operands), **params), lower)(*operands)[0]


def questions(params: dict[str, Any], x: Any, k: Any, seed: int) -> Iterator[tuple[str, list[Any], dict[str, Any]]]:
    """The convolution and its two gradients."""
    yield "convolve", [x, k], params
    (g,) = arrays(x.dtype.name, seed, by_graph("convolve", [x, k], params).shape)
    yield "convolve_input", [g, k], {"shape": x.shape[1:-2], **params}
    yield "convolve_kernel", [x, g], params


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("run", [4, 12, 1024])
def test_channels_by_themselves(dtype: str, run: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(depthwise, "PAYS", 0)
    monkeypatch.setattr(depthwise, "RUN", run)
    made = []
    real = depthwise.Loops
    monkeypatch.setattr(depthwise, "Loops", lambda *a: made.append(a) or real(*a))
    for seed in range(60):
        params, images, kernel = drawn(seed, (1,), (2, 3))
        x, k = arrays(dtype, seed, images, kernel)
        for name, operands, given in questions(params, x, k, seed):
            got, want = getattr(convolution, name)(*operands, **given), by_graph(name, operands, given)
            assert_near(got, want, (seed, name, given, images, kernel), 1e-5 if dtype == "float32" else 1e-13)
    assert len(made) == 180


@pytest.mark.parametrize("small, block", [(1, 1 << 21), (300, 1), (300, 2000), (2000, 1 << 21), (1 << 19, 1 << 21)])
def test_small_products(small: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows, parts of an image's rows, several images at once: in threads that share the images, the same bits."""
    monkeypatch.setattr(products, "SMALL", small)
    monkeypatch.setattr(products, "FEWEST", 2)
    monkeypatch.setattr(products, "NARROWEST", 2)
    monkeypatch.setattr(products, "TALL", 12)
    monkeypatch.setattr(convolution, "PARTS", 3)
    monkeypatch.setattr(convolution, "BLOCK", block)
    for seed in range(60):
        params, images, kernel = drawn(seed, (1, 2, 3, 6), (1, 1, 2))
        x, k = arrays("float64", seed, (7, *images[1:]), kernel)
        for name, operands, given in questions(params, x, k, seed):
            got = getattr(convolution, name)(*operands, **given)
            assert_near(got, by_graph(name, operands, given), (seed, name, given, images, kernel), 1e-13)
            with monkeypatch.context() as alone:
                alone.setattr(loops, "SHARE", 1 << 60)
                assert_same_bits(got, getattr(convolution, name)(*operands, **given), (seed, name))


def test_only_channels_by_themselves_take_those_loops() -> None:
    float32 = np.dtype(np.float32)
    assert depthwise.pays(64, (28, 28), 8, 1, float32)
    for images, space, groups, channels, dtype in (
        (64, (28, 28), 1, 1, float32),
        (64, (28, 28), 8, 2, float32),
        (1, (2, 2), 8, 1, float32),
        (64, (28, 28), 8, 1, np.dtype(np.complex64)),
        (64, (8, 8, 8, 8), 8, 1, float32),
    ):
        assert not depthwise.pays(images, space, groups, channels, dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("block", [1, 300, 1 << 21])
def test_patches_are_added_in_one_order(dtype: str, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop gives the bits of the array library: which of the two runs depends on whether it is compiled yet."""
    monkeypatch.setattr(convolution, "BLOCK", block)
    for body in (windows._add, windows._add_lines):
        body.of(np.dtype(dtype))
    added = []
    loop = convolution.add
    for seed in range(120):
        params, images, kernel = drawn(seed, (1, 1, 2, 3), (1, 1, 2))
        x, k = arrays(dtype, seed, images, kernel)
        _, (name, operands, given), _ = questions(params, x, k, seed)
        monkeypatch.setattr(convolution, "add", lambda *a: added.append(loop(*a)) or added[-1])
        got = convolution.convolve_input(*operands, **given)
        monkeypatch.setattr(convolution, "add", lambda *a: False)
        assert_same_bits(got, convolution.convolve_input(*operands, **given), (seed, given, images, kernel))
        assert_near(got, by_graph(name, operands, given), (seed, given), 1e-5 if dtype == "float32" else 1e-13)
    assert all(added) and len(added) > 60


if __name__ == "__main__":
    pytest.main([__file__])
