"""Every op of the table: each of its samples, in each dtype, against the host. Groups of ops run in processes side by
side, since what takes the time is NVIDIA's compiler."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from gradtape.backends.cuda.device import Cuda
from tests.backends.cuda.running import texts_of
from tests.backends.cuda.test_every_op import LISTED, entries, runs, wanted
from tests.kernels.cuda.test_run import assert_near
from tools.gpu_check.outcome import Found, NotRun
from tools.gpu_check.programs import asked
from tools.gpu_check.section import on_the_device
from tools.gpu_check.setting import Setting

GROUPS = 16
FEW = 64  # groups of a dry run, which does the first one
ULPS = 256  # of the largest number: functions of CUDA's are right to a few, and ops put several together
PROCESSES = 8
SHOWN = 40


def kernels(group: int, groups: int) -> tuple[list[Any], list[str]]:
    """What a group of ops runs, with the host's results, and the texts of all its kernels; none of them where there is
    no g++, which finds them out. Then each is compiled when it has to run."""
    with np.errstate(all="ignore"):
        found = [(c, d, w) for op in LISTED[group::groups] for c, d in entries(op) if (w := wanted(c, d)) is not None]
    if shutil.which("g++") is None:
        return found, []
    return found, texts_of(lambda cuda: [runs(case, dtype, cuda) for case, dtype, _ in found])


def differing(cuda: Cuda, group: int, groups: int) -> tuple[int, list[str]]:
    """How many samples ran, and which of them gave something else than the host."""
    known, texts = kernels(group, groups)
    cuda.compile(texts)
    failures = []
    for case, dtype, host in known:
        about = f"{case!r} {dtype.name}"
        try:
            found = [np.asarray(cuda.host(a)) for a in runs(case, dtype, cuda)]
            for a, b in zip(found, host, strict=True):
                assert_near(a, b, about, ULPS)
        except Exception as e:  # noqa: BLE001  the other samples are looked at all the same
            failures.append(f"{about}: {type(e).__name__}: {' '.join(str(e).split())[:200]}")
    return len(known), failures


def run(s: Setting) -> Found:
    groups, count = (FEW, 1) if s.emulated else (GROUPS, GROUPS)
    end = time.monotonic() + s.seconds
    with tempfile.TemporaryDirectory() as folder:
        found, late = _in_processes(s, groups, count, end, Path(folder))
    samples = sum(f["samples"] for f in found)
    failures = [line for f in found for line in f["failures"]]
    listed = "\n".join(failures[:SHOWN])
    assert not failures, f"{len(failures)} of {samples} samples give something else than on the host\n{listed}"
    if not found:
        raise NotRun(f"no group of ops was done after {s.seconds:.0f} s")
    text = f"{samples} samples of ops give the host's results"
    text += f"; no time for {late} of {count} groups" if late else ""
    return Found(text, {"samples": samples, "groups without time": late})


def _in_processes(s: Setting, groups: int, count: int, end: float, folder: Path) -> tuple[list[dict[str, Any]], int]:
    """What each group has found, and how many had no time."""
    most = max(1, min(PROCESSES, len(os.sched_getaffinity(0)) - 1))
    waiting, found = list(range(count)), []
    working: dict[int, subprocess.Popen[bytes]] = {}
    try:
        while (waiting or working) and time.monotonic() < end - 1:
            while waiting and len(working) < most:
                group = waiting.pop(0)
                command = [sys.executable, "-m", "tools.gpu_check.sections.ops", f"{group}/{groups}", *s.words()]
                with (folder / f"{group}.log").open("wb") as log:
                    working[group] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
            for group, process in list(working.items()):
                if process.poll() is not None:
                    del working[group]
                    said = (folder / f"{group}.log").read_text(encoding="utf-8", errors="replace")
                    assert not process.returncode, f"group {group} ended with {process.returncode}:\n{said[-3000:]}"
                    found.append(json.loads(said.splitlines()[-1]))
            time.sleep(0.05)
        return found, len(waiting) + len(working)
    finally:
        for process in working.values():
            process.kill()
            process.wait()


def main(which: str, *words: str) -> None:
    group, groups = (int(n) for n in which.split("/"))
    with on_the_device(asked(words)[0]) as setting:
        samples, failures = differing(setting.cuda, group, groups)
    print(json.dumps({"samples": samples, "failures": failures}))


if __name__ == "__main__":
    main(*sys.argv[1:])
