"""`cupy.lib`: views of any strides."""

from __future__ import annotations

from tests.cuda_emulator.cupy_stand_in.arrays import as_strided

__all__ = ["stride_tricks"]


class stride_tricks:
    as_strided = staticmethod(as_strided)
