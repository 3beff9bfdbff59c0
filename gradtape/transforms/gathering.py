"""Numbers in the scalar code of a cluster: products with numbers are put off until many are one. Floor: transforms.

Each value is kept as scale · (core + inner) + outer, where the core is an operation and the others are numbers. A scale
passes through every operation that is linear in an operand,

    (s · a) (t · b) = st · (a b)          s · a ± t · b = s · (a ± (t/s) · b)          s · a + c = s · (a + c/s)

and is multiplied in once, where the value itself is asked for. Nothing else than roundings may change:

- numbers have sizes between 2⁻²⁰ and 2²⁰, so that a core overflows where its value nearly does, and nothing becomes 0;
- a number that was added stays inside: (x - 1) · s is not x · s - s, which loses what is small, nor is (x - 1) + y the
  same as (x + y) - 1;
- x + c₁ + c₂ is x + (c₁ + c₂) only where that is no more than `LOSS` times as large as c₂: for x near -c₁ the rounding
  of that number counts beside c₂, and a program that adds and subtracts c₁ wants the rounding;
- numbers of few bits are not combined to one of many: whole numbers give whole numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from gradtape.ir.cluster import LEAVES, Cluster, Operation, Write, live
from gradtape.ir.dtypes import DType
from gradtape.ops.arithmetic import ADD, MULTIPLY, NEGATIVE, SUBTRACT
from gradtape.ops.op import lookup
from gradtape.ops.pointwise import Pointwise

SMALLEST, LARGEST = 2.0**-20, 2.0**20  # sizes of numbers that are gathered
LOSS = 8.0
FEW_BITS = 12
NO_OPS = LEAVES | {"reduce"}


class Form(NamedTuple):
    """scale · (core + inner) + outer"""

    core: int
    scale: float = 1.0
    inner: float = 0.0
    outer: float = 0.0

    def times(self, sign: int) -> Form:
        return Form(self.core, sign * self.scale, self.inner, sign * self.outer)

    @property
    def is_shifted(self) -> bool:
        return self.inner != 0 or self.outer != 0


def gathered(cluster: Cluster) -> Cluster:
    """The cluster with fewer operations, if gathering numbers saves some. The scale of a value with several users is
    put off for all of them, or not at all."""
    if not any(cluster.code[a].op == "number" for e in cluster.code for a in e.args):
        return cluster
    asked = _asked(cluster)
    shared = {k for k, n in _uses(cluster).items() if n > 1}
    return min((cluster, _rewritten(cluster, asked), _rewritten(cluster, asked | shared)), key=cost)


def cost(cluster: Cluster) -> float:
    """How many operations are done in all rounds; a product that is only added to something is one with the sum."""
    uses = _uses(cluster)
    total = 0.0
    for e, loops in zip(cluster.code, cluster.dependences, strict=True):
        in_one = len(e.args) == 2 and _signs(e) is not None
        if e.op in LEAVES or (in_one and any(_is_single_product(cluster, uses, a) for a in e.args)):
            continue
        total += math.prod(cluster.loops[k].extent for k in loops)
    return total


def _is_single_product(cluster: Cluster, uses: Counter[int], k: int) -> bool:
    return cluster.code[k].op == MULTIPLY.name and uses[k] == 1


def _uses(cluster: Cluster) -> Counter[int]:
    return Counter([a for e in cluster.code for a in e.args] + [w.source for w in cluster.writes])


def _asked(cluster: Cluster) -> set[int]:
    """Operations whose results are asked for as they are, and those that are done less often than what uses them."""
    found = {w.source for w in cluster.writes}
    loops = cluster.dependences
    for k, e in enumerate(cluster.code):
        found.update(a for i, a in enumerate(e.args) if not _lets_pass(e, i, cluster.code[a].dtype))
        found.update(a for a in e.args if loops[a] < loops[k])
    return found


# ------------------------------------------------------------------ what the op table says of an operation


def _pointwise(e: Operation) -> Pointwise | None:
    """The op of an operation in single or double precision."""
    if e.op in NO_OPS or not e.dtype.is_floating or e.dtype.is_half:
        return None
    op = lookup(e.op)
    return op if isinstance(op, Pointwise) else None


def _lets_pass(e: Operation, i: int, dtype: DType) -> bool:
    """Whether a scale of operand i, which has this dtype, may become one of the result."""
    op = _pointwise(e)
    return op is not None and dtype is e.dtype and any(i in group for group in op.linear)


def _signs(e: Operation) -> tuple[int, ...] | None:
    """The signs of all operands, if the result is their sum."""
    op = _pointwise(e)
    if op is None or op.linear != (tuple(range(len(e.args))),):
        return None
    signs = tuple(p for p in op.partials if isinstance(p, int))
    return signs if len(signs) == len(e.args) else None


def _is_factor(e: Operation, i: int) -> bool:
    """Whether a number as operand i multiplies the other operand: it does if 1 there changes nothing."""
    op = _pointwise(e)
    return op is not None and len(e.args) == 2 and (i,) in op.linear and op.neutral.get(i) == 1


# ------------------------------------------------------------------ numbers that may be combined


def _has_size(number: float) -> bool:
    return SMALLEST <= abs(number) <= LARGEST


def _is_short(number: float) -> bool:
    return (math.frexp(number)[0] * 2.0**FEW_BITS).is_integer()


def _may_be(result: float, *parts: float) -> bool:
    """Whether one number may stand for several."""
    return _has_size(result) and (_is_short(result) or not all(map(_is_short, parts)))


def _may_follow(first: float, second: float) -> bool:
    """Whether adding one number may stand for adding two, one after the other."""
    total = first + second
    return _may_be(total, first, second) and abs(total) <= LOSS * abs(second)


def _rounded(number: float, dtype: DType) -> float:
    return float(dtype.real_dtype.numpy_dtype.type(number))


# ------------------------------------------------------------------ code with numbers gathered


def _rewritten(cluster: Cluster, asked: set[int]) -> Cluster:
    made = _Gathering()
    for k, e in enumerate(cluster.code):
        made.add(e, k in asked)
    writes = tuple(Write(made.forms[w.source].core, w.access, w.over, w.monoid) for w in cluster.writes)
    return live(Cluster(cluster.loops, cluster.reads, tuple(made.code), writes))


class _Gathering:
    """The new code, and the result of each operation of the old one in terms of it."""

    def __init__(self) -> None:
        self.code: list[Operation] = []
        self.known: dict[tuple[str, tuple[int, ...], DType, str], int] = {}
        self.forms: list[Form] = []

    def add(self, e: Operation, asked: bool) -> None:
        """The next operation; `asked`: its result is needed as it is."""
        operands = [self.forms[a] for a in e.args]
        form = self._summed(e, operands) or self._scaled(e, operands) or self._passed(e, operands)
        self.forms.append(Form(self._exact(form)) if asked else form)

    def _put(self, e: Operation) -> int:
        """Where an operation is in the new code: equal ones are done once."""
        is_float = e.op == "number" and e.dtype.is_floating
        key = (e.op, e.args, e.dtype, repr(float(e.leaf) if is_float else e.leaf))
        if key not in self.known:
            self.known[key] = len(self.code)
            self.code.append(e)
        return self.known[key]

    def _apply(self, op: Pointwise, *args: int) -> int:
        return self._put(Operation(op.name, args, self.code[args[0]].dtype))

    def _number(self, value: float, like: int) -> int:
        return self._put(Operation("number", (), self.code[like].dtype, value))

    def _known(self, x: Form) -> float | None:
        """The number that a value is."""
        e = self.code[x.core]
        if e.op != "number" or not e.dtype.is_floating:
            return None
        return _rounded(x.scale * (_rounded(e.leaf, e.dtype) + x.inner) + x.outer, e.dtype)

    # -------------------------------------------------------------- forms as operations

    def _exact(self, x: Form) -> int:
        """The operation that gives a value itself."""
        core = self._plus(x.core, x.inner)
        scale = _rounded(x.scale, self.code[core].dtype)
        if scale == -1:
            return self._minus(x.outer, core)
        product = core if scale == 1 else self._apply(MULTIPLY, core, self._number(x.scale, core))
        return self._plus(product, x.outer)

    def _plus(self, k: int, number: float) -> int:
        if number == 0:
            return k
        return self._apply(SUBTRACT if number < 0 else ADD, k, self._number(abs(number), k))

    def _minus(self, number: float, k: int) -> int:
        return self._apply(NEGATIVE, k) if number == 0 else self._apply(SUBTRACT, self._number(number, k), k)

    def _inside(self, x: Form) -> Form:
        """The same without a number outside: s · (a + b) + c = s · (a + (b + c/s))."""
        if x.outer == 0:
            return x
        more = x.outer / x.scale
        if not _may_be(more, x.outer, x.scale):
            return Form(self._exact(x))
        if x.inner and not _may_follow(x.inner, more):
            return Form(self._plus(x.core, x.inner), x.scale, more)
        return Form(x.core, x.scale, x.inner + more)

    def _unshifted(self, x: Form) -> Form:
        """The same as a product."""
        x = self._inside(x)
        if x.inner == 0:
            return x
        if x.scale < 0:
            return Form(self._minus(-x.inner, x.core), -x.scale)
        return Form(self._plus(x.core, x.inner), x.scale)

    # -------------------------------------------------------------- kinds of operations

    def _summed(self, e: Operation, operands: Sequence[Form]) -> Form | None:
        """A sum or a difference; what has one operand and is a sum is a sign."""
        signs = _signs(e)
        if signs is None:
            return None
        signed = [x.times(s) for s, x in zip(signs, operands, strict=True)]
        if len(signed) == 1:
            return signed[0]
        numbers = [self._known(x) for x in operands]
        if None not in numbers:
            return None
        for s, c, other in zip(signs, numbers, reversed(signed), strict=True):
            if c is not None:
                return self._shifted(other, s * c)
        return self._added(*signed)

    def _shifted(self, x: Form, c: float) -> Form | None:
        if not _has_size(c):
            return None
        if x.outer and not _may_follow(x.outer, c):
            return Form(self._exact(x), outer=c)
        return x._replace(outer=x.outer + c)

    def _added(self, x: Form, y: Form) -> Form:
        if x == y:
            x = y = self._inside(x)
        if (x.core, x.inner) == (y.core, y.inner) and not x.outer and not y.outer:
            total = x.scale + y.scale
            is_sure = x.scale * y.scale > 0 and _may_be(total, x.scale, y.scale)  # of infinities, differences are NaN
            return x._replace(scale=total) if is_sure else self._sum_of(x, y)
        x, y = (Form(self._exact(v)) if v.is_shifted else v for v in (x, y))
        if abs(y.scale) == 1 != abs(x.scale):
            x, y = y, x
        size = abs(x.scale)
        if not _may_be(y.scale / size, size, y.scale):
            return self._sum_of(x, y)
        return Form(self._sum_of(Form(x.core, x.scale / size), Form(y.core, y.scale / size)).core, size)

    def _sum_of(self, x: Form, y: Form) -> Form:
        """The sum of two values, as an operation."""
        if x.scale < 0 < y.scale:
            x, y = y, x
        if y.scale < 0:
            return Form(self._apply(SUBTRACT, self._exact(x), self._exact(y.times(-1))))
        return Form(self._apply(ADD, self._exact(x), self._exact(y)))

    def _scaled(self, e: Operation, operands: Sequence[Form]) -> Form | None:
        """A product with a number."""
        for i, x in enumerate(operands):
            c = self._known(x)
            if c is None or not _is_factor(e, i) or not _has_size(c):
                continue
            y = operands[1 - i]
            if self._known(y) is not None:
                return None
            y = self._inside(y)
            return Form(y.core, y.scale * c, y.inner) if _may_be(y.scale * c, y.scale, c) else Form(self._exact(y), c)
        return None

    def _passed(self, e: Operation, operands: Sequence[Form]) -> Form:
        """Any operation: the scales of operands in which it is linear become one of the result."""
        op = _pointwise(e)
        args = [x.core for x in operands]
        scale = 1.0
        for group in () if op is None else op.linear:
            if all(_lets_pass(e, i, self.code[args[i]].dtype) for i in group):
                parts, size = self._common([operands[i] for i in group], scale)
                scale *= size
                for i, k in zip(group, parts, strict=True):
                    args[i] = k
        return Form(self._put(Operation(e.op, tuple(args), e.dtype, e.leaf)), scale)

    def _common(self, group: Sequence[Form], before: float) -> tuple[list[int], float]:
        """Operations that are the operands of a group but for one scale; a zero has any scale."""
        parts = [self._unshifted(x) for x in group] if len(group) == 1 else list(group)
        sizes = {x.scale for x in parts if self._known(x) != 0}
        size = next(iter(sizes), 1.0)
        if len(sizes) > 1 or any(x.is_shifted for x in parts) or not _may_be(before * size, before, size):
            return [self._exact(x) for x in group], 1.0
        return [x.core for x in parts], size
