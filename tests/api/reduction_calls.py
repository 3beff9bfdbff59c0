"""Reductions, running sums, norms, softmax, losses and normalisation."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.api.calls import Call, call, draw, positive, unit

AXES: tuple[tuple[Any, bool], ...] = ((None, False), (0, False), (-1, True), ([0, 2], False), ([], False), ([1], True))


def np_axes(axis: Any) -> Any:
    return tuple(axis) if isinstance(axis, list) else axis


def logsumexp(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return np.log(np.sum(np.exp(x), axis=axis, keepdims=keepdims))


def softmax(x: Any, axis: int = -1) -> Any:
    return np.exp(x) / np.sum(np.exp(x), axis=axis, keepdims=True)


def euclidean(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return np.sqrt(np.sum(x * x, axis=axis, keepdims=keepdims))


def running(f: Any, axis: int, exclusive: bool, reverse: bool, start: float) -> Any:
    """A running total by the definition: for every position the total over those before it."""

    def run(x: Any) -> Any:
        rows = np.moveaxis(x, axis, 0)
        rows = rows[::-1] if reverse else rows
        out = [
            f(rows[: k + (not exclusive)], axis=0) if k + (not exclusive) else 0 * rows[0] + start
            for k in range(len(rows))
        ]
        done = np.array(out)[::-1] if reverse else np.array(out)
        return np.moveaxis(done.reshape(rows.shape), 0, axis)

    return run


REDUCTIONS: dict[str, tuple[Any, Any, bool]] = {
    "reduce_sum": (np.sum, draw, True),
    "reduce_mean": (np.mean, draw, True),
    "reduce_max": (np.max, draw, True),
    "reduce_min": (np.min, draw, True),
    "reduce_prod": (np.prod, positive, True),
    "reduce_logsumexp": (logsumexp, draw, True),
    "math.reduce_euclidean_norm": (euclidean, positive, True),
    "math.reduce_variance": (np.var, draw, True),
    "math.reduce_std": (np.std, draw, True),
}
TRUTH: dict[str, Any] = {"reduce_all": np.all, "reduce_any": np.any}


def reduction(name: str, f: Any, x: Any, axis: Any, keepdims: bool, slopes: bool = True) -> Call:
    return call(
        name, lambda a: f(a, axis=np_axes(axis), keepdims=keepdims), x, axis=axis, keepdims=keepdims, slopes=slopes
    )


def _reductions() -> list[Call]:
    found = []
    for name, (f, draw_, slopes) in REDUCTIONS.items():
        for axis, keepdims in AXES:
            flat = name == "math.reduce_std" and axis == []  # the root of 0
            found.append(reduction(name, f, draw_(2, 3, 2), axis, keepdims, slopes and not flat))
        found.append(call(name, f, draw_(), slopes=name != "math.reduce_std"))
        found.append(reduction(name, f, draw_(0, 2), 1, False))
    for name, f in TRUTH.items():
        for axis, keepdims in AXES:
            found.append(reduction(name, f, draw(2, 3, 2) > 0.5, axis, keepdims, False))
        found.append(call(name, f, np.zeros((0,), bool), slopes=False))
    return found


def _running() -> list[Call]:
    found = []
    for exclusive in (False, True):
        for reverse in (False, True):
            options: dict[str, Any] = {"exclusive": exclusive, "reverse": reverse}
            for axis in (0, -1):
                total = running(np.sum, axis, exclusive, reverse, 0.0)
                product = running(np.prod, axis, exclusive, reverse, 1.0)
                found.append(call("cumsum", total, draw(3, 2), axis=axis, **options))
                found.append(call("math.cumprod", product, positive(3, 2), axis=axis, **options))
    found.append(call("math.cumulative_logsumexp", running(logsumexp, 1, False, False, 0.0), draw(2, 3), axis=1))
    found.append(call("cumsum", np.cumsum, draw(0)))
    return found


def cross_entropy(labels: Any, x: Any) -> Any:
    return -np.sum(labels * np.log(softmax(x)), axis=-1)


def clipped(x: Any, limit: float, axis: Any = None) -> Any:
    size = euclidean(x, axis, True)
    return x * limit / np.maximum(size, limit)


def normalized(x: Any, mean: Any, variance: Any, offset: Any, scale: Any) -> Any:
    return (x - mean) / np.sqrt(variance + 0.01) * scale + offset


def global_clip(*xs: Any) -> Any:
    size = np.sqrt(sum(np.sum(x * x) for x in xs))
    return [[x * 1.5 / max(size, 1.5) for x in xs], size]


LABELS = softmax(draw(2, 3))
OTHERS: tuple[Call, ...] = (
    *(call("nn.softmax", lambda x, k=k: softmax(x, k), draw(2, 3), axis=k) for k in (0, 1, -1)),
    *(call("nn.log_softmax", lambda x, k=k: np.log(softmax(x, k)), draw(2, 3), axis=k) for k in (0, -1)),
    call("math.softmax", softmax, draw(4)),
    call("math.log_softmax", lambda x: np.log(softmax(x)), draw(2, 4)),
    call("nn.softmax_cross_entropy_with_logits", cross_entropy, LABELS, draw(2, 3)),
    call(
        "nn.sparse_softmax_cross_entropy_with_logits",
        lambda y, x: -np.log(softmax(x))[np.arange(2), y],
        np.array([2, 0]),
        draw(2, 3),
    ),
    call("nn.log_poisson_loss", lambda z, x: np.exp(x) - x * z, draw(2, 3), draw(2, 3)),
    call(
        "nn.log_poisson_loss",
        lambda z, x: np.exp(x) - x * z + z * np.log(z) - z + 0.5 * np.log(2 * np.pi * z),
        draw(2, 3, low=1.5, high=4.0),
        draw(2, 3),
        compute_full_loss=True,
    ),
    call(
        "nn.weighted_cross_entropy_with_logits",
        lambda z, x, q: q * z * np.log1p(np.exp(-x)) + (1 - z) * np.log1p(np.exp(x)),
        draw(2, 3, low=0.0, high=1.0),
        draw(2, 3),
        draw(3, low=0.5, high=2.0),
    ),
    call("nn.l2_loss", lambda x: np.sum(x * x) / 2, draw(2, 3)),
    call("nn.l2_normalize", lambda x: x / euclidean(x, 1, True), draw(2, 3), axis=1),
    call("math.l2_normalize", lambda x: x / euclidean(x), draw(3)),
    call("linalg.l2_normalize", lambda x: x / euclidean(x, 0, True), draw(2, 3), axis=[0]),
    call("nn.bias_add", lambda x, b: x + b, draw(2, 3), draw(3)),
    call("nn.bias_add", lambda x, b: x + b[:, None], draw(2, 3, 4), draw(3), data_format="NCW"),
    call("nn.moments", lambda x: [x.mean(0), x.var(0)], draw(4, 3), axes=[0]),
    call("nn.moments", lambda x: [x.mean(keepdims=True), x.var(keepdims=True)], draw(2, 3), axes=[0, 1], keepdims=True),
    call(
        "nn.batch_normalization",
        normalized,
        draw(4, 3),
        draw(3),
        positive(3),
        unit(3),
        positive(3),
        variance_epsilon=0.01,
    ),
    call("norm", euclidean, draw(2, 3)),
    call("norm", lambda x: euclidean(x, 1, True), draw(2, 3), axis=1, keepdims=True),
    call("norm", lambda x: np.abs(x).sum(0), draw(2, 3), ord=1, axis=0),
    call("norm", lambda x: np.abs(x).max(1), draw(2, 3), ord=np.inf, axis=1),
    call("norm", lambda x: (np.abs(x) ** 3).sum() ** (1 / 3), draw(2, 3), ord=3),
    call("norm", lambda x: np.linalg.norm(x, "fro", axis=(0, 1)), draw(2, 3), ord="fro", axis=[0, 1]),
    call("norm", lambda x: np.linalg.norm(x, 1, axis=(0, 1)), draw(2, 3), ord=1, axis=[0, 1]),
    call("norm", lambda x: np.linalg.norm(x, np.inf, axis=(0, 1)), draw(2, 3), ord=np.inf, axis=[0, 1]),
    *(
        call("norm", lambda x, o=o, a=a: np.linalg.norm(x, o, a), draw(2, 3, 2), ord=o, axis=list(a))
        for o in ("fro", 1, 2, np.inf)
        for a in ((0, 1), (2, 0), (-1, -2))
    ),
    *(
        call("norm", lambda x, o=o: np.linalg.norm(x, o, (2, 0), True), draw(2, 3, 2), ord=o, axis=(2, 0), keepdims=1)
        for o in ("fro", 1, 2.0, np.inf)
    ),
    call("norm", lambda x: (np.abs(x) ** 0.5).sum(0, keepdims=True) ** 2, draw(2, 3), ord=0.5, axis=0, keepdims=True),
    call("norm", lambda x: np.linalg.norm(x, 2, (0, 1)), draw(1, 3), ord=2, axis=[0, 1]),
    call("clip_by_norm", lambda x: clipped(x, 1.5), draw(2, 3), clip_norm=1.5),
    call("clip_by_norm", lambda x: x, draw(2, 3), clip_norm=50.0),
    call("clip_by_norm", lambda x: clipped(x, 0.7, 1), draw(2, 3), clip_norm=0.7, axes=[1]),
    call("clip_by_global_norm", global_clip, draw(2, 3), positive(2), listed=True, clip_norm=1.5),
    call("linalg.global_norm", lambda *xs: global_clip(*xs)[1], draw(2, 3), positive(2), listed=True),
    call("argmax", lambda x: x.argmax(0), draw(2, 3), slopes=False),
    call("argmax", lambda x: x.argmax(-1).astype("int32"), draw(2, 3), axis=-1, output_type="int32", slopes=False),
    call("argmin", lambda x: x.argmin(1), draw(2, 3), axis=1, slopes=False),
    call("math.count_nonzero", lambda x: np.int64(np.count_nonzero(x)), np.array([0.0, 1.0, 2.0]), slopes=False),
    call("math.count_nonzero", lambda x: np.count_nonzero(x, axis=0), draw(2, 3).round(), axis=0, slopes=False),
)
CALLS = (*_reductions(), *_running(), *OTHERS)
