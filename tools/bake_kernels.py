"""Compile the CUDA kernels of a program beforehand, for several architectures, on a machine without a GPU.

python -m tools.bake_kernels --folder kernels examples/train_gpu.py --epochs 1 --steps 1
python -m tools.bake_kernels --folder kernels --architectures 90 mine.py

The program runs slowly, on the emulated device of the tests (which wants g++), so that it should be a short one of the
shapes that count; and once for each size of shared memory that architectures have, since kernels of long rows depend
on that. NVIDIA's compiler (`pip install -e '.[nvrtc]'`) then makes machine code of what it launched.
On the machine with the GPU the folder is what GRADTAPE_CACHE names. It has to belong to the user there, and the
compiler to be of the same version.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import runpy
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from gradtape.backends.cuda.device import Cuda
from gradtape.backends.cuda.nvidia import Compiler
from gradtape.runtime.devices import DEVICES
from tests.cuda_emulator import cupy_stand_in
from tests.cuda_emulator.devices import emulated
from tests.cuda_emulator.limits import SHARED_BY_OPT_IN

# From A100 to what is new: data centres' and desktops' GPUs.
ARCHITECTURES = "80,86,89,90,100,120"


@contextlib.contextmanager
def on_the_emulated_device(load: Callable[[Cuda, str], object], arch: str = "sm_80") -> Iterator[None]:
    """A block whose tensors are on the emulated device, and whose kernels are loaded by a function."""
    with cupy_stand_in.using_device(arch):
        cuda = emulated()
        compiled = cuda.load

        def loading(text: str) -> object:
            load(cuda, text)
            return compiled(text)

        cuda.load = loading
        DEVICES.use(cuda)
        try:
            yield
        finally:
            DEVICES.use(None)


def texts_of(program: Callable[[], object], arch: str = "sm_80") -> list[str]:
    """What a program has compiled for an architecture, in order, each once."""
    found: dict[str, None] = {}
    with on_the_emulated_device(lambda _, text: found.setdefault(text), arch):
        program()
    return list(found)


def as_a_program(file: Path, words: Sequence[str]) -> Callable[[], object]:
    """A file as `python FILE WORDS` runs it."""

    def run() -> object:
        before = sys.argv, sys.path
        sys.argv, sys.path = [str(file), *words], [str(file.parent), *sys.path]
        try:
            return runpy.run_path(str(file), run_name="__main__")
        finally:
            sys.argv, sys.path = before

    return run


def bake(texts: Sequence[str], architectures: Sequence[int], compiler: Callable[..., Compiler] = Compiler) -> int:
    """Keep machine code of texts for each architecture in the cache's folder; how many bytes that is."""
    return sum(len(compiler(None, f"sm_{number}").code(text)) for number in architectures for text in texts)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Compile the CUDA kernels of a program without a GPU.")
    parser.add_argument("--folder", type=Path, required=True, help="where to keep what is compiled")
    parser.add_argument("--architectures", default=ARCHITECTURES, metavar="N,...", help=f"for which ({ARCHITECTURES})")
    parser.add_argument("file", type=Path, help="a Python program")
    parser.add_argument("words", nargs=argparse.REMAINDER, help="what it is started with")
    options = parser.parse_args(argv)
    os.environ["GRADTAPE_CACHE"] = str(options.folder.resolve())
    architectures = [int(number) for number in options.architectures.split(",")]
    unknown = [number for number in architectures if f"sm_{number}" not in SHARED_BY_OPT_IN]
    if unknown:
        parser.error(
            f"the emulator knows {', '.join(SHARED_BY_OPT_IN)}, not {unknown}: how much memory do blocks have?"
        )
    program, texts, size = as_a_program(options.file, options.words), set[str](), 0
    for most in sorted({SHARED_BY_OPT_IN[f"sm_{number}"] for number in architectures}):
        alike = [number for number in architectures if SHARED_BY_OPT_IN[f"sm_{number}"] == most]
        found = texts_of(program, f"sm_{alike[0]}")
        size += bake(found, alike)
        texts.update(found)
    print(f"{len(texts)} texts for {len(architectures)} architectures: {size / 1e6:.1f} MB in {options.folder}")


if __name__ == "__main__":
    main()
