"""Random graphs of pointwise ops, reductions, layout steps and products over small whole numbers, infinities and NaN:
every order of adding gives the same bits, so that two ways to run one must agree exactly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from gradtape.ir.aval import aval
from gradtape.ir.dtypes import DType, bfloat16, bool_, float16, float32, float64, int32, int64
from gradtape.ir.graph import Graph, Value
from gradtape.ops.op import constant, emit
from tests.op_table.cases import sealed

SIZES = st.sampled_from([2, 3, 2, 3, 4, 1])
SHAPES = st.one_of(st.lists(SIZES, min_size=2, max_size=3), st.lists(SIZES, max_size=3)).map(tuple)
NUMBERS = (float32, float64, int32, int64, float16, bfloat16)
LARGE = 200  # elements of a value at most
Draw = st.DrawFn


def pick(draw: Draw, values: Sequence[Value]) -> Value:
    """Mostly of what was made last: graphs grow deep."""
    if draw(st.booleans()):
        return draw(st.sampled_from(values[-3:]))
    return draw(st.sampled_from(values))


def as_dtype(v: Value, dtype: DType) -> Value:
    return v if v.aval.dtype is dtype else emit("cast", v, dtype=dtype)


def bounded(v: Value) -> Value:
    """Between -4 and 4."""
    if v.aval.dtype.is_bool:
        return v
    return emit("minimum", emit("maximum", v, constant(-4, v.aval.dtype)), constant(4, v.aval.dtype))


def number(draw: Draw, values: Sequence[Value]) -> Value:
    v = pick(draw, values)
    return as_dtype(v, draw(st.sampled_from(NUMBERS))) if v.aval.dtype.is_bool else v


def fitting(draw: Draw, values: Sequence[Value], x: Value, dtype: DType) -> Value:
    """Another value that broadcasts with x."""
    y = as_dtype(pick(draw, values), dtype)
    try:
        shape = np.broadcast_shapes(x.aval.dims, y.aval.dims)
    except ValueError:
        return reduced(draw, y, tuple(range(len(y.aval.dims))))
    return y if np.prod(shape) <= LARGE else constant(2, dtype)


def unary(draw: Draw, values: Sequence[Value]) -> Value:
    return emit(draw(st.sampled_from(["negative", "abs", "sign", "square"])), number(draw, values))


def dear(draw: Draw, values: Sequence[Value]) -> Value:
    """What kernels would rather keep than do again."""
    x = number(draw, values)
    name = draw(st.sampled_from(["floor", "ceil", "rint"]))
    return emit(name, x) if x.aval.dtype.is_floating else unary(draw, [x])


def binary(draw: Draw, values: Sequence[Value]) -> Value:
    x = number(draw, values)
    y = fitting(draw, values, x, x.aval.dtype)
    name = draw(st.sampled_from(["add", "subtract", "multiply", "maximum", "minimum"]))
    pair = (x, y) if draw(st.booleans()) else (y, x)
    return bounded(emit(name, *pair))


def with_number(draw: Draw, values: Sequence[Value]) -> Value:
    x = number(draw, values)
    return bounded(
        emit(draw(st.sampled_from(["add", "multiply"])), x, constant(draw(st.integers(-3, 3)), x.aval.dtype))
    )


def comparison(draw: Draw, values: Sequence[Value]) -> Value:
    x = number(draw, values)
    return emit(draw(st.sampled_from(["less", "equal", "greater_equal"])), x, fitting(draw, values, x, x.aval.dtype))


def choice(draw: Draw, values: Sequence[Value]) -> Value:
    x = number(draw, values)
    y = fitting(draw, values, x, x.aval.dtype)
    both = emit("add", x, y)
    condition = as_dtype(fitting(draw, values, both, bool_), bool_)
    return emit("select", condition, x, y)


def cast(draw: Draw, values: Sequence[Value]) -> Value:
    """Infinities and NaN have no whole numbers: they become 0 first."""
    x, dtype = pick(draw, values), draw(st.sampled_from([*NUMBERS, bool_]))
    if x.aval.dtype.is_floating and dtype.is_integer:
        x = emit("select", emit("is_finite", x), x, constant(0, x.aval.dtype))
    return as_dtype(x, dtype)


MONOIDS = ("sum", "prod", "max", "min")


def reduced(draw: Draw, x: Value, axes: tuple[int, ...]) -> Value:
    if x.aval.dtype.is_bool:
        return emit(draw(st.sampled_from(["reduce_all", "reduce_any"])), x, axes=axes, keepdims=draw(st.booleans()))
    name = draw(st.sampled_from(["sum", "sum", "max", "min", "prod"]))
    if name == "prod":
        x = emit("sign", x)
    return bounded(emit(f"reduce_{name}", x, axes=axes, keepdims=draw(st.booleans())))


def reduction(draw: Draw, values: Sequence[Value]) -> Value:
    x = pick(draw, values)
    return reduced(draw, x, tuple(k for k in range(len(x.aval.dims)) if draw(st.booleans())))


def centred(draw: Draw, values: Sequence[Value]) -> Value:
    """A value and what it was reduced to: another sweep over it."""
    x = number(draw, values)
    n = len(x.aval.dims)
    axes = tuple(k for k in range(n) if draw(st.booleans()))
    least = emit(draw(st.sampled_from(["reduce_max", "reduce_sum"])), x, axes=axes, keepdims=True)
    return bounded(emit("subtract", x, bounded(least)))


def crossed(draw: Draw, values: Sequence[Value]) -> Value:
    """A value with its axes in two orders, side by side."""
    x = number(draw, values)
    n = len(x.aval.dims)
    y = emit("transpose", x, perm=tuple(reversed(range(n))))
    y = emit("negative", y) if draw(st.booleans()) else y
    if draw(st.booleans()) and n < 3 and x.aval.size**2 <= LARGE:
        y = emit("reshape", y, shape=(*y.aval.dims, *(1 for _ in x.aval.dims)))
    elif x.aval.dims != y.aval.dims:
        x = reduced(draw, x, tuple(range(n)))
    return bounded(emit(draw(st.sampled_from(["add", "multiply"])), as_dtype(x, y.aval.dtype), y))


def layout(draw: Draw, values: Sequence[Value]) -> Value:
    x = pick(draw, values)
    shape = x.aval.dims
    n = len(shape)
    kind = draw(st.sampled_from(["reshape", "transpose", "transpose", "broadcast_to", "reverse"]))
    if kind == "transpose":
        return emit("transpose", x, perm=tuple(draw(st.permutations(range(n)))))
    if kind == "reshape":
        shapes = [(x.aval.size,), (1, *shape), (*shape, 1), tuple(k for k in shape if k != 1), shape[::-1]]
        return emit("reshape", x, shape=draw(st.sampled_from(shapes)))
    if kind == "reverse" and n:
        return emit("reverse", x, axes=(draw(st.integers(0, n - 1)),))
    larger = tuple(draw(SIZES) if m == 1 else m for m in shape)
    larger = (draw(SIZES), *larger) if n < 3 and draw(st.booleans()) else larger
    return emit("broadcast_to", x, shape=larger if np.prod(larger) <= LARGE else shape)


def barrier(draw: Draw, values: Sequence[Value]) -> Value:
    """A product: no cluster holds it."""
    x = number(draw, values)
    if not x.aval.dtype.is_floating or not x.aval.dims or len(x.aval.dims) > 3:
        return unary(draw, [x])
    letters = "abc"[: len(x.aval.dims)]
    return bounded(emit("contract", x, x, subscripts=f"{letters},{letters}->{letters[:-1]}"))


KINDS: list[Callable[..., Value]] = [
    *(unary, dear, binary, binary, binary, with_number, comparison, choice, cast),
    *(reduction, reduction, centred, centred, layout, layout, crossed, barrier),
]


@st.composite
def graphs(draw: Draw, most: int = 12) -> tuple[Graph, list[Any]]:
    """A graph of one to three inputs and one to four outputs, with operands."""
    dtypes = draw(st.lists(st.sampled_from([*NUMBERS, bool_, float32, float64]), min_size=1, max_size=3))
    inputs = [Value(aval(draw(SHAPES), d)) for d in dtypes]
    values = list(inputs)
    for grow in draw(st.lists(st.sampled_from(KINDS), min_size=2, max_size=most)):
        values.append(grow(draw, values))
    made = values[len(inputs) :]
    others = draw(st.lists(st.sampled_from(made), max_size=3))
    odd = draw(st.booleans())
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return Graph(inputs, dict.fromkeys([made[-1], *others])), [operand(v, rng, odd) for v in inputs]


def operand(v: Value, rng: np.random.Generator, odd: bool) -> Any:
    """Whole numbers from -3 to 3; with a few infinities and NaN if `odd`."""
    array = rng.integers(-3, 4, v.aval.dims).astype(v.aval.dtype.numpy_dtype)
    if odd and v.aval.dtype.is_floating:
        array = np.where(rng.random(v.aval.dims) < 0.15, rng.choice([np.inf, -np.inf, np.nan], v.aval.dims), array)
    return sealed(np.asarray(array, v.aval.dtype.numpy_dtype))
