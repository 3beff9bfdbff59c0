"""Results of several runs as one: python -m benchmarks.joined FILE.json ... --json FILE --markdown FILE

For machines on which one workload after the other is measured, whenever they are quiet."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import hand_out

Data = Mapping[str, Any]


def joined(runs: Sequence[Data]) -> dict[str, Any]:
    """One setting for each number of threads, with the races in the order of the runs; a later run of a race takes
    the place of an earlier one.

    Raises:
      ValueError: runs of different machines or schemas, or of different versions of a library.
    """
    first = runs[0]
    machines = {json.dumps(_machine(run), sort_keys=True) for run in runs}
    if len(machines) > 1:
        raise ValueError(f"These runs are of {len(machines)} machines, schemas or lengths: {'; '.join(machines)}.")
    settings: dict[int, dict[str, Any]] = {}
    for run in runs:
        for s in run["settings"]:
            into = settings.setdefault(
                s["threads"], {"threads": s["threads"], "versions": {}, "races": {}, "counts": {}}
            )
            for name, version in s["versions"].items():
                if into["versions"].setdefault(name, version) != version:
                    raise ValueError(f"These runs have {name} {into['versions'][name]} and {version}.")
            for part in ("races", "counts"):
                for found in s[part]:
                    into[part].pop(found["name"], None)
                    into[part][found["name"]] = found
    revisions = list(dict.fromkeys(run["machine"]["revision"] for run in runs))
    dates = sorted({run["machine"]["date"] for run in runs})
    return {
        **first,
        "machine": first["machine"] | {"revision": ", ".join(filter(None, revisions)), "date": " and ".join(dates)},
        "settings": [
            s | {part: list(s[part].values()) for part in ("races", "counts")} for _, s in sorted(settings.items())
        ],
    }


def _machine(run: Data) -> dict[str, Any]:
    own = {k: v for k, v in run["machine"].items() if k not in ("revision", "date")}
    return own | {"schema": run["schema"], "quick": run["quick"]}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.joined", description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path, metavar="FILE", help="results as `benchmarks.run` writes them")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table")
    options = parser.parse_args(arguments)
    hand_out(
        joined([json.loads(path.read_text(encoding="utf-8")) for path in options.runs]), options.json, options.markdown
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
