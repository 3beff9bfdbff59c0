"""Declarations: largest and mean elements of windows, in any number of dimensions. Floor: ops.

Images are (n, *space, channels). Of equal largest elements the first one counts, in value and gradient; what lies
outside the image is no element of any window. A maximum's gradient goes to the element that was chosen: which one is
worked out anew from the images, which are all that is kept. Both maps, `max_pool_input` (cotangents to where they were
chosen) and `max_pool_pick` (what lies at the chosen elements), are linear and each other's transpose; so are
`avg_pool` and `avg_pool_input`."""

from __future__ import annotations

import math
from typing import Any

from gradtape.ir.aval import Aval
from gradtape.ir.dtypes import bool_, int32, int64
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.graph import Node, Value
from gradtape.ir.shapes import Shape, shape_text
from gradtape.kernels import pooling as host
from gradtape.ops.composite import Composite
from gradtape.ops.op import constant, emit
from gradtape.ops.samples import BadSample, Sample, Spec
from gradtape.ops.windows import Sizes, Windows

LARGE = 1 << 16  # elements of images from which compiled loops pay


def _check(x: Aval, w: Windows, what: str = "images") -> None:
    rank = len(w.window) + 2
    if x.shape is not None and len(x.shape) != rank:
        raise ValueError(f"wants {what} with {rank} axes, got shape {shape_text(x.shape)}.")


def _check_floating(x: Aval) -> None:
    if not x.dtype.is_floating:
        raise ValueError(f"wants a floating tensor, got a {x.dtype.cname} one. Use `tf.cast`.")


def _check_equal(found: Shape, wanted: Shape) -> None:
    """Shapes must be the same where they are known."""
    pairs = zip(found, wanted, strict=True) if found is not None and wanted is not None else ()
    if any(m is not None and n is not None and m != n for m, n in pairs):
        raise ValueError(f"wants a tensor of shape {shape_text(wanted)}, got {shape_text(found)}.")


def _pays(*avals: Aval, **params: Any) -> bool:
    images = params.get("shape") or avals[-1].dims[1:-1]
    return len(images) <= 3 and avals[-1].dims[0] * math.prod(images) * avals[-1].dims[-1] >= LARGE


# ------------------------------------------------------------------ the largest element


def _check_max(x: Aval, **params: Any) -> None:
    _check(x, Windows(**params))
    if x.dtype.kind not in "fiu":
        raise ValueError(f"wants a tensor of real numbers, got a {x.dtype.cname} one. Use `tf.cast`.")


def _inside(x: Value, w: Windows) -> Value:
    """Where a padded image has elements."""
    return w.pad(emit("broadcast_to", constant(True, bool_), shape=x.aval.shape), 1)


def _elements(x: Value, w: Windows) -> Value:
    """The elements of all windows: (n, *windows, channels, *window); those outside are below all others."""
    if not w.is_padded:
        return w.take(x)
    least = -math.inf if x.aval.dtype.is_floating else x.aval.dtype.min
    return w.take(emit("select", _inside(x, w), w.pad(x, 1), constant(least, x.aval.dtype)))


def _within(w: Windows) -> tuple[int, ...]:
    """The axes of a window's elements."""
    rank = len(w.window)
    return tuple(range(rank + 2, 2 * rank + 2))


def _per_window(v: Value, w: Windows) -> Value:
    """A value per window, with axes of size 1 for its elements."""
    return emit("reshape", v, shape=None if v.aval.shape is None else (*v.aval.shape, *(1,) * len(w.window)))


def _max_pool(x: Value, **params: Any) -> Value:
    w = Windows(**params)
    return emit("reduce_max", _elements(x, w), axes=_within(w), keepdims=False)


def _chosen(x: Value, w: Windows) -> Value:
    """True at the first largest element of each window; at its first NaN, if it has one."""
    elements = _elements(x, w)
    hit = emit("equal", elements, emit("reduce_max", elements, axes=_within(w), keepdims=True))
    if x.aval.dtype.is_floating:
        hit = emit("logical_or", hit, emit("is_nan", elements))
    if w.is_padded:
        hit = emit("logical_and", hit, w.take(_inside(x, w)))
    lead = None if hit.aval.shape is None else hit.aval.shape[: len(w.window) + 2]
    count = math.prod(w.window)
    rows = emit("reshape", emit("cast", hit, dtype=int32), shape=None if lead is None else (*lead, count))
    first = emit("argmax", rows, axis=len(w.window) + 2, dtype=int64)
    places = emit("reshape", emit("positions", value=tuple(range(count))), shape=w.window)
    return emit("logical_and", hit, emit("equal", _per_window(first, w), places))


def _max_pool_vjp(node: Node, g: Value) -> list[Value | None]:
    (x,) = node.inputs
    return [emit("max_pool_input", g, x, shape=x.aval.dims[1:-1], **node.step.params)]


def _check_pair(a: Aval, b: Aval) -> None:
    if a.dtype is not b.dtype:
        raise ValueError(
            f"wants operands of one dtype, got a {a.dtype.cname} and a {b.dtype.cname} tensor. Use `tf.cast`."
        )
    _check_floating(a)


def _check_max_input(g: Aval, x: Aval, shape: Sizes, **params: Any) -> None:
    w = Windows(**params)
    _check_pair(g, x)
    _check(g, w, "cotangents")
    _check(x, w)
    if x.shape is not None:
        _check_equal(x.shape, (x.shape[0], *shape, x.shape[-1]))
        _check_equal(g.shape, (x.shape[0], *(w.counts(shape) or ()), x.shape[-1]))


def _max_input(g: Value, x: Value, shape: Sizes, **params: Any) -> Value:
    w = Windows(**params)
    return w.add(emit("select", _chosen(x, w), _per_window(g, w), constant(0, g.aval.dtype)), shape)


def _max_input_vjp(node: Node, c: Value) -> list[Value | None]:
    p = dict(node.step.params)
    del p["shape"]
    return [emit("max_pool_pick", c, node.inputs[1], **p), None]


def _check_max_pick(c: Aval, x: Aval, **params: Any) -> None:
    w = Windows(**params)
    _check_pair(c, x)
    _check(c, w)
    _check(x, w)
    _check_equal(c.shape, x.shape)


def _max_pick(c: Value, x: Value, **params: Any) -> Value:
    w = Windows(**params)
    picked = emit("select", _chosen(x, w), w.take(w.pad(c, 1)), constant(0, c.aval.dtype))
    return emit("reduce_sum", picked, axes=_within(w), keepdims=False)


def _max_pick_vjp(node: Node, g: Value) -> list[Value | None]:
    x = node.inputs[1]
    return [emit("max_pool_input", g, x, shape=x.aval.dims[1:-1], **node.step.params), None]


# ------------------------------------------------------------------ the mean


def _check_avg(x: Aval, **params: Any) -> None:
    _check(x, Windows(**params))
    _check_floating(x)


def _mean_of(v: Value, space: Shape, w: Windows) -> Value:
    """v per window (n, *windows, channels), divided by how many elements the window has inside the image."""
    if not w.is_padded:
        return emit("divide", v, constant(math.prod(w.window), v.aval.dtype))
    ones = emit("broadcast_to", constant(1, v.aval.dtype), shape=None if space is None else (1, *space, 1))
    counts = emit("reduce_sum", w.take(w.pad(ones, 1)), axes=_within(w), keepdims=False)
    return emit("divide", v, emit("maximum", counts, constant(1, v.aval.dtype)))


def _avg_pool(x: Value, **params: Any) -> Value:
    w = Windows(**params)
    total = emit("reduce_sum", w.take(w.pad(x, 1)), axes=_within(w), keepdims=False)
    return _mean_of(total, None if x.aval.shape is None else x.aval.shape[1:-1], w)


def _avg_pool_vjp(node: Node, g: Value) -> list[Value | None]:
    return [emit("avg_pool_input", g, shape=node.inputs[0].aval.dims[1:-1], **node.step.params)]


def _check_avg_input(g: Aval, shape: Sizes, **params: Any) -> None:
    w = Windows(**params)
    _check_floating(g)
    _check(g, w, "cotangents")
    if g.shape is not None:
        _check_equal(g.shape, (g.shape[0], *(w.counts(shape) or ()), g.shape[-1]))


def _avg_input(g: Value, shape: Sizes, **params: Any) -> Value:
    w = Windows(**params)
    share = _per_window(_mean_of(g, shape, w), w)
    wide = None if share.aval.shape is None else (*share.aval.shape[: len(shape) + 2], *w.window)
    return w.add(emit("broadcast_to", share, shape=wide), shape)


def _avg_input_vjp(node: Node, c: Value) -> list[Value | None]:
    p = dict(node.step.params)
    del p["shape"]
    return [emit("avg_pool", c, **p)]


# ------------------------------------------------------------------ declarations

LINE: dict[str, Sizes] = {"window": (3,), "strides": (2,), "dilations": (1,), "low": (0,), "high": (0,)}
PLANE: dict[str, Sizes] = {"window": (2, 3), "strides": (1, 2), "dilations": (1, 1), "low": (0, 1), "high": (1, 1)}
STEEP: dict[str, Sizes] = {"window": (3,), "strides": (2,), "dilations": (2,), "low": (1,), "high": (2,)}
SPACE: dict[str, Sizes] = {
    "window": (1, 2, 2),
    "strides": (1, 2, 2),
    "dilations": (1, 1, 1),
    "low": (0, 0, 0),
    "high": (0, 1, 0),
}

# Windows, then the shapes of images and results.
_FITTING: list[tuple[dict[str, Sizes], Sizes, Sizes]] = [
    (LINE, (2, 5, 4), (2, 2, 4)),
    (PLANE, (2, 3, 4, 2), (2, 3, 2, 2)),
    (STEEP, (1, 6, 2), (1, 3, 2)),
    (SPACE, (1, 2, 3, 2, 1), (1, 2, 2, 1, 1)),
    (LINE, (0, 5, 2), (0, 2, 2)),
    (LINE, (1, 2, 1), (1, 0, 1)),
]


def _samples(*which: int, with_shape: bool = False) -> list[Sample]:
    """Samples of images (0) and results (1)."""
    chosen = []
    for windows, *shapes in _FITTING:
        params = {"shape": shapes[0][1:-1], **windows} if with_shape else windows
        chosen.append(Sample(tuple(Spec(shapes[k]) for k in which), params))
    return chosen


def _bad(says: str, *shapes: Sizes, dtype: str = "float32", **params: Any) -> BadSample:
    return BadSample(tuple((s, dtype) for s in shapes), InvalidArgumentError, says, LINE | params)


MAX_POOL = Composite(
    "max_pool",
    _max_pool,
    vjp=_max_pool_vjp,
    check=_check_max,
    host=host.max_pool,
    axes="n*c->n*c",
    pays=_pays,
    samples=_samples(0),
    errors=[_bad("3 axes", (2, 5)), _bad("real numbers", (2, 5, 4), dtype="complex64")],
    doc="The largest element of each window: (n, *space, channels) to (n, *windows, channels).",
    notes="Of equal elements the first one gets the gradient.",
)
MAX_POOL_INPUT = Composite(
    "max_pool_input",
    _max_input,
    vjp=_max_input_vjp,
    check=_check_max_input,
    host=host.max_pool_input,
    axes="n*c,n*c->n*c",
    pays=_pays,
    samples=_samples(1, 0, with_shape=True),
    errors=[
        _bad("of shape (2, 2, 4)", (2, 3, 4), (2, 5, 4), shape=(5,)),
        _bad("of shape (2, 5, 4)", (2, 2, 4), (2, 6, 4), shape=(5,)),
    ],
    doc="The gradient of `max_pool`: cotangents added up at the elements that were largest.",
)
MAX_POOL_PICK = Composite(
    "max_pool_pick",
    _max_pick,
    vjp=_max_pick_vjp,
    check=_check_max_pick,
    host=host.max_pool_pick,
    axes="n*c,n*c->n*c",
    pays=_pays,
    samples=_samples(0, 0),
    errors=[_bad("(2, 5, 4)", (2, 4, 4), (2, 5, 4))],
    doc="What one tensor has where another one has the largest elements of its windows.",
)
AVG_POOL = Composite(
    "avg_pool",
    _avg_pool,
    vjp=_avg_pool_vjp,
    check=_check_avg,
    host=host.avg_pool,
    axes="n*c->n*c",
    pays=_pays,
    samples=_samples(0),
    errors=[_bad("3 axes", (2, 5)), _bad("floating", (2, 5, 4), dtype="int32")],
    doc="The mean of each window's elements, of those inside the image.",
    notes="A window with no element inside has the mean 0.",
)
AVG_POOL_INPUT = Composite(
    "avg_pool_input",
    _avg_input,
    vjp=_avg_input_vjp,
    check=_check_avg_input,
    host=host.avg_pool_input,
    axes="n*c->n*c",
    pays=_pays,
    samples=_samples(1, with_shape=True),
    errors=[_bad("of shape (2, 2, 4)", (2, 3, 4), shape=(5,))],
    doc="The gradient of `avg_pool`: each cotangent shared out evenly among its window's elements.",
)
