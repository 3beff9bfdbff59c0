"""Scalar functions as straight-line LLVM code: numbers whose Python operators write instructions. Floor: kernels.

A function of such numbers is written once and read as a formula; called while Numba lowers a loop, it leaves its
instructions there, with no call and no branch, so that LLVM turns the loop into vector code. That costs Numba nothing
to infer: some milliseconds for each call, where an inlined Python function takes tens.

Instructions keep the order in which they are written. Numba adds the fast-math flags of the loop to instructions that
have none; so every instruction has one that means nothing to it (`arcp` to a product, `contract` to a quotient), and
errors of rounding may be computed as differences. `fma` rounds once. On a processor without such an instruction it is
a call, right and slow."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

INF, NAN = float("inf"), float("nan")


@dataclass(frozen=True)
class Format:
    """A float type: its bits in all, those of the mantissa, and the exponent of 1.0."""

    name: str
    bits: int
    mantissa: int
    bias: int

    @property
    def one(self) -> int:
        """The bits of 1.0."""
        return self.bias << self.mantissa

    @property
    def sign(self) -> int:
        """The bit of the sign, as a signed integer."""
        return -(1 << (self.bits - 1))

    @property
    def magic(self) -> float:
        """A number so large that the last bit of its neighbours is worth 1: adding it rounds to an integer."""
        return 1.5 * 2.0**self.mantissa

    @property
    def smallest_normal(self) -> float:
        return float(2.0 ** (1 - self.bias))

    @property
    def epsilon(self) -> float:
        return float(2.0**-self.mantissa)

    def bits_of(self, number: float) -> int:
        """The bits of a number as a signed integer."""
        whole, real = ("<i", "<f") if self.bits == 32 else ("<q", "<d")
        return int(struct.unpack(whole, struct.pack(real, number))[0])

    def rounded(self, number: float) -> float:
        return float(struct.unpack("<f", struct.pack("<f", number))[0]) if self.bits == 32 else number


SINGLE, DOUBLE = Format("float32", 32, 23, 127), Format("float64", 64, 52, 1023)


class Code:
    """Where instructions go: LLVM's builder, and the types behind the letters "f" (of a format), "i" and "b"."""

    def __init__(self, builder: Any, format: Format) -> None:
        from llvmlite import ir

        self.builder, self.format, self.ir = builder, format, ir
        real = ir.FloatType() if format is SINGLE else ir.DoubleType()
        self.types = {"f": real, "i": ir.IntType(format.bits), "b": ir.IntType(1)}

    def constant(self, kind: str, number: Any) -> Any:
        if kind == "f":
            number = self.format.rounded(float(number))
        return self.ir.Constant(self.types[kind], number)

    def intrinsic(self, name: str, *operands: Number) -> Number:
        """A function of LLVM of floats, such as `llvm.sqrt`."""
        real = self.types["f"]
        shape = self.ir.FunctionType(real, [real] * len(operands))
        function = self.builder.module.declare_intrinsic(name, [real], shape)
        return Number(self, "f", self.builder.call(function, [x.value for x in operands], fastmath=("contract",)))


class Number:
    """A float ("f"), an integer as wide ("i") or a truth value ("b"), in code that is being written."""

    __slots__ = ("code", "kind", "value")
    __hash__: ClassVar[None]  # type: ignore[assignment]

    def __init__(self, code: Code, kind: str, value: Any) -> None:
        self.code, self.kind, self.value = code, kind, value

    @property
    def format(self) -> Format:
        return self.code.format

    def like(self, other: Any) -> Number:
        """A number as one of this kind; Python's numbers become constants."""
        if isinstance(other, Number):
            assert (other.kind, other.format) == (self.kind, self.format), "numbers of two types"
            return other
        return Number(self.code, self.kind, self.code.constant(self.kind, other))

    def _binary(self, real: str, whole: str, a: Any, b: Any) -> Number:
        builder, (a, b) = self.code.builder, (self.like(a).value, self.like(b).value)
        if self.kind != "f":
            return Number(self.code, self.kind, getattr(builder, whole)(a, b))
        flag = "contract" if real == "fdiv" else "arcp"
        return Number(self.code, "f", getattr(builder, real)(a, b, flags=(flag,)))

    def _compare(self, sign: str, other: Any) -> Number:
        builder, (a, b) = self.code.builder, (self.value, self.like(other).value)
        if self.kind != "f":
            return Number(self.code, "b", builder.icmp_signed(sign, a, b))
        compare = builder.fcmp_unordered if sign == "!=" else builder.fcmp_ordered
        return Number(self.code, "b", compare(sign, a, b, flags=("contract",)))

    def __add__(self, other: Any) -> Number:
        return self._binary("fadd", "add", self, other)

    def __radd__(self, other: Any) -> Number:
        return self._binary("fadd", "add", other, self)

    def __sub__(self, other: Any) -> Number:
        return self._binary("fsub", "sub", self, other)

    def __rsub__(self, other: Any) -> Number:
        return self._binary("fsub", "sub", other, self)

    def __mul__(self, other: Any) -> Number:
        return self._binary("fmul", "mul", self, other)

    def __rmul__(self, other: Any) -> Number:
        return self._binary("fmul", "mul", other, self)

    def __truediv__(self, other: Any) -> Number:
        return self._binary("fdiv", "", self, other)

    def __rtruediv__(self, other: Any) -> Number:
        return self._binary("fdiv", "", other, self)

    def __mod__(self, other: Any) -> Number:
        """The remainder with the sign of the dividend: a call of the C library for each element."""
        return self._binary("frem", "srem", self, other)

    def __neg__(self) -> Number:
        if self.kind == "f":
            return from_bits(bits(self) ^ self.format.sign)
        return 0 - self

    def __invert__(self) -> Number:
        return self ^ (1 if self.kind == "b" else -1)

    def __and__(self, other: Any) -> Number:
        return self._binary("", "and_", self, other)

    def __or__(self, other: Any) -> Number:
        return self._binary("", "or_", self, other)

    def __xor__(self, other: Any) -> Number:
        return self._binary("", "xor", self, other)

    def __lshift__(self, other: Any) -> Number:
        return self._binary("", "shl", self, other)

    def __rshift__(self, other: Any) -> Number:
        """Of signed integers: the sign moves in."""
        return self._binary("", "ashr", self, other)

    def __lt__(self, other: Any) -> Number:
        return self._compare("<", other)

    def __le__(self, other: Any) -> Number:
        return self._compare("<=", other)

    def __gt__(self, other: Any) -> Number:
        return self._compare(">", other)

    def __ge__(self, other: Any) -> Number:
        return self._compare(">=", other)

    def __eq__(self, other: object) -> Number:  # type: ignore[override]
        return self._compare("==", other)

    def __ne__(self, other: object) -> Number:  # type: ignore[override]
        return self._compare("!=", other)


def _converted(x: Number, kind: str, instruction: str, code: Code | None = None) -> Number:
    code = code or x.code
    return Number(code, kind, getattr(x.code.builder, instruction)(x.value, code.types[kind]))


def bits(x: Number) -> Number:
    """The bits of a float as an integer."""
    return _converted(x, "i", "bitcast")


def from_bits(i: Number) -> Number:
    """The float with these bits."""
    return _converted(i, "f", "bitcast")


def to_float(i: Number) -> Number:
    """A small integer as a float; of 64 bits, by way of 32, for which all processors have an instruction."""
    if i.format is DOUBLE:
        short = i.code.builder.trunc(i.value, i.code.ir.IntType(32))
        return Number(i.code, "f", i.code.builder.sitofp(short, i.code.types["f"]))
    return _converted(i, "f", "sitofp")


def widen(x: Number) -> Number:
    """A number of single precision in double precision."""
    return _converted(x, x.kind, "fpext" if x.kind == "f" else "sext", Code(x.code.builder, DOUBLE))


def narrow(x: Number) -> Number:
    """A number of double precision, rounded to single precision; of an integer, the last 32 bits."""
    return _converted(x, x.kind, "fptrunc" if x.kind == "f" else "trunc", Code(x.code.builder, SINGLE))


def select(condition: Number, a: Any, b: Any) -> Number:
    """One of two numbers; both are computed. One of them may be a Python number."""
    like = a if isinstance(a, Number) else b
    chosen = condition.code.builder.select(condition.value, like.like(a).value, like.like(b).value)
    return Number(like.code, like.kind, chosen)


def fma(a: Any, b: Any, c: Any) -> Number:
    """a b + c, rounded once."""
    like = next(x for x in (a, b, c) if isinstance(x, Number))
    return like.code.intrinsic("llvm.fma", like.like(a), like.like(b), like.like(c))


def muladd(a: Number, b: Any, c: Any) -> Number:
    """a b + c, rounded once or twice, whichever is faster."""
    return a.code.intrinsic("llvm.fmuladd", a, a.like(b), a.like(c))


def rint(x: Number) -> Number:
    """The nearest integer; halves to even."""
    return x.code.intrinsic("llvm.rint", x)


def floor(x: Number) -> Number:
    return x.code.intrinsic("llvm.floor", x)


def ceil(x: Number) -> Number:
    return x.code.intrinsic("llvm.ceil", x)


def sqrt(x: Number) -> Number:
    return x.code.intrinsic("llvm.sqrt", x)


def absolute(x: Number) -> Number:
    return x.code.intrinsic("llvm.fabs", x)


def with_sign_of(size: Number, x: Number) -> Number:
    """A number that is not negative, with the sign of another one, be it zero."""
    return from_bits(bits(size) | (bits(x) & x.format.sign))


def at_least(x: Number, low: float) -> Number:
    """The larger of both; NaN stays NaN."""
    return select(x < low, low, x)


def at_most(x: Number, high: float) -> Number:
    """The smaller of both; NaN stays NaN."""
    return select(x > high, high, x)


def power_of_two(n: Number) -> Number:
    """2ⁿ of an integer, for which 2ⁿ is a normal number."""
    return from_bits((n << n.format.mantissa) + n.format.one)


def two_sum(a: Number, b: Number) -> tuple[Number, Number]:
    """a + b as a rounded sum and its error (Knuth), of numbers of any size."""
    total = a + b
    other = total - a
    return total, (a - (total - other)) + (b - other)


def fast_two_sum(a: Number, b: Number) -> tuple[Number, Number]:
    """The same, where |a| >= |b| (Dekker)."""
    total = a + b
    return total, b - (total - a)


def two_product(a: Number, b: Any) -> tuple[Number, Number]:
    """a b as a rounded product and its error."""
    product = a * b
    return product, fma(a, b, -product)


def polynomial(t: Number, coefficients: Sequence[float]) -> Number:
    """c₀ + c₁ t + ..., by pairs of pairs (Estrin): short chains of dependent steps, which are what a loop waits for."""
    terms: list[Any] = list(coefficients)
    power = t
    while len(terms) > 1:
        pairs = [_pair(power, *terms[k : k + 2]) for k in range(0, len(terms), 2)]
        terms, power = pairs, power * power if len(pairs) > 1 else power
    return t.like(terms[0])


def _pair(power: Number, low: Any, high: Any = None) -> Any:
    return low if high is None else muladd(power, high, low)
