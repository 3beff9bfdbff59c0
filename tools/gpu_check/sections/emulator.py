"""Results of the emulated device, which `make gpu-carry` recorded, or which this machine's g++ makes now, again on the
GPU: the same kernels."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tools.gpu_check import recording
from tools.gpu_check.comparing import agree
from tools.gpu_check.outcome import Found, NotRun
from tools.gpu_check.programs import tolerance
from tools.gpu_check.setting import Setting


def run(s: Setting) -> Found:
    wanted, how = _wanted(s)
    found = recording.recorded(s.cuda, s.programs)
    assert list(found) == list(wanted), "the results have other names: they were recorded for another version"
    worst = {name: agree(name, found[name], wanted[name], tolerance(name)) for name in recording.arrays(found)}
    ours, theirs = (set(r[recording.TEXTS].tolist()) for r in (found, wanted))
    assert ours == theirs, f"{len(ours ^ theirs)} kernels have another text: the results are of another version"
    furthest = max(worst, key=lambda name: worst[name])
    text = (
        f"{len(worst)} results by {len(ours)} kernels, {how}, agree; furthest apart: {furthest}, {worst[furthest]:.1e}"
    )
    return Found(text, {"apart": worst})


def _wanted(s: Setting) -> tuple[dict[str, Any], str]:
    """The emulator's results, and how they came here."""
    carried = s.carried / recording.FILE if s.carried is not None else None
    if carried is not None and carried.exists():
        return recording.read(carried), "recorded on the emulator"
    if shutil.which("g++") is None:
        raise NotRun("no results of the emulator came along (`make gpu-carry`), and there is no g++ to make them")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / recording.FILE
        command = [sys.executable, "-m", "tools.gpu_check.recording", str(file), *(s.programs or ())]
        child = subprocess.run(command, capture_output=True, text=True, check=False)
        assert not child.returncode, child.stderr
        return recording.read(file), "made by the emulator now"
