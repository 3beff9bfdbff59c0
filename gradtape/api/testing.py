"""`gradtape.testing`: whether derivatives are right. Floor: api."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from gradtape.api.differences import Array, Function, forward, numeric, results_of, reverse
from gradtape.forward import ForwardAccumulator
from gradtape.recording import UnconnectedGradients, leaves_of
from gradtape.runtime.convert import convert
from gradtape.runtime.tensor import Tensor
from gradtape.runtime.variable import Variable
from gradtape.tape import GradientTape

__all__ = ["check_gradients"]

MODES = {"reverse": reverse, "forward": forward}
TOLERANCES = {"float64": 1e-6, "float32": 1e-2, "float16": 1e-1, "bfloat16": 2e-1}
ZERO = UnconnectedGradients.ZERO


def check_gradients(
    fn: Callable[..., Any],
    args: Sequence[Any],
    order: int = 2,
    modes: Sequence[str] = ("reverse", "forward"),
    *,
    atol: float | None = None,
    rtol: float | None = None,
    delta: float | None = None,
    seed: int = 0,
) -> None:
    """Compares the derivatives of a function with central differences, in each mode and up to an order. Above the
    first, all combinations of modes are compared, along random directions.

    Args:
      fn: a function of tensors to a tensor or a structure of them. It may have custom gradients.
      args: its arguments; those of floating and complex dtypes are moved. Use float64: differences of others say
        little.
      order: 1, 2, ...
      modes: "reverse", "forward" or both.
      atol, rtol: how far apart they may be; by default by dtype, 1e-6 for float64.
      delta: how far each number is moved; by default by dtype.
      seed: of the random directions.

    Raises:
      AssertionError: derivatives that differ; it shows both, the analytic one above, and where they are furthest apart.
      TypeError: what is no function, or no list of arguments.
      ValueError: an unknown mode or an order below 1; forward mode through a custom gradient that may not be linear and
        came without `jvp`.

    >>> import gradtape as tf
    >>> tf.testing.check_gradients(lambda x: tf.sin(x) * x, [tf.constant([0.5, 2.0], tf.float64)])
    """
    if order < 1:
        raise ValueError(f"`order` should be 1 or more, got {order}.")
    if unknown := [m for m in modes if m not in MODES] or ([] if modes else ["none"]):
        raise ValueError(f"`modes` should be some of {sorted(MODES)}, got {unknown[0]!r}.")
    if not callable(fn) or not isinstance(args, list | tuple):
        raise TypeError(
            "`check_gradients` wants a function and a list of its arguments, got "
            f"{type(fn).__name__} and {type(args).__name__}."
        )
    given = [convert(a) if isinstance(a, Tensor | Variable | np.ndarray | float | complex) else a for a in args]
    moved = [k for k, a in enumerate(given) if isinstance(a, Tensor) and a.dtype.is_differentiable]
    if not moved:
        raise ValueError("None of `args` is a floating or complex tensor: there is nothing to differentiate by.")

    def function(xs: list[Tensor]) -> list[Tensor]:
        every = list(given)
        for k, x in zip(moved, xs, strict=True):
            every[k] = x
        return [convert(t) for t in leaves_of(fn(*every))]

    check = _Check(moved, tuple(modes), atol, rtol, delta, np.random.default_rng(seed))
    check.run(function, [given[k] for k in moved], order, ())


class _Check:
    """What is compared with what tolerance; `places` says which arguments are moved."""

    def __init__(
        self,
        places: list[int],
        modes: tuple[str, ...],
        atol: float | None,
        rtol: float | None,
        delta: float | None,
        random: np.random.Generator,
    ) -> None:
        self.places, self.modes, self.random = places, modes, random
        self.atol, self.rtol, self.delta = atol, rtol, delta

    def run(self, f: Function, xs: list[Tensor], order: int, history: tuple[str, ...]) -> None:
        differences = [numeric(f, xs, k, self._steps(x)) for k, x in enumerate(xs)]
        for mode in self.modes:
            for k, (found, want) in enumerate(zip(MODES[mode](f, xs), differences, strict=True)):
                self._compare(found, want, xs[k], k, (*history, mode))
        if order > 1:
            for mode, derivative in self._derivatives(f, xs):
                self.run(derivative, xs, order - 1, (*history, mode))

    def _steps(self, x: Tensor) -> Any:
        if self.delta is not None:
            return self.delta
        real = x.dtype.real_dtype.name
        size = 2.0 ** -{"float64": 17, "float32": 8, "float16": 4, "bfloat16": 3}[real]
        return size

    def _derivatives(self, f: Function, xs: list[Tensor]) -> Iterator[tuple[str, Function]]:
        """The derivative along a random direction, in each mode, as a function again."""
        ups = [self._direction(y) for y in results_of(f, xs)]
        along = [self._direction(x) for x in xs]

        def pulled(args: list[Tensor]) -> list[Tensor]:
            with GradientTape() as tape:
                tape.watch(args)
                ys = results_of(f, args)
            return [convert(g) for g in tape.gradient(ys, args, ups, ZERO)]

        def pushed(args: list[Tensor]) -> list[Tensor]:
            with ForwardAccumulator(args, along) as accumulator:
                ys = results_of(f, args)
            return list(leaves_of(accumulator.jvp(ys, ZERO)))

        yield from (pair for pair in (("reverse", pulled), ("forward", pushed)) if pair[0] in self.modes)

    def _direction(self, t: Tensor) -> Tensor:
        numbers = self.random.uniform(0.5, 1.5, t._aval.dims) * self.random.choice([-1.0, 1.0], t._aval.dims)
        return convert(np.asarray(numbers, t.dtype.numpy_dtype))

    def _compare(self, found: Array, want: Array, x: Tensor, k: int, history: tuple[str, ...]) -> None:
        near = TOLERANCES[x.dtype.real_dtype.name] * 10.0 ** (len(history) - 1)
        atol, rtol = (near if given is None else given for given in (self.atol, self.rtol))
        apart = np.abs(found.astype(np.float64) - want)
        fine = (apart <= atol + rtol * np.abs(want)) | (np.isnan(found) & np.isnan(want))
        if fine.all():
            return
        at = np.unravel_index(np.argmax(np.where(fine, 0.0, np.where(np.isnan(apart), np.inf, apart))), apart.shape)
        name = f"Derivative of order {len(history)} by argument {self.places[k]}, {' then '.join(history)} mode"
        raise AssertionError(
            f"{name}, is not that of differences. Furthest apart at (result, element) {tuple(map(int, at))}: "
            f"{found[at]:.6g} and {want[at]:.6g}, with atol={atol:g}, rtol={rtol:g}.\n"
            f"analytic:\n{_shown(found)}\nnumeric:\n{_shown(want)}"
        )


def _shown(matrix: Array) -> str:
    return np.array2string(matrix, precision=5, threshold=100, suppress_small=True)
