"""Small programs of all kinds under compute-sanitizer's memcheck, each array in memory of its own. In a dry run they
run without it: the emulator looks at each load and store itself."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

from tools.gpu_check.outcome import Found, NotRun
from tools.gpu_check.programs import PROGRAMS, asked, results
from tools.gpu_check.section import on_the_device
from tools.gpu_check.setting import Setting

SIZE = 12
TOOL = "compute-sanitizer"
PLACES = ("", "/usr/local/cuda/bin/", "/usr/local/cuda/compute-sanitizer/")
ERRORS = 77  # the exit status that it should have where it found some
# What it says where it cannot look at a program at all.
REFUSALS = ("Device not supported", "not permitted", "Unable to", "unsupported", "No attachable process")
TAIL = 3000


def run(s: Setting) -> Found:
    program = [sys.executable, "-m", "tools.gpu_check.sections.sanitizer", *s.words()]
    if s.emulated:
        child = subprocess.run(program, capture_output=True, text=True, check=False)
        assert not child.returncode, child.stderr
        count = len(s.programs or PROGRAMS)
        return Found(f"{count} programs run on the emulator, which looks at each access; {TOOL} was not asked")
    tool = next((found for place in PLACES if (found := shutil.which(place + TOOL))), None)
    if tool is None:
        raise NotRun(f"{TOOL} is not installed, or not on the PATH")
    return looked_at([tool, "--tool", "memcheck", "--error-exitcode", str(ERRORS), *program], s.seconds)


def looked_at(command: list[str], seconds: float) -> Found:
    """What the tool says of a program."""
    try:
        child = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds - 2)
    except subprocess.TimeoutExpired:
        raise NotRun(f"{TOOL} was not done after {seconds - 2:.0f} s") from None
    said = child.stdout + child.stderr
    summary = re.search(r"ERROR SUMMARY: (\d+) error", said)
    if summary is None or (child.returncode and int(summary[1]) == 0):
        refusal = next((line for line in said.splitlines() if any(r in line for r in REFUSALS)), None)
        if refusal is not None:
            raise NotRun(f"{TOOL} does not run here: {refusal.strip('= ')}")
        raise AssertionError(f"{TOOL} ended with {child.returncode} and no summary:\n{said[-TAIL:]}")
    assert int(summary[1]) == 0, f"{TOOL} found {summary[1]} errors:\n{said[:TAIL]}"
    return Found(f"no error in {len(PROGRAMS)} programs")


if __name__ == "__main__":
    dry, programs = asked(sys.argv[1:])
    with on_the_device(dry) as setting:
        setting.xp.cuda.set_allocator(None)  # an access behind an array must not hit the pool's next one
        print(len(list(results(SIZE, programs))))
