"""The short table at the end, and the results as JSON. Needs nothing but Python."""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tools.gpu_check.needs import ROOT
from tools.gpu_check.outcome import FAILED, NOT_RUN, PASSED, Outcome

WIDTH = 118
SCHEMA = 1


def written(outcomes: Sequence[Outcome], dry: bool, kernels: dict[str, int], file: Path | None) -> list[Outcome]:
    """Print what failed and the table, write the results; the outcomes that failed."""
    device = next((o.figures for o in outcomes if o.section == "device" and o.state == PASSED), {})
    target = file or _file(device, dry)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(results(outcomes, dry, kernels, device), indent=1) + "\n", encoding="utf-8")
    failed = [o for o in outcomes if o.state == FAILED]
    for o in failed:
        print(f"---- {o.section} failed: {o.text}\n{o.log.rstrip()}\n")
    print(table(outcomes, dry, kernels))
    print(f"results: {target}")
    return failed


def results(outcomes: Sequence[Outcome], dry: bool, kernels: dict[str, int], device: dict[str, Any]) -> dict[str, Any]:
    """Everything, as it is written."""
    return {
        "schema": SCHEMA,
        "dry_run": dry,
        "date": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "revision": _revision(),
        "device": device,
        "kernels": kernels,
        "sections": [asdict(o) for o in outcomes],
    }


def table(outcomes: Sequence[Outcome], dry: bool, kernels: dict[str, int]) -> str:
    """A line or two for each section, the figures of the fast ones, and the sum."""
    lines = []
    if dry:
        lines.append("A dry run on the emulated device, with small sizes: nothing here is a GPU's time.")
    for o in outcomes:
        head = f"{o.section:10} {o.state:8} {o.seconds:5.1f} s  "
        text = textwrap.wrap(o.text, WIDTH - len(head), max_lines=3, placeholder=" ...") or [""]
        lines += [head + text[0], *(" " * len(head) + more for more in text[1:])]
    for o in outcomes:
        rows = o.figures.get("table", [])
        if rows:
            widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
            lines += ["", f"{o.section}:"]
            lines += ["  " + "  ".join(cell.ljust(w) for cell, w in zip(row, widths)).rstrip() for row in rows]
    counts = {state: sum(o.state == state for o in outcomes) for state in (PASSED, FAILED, NOT_RUN)}
    total = sum(o.seconds for o in outcomes)
    told = ", ".join(f"{n} {state}" for state, n in counts.items())
    if not dry:
        told += f"; {kernels['compiled']} modules of kernels compiled here, {kernels['carried']} came along"
    return "\n".join([*lines, "", f"{told}; {total:.0f} s"])


def _file(device: dict[str, Any], dry: bool) -> Path:
    """Where results go: figures that were measured to the others, and a dry run's to what runs leave behind."""
    if dry:
        return ROOT / "out" / "gpu-check-dry-run.json"
    name = re.sub(r"[^a-z0-9]+", "-", str(device.get("name", "unknown")).lower()).strip("-")
    return ROOT / "benchmarks" / "results" / f"gpu-check-{name}-{time.strftime('%Y-%m-%d')}.json"


def _revision() -> str | None:
    """The commit that is checked out; None where there is no git, or no history came along."""
    command = ["git", "-C", str(ROOT), "rev-parse", "--short=10", "HEAD"]
    try:
        run = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        print("no git here, so that the results do not name the commit", file=sys.stderr)
        return None
    return run.stdout.strip() or None
