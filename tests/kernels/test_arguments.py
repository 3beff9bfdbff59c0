"""How machine code gets its arguments: every kind of them, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradtape.kernels.arguments import INTEGER, Array, Integers, Number, check_layout
from gradtape.kernels.entries import entry_of
from gradtape.kernels.loops import OPTIONS
from gradtape.kernels.objects import object_code


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADTAPE_CACHE", str(tmp_path))


def made(function: Any, *parameters: Any, answer: Any = None) -> Any:
    dtype = None if answer is None else np.dtype(answer)
    name = f"test_{function.__name__}"
    entry, _ = entry_of(name, parameters, lambda: object_code(function, name, parameters, dtype, OPTIONS))
    return entry


F4, F8 = np.dtype("float32"), np.dtype("float64")


def test_every_kind_of_argument() -> None:
    def write(
        out: Any, cube: Any, line: Any, single: Any, double: Any, small: Any, truth: Any, large: Any, t: Any
    ) -> None:
        out[0] = cube.shape[0] + 10 * cube.shape[1] + 100 * cube.shape[2] + 1000 * line.size
        out[1] = cube[1, 2, 3]
        out[2] = line[5]
        out[3] = single
        out[4] = double
        out[5] = small
        out[6] = 1.0 if truth else 0.0
        out[7] = large
        out[8] = t[0] + 10 * t[1] + 100 * t[2]

    numbers = [Number(np.dtype(d)) for d in ("float32", "float64", "int32", "bool")]
    entry = made(write, Array(F8, written=True), Array(F4, 3), Array(F8), *numbers, INTEGER, Integers(3))
    cube, line, out = np.arange(24, dtype=F4).reshape(2, 3, 4), np.arange(6.0).reshape(2, 1, 3), np.zeros(9)
    cube.flags.writeable = False
    assert entry(out, cube, line, np.float32(0.1), -0.1, -7, True, -(2**40), (1, 2, 3)) == 0
    assert out.tolist() == [432 + 6000, 23, 5, float(np.float32(0.1)), -0.1, -7, 1, -(2.0**40), 321]


@pytest.mark.parametrize("answer, given, wanted", [("bool", 3, 1), ("bool", -3, 0), ("int64", 77, 77), ("int32", 5, 5)])
def test_answers(answer: str, given: int, wanted: int) -> None:
    def is_positive(x: Any) -> Any:
        return x > 0

    def itself(x: Any) -> Any:
        return x

    function = is_positive if answer == "bool" else itself
    parameter = Number(np.dtype("int64" if answer == "bool" else answer))
    assert made(function, parameter, answer=answer)(given) == wanted


def test_memory_of_its_own_is_given_back() -> None:
    def sums(x: Any, out: Any) -> None:
        held = np.empty(x.size, x.dtype)
        for k in range(x.size):
            held[k] = x[k] + 1
        other = held
        for _ in range(3):
            held = np.empty(x.size, x.dtype)
            held[:] = other
            other = held
        out[0] = held.sum()

    entry = made(sums, Array(F8), Array(F8, written=True))
    x, out = np.arange(1 << 20, dtype=F8), np.zeros(1)
    for _ in range(300):  # 8 MiB each
        entry(x, out)
    assert out[0] == (x + 1).sum()


def test_too_much_memory_is_an_error() -> None:
    def take(n: Any) -> None:
        held = np.empty(n, np.float64)
        held[n - 1] = 1.0

    with pytest.raises(RuntimeError, match="no memory for it"):
        made(take, INTEGER)(1 << 58)


BAD: dict[str, Any] = {
    "no array": 3.0,
    "a number of NumPy": np.float64(3),
    "another dtype": np.zeros((2, 3), F4),
    "other axes": np.zeros(6),
    "another order": np.zeros((3, 2)).T,
    "every second one": np.zeros((2, 6))[:, ::2],
}


@pytest.mark.parametrize("given", BAD.values(), ids=BAD)
def test_other_arrays_are_refused(given: Any) -> None:
    with pytest.raises(TypeError, match="Machine code wants"):
        Array(F8, 2).check(given)


def test_a_call_looks_at_its_arguments() -> None:
    def copy(out: Any, x: Any) -> None:
        out[0, 0] = x[0, 0]

    entry = made(copy, Array(F8, 2, written=True), Array(F8, 2))
    good, copied = np.full((2, 3), 5.0), np.zeros((2, 3))
    entry(copied, good)
    assert copied[0, 0] == 5
    for bad in BAD.values():
        for arguments in ((good, bad), (bad, good)):
            with pytest.raises(TypeError, match="Machine code wants"):
                entry(*arguments)
    with pytest.raises(TypeError):
        entry(good)


def test_what_is_written_must_be_writable() -> None:
    x = np.zeros((2, 3))
    x.flags.writeable = False
    Array(F8, 2).check(x)
    with pytest.raises(TypeError, match="read-only"):
        Array(F8, 2, written=True).check(x)


def test_the_layout_of_arrays_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    from gradtape.kernels import arguments

    check_layout()
    monkeypatch.setattr(arguments, "HEAD", arguments.HEAD + 8)
    with pytest.raises(RuntimeError, match="another way"):
        check_layout()
