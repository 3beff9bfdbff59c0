"""The benchmarks of Jacobians alone: python -m benchmarks.jacobian_run [arguments of benchmarks.run]

The table, the results as JSON and a picture of time and memory against size land in out/."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import jacobian, run
from benchmarks.plot import draw

OUT = Path(__file__).parents[1] / "out"


def main(arguments: Sequence[str]) -> int:
    OUT.mkdir(exist_ok=True)
    results, picture = OUT / "jacobian.json", OUT / "jacobian-growth.png"
    names = [w.name for w in jacobian.WORKLOADS]
    status = run.main([*names, "--json", str(results), "--markdown", str(OUT / "jacobian.md"), *arguments])
    draw(json.loads(results.read_text(encoding="utf-8")), picture)
    print(f"time and memory against size: {picture}")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
