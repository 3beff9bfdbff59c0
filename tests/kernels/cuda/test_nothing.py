"""Kernels that are written by hand are not launched where they would write no element."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gradtape.ir.dtypes import float32, int32, int64
from gradtape.kernels import cuda_windows as windows
from gradtape.kernels.cuda_assemble import Factor, Places, part, places
from gradtape.kernels.cuda_launch import CudaProgram
from gradtape.kernels.cuda_moves import Line, cut, gather, join, undiagonal
from gradtape.kernels.cuda_positions import extreme, search
from gradtape.kernels.cuda_scans import STAGES, scan
from gradtape.kernels.cuda_scatter import Slices, scatter
from gradtape.kernels.cuda_windows import Axis, Images


def images(n: int, extent: int, count: int) -> Images:
    return Images(n, (Axis(extent, count, 2),), 4, float32, 4)


MADE: dict[str, Callable[[], CudaProgram]] = {
    "cut": lambda: cut([Line(0, 3, "put", 1), Line(5, 5)], 4, 0, int64),
    "join": lambda: join(0, [16, 16], [0, 0]),
    "undiagonal": lambda: undiagonal(0, 3, 4),
    "gather, no position": lambda: gather(1, 1, 7, 0, 16, int32, 0),
    "gather, no column": lambda: gather(1, 1, 7, 5, 0, int32, 0),
    "scatter, no position": lambda: scatter(Slices(1, 1, 0, 3, 4), "sum", float32, 4),
    "scatter, no row": lambda: scatter(Slices(1, 1, 5, 0, 4), "sum", float32, 4),
    "extreme": lambda: extreme(0, 5, 3, float32, True, int64, 16),
    "search": lambda: search(3, 5, 0, float32, True, False, int64),
    **{
        f"{op}, {shape}": lambda op=op, shape=shape: scan(op, float32, shape, 1, False)
        for op in STAGES
        for shape in ((3, 0), (0, 3))
    },
    "fold": lambda: windows.fold(0, 5, 3, 2, 2, (1, 1), float32),
    **{
        name: lambda name=name: getattr(windows, name)(images(0, 5, 4))
        for name in ("largest", "mean", "pick", "share", "route")
    },
    "part": lambda: part((0, 3), (3, 1), float32, [[Factor(float32, (1, 0))]], False),
    "places": lambda: places(Places((0,), 0, (1,), ()), 5),
}


@pytest.mark.parametrize("name", MADE)
def test_there_is_nothing_to_launch(name: str) -> None:
    assert MADE[name]().launches == ()
