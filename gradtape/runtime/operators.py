"""Python's operators on tensors and variables. Floor: runtime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradtape.ir.dtypes import DType, bool_, float32, float64, wider
from gradtape.ir.errors import InvalidArgumentError, InvalidOperandError
from gradtape.ops import arithmetic as a
from gradtape.ops import bits
from gradtape.ops import comparison as c
from gradtape.ops.op import Op, Step
from gradtape.runtime.contract import matmul
from gradtape.runtime.convert import convert, shared_scalar
from gradtape.runtime.dispatch import binary, unary
from gradtape.runtime.subscript import subscript
from gradtape.runtime.tensor import EagerTensor, Tensor
from gradtape.runtime.variable import Variable


def operand(value: Any, dtype: DType) -> Tensor:
    """The other operand of a tensor of this dtype: numbers and arrays take the dtype, tensors keep theirs."""
    if type(value) is EagerTensor:
        return value
    if type(value) is float or type(value) is int:
        return shared_scalar(value, dtype)
    if isinstance(value, Tensor):
        return value
    if isinstance(value, Variable):
        return value.value()
    return convert(value, dtype)


def _left_to(other: Any, name: str, x: Tensor, refused: Exception) -> Any:
    """What an object that becomes no tensor makes of `x op other` itself, by its own `__rop__`; where there is no
    answer, the error that its conversion gave."""
    special = f"__r{name}__"
    if isinstance(refused, TypeError):
        refused = InvalidOperandError(str(refused))
    if isinstance(other, np.ndarray | np.generic | list | tuple):
        raise refused  # they would make lists of tensors of it
    kinds = type(other).__mro__  # and not what types have themselves: `float | None` is a type
    method = next((vars(kind)[special] for kind in kinds if special in vars(kind)), None)
    answer = NotImplemented if method is None else method.__get__(other)(x)
    if answer is NotImplemented:
        raise refused
    return answer


def _infix(op: Op, name: str) -> tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Tensor]]:
    """`x op y` and `y op x` for a tensor x."""
    step: Step = op.bind()

    def forward(self: Tensor, other: Any) -> Any:
        if type(other) is not EagerTensor:
            try:
                other = operand(other, self._aval.dtype)
            except (TypeError, ValueError) as e:
                return _left_to(other, name, self, e)
        return binary(step, self, other)

    def backward(self: Tensor, other: Any) -> Tensor:
        return binary(step, operand(other, self._aval.dtype), self)

    return forward, backward


def true_divide(x: Tensor, y: Tensor) -> Tensor:
    """x / y; integers are divided as floats (float64, or float32 where they are of one or two bytes)."""
    return binary(_DIVIDE, *as_quotient(x, y))


def as_quotient(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Both operands of a division as numbers that have fractions.

    Raises:
      TypeError: mixed dtypes, or bools.
    """
    dtype = x._aval.dtype
    if dtype is not y._aval.dtype:
        target = wider(dtype, y._aval.dtype)
        raise TypeError(
            f"`x` and `y` of a division must have the same dtype, got a {dtype.cname} and a {y._aval.dtype.cname} "
            f"tensor. Convert operand {2 if target is dtype else 1} with `tf.cast(x, tf.{target.name})`."
        )
    if dtype.kind in "bs":
        raise TypeError(f"A division does not take {dtype.cname} tensors; it takes numbers. Use `tf.cast`.")
    if dtype.is_integer:
        wide = a.CAST.bind(dtype=float32 if dtype.size <= 2 else float64)
        return unary(wide, x), unary(wide, y)
    return x, y


_DIVIDE = a.DIVIDE.bind()
_NEGATIVE, _ABS, _COMPLEX_ABS = a.NEGATIVE.bind(), a.ABS.bind(), a.COMPLEX_ABS.bind()
_BITS_NOT = bits.INVERT.bind()
_EQUAL, _NOT_EQUAL, _NOT = c.EQUAL.bind(), c.NOT_EQUAL.bind(), c.LOGICAL_NOT.bind()


def absolute(x: Tensor) -> Tensor:
    return unary(_COMPLEX_ABS if x._aval.dtype.is_complex else _ABS, x)


def _truediv(self: Tensor, other: Any) -> Any:
    try:
        other = operand(other, self._aval.dtype)
    except (TypeError, ValueError) as e:
        return _left_to(other, "truediv", self, e)
    return true_divide(self, other)


def _rtruediv(self: Tensor, other: Any) -> Tensor:
    return true_divide(operand(other, self._aval.dtype), self)


def _matmul(self: Tensor, other: Any) -> Any:
    try:
        other = operand(other, self._aval.dtype)
    except (TypeError, ValueError) as e:
        return _left_to(other, "matmul", self, e)
    return matmul(self, other)


def _rmatmul(self: Tensor, other: Any) -> Tensor:
    return matmul(operand(other, self._aval.dtype), self)


def _equality(step: Step, otherwise: bool) -> Callable[[Any, Any], Any]:
    def compare(self: Tensor, other: Any) -> Any:
        if other is None:
            return otherwise
        y = operand(other, self._aval.dtype)
        try:
            return binary(step, self, y)
        except InvalidArgumentError:
            if self._aval.dtype is not y._aval.dtype:
                raise
            return convert(otherwise)  # shapes that do not broadcast are not equal, as in TensorFlow

    return compare


def _logic(op: Op, name: str) -> tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Tensor]]:
    """& | ^ on bool tensors; on integers, bit by bit."""
    of_bools, of_bits = _infix(op, name), _infix(BITWISE[name], name)

    def forward(self: Tensor, other: Any) -> Any:
        return (of_bits if _are_bits(self) else of_bools)[0](self, other)

    def backward(self: Tensor, other: Any) -> Tensor:
        return (of_bits if _are_bits(self) else of_bools)[1](self, other)

    return forward, backward


def _are_bits(x: Tensor) -> bool:
    """Whether an operand of & | ^ ~ is of integers, not of truth values."""
    dtype = x._aval.dtype
    if dtype is not bool_ and not dtype.is_integer:
        raise InvalidOperandError(f"&, |, ^ and ~ want bool or integer tensors, got a {dtype.cname} tensor.")
    return dtype is not bool_


def _invert(self: Tensor) -> Tensor:
    return unary(_BITS_NOT if _are_bits(self) else _NOT, self)


def _pow(self: Tensor, other: Any, modulo: Any = None) -> Any:
    return _POW[0](self, other)


_POW = _infix(a.POW, "pow")
INFIX: dict[str, Op] = {
    "add": a.ADD,
    "sub": a.SUBTRACT,
    "mul": a.MULTIPLY,
    "floordiv": a.FLOORDIV,
    "mod": a.FLOORMOD,
}
COMPARE: dict[str, Op] = {"lt": c.LESS, "le": c.LESS_EQUAL, "gt": c.GREATER, "ge": c.GREATER_EQUAL}
BITWISE: dict[str, Op] = {"and": bits.BITWISE_AND, "or": bits.BITWISE_OR, "xor": bits.BITWISE_XOR}
LOGIC: dict[str, Op] = {"and": c.LOGICAL_AND, "or": c.LOGICAL_OR, "xor": c.LOGICAL_XOR}


def methods() -> dict[str, Callable[..., Any]]:
    """All operator methods of a tensor, by name."""
    found: dict[str, Callable[..., Any]] = {
        "__truediv__": _truediv,
        "__rtruediv__": _rtruediv,
        "__matmul__": _matmul,
        "__rmatmul__": _rmatmul,
        "__pow__": _pow,
        "__rpow__": _POW[1],
        "__neg__": lambda self: unary(_NEGATIVE, self),
        "__pos__": lambda self: self,
        "__abs__": absolute,
        "__invert__": _invert,
        "__getitem__": subscript,
        "__eq__": _equality(_EQUAL, False),
        "__ne__": _equality(_NOT_EQUAL, True),
    }
    for table, make in ((INFIX, _infix), (LOGIC, _logic)):
        for name, op in table.items():
            found[f"__{name}__"], found[f"__r{name}__"] = make(op, name)
    for name, op in COMPARE.items():
        found[f"__{name}__"] = _infix(op, name)[0]
    return found


def _of_variable(method: Callable[..., Any]) -> Callable[..., Any]:
    """The same operator on a variable: on its present value."""
    return lambda self, *others: method(self.value(), *others)


for _name, _method in methods().items():
    setattr(Tensor, _name, _method)
    setattr(Variable, _name, _of_variable(_method))
