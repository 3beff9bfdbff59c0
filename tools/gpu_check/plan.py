"""Which sections there are, in their order, and how long each may take. Needs nothing but Python."""

from __future__ import annotations

from typing import NamedTuple

TOTAL = 345.0  # seconds for all: six minutes, less what the command itself needs


class Section(NamedTuple):
    """A section: its module in `sections/`, what it looks at, and the seconds that it may take."""

    name: str
    about: str
    seconds: float


SECTIONS = (
    Section("device", "`gradtape doctor`, and that tensors are on the GPU", 30),
    Section("emulator", "results of the emulated device's kernels again", 45),
    Section("ops", "every op of the table, each sample in each dtype", 75),
    Section("offsets", "slices offset by one element, in every dtype", 40),
    Section("batches", "70,000 batches", 30),
    Section("rows", "rows over 48 KB", 30),
    Section("places", "more than 2³¹ elements", 40),
    Section("graphs", "captured steps with products, replayed with another rate and seed", 30),
    Section("tf32", "products with TF32 and without", 20),
    Section("convolutions", "cuDNN beside im2col and cuBLAS, where it is installed", 60),
    Section("memory", "out of memory under a limit of the pool: chunks are halved", 20),
    Section("repeats", "the same bits in two runs", 40),
    Section("streams", "DLPack, and work on a second stream", 20),
    Section("speed", "fused kernels in terms of the device's copies", 45),
    Section("peers", "Jacobians, Hessians and training steps beside PyTorch and JAX", 120),
    Section("sanitizer", "compute-sanitizer's memcheck", 60),
    Section("suite", "the tests on the device, as many as there is time for", 120),
)
NAMES = tuple(s.name for s in SECTIONS)
