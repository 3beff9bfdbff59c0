"""Running steps and graphs as the runtime does, and derivatives by finite differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradtape.backends.cpu import lower
from gradtape.backends.program import compile_graph
from gradtape.ir.aval import Aval
from gradtape.ir.graph import Graph
from gradtape.ops.op import Step
from gradtape.runtime.state import STATE
from tests.op_table.cases import sealed

STEP = 2e-4  # of a difference: with four points the error is STEP⁴ · f⁽⁵⁾/30, and 2⁻⁵² / STEP by rounding

Function = Callable[..., Sequence[Any]]


def results_of(step: Step, arrays: Sequence[Any]) -> tuple[Any, ...]:
    """The results of a step's kernel."""
    found = STATE.run(lower(step), *arrays)
    return found if isinstance(found, tuple) else (found,)


def compiled(graph: Graph) -> Callable[..., tuple[Any, ...]]:
    """The program of a graph, as a function in the runtime's error state."""
    program = compile_graph(graph, lower)
    return lambda *arrays: STATE.run(program, *arrays)


def node_by_node(graph: Graph, arrays: Sequence[Any]) -> list[Any]:
    """The results of a graph with every value an array of its own: nothing is shared, reused or written twice."""
    values = {id(v): a for v, a in zip(graph.inputs, arrays, strict=True)}
    for node in graph.nodes:
        found = results_of(node.step, [values[id(v)] for v in node.inputs])
        values.update((id(v), _copied(a)) for v, a in zip(node.outputs, found, strict=True))
    return [values[id(v)] for v in graph.outputs]


def _copied(a: Any) -> Any:
    """A read-only copy in the same order. Scalars stay scalars and arrays without axes stay arrays: NumPy multiplies
    complex ones by different code."""
    if isinstance(a, np.ndarray):
        a = np.array(a)
        a.flags.writeable = False
    return a


def noise(avals: Sequence[Aval], seed: int) -> list[Any]:
    """Random cotangents or tangents; zeros where no gradient flows."""
    rng = np.random.default_rng(seed)
    return [_noise(a, rng) for a in avals]


def _noise(a: Aval, rng: np.random.Generator) -> Any:
    values = rng.uniform(0.5, 1.5, a.dims) * rng.choice([-1, 1], a.dims)
    if a.dtype.is_complex:
        values = values + 1j * rng.uniform(-1, 1, a.dims)
    if not a.dtype.is_differentiable:
        values = np.zeros(a.dims)
    return sealed(np.asarray(values).astype(a.dtype.numpy_dtype))


def inner(a: Sequence[Any], b: Sequence[Any]) -> float:
    """Re⟨a, b⟩ over all arrays that gradients flow through."""
    return sum(float(np.sum(np.conj(x) * y).real) for x, y in zip(a, b, strict=True) if _flows(x))


def magnitude(a: Sequence[Any], b: Sequence[Any]) -> float:
    """The same sum with every product positive: what its rounding error is relative to."""
    return sum(float(np.sum(np.abs(x) * np.abs(y))) for x, y in zip(a, b, strict=True) if _flows(x))


def _flows(x: Any) -> bool:
    return bool(x.dtype.kind in "fc")


def numeric_vjp(
    function: Function, arrays: Sequence[Any], cotangents: Sequence[Any], hermitian: Sequence[bool] = ()
) -> list[Any]:
    """The gradient of Re⟨cotangents, function⟩ in each operand by central differences of fourth order, element by
    element; for a complex operand, the slope along the real axis plus i times that along the imaginary one.

    An operand marked `hermitian` moves within Hermitian matrices: an element and the one across the diagonal move
    together, and each has half of the slope; the diagonal stays real."""
    marks = [*hermitian, *[False] * (len(arrays) - len(hermitian))]

    def slope(k: int, at: tuple[int, ...], direction: complex) -> float:
        across = (*at[:-2], at[-1], at[-2]) if marks[k] else at
        step = direction if across == at else direction / 2

        def value(distance: float) -> float:
            moved = np.array(arrays[k])
            moved[at] += distance * step
            if across != at:
                moved[across] += distance * np.conj(step)
            return inner(cotangents, function(*arrays[:k], sealed(moved), *arrays[k + 1 :]))

        near, far = value(STEP) - value(-STEP), value(2 * STEP) - value(-2 * STEP)
        return (8 * near - far) / (12 * STEP)

    gradients = []
    for k, x in enumerate(arrays):
        grad = np.zeros(x.shape, x.dtype)
        if _flows(x):
            for at in np.ndindex(*x.shape):
                grad[at] = slope(k, at, 1)
                if x.dtype.kind == "c" and not (marks[k] and at[-1] == at[-2]):
                    grad[at] += 1j * slope(k, at, 1j)
        gradients.append(grad)
    return gradients


def assert_near(got: Any, want: Any, about: object, tolerance: float) -> None:
    """Elements differ by no more than `tolerance`, relative to the largest of them (and to 1)."""
    got, want = np.asarray(got).astype(np.complex128), np.asarray(want).astype(np.complex128)
    assert got.shape == want.shape, f"{about}: got shape {got.shape}, want {want.shape}"
    differ = ~((got == want) | (np.isnan(got) & np.isnan(want)))
    if np.any(differ):
        scale = float(np.max(np.abs(want[np.isfinite(want)]), initial=1.0))
        error = float(np.max(np.abs(got[differ] - want[differ])))
        assert error <= tolerance * scale, f"{about}: off by {error:.3g}\ngot  {got}\nwant {want}"


def assert_same_bits(got: Any, want: Any, about: object) -> None:
    """Equal dtypes, shapes and bytes."""
    got, want = np.asarray(got), np.asarray(want)
    assert (got.dtype, got.shape) == (want.dtype, want.shape), (
        f"{about}: {got.dtype}{got.shape} {want.dtype}{want.shape}"
    )
    assert got.tobytes() == want.tobytes(), f"{about}: other bits\ngot  {got}\nwant {want}"
