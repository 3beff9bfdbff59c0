"""A measuring process: one number of threads, pinned to its cores before any library is loaded.

`benchmarks.run` starts it with the environment of `benchmarks.machine` and reads the JSON that it writes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import machine


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.worker", description=__doc__)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    cores = machine.available() if options.gpu else machine.quietest(options.threads)
    os.sched_setaffinity(0, cores)
    # These load NumPy, whose helper threads stay on the cores of the thread that loads it.
    from benchmarks.trial import run
    from benchmarks.workload import Setting

    found = run(options.names, Setting(options.threads, options.quick, options.gpu), cores)
    options.out.write_text(json.dumps(found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
