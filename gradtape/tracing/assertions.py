"""What must hold, of values at once and of tensors without a value in each call. Floor: tape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradtape.ir.errors import InvalidArgumentError
from gradtape.runtime.hosted import effect
from gradtape.runtime.places import place_of, user_frame
from gradtape.runtime.tensor import SymbolicTensor, Tensor, wrap
from gradtape.tracing.branching import truth
from gradtape.tracing.builtins import is_traced
from gradtape.tracing.open import open_tracer


def must_hold(condition: Any, data: Sequence[Tensor], says: Callable[[Sequence[Tensor]], str], who: str) -> None:
    """Refuse what does not hold; `says`: what the error says of the data.

    Raises:
      InvalidArgumentError: the condition does not hold, or is no scalar."""
    holds = truth(condition, who)
    if not isinstance(holds, SymbolicTensor):
        if not holds:
            raise InvalidArgumentError(says(data))
        return
    avals = [t._aval for t in data]

    def check(fulfilled: Any, *arrays: Any) -> Any:
        if not fulfilled:
            raise InvalidArgumentError(says([wrap(a, v) for a, v in zip(arrays, avals, strict=True)]))
        return ()

    effect(check, [holds, *data])


def assert_stmt(test: Any, message: Callable[[], Any] | None = None) -> None:
    """`assert test, message()`; of a tensor without a value in each call, with TensorFlow's error."""
    if isinstance(test, list | tuple) or not is_traced(test):
        if not test:
            raise AssertionError(*(() if message is None else (message(),)))
        return
    says = f"{place_of(user_frame())}: assertion failed"
    says += "" if message is None else f": {message()}"
    if (tracer := open_tracer()) is not None:
        tracer.perform(_assert_known, (test, says), {})
    else:
        _assert_known(test, says)


def _assert_known(test: Any, says: str) -> None:
    must_hold(test, [], lambda _: says, "assert")
