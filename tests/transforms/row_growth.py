"""How random graphs grow for the tests of rows: what moves, repeats, merges, splits and sums, with exact numbers.

Sizes have common divisors, so that axes can be merged and split anew; positions repeat, are left out or out of order,
known now or only when running. `exact` graphs are polynomials with small integers for operands: their derivatives are
integers far below 2^53, so that sums in any order are equal to the last bit. Others hold functions of all kinds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

from gradtape.ir.aval import aval
from gradtape.ir.dtypes import bool_, float64, int64
from gradtape.ir.graph import Value
from gradtape.ir.index import Index
from gradtape.ops.op import constant, emit
from tests.op_table.cases import sealed

SIZES = [0, 1, 1, 2, 2, 2, 3, 3, 4, 6]
MOST = 24  # elements of a value, so that one pass per row stays cheap
LARGEST = 2.0**14  # of a value where all operands are at their largest: derivatives then stay below 2^53
OPERAND = 2.0


@dataclass
class Draft:
    """A graph in the making. `bounds`: what the largest element can be, by id of the value."""

    draw: st.DrawFn
    exact: bool
    sources: list[Value] = field(default_factory=list)
    others: list[tuple[Value, Any]] = field(default_factory=list)  # operands that are no source, with their numbers
    values: list[Value] = field(default_factory=list)
    bounds: dict[int, float] = field(default_factory=dict)

    def source(self, shape: tuple[int, ...]) -> None:
        v = Value(aval(shape, float64))
        self.sources.append(v)
        self.add(v, OPERAND)

    def add(self, v: Value, bound: float) -> None:
        self.values.append(v)
        self.bounds[id(v)] = bound

    def bound(self, v: Value) -> float:
        return self.bounds[id(v)]

    def other(self, array: Any) -> Value:
        """An operand whose numbers are known only when running."""
        array = np.asarray(array)
        v = Value(aval(array.shape, {"f": float64, "i": int64, "b": bool_}[array.dtype.kind]))
        self.others.append((v, sealed(array)))
        return v

    def pick(self) -> Value:
        """A value, rather a late one."""
        late = self.values[-3:]
        return self.draw(st.sampled_from(late + self.values))

    def chance(self) -> bool:
        return self.draw(st.booleans())

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def axis(self, v: Value) -> int:
        return self.number(0, len(v.aval.dims) - 1)

    def positions(self, count: int, size: int) -> list[int]:
        """Repeated, left out, in any order; in order now and then."""
        if self.chance():
            return self.draw(st.lists(st.integers(0, size - 1), min_size=count, max_size=count))
        step = self.draw(st.sampled_from([1, -1]))
        return [(step * k) % size for k in range(count)]

    def vector(self, numbers: Sequence[int]) -> Value:
        """Positions known now, or only when running."""
        if self.chance():
            return emit("positions", value=Index(numbers))
        return self.other(np.asarray(numbers, np.int64))

    def numbers(self, shape: tuple[int, ...]) -> Any:
        """Small integers, zeros among them."""
        seed = self.number(0, 2**16)
        return np.random.default_rng(seed).integers(-2, 3, shape).astype(np.float64)


Grow = Callable[[Draft], tuple[Value, float] | None]


# ------------------------------------------------------------------ sums and products


def with_number_array(d: Draft) -> tuple[Value, float]:
    """Times, plus or minus an array that is no source, which may lack axes."""
    x = d.pick()
    shape = tuple(n if d.chance() else 1 for n in x.aval.dims)[d.number(0, len(x.aval.dims)) :]
    y = d.other(d.numbers(shape))
    name = d.draw(st.sampled_from(["multiply", "multiply", "add", "subtract"]))
    operands = (x, y) if d.chance() else (y, x)
    return emit(name, *operands), d.bound(x) * 2 if name == "multiply" else d.bound(x) + 2


def matching(d: Draft, x: Value) -> Value:
    """A value that broadcasts with x, x itself among them."""
    fits = [y for y in d.values if _broadcasts(x, y)]
    return d.draw(st.sampled_from(fits))


def _broadcasts(x: Value, y: Value) -> bool:
    try:
        shape = np.broadcast_shapes(x.aval.dims, y.aval.dims)
    except ValueError:
        return False
    return math.prod(shape) <= MOST


def residual_sum(d: Draft) -> tuple[Value, float]:
    x = d.pick()
    y = matching(d, x)
    return emit(d.draw(st.sampled_from(["add", "subtract"])), x, y), d.bound(x) + d.bound(y)


def product(d: Draft) -> tuple[Value, float]:
    x = d.pick()
    y = matching(d, x)
    return emit("multiply", x, y), d.bound(x) * d.bound(y)


def selected(d: Draft) -> tuple[Value, float]:
    x = d.pick()
    y = matching(d, x)
    shape = np.broadcast_shapes(x.aval.dims, y.aval.dims)
    mask = d.other(np.asarray(d.numbers(shape) > 0))
    return emit("select", mask, x, y), max(d.bound(x), d.bound(y))


def scaled(d: Draft) -> tuple[Value, float]:
    x = d.pick()
    name = d.draw(st.sampled_from(["negative", "square", "multiply", "identity"]))
    if name == "multiply":
        return emit("multiply", constant(3, float64), x), d.bound(x) * 3
    return emit(name, x), d.bound(x) ** 2 if name == "square" else d.bound(x)


def summed(d: Draft) -> tuple[Value, float]:
    x = d.pick()
    axes = tuple(k for k in range(len(x.aval.dims)) if d.chance())
    count = math.prod(x.aval.dims[k] for k in axes)
    return emit("reduce_sum", x, axes=axes, keepdims=d.chance()), d.bound(x) * max(1, count)


def contraction(d: Draft) -> tuple[Value, float] | None:
    """Of two values, or of one with an array that is no source; shared letters are summed or kept."""
    x = d.pick()
    if d.chance():
        y = d.pick()
    else:
        rank = d.number(1, 3)
        y = d.other(d.numbers(tuple(d.draw(st.sampled_from([*x.aval.dims, 2, 3])) for _ in range(rank))))
    if d.chance():
        x, y = y, x
    left = "abcdefg"[: len(x.aval.dims)]
    right = ""
    for k, n in enumerate(y.aval.dims):
        same = [c for c, m in zip(left, x.aval.dims, strict=True) if m == n and c not in right]
        right += d.draw(st.sampled_from([*same, *same, "tuvwxyz"[k]]))
    sizes = dict(zip(left, x.aval.dims, strict=True)) | dict(zip(right, y.aval.dims, strict=True))
    shared = [c for c in left if c in right and d.chance()]
    out = [c for c in dict.fromkeys(left + right) if c not in shared]
    if math.prod(sizes[c] for c in out) > 4 * MOST:
        return None
    out = d.draw(st.permutations(out))
    count = max(1, math.prod(sizes[c] for c in shared))
    made = emit("contract", x, y, subscripts=f"{left},{right}->{''.join(out)}")
    return made, d.bounds.get(id(x), 2.0) * d.bounds.get(id(y), 2.0) * count


# ------------------------------------------------------------------ moves


def reshaped(d: Draft) -> tuple[Value, float]:
    """Axes merged, split, or both: borders that cross old ones among them."""
    x = d.pick()
    left, shape = x.aval.size, []
    if left == 0:
        shape = list(d.draw(st.permutations(x.aval.dims)))
    while left > 1:
        n = d.draw(st.sampled_from([k for k in range(2, left + 1) if left % k == 0]))
        shape.append(n)
        left //= n
    shape = [m for n in shape for m in ((1, n) if d.number(0, 4) == 0 else (n,))]
    return emit("reshape", x, shape=tuple(shape)), d.bound(x)


def transposed(d: Draft) -> tuple[Value, float]:
    x = d.pick()
    return emit("transpose", x, perm=tuple(d.draw(st.permutations(range(len(x.aval.dims)))))), d.bound(x)


def broadcast(d: Draft) -> tuple[Value, float]:
    x = d.pick()
    shape = tuple(d.number(1, 3) if n == 1 else n for n in x.aval.dims)
    return emit("broadcast_to", x, shape=(*([2] if d.chance() else []), *shape)), d.bound(x)


def with_axis(d: Draft) -> Value:
    """A value with an axis of elements."""
    fits = [v for v in d.values if v.aval.dims and 0 not in v.aval.dims]
    if not fits:
        return emit("broadcast_to", emit("reshape", constant(1, float64), shape=(1,)), shape=(2,))
    return d.draw(st.sampled_from(fits[-3:] + fits))


def of_bound(d: Draft, v: Value) -> float:
    return d.bounds.get(id(v), 1.0)


def sliced(d: Draft) -> tuple[Value, float]:
    x = with_axis(d)
    axis = d.axis(x)
    n = x.aval.dims[axis]
    begin, stride = d.number(0, n - 1), d.draw(st.sampled_from([1, 1, 2, -1]))
    most = (begin if stride < 0 else n - 1 - begin) // abs(stride) + 1
    size = d.number(0, most)
    start = d.vector([begin])
    return emit("slice", x, start, axes=(axis,), sizes=(size,), strides=(stride,)), of_bound(d, x)


def unsliced(d: Draft) -> tuple[Value, float]:
    x = with_axis(d)
    axis = d.axis(x)
    n = x.aval.dims[axis]
    stride = d.draw(st.sampled_from([1, 2, -1]))
    full = (n - 1) * abs(stride) + 1 + d.number(0, 2)
    spare = full - ((n - 1) * abs(stride) + 1)
    begin = d.number(0, spare) + ((n - 1) if stride < 0 else 0)
    return emit("unslice", x, d.vector([begin]), axes=(axis,), sizes=(full,), strides=(stride,)), of_bound(d, x)


def gathered(d: Draft) -> tuple[Value, float]:
    x = with_axis(d)
    axis = d.axis(x)
    shape = tuple(d.number(1, 3) for _ in range(d.number(0, 2)))
    flat = d.positions(math.prod(shape), x.aval.dims[axis])
    ids = emit("reshape", d.vector(flat), shape=shape)
    return emit("gather", x, ids, axis=axis, batch_dims=0), of_bound(d, x)


def gathered_per_batch(d: Draft) -> tuple[Value, float]:
    x = with_axis(d)
    batch = d.number(1, len(x.aval.dims)) - 1
    axis = d.number(batch, len(x.aval.dims) - 1)
    inner = (d.number(1, 3),) if d.chance() else ()
    shape = (*x.aval.dims[:batch], *inner)
    flat = d.positions(math.prod(shape), x.aval.dims[axis])
    ids = emit("reshape", d.vector(flat), shape=shape)
    return emit("gather", x, ids, axis=axis, batch_dims=batch), of_bound(d, x)


def scattered(d: Draft) -> tuple[Value, float]:
    x = with_axis(d)
    axis = d.axis(x)
    n, size = x.aval.dims[axis], d.number(1, 4)
    shape = (*x.aval.dims[:axis], size, *x.aval.dims[axis + 1 :])
    ids = d.vector(d.positions(n, size))
    return emit("scatter_add", x, ids, shape=shape, axis=axis, batch_dims=0), of_bound(d, x) * n


def concatenated(d: Draft) -> tuple[Value, float]:
    x = with_axis(d)
    axis = d.axis(x)
    rest = [n for k, n in enumerate(x.aval.dims) if k != axis]
    fits = [
        v
        for v in d.values
        if len(v.aval.dims) == len(x.aval.dims) and [n for k, n in enumerate(v.aval.dims) if k != axis] == rest
    ]
    parts = [x, *d.draw(st.lists(st.sampled_from([*fits, x]), min_size=1, max_size=2))]
    return emit("concat", *d.draw(st.permutations(parts)), axis=axis), max(of_bound(d, v) for v in parts)


def reversed_or_padded(d: Draft) -> tuple[Value, float]:
    x = with_axis(d)
    if d.chance():
        return emit("reverse", x, axes=tuple(k for k in range(len(x.aval.dims)) if d.chance())), of_bound(d, x)
    low, high = (tuple(d.number(0, 1) for _ in x.aval.dims) for _ in range(2))
    return emit("pad", x, low=low, high=high), of_bound(d, x)


def diagonal(d: Draft) -> tuple[Value, float] | None:
    square = [v for v in d.values if len(v.aval.dims) > 1 and v.aval.dims[-1] == v.aval.dims[-2]]
    if square and d.chance():
        v = d.draw(st.sampled_from(square))
        return emit("diagonal", v), d.bound(v)
    lines = [v for v in d.values if v.aval.dims and v.aval.size * v.aval.dims[-1] <= MOST]
    if not lines:
        return None
    v = d.draw(st.sampled_from(lines))
    return emit("undiagonal", v), d.bound(v)


EXACT: list[Grow] = [
    with_number_array,
    residual_sum,
    residual_sum,
    product,
    selected,
    scaled,
    summed,
    contraction,
    contraction,
    reshaped,
    reshaped,
    transposed,
    broadcast,
    sliced,
    unsliced,
    gathered,
    gathered,
    gathered_per_batch,
    scattered,
    concatenated,
    reversed_or_padded,
    diagonal,
]

# ------------------------------------------------------------------ functions of all kinds


def curve(d: Draft) -> tuple[Value, float]:
    name = d.draw(st.sampled_from(["tanh", "sin", "sigmoid", "softplus", "gelu_tanh", "expm1", "atan", "silu"]))
    return emit(name, emit("tanh", d.pick())), 2.0


def rowwise(d: Draft) -> tuple[Value, float]:
    x = with_axis(d)
    name = d.draw(st.sampled_from(["softmax", "log_softmax"]))
    return emit("tanh", emit(name, emit("tanh", x), axis=d.axis(x))), 2.0


def normed(d: Draft) -> tuple[Value, float]:
    """As batch or layer norm: shifted and scaled by statistics over some axes."""
    x = emit("tanh", with_axis(d))
    axes = tuple(k for k in range(len(x.aval.dims)) if d.chance()) or (0,)
    centred = emit("subtract", x, emit("reduce_mean", x, axes=axes, keepdims=True))
    spread = emit("reduce_mean", emit("square", centred), axes=axes, keepdims=True)
    return emit("multiply", centred, emit("rsqrt", emit("add", spread, constant(0.5, float64)))), 2.0


def statistic(d: Draft) -> tuple[Value, float]:
    x = emit("tanh", with_axis(d))
    axes = tuple(k for k in range(len(x.aval.dims)) if d.chance())
    name = d.draw(st.sampled_from(["reduce_mean", "reduce_logsumexp", "reduce_prod", "reduce_max"]))
    return emit("tanh", emit(name, x, axes=axes, keepdims=d.chance())), 2.0


def scan(d: Draft) -> tuple[Value, float]:
    x = emit("tanh", with_axis(d))
    if d.chance():
        return emit("tanh", emit("cumsum", x, axis=d.axis(x), exclusive=d.chance(), reverse=d.chance())), 2.0
    name = d.draw(st.sampled_from(["cumprod", "cumulative_logsumexp"]))
    return emit("tanh", emit(name, x, axis=d.axis(x), reverse=d.chance())), 2.0


def ratio(d: Draft) -> tuple[Value, float]:
    x = d.pick()
    y = matching(d, x)
    below = emit("add", emit("square", emit("tanh", y)), constant(1, float64))
    return emit("divide", emit("tanh", x), below), 2.0


def solved(d: Draft) -> tuple[Value, float] | None:
    """A triangular system per loop index, with the same matrix for all of them or one for each."""
    x = emit("tanh", with_axis(d))
    if len(x.aval.dims) < 2:
        return None
    n = x.aval.dims[-2]
    lead = x.aval.dims[:-2] if d.chance() else ()
    matrix = np.tril(d.numbers((*lead, n, n)), -1) + 4 * np.eye(n)
    return emit("tanh", emit("triangular_solve", d.other(matrix), x, lower=True, adjoint=False)), 2.0


CURVED: list[Grow] = [*EXACT, curve, curve, rowwise, normed, normed, statistic, scan, ratio, solved]
