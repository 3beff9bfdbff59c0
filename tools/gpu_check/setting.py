"""Where a section's tensors are, and how large."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradtape.backends.cuda.device import Cuda

SMALL = 2.0**-20  # of the sizes of a GPU, on the emulated device


@dataclass(frozen=True)
class Setting:
    """What a section runs with.

    Args:
      cuda: the device.
      emulated: whether that is the emulator of the tests.
      scale: what sizes are multiplied by.
      seconds: how long the section may take.
      carried: the folder that came along; None where there is none.
      programs: the names of small programs (`programs.py`) that sections compare; None: all.
    """

    cuda: Cuda
    emulated: bool
    scale: float
    seconds: float
    carried: Path | None = None
    programs: tuple[str, ...] | None = None

    @property
    def xp(self) -> Any:
        """The array module: CuPy, or what stands in for it."""
        return self.cuda.xp

    def size(self, full: int, least: int) -> int:
        """A size: `full` on a GPU, and scaled down to no less than `least` on the emulator."""
        return max(least, round(full * self.scale))

    def words(self) -> list[str]:
        """What tells a process of another module where to run, and which programs."""
        return [*["--dry-run"] * self.emulated, *(self.programs or ())]

    def wait(self) -> None:
        """Until the device has done all that it was given."""
        self.xp.cuda.Device().synchronize()

    def free(self) -> int:
        """The bytes of the device's memory that nobody uses, once the pool has given back what it keeps."""
        self.wait()
        self.xp.get_default_memory_pool().free_all_blocks()
        return int(self.xp.cuda.Device().mem_info[0])
