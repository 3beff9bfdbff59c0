"""Functions that make, rearrange, join, cut, pick and place."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.api.calls import Call, call, draw, positive, unit


def placed(shape: Any, how: str) -> Any:
    """Rows put one by one into zeros (or into a given array) at rows of positions."""

    def run(*parts: Any) -> Any:
        out, at, rows = (np.zeros(shape), *parts) if shape is not None else (parts[0].copy(), *parts[1:])
        for where, row in zip(
            np.asarray(at).reshape(-1, np.shape(at)[-1]), rows.reshape(-1, *rows.shape[np.ndim(at) - 1 :]), strict=True
        ):
            k = tuple(where)
            if how == "update":
                out[k] = row
            else:
                out[k] = {"add": np.add, "sub": np.subtract, "max": np.maximum, "min": np.minimum}[how](out[k], row)
        return out

    return run


def gather_with_batch(x: Any, at: Any) -> Any:
    return np.stack([row[k] for row, k in zip(x, at, strict=True)])


def one_hot(at: Any, depth: int) -> Any:
    return np.eye(depth)[at]


POINTS = np.array([[0, 1], [2, 0], [0, 1]])
MAKING: tuple[Call, ...] = (
    call("constant", lambda x: x, draw(2, 3), slopes=False),
    call("convert_to_tensor", lambda x: x, draw(2, 3)),
    call("fill", lambda d, v: np.full(d, v), [2, 3], draw()),
    call("zeros", lambda s: np.zeros(s, "float32"), [2, 3]),
    call("zeros", lambda s: np.zeros((), "int64"), [], dtype="int64"),
    call("ones", lambda s: np.ones(s), (0, 3), dtype="float64"),
    call("ones_like", lambda x: np.ones((2, 3), "int32"), draw(2, 3), dtype="int32", slopes=False),
    call("zeros_like", lambda x: np.zeros((2, 3), bool), draw(2, 3), dtype="bool", slopes=False),
    call("eye", lambda n: np.eye(3, dtype="float32"), 3),
    call("eye", lambda n: np.broadcast_to(np.eye(2, 3), (4, 2, 3)), 2, num_columns=3, batch_shape=[4], dtype="float64"),
    call("range", lambda n: np.arange(4, dtype="int32"), 4),
    call("range", lambda a, b, c: np.arange(1.0, 2.0, 0.25).astype("float32"), 1.0, 2.0, 0.25),
    call("range", lambda a, b, c: np.arange(7, 1, -3), 7, 1, -3, dtype="int64"),
    call("linspace", lambda a, b, n: np.linspace(-1, 2, 5, dtype="float32"), -1.0, 2.0, 5),
    call("one_hot", lambda at: one_hot(at, 4).astype("float32"), np.array([[0, 3], [1, 1]]), depth=4),
    call(
        "one_hot",
        lambda at: np.where(one_hot(at, 3).T > 0, 5.0, -1.0),
        np.array([2, 0]),
        depth=3,
        on_value=5.0,
        off_value=-1.0,
        axis=0,
        dtype="float64",
    ),
    call("sequence_mask", lambda n: np.arange(4) < n[:, None], np.array([1, 3, 0]), maxlen=4),
    call("meshgrid", lambda x, y: np.meshgrid(x, y), draw(2), draw(3)),
)
REARRANGING: tuple[Call, ...] = (
    call("reshape", lambda x: x.reshape(3, 2), draw(2, 3), shape=[3, -1]),
    call("reshape", lambda x: x.reshape(0), draw(0, 3), shape=[0]),
    call("transpose", np.transpose, draw(2, 3, 4)),
    call("transpose", lambda x: x.transpose(2, 0, 1), draw(2, 3, 4), perm=[2, 0, 1]),
    call("expand_dims", lambda x: x[:, None], draw(2, 3), axis=1),
    call("expand_dims", lambda x: x[..., None], draw(), axis=-1),
    call("squeeze", np.squeeze, draw(1, 2, 1)),
    call("squeeze", lambda x: x[:, :, 0], draw(1, 2, 1), axis=[-1]),
    call("broadcast_to", lambda x: np.broadcast_to(x, (2, 4, 3)), draw(4, 1), shape=[2, 4, 3]),
    call("tile", lambda x: np.tile(x, (2, 3)), draw(2, 3), multiples=[2, 3]),
    call("tile", lambda x: np.tile(x, (0, 1)), draw(2, 3), multiples=[0, 1]),
    call("repeat", lambda x: np.repeat(x, 2), draw(2, 3), repeats=2),
    call("repeat", lambda x: np.repeat(x, [1, 0, 2], 1), draw(2, 3), repeats=[1, 0, 2], axis=1),
    call("reverse", lambda x: x[::-1, :, ::-1], draw(2, 3, 4), axis=[0, -1]),
    call("roll", lambda x: np.roll(x, (1, -2), (0, 1)), draw(2, 3), shift=[1, -2], axis=[0, 1]),
    call("pad", lambda x: np.pad(x, ((1, 0), (0, 2)), constant_values=0.0), draw(2, 3), paddings=[[1, 0], [0, 2]]),
    call(
        "pad",
        lambda x: np.pad(x, ((1, 0), (0, 2)), constant_values=9.0),
        draw(2, 3),
        paddings=[[1, 0], [0, 2]],
        constant_values=9.0,
    ),
    call(
        "pad", lambda x: np.pad(x, ((1, 1), (2, 1)), "reflect"), draw(2, 3), paddings=[[1, 1], [2, 1]], mode="REFLECT"
    ),
    call(
        "pad",
        lambda x: np.pad(x, ((1, 2), (3, 0)), "symmetric"),
        draw(2, 3),
        paddings=[[1, 2], [3, 0]],
        mode="symmetric",
    ),
    call("ensure_shape", lambda x: x, draw(2, 3), shape=[None, 3]),
    call(
        "reverse_sequence",
        lambda x: np.stack([x[0][[1, 0, 2]], x[1][[2, 1, 0]]]),
        draw(2, 3),
        seq_lengths=[2, 3],
        seq_axis=1,
        batch_axis=0,
    ),
)
JOINING: tuple[Call, ...] = (
    call("concat", lambda *xs: np.concatenate(xs, 0), draw(2, 3), positive(1, 3), draw(0, 3), listed=True, axis=0),
    call("concat", lambda *xs: np.concatenate(xs, -1), draw(2, 3), positive(2, 1), listed=True, axis=-1),
    call("stack", lambda *xs: np.stack(xs, 1), draw(2, 3), positive(2, 3), listed=True, axis=1),
    call("stack", lambda *xs: np.stack(xs), draw(), positive(), listed=True),
    call("unstack", lambda x: list(np.moveaxis(x, 1, 0)), draw(2, 3), axis=1),
    call("split", lambda x: np.split(x, 3, 1), draw(2, 3), num_or_size_splits=3, axis=1),
    call("split", lambda x: np.split(x, [1, 1], 0), draw(4, 3), num_or_size_splits=[1, 0, -1]),
    call("slice", lambda x: x[1:3, 1:], draw(4, 3), begin=[1, 1], size=[2, -1]),
    call("strided_slice", lambda x: x[3:0:-2, 0:3:2], draw(4, 3), begin=[3, 0], end=[0, 3], strides=[-2, 2]),
    call(
        "strided_slice",
        lambda x: x[:2, None, 1],
        draw(4, 3),
        begin=[9, 0, 1],
        end=[2, 0, 0],
        begin_mask=1,
        new_axis_mask=2,
        shrink_axis_mask=4,
    ),
)
PICKING: tuple[Call, ...] = (
    call("gather", lambda x, at: x[at], draw(4, 3), np.array([[0, 3], [1, 1]])),
    call("gather", lambda x, at: x[:, at], draw(2, 5), np.array([4, 0, 4]), axis=1),
    call("gather", gather_with_batch, draw(2, 5), np.array([[4, 0], [1, 1]]), batch_dims=1),
    call("gather", lambda x, at: x[at], draw(4, 3), np.zeros(0, "int32")),
    call("gather_nd", lambda x, at: x[tuple(at.T)], draw(4, 3), POINTS),
    call("gather_nd", lambda x, at: x[at[:, 0]], draw(4, 3), np.array([[3], [0]])),
    call("gather_nd", lambda x, at: np.stack([x[0][1], x[1][2]]), draw(2, 3, 2), np.array([[1], [2]]), batch_dims=1),
    call("boolean_mask", lambda x, m: x[m], draw(4, 3), np.array([True, False, True, True])),
    call("boolean_mask", lambda x, m: x[m], draw(2, 3), draw(2, 3) > 0),
    call("boolean_mask", lambda x, m: x[:, m], draw(2, 3), np.array([False, False, True]), axis=1),
    call("nn.embedding_lookup", lambda x, at: x[at], draw(4, 3), np.array([[0, 3], [1, 1]])),
    call("scatter_nd", placed((3, 2), "add"), POINTS, draw(3), shape=[3, 2]),
    call("scatter_nd", placed((4, 2), "add"), np.array([[1], [1]]), draw(2, 2), shape=[4, 2]),
    call("tensor_scatter_nd_add", placed(None, "add"), draw(3, 2), POINTS, unit(3)),
    call("tensor_scatter_nd_sub", placed(None, "sub"), draw(3, 2), POINTS, unit(3)),
    call("tensor_scatter_nd_update", placed(None, "update"), draw(3, 2), POINTS[:2], unit(2)),
    call("tensor_scatter_nd_max", placed(None, "max"), draw(3, 2), POINTS[:2], unit(2)),
    call("tensor_scatter_nd_min", placed(None, "min"), draw(3, 2), POINTS[:2], unit(2)),
)
CALLS = (*MAKING, *REARRANGING, *JOINING, *PICKING)
