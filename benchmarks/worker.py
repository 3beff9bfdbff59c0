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
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    cores = machine.quietest(options.threads)
    os.sched_setaffinity(0, cores)
    from benchmarks.trial import run  # loads NumPy, whose helper threads stay on the cores of the thread that loads it

    found = run(options.names, options.threads, options.quick, cores)
    options.out.write_text(json.dumps(found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
