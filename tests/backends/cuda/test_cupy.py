"""What the backend asks of CuPy and of cuBLAS, as far as they answer without a GPU: arguments of kernels as bytes,
views, and the library's functions. Skipped where CuPy is not installed, which a GPU's machine has."""

from __future__ import annotations

import ctypes
import importlib
from typing import Any

import numpy as np
import pytest

from gradtape.backends.cuda import nvidia
from gradtape.backends.cuda.device import Rows, number
from gradtape.ir.dtypes import as_dtype, float32
from gradtape.kernels.cuda_launch import Buffer, Table
from gradtape.ops.op import all_ops
from gradtape.ops.structural import Structural
from tests.op_table.cases import CASES, Case

cupy = pytest.importorskip("cupy", reason="CuPy is not installed: the extra `cu13`; no GPU is needed")

DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FRACTIONS = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")
SOMEWHERE = 1 << 20  # an address that nobody goes to
NOT_INITIALIZED = 1


@pytest.mark.parametrize("name", DTYPES + FRACTIONS)
def test_numbers_reach_a_kernel_as_the_bytes_of_their_dtype(name: str) -> None:
    dtype = as_dtype(name)
    given = number(1 + 2j if dtype.is_complex else 1, dtype)
    taken = importlib.import_module("cupy._core._scalar").CScalar(given)
    wanted = np.asarray(1 + 2j if dtype.is_complex else 1).astype(dtype.numpy_dtype)
    assert ctypes.string_at(taken.ptr, dtype.size) == wanted.tobytes()


def test_a_table_reaches_a_kernel_where_it_lies() -> None:
    rows = ((Buffer("result", 0, float32), Buffer("operand", 0, float32)),)
    given = Rows(Table(rows, (7,), (0, 1), 41)).of(
        {"result": [elsewhere(np.zeros(7))], "operand": [elsewhere(np.zeros(7))]}
    )
    assert isinstance(given, np.ndarray) and given.size == 1  # what CuPy asks of arrays of the host
    taken = importlib.import_module("cupy.cuda.function").CNumpyArray(given)
    words = np.frombuffer(ctypes.string_at(taken.ptr, given.nbytes), np.uint64)
    assert words[:3].tolist() == [SOMEWHERE, SOMEWHERE, 0] and words[82] == 7 and len(words) == 82 + 41 + 21


@pytest.mark.parametrize("name", DTYPES + FRACTIONS)
def test_every_dtype_is_one_of_its_arrays(name: str) -> None:
    dtype = as_dtype(name).numpy_dtype
    assert elsewhere(np.zeros(3, dtype)).dtype == dtype


def elsewhere(a: np.ndarray) -> Any:
    """A device array of the same shape in memory that is not there."""
    memory = cupy.cuda.UnownedMemory(SOMEWHERE, max(a.nbytes, 1), None, 0)
    return cupy.ndarray(a.shape, a.dtype, memptr=cupy.cuda.MemoryPointer(memory, 0))


def view_cases() -> list[Any]:
    """Samples of the ops that are views."""
    found = []
    for op in all_ops():
        if isinstance(op, Structural) and op.view:
            found += [pytest.param(op, c, id=f"{op.name} {c.step.params}") for c in CASES[op.name] if _is_simple(c)]
    return found


def _is_simple(case: Case) -> bool:
    """Whether its operand is one array of floats with axes and elements."""
    specs = case.sample.specs
    return float32 in case.dtypes() and len(specs) == 1 and bool(specs[0].shape) and all(specs[0].shape)


@pytest.mark.parametrize("op, case", view_cases())
def test_views_lie_where_numpys_lie(op: Structural, case: Case) -> None:
    (x,) = (np.ascontiguousarray(a) for a in case.draw(float32))
    wanted, found = op.value(np, x, **case.step.params), op.value(cupy, elsewhere(x), **case.step.params)
    begin = wanted.__array_interface__["data"][0] - x.__array_interface__["data"][0]
    assert found.shape == wanted.shape
    if wanted.size:
        assert found.data.ptr - SOMEWHERE == begin
        steps = [(a, b) for a, b, n in zip(found.strides, wanted.strides, wanted.shape) if n > 1]
        assert all(a == b for a, b in steps), steps


def test_a_module_from_a_file_is_read_once() -> None:
    """The file is gone when its functions are asked for."""
    read = importlib.import_module("cupy._core.raw")._get_raw_module
    assert hasattr(read, "__wrapped__"), "CuPy no longer remembers modules"


def test_cublas_has_what_is_called() -> None:
    pytest.importorskip("cuda.pathfinder", reason="the packages of the extra `cu13` are not installed")
    library = nvidia.cublas()
    assert set(nvidia.FUNCTIONS) <= set(vars(library))
    beyond = 1 << 33  # elements, which 32 bits would cut
    status = library.cublasGemmStridedBatchedEx(
        *(None, 0, 0, beyond, 4, 3, None),
        *(None, 0, beyond, beyond, None, 0, 3, 12, None),
        *(None, 0, beyond, beyond, 1, 68, -1),
    )
    assert status == NOT_INITIALIZED
