"""Object code in memory without LLVM: what is loaded, and what is left to LLVM."""

from __future__ import annotations

import ctypes
import platform
import struct
from typing import Any

import numpy as np
import pytest

from gradtape.kernels import linking
from gradtape.kernels.arguments import Array, Entry, Number, Parameter
from gradtape.kernels.linking import LINKER
from gradtape.kernels.loading import Missing, Unsupported, load
from gradtape.kernels.objects import ObjectCode, object_code

if platform.machine() != "x86_64":
    pytest.skip("elsewhere LLVM links all object code", allow_module_level=True)

OPTIONS = {"error_model": "numpy"}
F8 = np.dtype(np.float64)
PARAMETERS: list[Parameter] = [Array(F8, written=True), Array(F8), Number(F8)]


def scaled(out: Any, x: Any, factor: float) -> None:
    table = np.empty(3, np.float64)  # memory from the C library
    for k in range(3):
        table[k] = factor**k
    for i in range(len(out)):
        out[i] = table[0] + table[1] * x[i] + table[2] * np.arctan2(x[i], 2.0)


@pytest.fixture(scope="module")
def made() -> ObjectCode:
    return object_code(scaled, "scaled_for_tests", PARAMETERS, None, OPTIONS)


def run(address: int) -> Any:
    x, out = np.linspace(-1.0, 2.0, 7), np.empty(7)
    assert Entry(address, PARAMETERS)(out, x, 3.0) == 0
    np.testing.assert_allclose(out, 1 + 3 * x + 9 * np.arctan2(x, 2.0), rtol=1e-14)


def test_code_that_calls_the_c_library_and_reads_constants(made: ObjectCode) -> None:
    assert {"malloc", "free"} <= set(made.calls)
    run(load("scaled_for_tests", made.code, {}))


def test_it_can_be_loaded_often(made: ObjectCode) -> None:
    addresses = {load("scaled_for_tests", made.code, {}) for _ in range(3)}
    assert len(addresses) == 3
    for address in addresses:
        run(address)


def test_what_is_in_no_library_is_named_or_given(made: ObjectCode) -> None:
    other = made.code.replace(b"\0malloc\0", b"\0noplac\0")
    with pytest.raises(Missing, match="noplac"):
        load("scaled_for_tests", other, {})
    malloc = ctypes.cast(ctypes.CDLL(None).malloc, ctypes.c_void_p).value
    assert malloc is not None
    run(load("scaled_for_tests", other, {"noplac": malloc}))


@pytest.mark.parametrize(
    ("at", "value", "says"),
    [(0, b"\x7fELX", "ELF"), (18, struct.pack("<H", 183), "machine 183"), (16, struct.pack("<H", 3), "type 3")],
)
def test_code_of_other_kinds_is_left_to_llvm(made: ObjectCode, at: int, value: bytes, says: str) -> None:
    other = made.code[:at] + value + made.code[at + len(value) :]
    with pytest.raises(Unsupported, match=says):
        load("scaled_for_tests", other, {})


def test_a_function_that_is_not_there(made: ObjectCode) -> None:
    with pytest.raises(Unsupported, match="0 functions called other"):
        load("other", made.code, {})


def test_llvm_links_what_is_not_loaded(made: ObjectCode, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any) -> int:
        raise Unsupported

    monkeypatch.setattr(linking, "load", refuse)
    run(LINKER.link("scaled_for_tests", made.code))
