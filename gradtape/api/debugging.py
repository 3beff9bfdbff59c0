"""`tf.debugging`: assertions about the values, shapes and dtypes of tensors. Floor: api."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from gradtape.api import elementwise as e
from gradtape.api.asserting import Assert
from gradtape.api.numerics import check_numerics, disable, disable_check_numerics, enable, enable_check_numerics
from gradtape.api.reductions import reduce_all
from gradtape.ir.dtypes import as_dtype, float32
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.shapes import shape_text
from gradtape.runtime.convert import convert, convert_all
from gradtape.runtime.hosted import effect, is_at_call
from gradtape.runtime.tensor import SymbolicTensor, Tensor, wrap
from gradtape.runtime.trace import outside

__all__ = [
    "Assert",
    "assert_equal",
    "assert_greater",
    "assert_greater_equal",
    "assert_integer",
    "assert_less",
    "assert_less_equal",
    "assert_near",
    "assert_negative",
    "assert_non_negative",
    "assert_non_positive",
    "assert_none_equal",
    "assert_positive",
    "assert_rank",
    "assert_rank_at_least",
    "assert_rank_in",
    "assert_same_float_dtype",
    "assert_scalar",
    "assert_shapes",
    "assert_type",
    "check_numerics",
    "disable",
    "disable_check_numerics",
    "enable",
    "enable_check_numerics",
    "is_non_decreasing",
    "is_numeric_tensor",
    "is_strictly_increasing",
]


def _prefix(message: str | None) -> str:
    return f"{message} " if message else ""


def _check(holds: Tensor, x: Tensor, y: Tensor | None, says: str, message: str | None, summarize: int | None) -> None:
    if isinstance(holds, SymbolicTensor) and is_at_call():
        _at_call(holds, x, y, says, message, summarize)
        return
    if bool(reduce_all(holds)):
        return
    shown = [f"First {name} = {_first(t, summarize)}" for name, t in (("x", x), ("y", y)) if t is not None]
    bad = np.argwhere(~np.asarray(holds))[: summarize or 3].tolist()
    where = f" Where it does not: {bad}." if holds.ndim else ""
    raise InvalidArgumentError(f"{_prefix(message)}Condition {says} did not hold.{where} {'; '.join(shown)}.")


def _at_call(holds: Tensor, x: Tensor, y: Tensor | None, says: str, message: str | None, summarize: int | None) -> None:
    """In a traced function: the check as a step, in the program's order."""
    tensors = [holds, x] if y is None else [holds, x, y]
    avals = [t._aval for t in tensors]

    def run(*arrays: Any) -> Any:
        ok, first, *second = (wrap(a, v) for a, v in zip(arrays, avals, strict=True))
        with outside():
            _check(ok, first, second[0] if second else None, says, message, summarize)
        return ()

    effect(run, tensors)


def _first(t: Tensor, summarize: int | None) -> str:
    return str(np.asarray(t).reshape(-1)[: summarize or 3].tolist())


def _compare(name: str, holds: Callable[[Tensor, Tensor], Tensor], sign: str) -> Callable[..., None]:
    def check(
        x: Any, y: Any, message: str | None = None, summarize: int | None = None, name: str | None = None
    ) -> None:
        a, b = convert_all([x, y])
        _check(holds(a, b), a, b, f"x {sign} y", message, summarize)

    check.__name__ = check.__qualname__ = f"assert_{name}"
    example = {"==": "1, 1", "!=": "1, 2", "<": "1, 2", "<=": "1, 1", ">": "2, 1", ">=": "1, 1"}[sign]
    check.__doc__ = f"""Checks that x {sign} y, elementwise.

    Args:
      x, y: tensors of one dtype; shapes broadcast.
      message: begins the error's text.
      summarize: how many elements the error shows.
      name: accepted for compatibility.

    Raises:
      InvalidArgumentError: where it does not hold, with the elements.

    >>> import gradtape as tf
    >>> tf.debugging.assert_{name}({example})
    """
    return check


assert_equal = _compare("equal", e.equal, "==")
assert_none_equal = _compare("none_equal", e.not_equal, "!=")
assert_less = _compare("less", e.less, "<")
assert_less_equal = _compare("less_equal", e.less_equal, "<=")
assert_greater = _compare("greater", e.greater, ">")
assert_greater_equal = _compare("greater_equal", e.greater_equal, ">=")


def _signed(name: str, holds: Callable[[Tensor, Any], Tensor], sign: str, example: str) -> Callable[..., None]:
    def check(x: Any, message: str | None = None, summarize: int | None = None, name: str | None = None) -> None:
        a = convert(x)
        _check(holds(a, 0), a, None, f"x {sign} 0", message, summarize)

    check.__name__ = check.__qualname__ = f"assert_{name}"
    check.__doc__ = f"""Checks that x {sign} 0, elementwise.

    Args:
      x: a tensor of real numbers.
      message: begins the error's text.
      summarize: how many elements the error shows.
      name: accepted for compatibility.

    Raises:
      InvalidArgumentError: where it does not hold, with the elements.

    >>> import gradtape as tf
    >>> tf.debugging.assert_{name}({example})
    """
    return check


assert_positive = _signed("positive", e.greater, ">", "[1, 2]")
assert_negative = _signed("negative", e.less, "<", "[-1, -2]")
assert_non_negative = _signed("non_negative", e.greater_equal, ">=", "[0, 1]")
assert_non_positive = _signed("non_positive", e.less_equal, "<=", "[0, -1]")


def assert_near(
    x: Any,
    y: Any,
    rtol: Any = None,
    atol: Any = None,
    message: str | None = None,
    summarize: int | None = None,
    name: str | None = None,
) -> None:
    """Checks that |x - y| <= atol + rtol · |y|, elementwise.

    Args:
      x, y: tensors of one floating or complex dtype; shapes broadcast.
      rtol, atol: by default ten times the distance from 1 to the next number of the dtype.
      message, summarize, name: as for `assert_equal`.

    Raises:
      InvalidArgumentError: where it does not hold, with the elements.

    >>> import gradtape as tf
    >>> tf.debugging.assert_near([1.0], [1.0000001])
    """
    a, b = convert_all([x, y])
    real = a._aval.dtype.real_dtype
    exact = 10 * 2.0 ** -{"float16": 10, "bfloat16": 7, "float32": 23}.get(real.name, 52)
    near, far = (exact if tolerance is None else tolerance for tolerance in (rtol, atol))
    wide = e.abs(a - b)
    _check(wide <= e.abs(b) * near + far, a, b, f"|x - y| <= {far} + {near} * |y|", message, summarize)


# ------------------------------------------------------------------ ranks and shapes


def assert_rank(x: Any, rank: Any, message: str | None = None, name: str | None = None) -> None:
    """Checks that a tensor has this many axes.

    Raises:
      ValueError: when it has not.

    >>> import gradtape as tf
    >>> tf.debugging.assert_rank([[1]], 2)
    """
    assert_rank_in(x, [rank], message)


def assert_rank_at_least(x: Any, rank: Any, message: str | None = None, name: str | None = None) -> None:
    """Checks that a tensor has this many axes or more.

    Raises:
      ValueError: when it has fewer.

    >>> import gradtape as tf
    >>> tf.debugging.assert_rank_at_least([[1]], 1)
    """
    t, least = convert(x), int(rank)
    if t.ndim < least:
        raise ValueError(
            f"{_prefix(message)}Tensor must have rank at least {least}. Received rank {t.ndim}, shape {t.shape}."
        )


def assert_rank_in(x: Any, ranks: Iterable[Any], message: str | None = None, name: str | None = None) -> None:
    """Checks that the number of a tensor's axes is one of several.

    Raises:
      ValueError: when it is not.

    >>> import gradtape as tf
    >>> tf.debugging.assert_rank_in([[1]], [1, 2])
    """
    t, allowed = convert(x), [int(r) for r in ranks]
    if t.ndim not in allowed:
        wanted = f"rank {allowed[0]}" if len(allowed) == 1 else f"a rank in {allowed}"
        raise ValueError(f"{_prefix(message)}Tensor must have {wanted}. Received rank {t.ndim}, shape {t.shape}.")


def assert_scalar(tensor: Any, message: str | None = None, name: str | None = None) -> Tensor:
    """The tensor, after a check that it has no axes.

    Raises:
      ValueError: when it has.

    >>> import gradtape as tf
    >>> float(tf.debugging.assert_scalar(3.0))
    3.0
    """
    t = convert(tensor)
    if t.ndim:
        raise ValueError(f"{_prefix(message)}Expected scalar shape, saw shape {t.shape}.")
    return t


def assert_shapes(
    shapes: Any,
    data: Any = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> None:
    """Checks the shapes of tensors, whose dimensions may have names: equal names are equal sizes.

    Args:
      shapes: pairs of a tensor and a shape: integers, names, None or "." for any size; a first or last entry "..."
        stands for any number of axes.
      data, summarize, name: accepted for compatibility.
      message: begins the error's text.

    Raises:
      ValueError: a shape that does not fit.

    >>> import gradtape as tf
    >>> tf.debugging.assert_shapes([(tf.zeros([3, 4]), ("N", "D")), (tf.zeros([4, 2]), ("D", 2))])
    """
    sizes: dict[str, int] = {}
    for value, spelled in shapes.items() if isinstance(shapes, dict) else shapes:
        t = convert(value)
        names = _names(spelled)
        dims = _aligned(t, names, message)
        for k, (wanted, size) in enumerate(dims):
            known = sizes.setdefault(wanted, size) if isinstance(wanted, str) else wanted
            if known is not None and known != size:
                raise ValueError(
                    f"{_prefix(message)}Tensor of shape {t.shape} must have size {known} in dimension {k} ({wanted}), "
                    f"got {size}: it was specified as {spelled!r}."
                )


def _names(spelled: Any) -> list[Any]:
    """The entries of a shape; any size is None."""
    entries = [spelled] if isinstance(spelled, int) else list(spelled)
    if isinstance(spelled, str) and "..." in spelled:
        rest = list(spelled.replace("...", ""))
        entries = ["...", *rest] if spelled.startswith("...") else [*rest, "..."]
    return [None if n in (None, ".") else (n if isinstance(n, str) and not n.isdigit() else int(n)) for n in entries]


def _aligned(t: Tensor, names: list[Any], message: str | None) -> list[tuple[Any, int]]:
    """Each named dimension with its size."""
    dims = list(t._aval.dims)
    open_ended = "..." in names or "*" in names
    fixed = [n for n in names if n not in ("...", "*")]
    if len(fixed) > len(dims) or (len(fixed) < len(dims) and not open_ended):
        raise ValueError(
            f"{_prefix(message)}Tensor of shape {shape_text(t._aval.shape)} must have rank {len(fixed)}"
            f"{' at least' * open_ended}, got {len(dims)}."
        )
    at_start = open_ended and names[0] in ("...", "*")
    part = dims[len(dims) - len(fixed) :] if at_start else dims[: len(fixed)]
    return list(zip(fixed, part, strict=True))


# ------------------------------------------------------------------ dtypes and order


def assert_type(tensor: Any, tf_type: Any, message: str | None = None, name: str | None = None) -> None:
    """Checks the dtype of a tensor.

    Raises:
      TypeError: when it is another.

    >>> import gradtape as tf
    >>> tf.debugging.assert_type([1.0], tf.float32)
    """
    t, wanted = convert(tensor), as_dtype(tf_type)
    if t.dtype is not wanted:
        raise TypeError(f"{_prefix(message)}Tensor must be of type {wanted!r}; got {t.dtype!r}. Use `tf.cast`.")


def assert_integer(x: Any, message: str | None = None, name: str | None = None) -> None:
    """Checks that a tensor holds integers.

    Raises:
      TypeError: when it does not.

    >>> import gradtape as tf
    >>> tf.debugging.assert_integer([1])
    """
    t = convert(x)
    if not t.dtype.is_integer:
        raise TypeError(f'{_prefix(message)}Expected "x" to be integer type. Found: {t.dtype!r}.')


def assert_same_float_dtype(tensors: Any = None, dtype: Any = None) -> Any:
    """The one floating dtype of several tensors; float32 where there are none.

    Raises:
      ValueError: tensors of different dtypes, or of one that is not floating.

    >>> import gradtape as tf
    >>> tf.debugging.assert_same_float_dtype([tf.constant(1.0), tf.constant(2.0)])
    tf.float32
    """
    found = None if dtype is None else as_dtype(dtype)
    for t in map(convert, tensors or []):
        if found is not None and t.dtype is not found:
            raise ValueError(f"Tensors must be of one dtype: got {found.name} and {t.dtype.name}. Use `tf.cast`.")
        found = t.dtype
    found = found or float32
    if not found.is_floating:
        raise ValueError(f"Expected floating point type, got {found.name}.")
    return found


def is_numeric_tensor(tensor: Any) -> bool:
    """Whether something is a tensor of numbers.

    >>> import gradtape as tf
    >>> tf.debugging.is_numeric_tensor(tf.constant(1)), tf.debugging.is_numeric_tensor(tf.constant("a"))
    (True, False)
    """
    return isinstance(tensor, Tensor) and tensor.dtype.kind in "iufc"


def is_non_decreasing(x: Any, name: str | None = None) -> Tensor:
    """Whether the elements never fall, in row-major order.

    >>> import gradtape as tf
    >>> bool(tf.debugging.is_non_decreasing([1, 1, 2]))
    True
    """
    flat = np.asarray(convert(x)).reshape(-1)
    return convert(bool((flat[1:] >= flat[:-1]).all()))


def is_strictly_increasing(x: Any, name: str | None = None) -> Tensor:
    """Whether the elements always rise, in row-major order.

    >>> import gradtape as tf
    >>> bool(tf.debugging.is_strictly_increasing([1, 1, 2]))
    False
    """
    flat = np.asarray(convert(x)).reshape(-1)
    return convert(bool((flat[1:] > flat[:-1]).all()))
