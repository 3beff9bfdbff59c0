"""Sections one after the other, each in a process of its own with a budget of time. Needs nothing but Python."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

from tools.gpu_check.needs import ROOT
from tools.gpu_check.outcome import FAILED, NOT_RUN, Outcome
from tools.gpu_check.plan import Section

LEAST = 5.0  # seconds below which a section is not begun
GRACE = 5.0  # that a section has beyond its budget, to say itself what it did not get to
TAIL = 4000  # characters of a failed section's output


class Runner:
    """What runs sections.

    Args:
      folder: for files that nobody needs afterwards.
      dry: on the emulated device.
      carried: what came along; its kernels are put where this run looks for compiled ones.
      seconds: for all sections together.
    """

    def __init__(self, folder: Path, dry: bool, carried: Path | None, seconds: float) -> None:
        self.folder, self.dry = folder, dry
        self.carried = carried.resolve() if carried else None
        self.end = time.monotonic() + seconds
        self.cache = folder / "kernels"
        self.cache.mkdir(mode=0o700)
        if self.carried is not None:
            for file in (self.carried / "kernels").glob("*.code"):
                shutil.copy(file, self.cache)
        self.known = self._files()

    def kernels(self) -> dict[str, int]:
        """How many modules of kernels came along, and how many were compiled here."""
        return {"carried": len(self.known), "compiled": len(self._files() - self.known)}

    def run(self, section: Section) -> Outcome:
        """What became of a section."""
        begin, left = time.monotonic(), self.end - time.monotonic()
        if left < LEAST:
            return Outcome(section.name, NOT_RUN, "the time for all sections is over")
        print(f"{section.name}: {section.about} ...", file=sys.stderr, flush=True)
        out, log = self.folder / f"{section.name}.json", self.folder / f"{section.name}.log"
        seconds = min(section.seconds, left)
        command = [sys.executable, "-m", "tools.gpu_check.section", section.name]
        command += ["--out", str(out), "--seconds", f"{seconds:g}", *["--dry-run"] * self.dry]
        command += ["--carried", str(self.carried)] if self.carried else []
        with log.open("wb") as said:
            ended = _run(command, self._environment(), said, seconds + GRACE)
        took = time.monotonic() - begin
        if out.exists():
            found = Outcome.read(out)
            found.seconds = took
            return found
        tail = log.read_text(encoding="utf-8", errors="replace")[-TAIL:]
        why = f"it did not end within {seconds + GRACE:.0f} s" if ended is None else f"its process ended with {ended}"
        return Outcome(section.name, FAILED, why, took, log=tail)

    def _environment(self) -> dict[str, str]:
        path = os.pathsep.join(p for p in (str(ROOT), os.environ.get("PYTHONPATH", "")) if p)
        own = {"PYTHONPATH": path, "GRADTAPE_CACHE": str(self.cache), "GRADTAPE_DEVICE": "cpu" if self.dry else "gpu"}
        return os.environ | own

    def _files(self) -> set[str]:
        return {file.name for file in self.cache.glob("cuda_*.code")}


def _run(command: list[str], environment: dict[str, str], said: IO[bytes], seconds: float) -> int | None:
    """The exit status of a command; None where it, and all that it started, had to be ended."""
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=said, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
