"""The benchmarks of whole programs alone: python -m benchmarks.plans_run [arguments of benchmarks.run]

The table, the results as JSON and a picture of all ratios to the best peer land in out/."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import plans, run
from benchmarks.ratios import draw

OUT = Path(__file__).parents[1] / "out"


def main(arguments: Sequence[str]) -> int:
    OUT.mkdir(exist_ok=True)
    results, picture = OUT / "plans.json", OUT / "plans.png"
    names = [w.name for w in plans.RACES]
    names += [*plans.ELSEWHERE, *(c.name for c in plans.COUNTS)]
    status = run.main([*names, "--json", str(results), "--markdown", str(OUT / "plans.md"), *arguments])
    draw(json.loads(results.read_text(encoding="utf-8")), picture)
    print(f"times in terms of the best peer's: {picture}")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
