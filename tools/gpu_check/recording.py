"""Small programs' results on the emulated device, in a file: python -m tools.gpu_check.recording FILE [PROGRAM ...]"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from gradtape.backends.cuda.device import Cuda
from tools.gpu_check.programs import results
from tools.gpu_check.section import on_the_device

FILE = "emulated.npz"
SIZE = 12  # of the programs
TEXTS = "texts"  # what the texts of the kernels add up to

Array = np.ndarray[Any, Any]


def recorded(cuda: Cuda, programs: Sequence[str] | None = None) -> dict[str, Array]:
    """The results on a device, and digests of the kernels that it has loaded for them."""
    before = set(cuda.functions)
    found = dict(results(SIZE, programs))
    texts = sorted(hashlib.sha256(t.encode()).hexdigest() for t in set(cuda.functions) - before)
    return found | {TEXTS: np.array(texts)}


def arrays(found: dict[str, Array]) -> list[str]:
    """The names of the results."""
    return [name for name in found if name != TEXTS]


def write(file: Path, found: dict[str, Array]) -> None:
    """As bytes with their dtype's name: NumPy writes no bfloat16."""
    parts = {name: np.frombuffer(a.tobytes(), np.uint8) for name, a in found.items()}
    kinds = np.array([f"{name}|{_name(a.dtype)}|{','.join(map(str, a.shape))}" for name, a in found.items()])
    np.savez_compressed(file, kinds=kinds, **parts)


def read(file: Path) -> dict[str, Array]:
    """What was written."""
    found = {}
    with np.load(file) as parts:
        for line in parts["kinds"]:
            name, dtype, shape = line.split("|")
            sizes = tuple(int(n) for n in shape.split(",") if n)
            found[name] = np.frombuffer(parts[name].tobytes(), getattr(ml_dtypes, dtype, dtype)).reshape(sizes)
    return found


def _name(dtype: np.dtype[Any]) -> str:
    """The name of a dtype that NumPy does not know itself; of others, what NumPy calls them with their size."""
    return dtype.name if hasattr(ml_dtypes, dtype.name) else dtype.str


def main(arguments: Sequence[str] | None = None) -> None:
    file, *programs = sys.argv[1:] if arguments is None else arguments
    with on_the_device(dry=True) as setting:
        write(Path(file), recorded(setting.cuda, programs or None))


if __name__ == "__main__":
    main()
