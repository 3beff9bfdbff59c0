"""One section in this process: python -m tools.gpu_check.section NAME --out FILE"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

from gradtape.backends.cuda.blas import MATH
from gradtape.runtime.devices import DEVICES
from tests.cuda_emulator import cupy_stand_in
from tests.cuda_emulator.devices import emulated
from tools.gpu_check.outcome import FAILED, NOT_RUN, PASSED, Found, NotRun, Outcome
from tools.gpu_check.plan import NAMES
from tools.gpu_check.setting import SMALL, Setting


@contextlib.contextmanager
def all_bits() -> Iterator[None]:
    """A block whose products have all bits of float32."""
    before, MATH.tf32 = MATH.tf32, False
    try:
        yield
    finally:
        MATH.tf32 = before


@contextlib.contextmanager
def on_the_device(
    dry: bool,
    seconds: float = 60.0,
    carried: Path | None = None,
    seed: int = 0,
    programs: tuple[str, ...] | None = None,
) -> Iterator[Setting]:
    """A block whose tensors are on the GPU; in a dry run on the emulated device, with small sizes. Products have all
    bits. `seed`: of the order in which the emulator runs blocks and threads."""
    with all_bits():
        if not dry:
            if DEVICES.device is None:
                raise RuntimeError("this process has no GPU: `gradtape doctor --require-gpu` says why")
            yield Setting(DEVICES.device.cuda, False, 1.0, seconds, carried, programs)
            return
        before = DEVICES.device
        with cupy_stand_in.using_device(seed=seed):
            cuda = emulated()
            DEVICES.use(cuda)
            try:
                yield Setting(cuda, True, SMALL, seconds, carried, programs)
            finally:
                DEVICES.use(None if before is None else before.cuda)


def outcome(
    name: str, dry: bool, seconds: float, carried: Path | None = None, programs: tuple[str, ...] | None = None
) -> Outcome:
    """What becomes of a section."""
    begin = time.perf_counter()

    def ended(state: str, text: str, log: str = "", found: Found | None = None) -> Outcome:
        return Outcome(name, state, text, time.perf_counter() - begin, found.figures if found else {}, log)

    try:
        module = importlib.import_module(f"tools.gpu_check.sections.{name}")
        with on_the_device(dry, seconds, carried, programs=programs) as setting:
            found = module.run(setting)
            setting.wait()
    except NotRun as e:
        return ended(NOT_RUN, str(e))
    except Exception as e:  # noqa: BLE001  whatever it is, it is this section's failure
        return ended(FAILED, _in_a_line(e), traceback.format_exc())
    return ended(PASSED, found.text, found=found)


def _in_a_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.gpu_check.section", description=__doc__)
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--carried", type=Path)
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args(arguments)
    found = outcome(options.name, options.dry_run, options.seconds, options.carried)
    found.write(options.out)
    if found.log:
        print(found.log, file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
