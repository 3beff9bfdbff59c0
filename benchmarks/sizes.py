"""How large workloads are: on a CPU; on a GPU, about 30 times as large, so that launches are not what is measured; and
to see whether they run at all."""

from __future__ import annotations

from typing import Literal, TypeVar

Size = Literal["quick", "cpu", "gpu"]
T = TypeVar("T")


def pick(size: Size, quick: T, cpu: T, gpu: T | None = None) -> T:
    """What belongs to a size; what has none for GPUs of its own is as on a CPU."""
    if size == "quick":
        return quick
    return gpu if size == "gpu" and gpu is not None else cpu
