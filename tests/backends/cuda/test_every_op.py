"""Every op of the table on the emulated device: the host's numbers, by kernels and library calls of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gradtape.backends import cpu
from gradtape.backends.cuda.device import Cuda
from gradtape.backends.cuda.drawing import FREE
from gradtape.backends.cuda.lowering import RULES, Lowering
from gradtape.backends.cuda.table import OPS
from gradtape.ir.dtypes import DType
from gradtape.ops.op import Op, all_ops
from gradtape.ops.pointwise import IDLE
from gradtape.ops.structural import Structural
from gradtape.ops.tiles import Tiles
from gradtape.runtime.devices import prepared
from tests.backends.cuda.running import texts_of
from tests.cuda_emulator import cupy_stand_in
from tests.cuda_emulator.devices import fresh
from tests.devices import is_library_call
from tests.kernels.cuda.test_run import assert_near
from tests.op_table.cases import CASES, Case
from tests.op_table.running import results_of

GROUPS = 16
AT_ONCE = 100  # samples whose kernels one device finds out: with too many arrays alive it would begin to run them
LISTED = [op for op in all_ops() if CASES.get(op.name)]


def entries(op: Op) -> Iterator[tuple[Case, DType]]:
    """Samples of an op, in each dtype that it takes and has a result in on the host."""
    for case in CASES[op.name]:
        for dtype in case.dtypes():
            yield case, dtype


def runs(case: Case, dtype: DType, cuda: Cuda) -> tuple[Any, ...]:
    """The results on the device, as they are there."""
    lowering = Lowering(cuda, prepared, OPS)
    found = lowering.alone(case.step)(*map(cuda.array, case.draw(dtype)))
    return found if isinstance(found, tuple) else (found,)


def wanted(case: Case, dtype: DType) -> tuple[Any, ...] | None:
    """The host's results; None where it refuses these operands."""
    try:
        return results_of(case.step, case.draw(dtype))
    except ValueError:
        return None


def is_free(case: Case, dtype: DType) -> bool:
    """Whether nothing is left to compute: views, operands that are handed on, and numbers."""
    left = [n.step.op for n in prepared(case.graph(dtype)).nodes]
    return all(
        op.name in FREE or op.name in IDLE or op.kind == "constant" or (isinstance(op, Structural) and op.view)
        for op in left
    )


@pytest.mark.parametrize("group", range(GROUPS))
def test_every_op_of_the_table(group: int, executed: Any) -> None:
    ops = LISTED[group::GROUPS]
    known = [(c, d, w) for op in ops for c, d in entries(op) if (w := wanted(c, d)) is not None]
    texts: dict[str, None] = {}
    for first in range(0, len(known), AT_ONCE):
        some = known[first : first + AT_ONCE]
        texts.update(dict.fromkeys(texts_of(lambda cuda, some=some: [runs(c, d, cuda) for c, d, _ in some])))
    with fresh() as cuda:
        cuda.compile(list(texts))
        counts = cupy_stand_in.device().counts
        for case, dtype, host in known:
            counts.clear()
            found = [np.asarray(cuda.host(a)) for a in runs(case, dtype, cuda)]
            for a, b in zip(found, host, strict=True):
                assert_near(a, b, f"{case!r} {dtype.name}")
            names = [*(launch.kernel for launch in counts.launches), *filter(is_library_call, counts.library_calls)]
            executed(case.op.name, names)
            nothing = not any(a.size for a in found)
            assert not (names and nothing), f"{case!r} {dtype.name} launched {names} for results without elements"
            empty = nothing or not all(np.size(a) for a in case.draw(dtype))
            assert names or empty or is_free(case, dtype), f"{case!r} {dtype.name} ran nothing on the device"


def test_every_kind_of_op_has_a_rule() -> None:
    assert set(cpu.RULES) - set(RULES) == {Tiles}, "which are made for the host's caches alone"
