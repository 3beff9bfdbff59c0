"""The same bits in two runs of one process, and in another process. In a dry run the other one's emulator runs blocks
and threads in another order."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Sequence

from tools.gpu_check.outcome import Found
from tools.gpu_check.programs import asked, results
from tools.gpu_check.section import on_the_device
from tools.gpu_check.setting import Setting

FULL, LEAST = 20_000, 12


def digests(n: int, programs: Sequence[str] | None) -> dict[str, str]:
    """What each result's bytes add up to."""
    return {name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in results(n, programs)}


def run(s: Setting) -> Found:
    n = s.size(FULL, LEAST)
    first, second = digests(n, s.programs), digests(n, s.programs)
    command = [sys.executable, "-m", "tools.gpu_check.sections.repeats", str(n), *s.words()]
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not child.returncode, child.stderr
    third = json.loads(child.stdout.splitlines()[-1])
    for what, other in (("again", second), ("in another process", third)):
        differing = [name for name in first if other[name] != first[name]]
        assert not differing, f"other bits {what}: {', '.join(differing)}"
    return Found(f"{len(first)} results are the same in two runs and in another process", {"digests": first})


if __name__ == "__main__":
    size, *words = sys.argv[1:]
    dry, programs = asked(words)
    with on_the_device(dry, seed=1):
        print(json.dumps(digests(int(size), programs)))
