"""A picture of each race's time in terms of the best peer's: python -m benchmarks.ratios results.json out.png"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.harness import OURS
from benchmarks.plot import COLOURS

MET, MISSED = COLOURS["jax"], COLOURS[OURS]


class Bar(NamedTuple):
    """One race: our median time in terms of the fastest peer's, and how much it may be."""

    name: str
    ratio: float
    peer: str
    limit: float | None


def bars(data: Mapping[str, Any], threads: int) -> list[Bar]:
    """The races that were measured with a number of threads, in their order."""
    found = []
    for setting in data["settings"]:
        for race in setting["races"] if setting["threads"] == threads else ():
            best = race["ratios"].get(race["best"])
            if best:
                limits = [t["limit"] for t in race["targets"] if t["of"] == "ratio" and t["against"] == "best peer"]
                found.append(Bar(race["name"], best["median"], race["best"], min(limits, default=None)))
    return found


def draw(data: Mapping[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    counts = sorted({s["threads"] for s in data["settings"] if s["races"]})
    height = 1.5 + 0.3 * max((len(bars(data, n)) for n in counts), default=1)
    figure, axes = plt.subplots(1, max(1, len(counts)), figsize=(6 * max(1, len(counts)), height), squeeze=False)
    for n, axis in zip(counts, axes[0]):
        _panel(axis, bars(data, n), n)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _panel(axis: Any, rows: list[Bar], threads: int) -> None:
    rows = rows[::-1]  # the first one on top
    colours = [MISSED if r.limit is not None and r.ratio > r.limit else MET for r in rows]
    axis.barh([r.name for r in rows], [r.ratio for r in rows], color=colours)
    for k, r in enumerate(rows):
        axis.text(r.ratio, k, f" {r.ratio:.2g} × {r.peer}", va="center", fontsize=8)
        if r.limit is not None:
            axis.plot([r.limit, r.limit], [k - 0.4, k + 0.4], color="black", linewidth=1.5)
    axis.axvline(1.0, color="grey", linestyle=":", linewidth=1)
    axis.set_xscale("log")
    axis.margins(x=0.25)
    axis.set_title(
        f"our time / the fastest peer's, {threads} thread{'s' * (threads > 1)}; black: the target", fontsize=9
    )
    axis.tick_params(labelsize=8)
    axis.spines[["top", "right"]].set_visible(False)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ratios", description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("picture", type=Path)
    options = parser.parse_args()
    draw(json.loads(options.results.read_text(encoding="utf-8")), options.picture)


if __name__ == "__main__":
    main()
