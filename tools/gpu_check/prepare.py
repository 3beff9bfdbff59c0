"""What the check takes along to a machine without a network, into one folder: make gpu-carry

- `wheels`: packages that a GPU's image may lack.
- `kernels`: machine code of the sections' kernels, by NVIDIA's compiler, which needs no GPU.
- `emulated.npz`: results of the emulated device, to be compared with.

It needs g++ and the extra `nvrtc`. Machine code is used where the compiler is of the same version; what is missing is
compiled there.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gradtape.backends.cuda.device import whole
from gradtape.kernels import disk
from gradtape.runtime.devices import DEVICES
from tools.bake_kernels import bake, texts_of
from tools.gpu_check import needs, recording
from tools.gpu_check.programs import results
from tools.gpu_check.section import all_bits, on_the_device
from tools.gpu_check.sections import ops
from tools.gpu_check.setting import SMALL, Setting

# On every image for GPUs, and by far the largest.
HEAVY = ("numpy", "numba", "llvmlite")
ARCHITECTURES = "90"  # H100 and H200
GLIBC = ("2_17", "2_27", "2_28")
SECTIONS = ("offsets", "batches", "rows", "places", "graphs", "tf32", "memory", "repeats", "streams", "speed", "peers")


def wheels(folder: Path, python: str) -> int:
    """Fill a folder with wheels for a version of Python on Linux; how many there are."""
    tags = [f"manylinux_{version}_{platform.machine()}" for version in GLIBC] + [f"manylinux2014_{platform.machine()}"]
    wanted = [r for r in needs.wanted() if needs.name_of(r) not in HEAVY]
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--dest", str(folder)]
    command += ["--only-binary=:all:", "--python-version", python, "--implementation", "cp"]
    command += [word for tag in tags for word in ("--platform", tag)]
    subprocess.run([*command, *wanted], check=True)
    for file in folder.glob("*.whl"):
        if file.name.split("-")[0] in HEAVY:
            file.unlink()
    return len(list(folder.glob("*.whl")))


def texts() -> list[str]:
    """The kernels that sections launch in a dry run, in the modules that they compile."""
    found: dict[str, None] = {}
    for name in SECTIONS:
        found |= dict.fromkeys(texts_of(_section(name)))
    found |= dict.fromkeys(texts_of(lambda: list(results(recording.SIZE))))
    with np.errstate(all="ignore"):
        return [*found, *(whole("\n".join(dict.fromkeys(ops.kernels(k, ops.GROUPS)[1]))) for k in range(ops.GROUPS))]


def _section(name: str) -> Callable[[], Any]:
    module = importlib.import_module(f"tools.gpu_check.sections.{name}")

    def run() -> None:
        assert DEVICES.device is not None
        with all_bits():
            module.run(Setting(DEVICES.device.cuda, True, SMALL, 60.0))

    return run


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.gpu_check.prepare", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where everything goes")
    parser.add_argument("--python", default="3.12", metavar="N.N", help="of the machine with the GPU (3.12)")
    parser.add_argument("--architectures", default=ARCHITECTURES, metavar="N,...", help=f"its GPUs ({ARCHITECTURES})")
    parser.add_argument("--without-wheels", action="store_true", help="nothing is downloaded")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    os.environ["GRADTAPE_DEVICE"] = "cpu"  # tensors are on the emulated device, also where there is a GPU
    if not options.without_wheels:
        print(f"wheels: {wheels(options.folder / 'wheels', options.python)}", flush=True)
    with on_the_device(dry=True) as setting:
        found = recording.recorded(setting.cuda)
    recording.write(options.folder / recording.FILE, found)
    print(f"results of the emulated device: {len(recording.arrays(found))}", flush=True)
    os.environ["GRADTAPE_CACHE"] = str((options.folder / "kernels").resolve())
    modules, architectures = texts(), [int(number) for number in options.architectures.split(",")]
    if len(modules) * len(architectures) > disk.MAX_FILES:
        most = disk.MAX_FILES // len(modules)
        parser.error(f"a folder keeps {disk.MAX_FILES} modules: {most} architectures at most, got {architectures}")
    size = bake(modules, architectures)
    print(f"modules of kernels: {len(modules)} for {len(architectures)} architectures, {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
