"""Convolutions, pooling and blocks of images, by their definitions: one window after the other."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from tests.api.calls import Call, call, draw, positive


def windows(x: Any, size: Any, strides: Any, padding: str, fill: float = 0.0) -> Any:
    """(batch, *places, *window, channels) of an image (batch, *space, channels), padded as TensorFlow pads."""
    space, pads, counts = x.shape[1:-1], [], []
    for n, k, s in zip(space, size, strides, strict=True):
        count = -(-n // s) if padding == "SAME" else (n - k) // s + 1
        total = max((count - 1) * s + k - n, 0) if padding == "SAME" else 0
        pads.append((total // 2, total - total // 2))
        counts.append(count)
    wide: Any = np.pad(x, [(0, 0), *pads, (0, 0)], constant_values=fill)
    out: Any = np.empty((x.shape[0], *counts, *size, x.shape[-1]))
    whole = slice(None)
    for place in itertools.product(*map(range, counts)):
        cut = [slice(p * s, p * s + k) for p, s, k in zip(place, strides, size, strict=True)]
        out[(whole, *place)] = wide[(whole, *cut)]
    return out


def convolved(strides: Any, padding: str) -> Any:
    def run(x: Any, filters: Any) -> Any:
        n = x.ndim - 2
        w = windows(x, filters.shape[:n], strides, padding)
        return np.tensordot(w, filters, axes=(range(n + 1, 2 * n + 2), range(n + 1)))

    return run


def transposed(out_shape: Any, strides: Any, padding: str) -> Any:
    """The transpose of a convolution, column by column."""

    def run(y: Any, filters: Any) -> Any:
        forward = convolved(strides, padding)
        result = np.zeros(out_shape)
        for index in np.ndindex(*out_shape):
            one = np.zeros(out_shape)
            one[index] = 1.0
            result[index] = np.sum(forward(one, filters) * y)
        return result

    return run


def depthwise(strides: Any, padding: str) -> Any:
    def run(x: Any, filters: Any) -> Any:
        w = windows(x, filters.shape[:2], strides, padding)
        return np.einsum("bhwijc,ijcm->bhwcm", w, filters).reshape(*w.shape[:3], -1)

    return run


def pooled(kind: str, size: Any, strides: Any, padding: str) -> Any:
    def run(x: Any) -> Any:
        n = x.ndim - 2
        axes = tuple(range(n + 1, 2 * n + 1))
        fill = -np.inf if kind == "max" else np.nan
        w = windows(x, size, strides, padding, fill)
        return w.max(axes) if kind == "max" else np.nanmean(w, axes)

    return run


def to_depth(x: Any) -> Any:
    b, h, w, c = x.shape
    return x.reshape(b, h // 2, 2, w // 2, 2, c).transpose(0, 1, 3, 2, 4, 5).reshape(b, h // 2, w // 2, 4 * c)


def to_space(x: Any) -> Any:
    b, h, w, c = x.shape
    return x.reshape(b, h, w, 2, 2, c // 4).transpose(0, 1, 3, 2, 4, 5).reshape(b, 2 * h, 2 * w, c // 4)


def to_batch(x: Any) -> Any:
    return np.concatenate([x[:, i::2, j::2] for i in (0, 1) for j in (0, 1)], 0)


def from_batch(x: Any) -> Any:
    out = np.empty((x.shape[0] // 4, 2 * x.shape[1], 2 * x.shape[2], x.shape[3]))
    for k, (i, j) in enumerate(itertools.product((0, 1), (0, 1))):
        out[:, i::2, j::2] = x[k * len(out) : (k + 1) * len(out)]
    return out


LINE, FLAT, SOLID = draw(2, 6, 2), draw(1, 5, 4, 2), draw(1, 3, 4, 3, 1)
K1, K2, K3 = positive(3, 2, 3), positive(2, 3, 2, 2), positive(2, 2, 2, 1, 2)
CONVOLUTIONS: tuple[Call, ...] = (
    *(call("nn.conv1d", convolved((2,), p), LINE, K1, stride=2, padding=p) for p in ("SAME", "VALID")),
    *(call("nn.conv2d", convolved((1, 1), p), FLAT, K2, strides=1, padding=p) for p in ("SAME", "VALID")),
    call("nn.conv2d", convolved((2, 1), "SAME"), FLAT, K2, strides=[1, 2, 1, 1], padding="SAME"),
    call("nn.conv3d", convolved((1, 2, 1), "VALID"), SOLID, K3, strides=[1, 1, 2, 1, 1], padding="VALID"),
    call("nn.convolution", convolved((1, 1), "VALID"), FLAT, K2),
    call("nn.depthwise_conv2d", depthwise((1, 1), "SAME"), FLAT, K2, strides=[1, 1, 1, 1], padding="SAME"),
    call(
        "nn.separable_conv2d",
        lambda x, d, p: depthwise((1, 1), "VALID")(x, d) @ p[0, 0],
        FLAT,
        K2,
        positive(1, 1, 4, 3),
        strides=[1, 1, 1, 1],
        padding="VALID",
    ),
    call(
        "nn.conv1d_transpose", transposed((1, 6, 2), (2,), "SAME"), draw(1, 3, 3), K1, output_shape=[1, 6, 2], strides=2
    ),
    call(
        "nn.conv2d_transpose",
        transposed((1, 4, 4, 2), (2, 2), "SAME"),
        draw(1, 2, 2, 2),
        K2,
        output_shape=[1, 4, 4, 2],
        strides=2,
    ),
    call(
        "nn.conv3d_transpose",
        transposed((1, 2, 3, 2, 1), (1, 1, 1), "VALID"),
        draw(1, 1, 2, 1, 2),
        K3,
        output_shape=[1, 2, 3, 2, 1],
        strides=1,
        padding="VALID",
    ),
    call(
        "nn.conv_transpose",
        transposed((1, 4, 4, 2), (2, 2), "SAME"),
        draw(1, 2, 2, 2),
        K2,
        output_shape=[1, 4, 4, 2],
        strides=2,
    ),
)


def _pools() -> list[Call]:
    found = []
    for kind in ("max", "avg"):
        for p in ("SAME", "VALID"):
            found.append(call(f"nn.{kind}_pool1d", pooled(kind, (2,), (2,), p), LINE, ksize=2, strides=2, padding=p))
            found.append(
                call(
                    f"nn.{kind}_pool2d", pooled(kind, (3, 2), (2, 1), p), FLAT, ksize=[3, 2], strides=[2, 1], padding=p
                )
            )
        found.append(
            call(
                f"nn.{kind}_pool3d",
                pooled(kind, (2,) * 3, (1,) * 3, "VALID"),
                SOLID,
                ksize=2,
                strides=1,
                padding="VALID",
            )
        )
        found.append(
            call(f"nn.{kind}_pool", pooled(kind, (2, 2), (1, 1), "SAME"), FLAT, ksize=2, strides=1, padding="SAME")
        )
        found.append(
            call("nn.pool", pooled(kind, (2, 2), (1, 1), "VALID"), FLAT, window_shape=[2, 2], pooling_type=kind.upper())
        )
    return found


BLOCKS: tuple[Call, ...] = (
    call("nn.space_to_depth", to_depth, draw(1, 4, 2, 3), block_size=2),
    call("nn.depth_to_space", to_space, draw(1, 2, 1, 8), block_size=2),
    call("space_to_batch", to_batch, draw(1, 4, 2, 3), block_shape=[2, 2], paddings=[[0, 0], [0, 0]]),
    call("batch_to_space", from_batch, draw(4, 2, 1, 3), block_shape=[2, 2], crops=[[0, 0], [0, 0]]),
    call(
        "image.extract_patches",
        lambda x: windows(x, (2, 2), (1, 2), "VALID").reshape(1, 4, 2, 8),
        FLAT,
        sizes=[1, 2, 2, 1],
        strides=[1, 1, 2, 1],
        rates=[1, 1, 1, 1],
        padding="VALID",
    ),
    call("nn.dropout", lambda x: x, draw(2, 3), rate=0.0),
)
CALLS = (*CONVOLUTIONS, *_pools(), *BLOCKS)
