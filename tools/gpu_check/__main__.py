"""The command: python -m tools.gpu_check [--dry-run] [--wheels FOLDER] [--carried FOLDER] [--only NAME,...]"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tools.gpu_check import needs, plan
from tools.gpu_check.report import written
from tools.gpu_check.running import Runner

BROKEN, UNPREPARED = 1, 2  # what the exit status says
INSIDE = "GRADTAPE_GPU_CHECK_INSIDE"  # set where the environment with the wheels is the one that runs


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser().parse_args(words)
    wheels = options.wheels or _folder(options.carried, "wheels")
    try:
        if wheels is not None and INSIDE not in os.environ and needs.missing(needs.wanted()):
            with tempfile.TemporaryDirectory(prefix="gradtape-gpu-check-") as folder:
                python = needs.environment(Path(folder) / "venv", wheels)
                command = [str(python), "-m", "tools.gpu_check", *words]
                return subprocess.run(command, cwd=needs.ROOT, env=os.environ | {INSIDE: "1"}, check=False).returncode
        needs.checked(options.dry_run)
    except needs.Missing as e:
        print(e, file=sys.stderr)
        return UNPREPARED
    with tempfile.TemporaryDirectory(prefix="gradtape-gpu-check-") as folder:
        runner = Runner(Path(folder), options.dry_run, options.carried, options.seconds)
        outcomes = [runner.run(s) for s in plan.SECTIONS if s.name in options.only]
        failed = written(outcomes, options.dry_run, runner.kernels(), options.json)
    return BROKEN if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.gpu_check",
        description="Check gradtape on a machine with an NVIDIA GPU, and measure it.",
        epilog="sections: " + "; ".join(f"{s.name}: {s.about}" for s in plan.SECTIONS),
    )
    parser.add_argument("--dry-run", action="store_true", help="all of it on the emulated device, with small sizes")
    parser.add_argument("--wheels", type=Path, metavar="FOLDER", help="packages that the machine may lack, as wheels")
    parser.add_argument("--carried", type=Path, metavar="FOLDER", help="what `make gpu-carry` made")
    parser.add_argument("--only", type=_names, default=plan.NAMES, metavar="NAME,...", help="these sections")
    parser.add_argument("--seconds", type=float, default=plan.TOTAL, help=f"for all of it ({plan.TOTAL:g})")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where results go (benchmarks/results/; dry: out/)")
    return parser


def _names(text: str) -> tuple[str, ...]:
    found = tuple(text.split(","))
    strangers = [name for name in found if name not in plan.NAMES]
    if strangers:
        raise argparse.ArgumentTypeError(f"no section is called {', '.join(strangers)}; there are {plan.NAMES}")
    return found


def _folder(carried: Path | None, name: str) -> Path | None:
    """A folder in the one that was carried along, where it is there."""
    return carried / name if carried is not None and (carried / name).is_dir() else None


if __name__ == "__main__":
    sys.exit(main())
