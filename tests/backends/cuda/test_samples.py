"""Ops that are no clusters, on the emulated device: each sample of the op table in each dtype gives what the CPU
gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from gradtape.backends.cuda.device import Cuda
from gradtape.backends.cuda.table import OPS
from gradtape.ir.dtypes import ALL, DType
from tests.backends.cuda.running import LAYOUTS, on_device, placed
from tests.op_table.cases import CASES, Case
from tests.op_table.running import results_of

DTYPES = tuple(d for d in ALL if d.kind != "s")
ULPS = 4


def tried(name: str) -> Iterator[tuple[Case, DType, str]]:
    """Each sample of an op in each dtype; the layouts of operands in turn."""
    n = 0
    for case in CASES[name]:
        for dtype in case.dtypes(DTYPES):
            yield case, dtype, LAYOUTS[n % len(LAYOUTS)]
            n += 1


def call_of(case: Case, dtype: DType, layout: str) -> Callable[[Cuda], Any]:
    """A function of a device; positions of structural ops are on the host for plain operands, as they mostly are."""
    on_host = getattr(case.op, "indices", 0) if layout == "plain" else 0

    def call(cuda: Cuda) -> Any:
        drawn = case.draw(dtype)
        moved = len(drawn) - on_host
        arrays = [placed(cuda, a, layout) if k < moved else a for k, a in enumerate(drawn)]
        return OPS[case.op.name](cuda, *arrays, **case.sample.params)

    return call


def assert_near(found: Any, wanted: Any, about: object) -> None:
    """The same but for a rounding of what is added in another order; halves are rounded once."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape), about
    if wanted.dtype.kind in "iub":
        np.testing.assert_array_equal(found, wanted, err_msg=str(about))
        return
    step = {"float16": 2.0**-11, "bfloat16": 2.0**-8}.get(wanted.dtype.name) or np.finfo(wanted.dtype).eps
    a, b = found.astype(np.complex128), wanted.astype(np.complex128)
    np.testing.assert_allclose(a, b, rtol=ULPS * step, atol=ULPS * step, err_msg=str(about))


@pytest.mark.parametrize("name", OPS)
def test_samples(name: str) -> None:
    cases = list(tried(name))
    results = on_device([call_of(*c) for c in cases])
    for (case, dtype, layout), found in zip(cases, results, strict=True):
        wanted = results_of(case.step, case.draw(dtype))
        for a, b in zip(found, wanted, strict=True):
            assert_near(a, b, f"{case!r} {dtype.name} {layout}")
    assert cases
