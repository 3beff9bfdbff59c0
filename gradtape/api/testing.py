"""`gradtape.testing`: whether derivatives are right. Floor: api."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from gradtape.api.differences import Array, Function, forward, numeric, reals, results_of, reverse
from gradtape.api.elementwise import add_n, cast
from gradtape.api.reductions import reduce_sum
from gradtape.forward import ForwardAccumulator
from gradtape.recording import UnconnectedGradients, leaves_of
from gradtape.runtime.convert import convert
from gradtape.runtime.tensor import Tensor
from gradtape.runtime.variable import Variable
from gradtape.tape import GradientTape

__all__ = ["check_gradients"]

MODES = {"reverse": reverse, "forward": forward}
STEPS = {"float64": 2.0**-17, "float32": 2.0**-8, "float16": 2.0**-4, "bfloat16": 2.0**-3}
EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
ROUNDINGS = 4.0  # of the last place of a result, in both values of a difference together
SCALES = (0.1, 1.0, 10.0)  # of random cotangents
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
    first, all combinations of modes are compared, along random directions, and `tape.hessian`. Gradients of several
    random cotangents must be sums of the rows of the Jacobian, since gradients are linear in them.

    Args:
      fn: a function of tensors to a tensor or a structure of them. It may have custom gradients.
      args: its arguments; those of floating and complex dtypes are moved. Use float64: differences of others say
        little.
      order: 1, 2, ...
      modes: "reverse", "forward" or both.
      atol, rtol: how far apart they may be; by default by dtype: 1e-6 for float64, `atol` that much of the largest
        derivative and what rounding makes of differences.
      delta: how far each number is moved; by default in proportion to its size, or by an amount for its dtype,
        whichever is more accurate.
      seed: of the random directions.

    Raises:
      AssertionError: derivatives that differ; it shows both, the analytic one above, and where they are furthest apart.
        Or gradients that are not linear in their cotangents.
      TypeError: what is no function, or no list of arguments.
      ValueError: an unknown mode or an order below 1; forward mode through a custom gradient whose rule is linear in
        numbers, but is not seen to be, and came without `jvp`.

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


class Differences(NamedTuple):
    """A Jacobian by differences, and how far rounding may have taken each of its numbers."""

    matrix: Array
    noise: Array


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
        values = reals(results_of(f, xs))
        differences = [self._numeric(f, xs, k, values) for k in range(len(xs))]
        for mode in self.modes:
            try:
                matrices = MODES[mode](f, xs)
            except ValueError:
                self._compare_sums(f, xs, reverse(f, xs), (*history, "reverse"))
                raise
            for k, (found, want) in enumerate(zip(matrices, differences, strict=True)):
                self._compare(found, want, xs[k], k, (*history, mode))
            if mode == "reverse":
                self._compare_sums(f, xs, matrices, (*history, mode))
        if order > 1:
            for mode, derivative in self._derivatives(f, xs):
                self.run(derivative, xs, order - 1, (*history, mode))

    def _numeric(self, f: Function, xs: list[Tensor], k: int, values: Array) -> Differences:
        """Central differences, each number moved in proportion to its size or by an amount that has none, whichever
        makes less of an error; and how far rounding may take them."""
        real = xs[k].dtype.real_dtype.name
        size, epsilon = STEPS[real], EPSILON[real]
        numbers = np.abs(reals([xs[k]])).astype(np.float64)
        usual = max(numbers.max(initial=0.0), 0.0) or 1.0
        ways = [size * np.where(numbers > 0.0, numbers, min(usual, 1.0)), np.full(len(numbers), size)]
        if self.delta is not None or np.array_equal(ways[0], ways[1]):
            ways = [ways[0] if self.delta is None else np.full(len(numbers), self.delta)]
        found = [(numeric(f, xs, k, h), ROUNDINGS * epsilon * np.abs(values)[:, None] / h) for h in ways]
        if len(ways) == 1:
            return Differences(*found[0])
        errors = [
            np.nan_to_num(np.abs(d - numeric(f, xs, k, h / 2)) + noise, nan=np.inf).max(0, initial=0.0)
            for h, (d, noise) in zip(ways, found, strict=True)
        ]
        first = errors[0] <= errors[1]
        return Differences(*(np.where(first, a, b) for a, b in zip(*found, strict=True)))

    def _compare_sums(self, f: Function, xs: list[Tensor], rows: list[Array], history: tuple[str, ...]) -> None:
        """A gradient is linear in the cotangents: those of several random ones are the sums of rows that they say."""
        ys = results_of(f, xs)
        for scale in SCALES:
            ups = [convert(np.asarray(scale * np.asarray(self._direction(y)), y.dtype.numpy_dtype)) for y in ys]
            with GradientTape() as tape:
                tape.watch(xs)
                made = results_of(f, xs)
            found = tape.gradient(made, xs, ups, ZERO)
            weights = reals(ups).astype(np.float64)
            for k, (g, matrix) in enumerate(zip(found, rows, strict=True)):
                got, parts = reals([convert(g)]).astype(np.float64), matrix.astype(np.float64) * weights[:, None]
                near = self._near(xs[k], history) * np.abs(parts).sum(0).max(initial=0.0)
                if not (np.abs(got - parts.sum(0)) <= near).all():
                    raise AssertionError(
                        f"Derivative of order {len(history)} by argument {self.places[k]}, {' then '.join(history)} "
                        "mode, is not linear in its cotangents, as every gradient is.\n"
                        f"of these cotangents:\n{_shown(weights)}\ngradient:\n{_shown(got)}\n"
                        f"sum of the rows, times these cotangents:\n{_shown(parts.sum(0))}"
                    )

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
        if "reverse" in self.modes:
            self._compare_hessian(f, xs, ups, pulled)

    def _compare_hessian(self, f: Function, xs: list[Tensor], ups: list[Tensor], pulled: Function) -> None:
        """`tape.hessian` of the results along their cotangents, where all numbers are real, with differences."""
        if not ups or any(t.dtype.is_complex for t in (*xs, *ups)):
            return
        with GradientTape() as tape:
            tape.watch(xs)
            parts = [cast(reduce_sum(y * u), xs[0].dtype) for y, u in zip(results_of(f, xs), ups, strict=True)]
            total = add_n(parts)
        blocks = tape.hessian(total, xs)
        values = reals(results_of(pulled, xs))
        for k, x in enumerate(xs):
            columns = [np.asarray(row[k]).reshape(-1, x._aval.size) for row in blocks]
            found = np.concatenate(columns).astype(np.float64)
            self._compare(found, self._numeric(pulled, xs, k, values), x, k, ("reverse", "`tape.hessian`"))

    def _direction(self, t: Tensor) -> Tensor:
        numbers = self.random.uniform(0.5, 1.5, t._aval.dims) * self.random.choice([-1.0, 1.0], t._aval.dims)
        return convert(np.asarray(numbers, t.dtype.numpy_dtype))

    def _near(self, x: Tensor, history: tuple[str, ...]) -> float:
        return TOLERANCES[x.dtype.real_dtype.name] * 10.0 ** (len(history) - 1)

    def _compare(self, found: Array, differences: Differences, x: Tensor, k: int, history: tuple[str, ...]) -> None:
        want, near = differences.matrix, self._near(x, history)
        rtol = near if self.rtol is None else self.rtol
        scale = np.abs(want[np.isfinite(want)]).max(initial=0.0)
        atol = near * scale + differences.noise if self.atol is None else np.full(want.shape, self.atol)
        apart = np.abs(found.astype(np.float64) - want)
        fine = (apart <= atol + rtol * np.abs(want)) | (np.isnan(found) & np.isnan(want))
        if fine.all():
            return
        at = np.unravel_index(np.argmax(np.where(fine, 0.0, np.where(np.isnan(apart), np.inf, apart))), apart.shape)
        name = f"Derivative of order {len(history)} by argument {self.places[k]}, {' then '.join(history)} mode"
        raise AssertionError(
            f"{name}, is not that of differences. Furthest apart at (result, element) {tuple(map(int, at))}: "
            f"{found[at]:.6g} and {want[at]:.6g}, with atol={atol[at]:g}, rtol={rtol:g}.\n"
            f"analytic:\n{_shown(found)}\nnumeric:\n{_shown(want)}"
        )


def _shown(matrix: Array) -> str:
    return np.array2string(matrix, precision=5, threshold=100, suppress_small=True)
