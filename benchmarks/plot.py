"""A picture of time and memory against size, from results as JSON: python -m benchmarks.plot results.json out.png"""

from __future__ import annotations

import argparse
import json
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.harness import OURS

Curves = Mapping[str, Mapping[int, float]]  # by library: size -> value

COLOURS = {OURS: "#d1495b", "torch": "#ee964b", "tensorflow": "#3d7ea6", "jax": "#4f9d69", "autograd": "#888888"}


def times(data: Mapping[str, Any], series: str, threads: int) -> Curves:
    """Each library's fastest program: median by size, of the races `series_SIZE`."""
    found: dict[str, dict[int, float]] = defaultdict(dict)
    for setting in data["settings"]:
        if setting["threads"] != threads:
            continue
        for race in setting["races"]:
            match = re.fullmatch(rf"{series}_(\d+)", race["name"])
            for e in race["programs"] if match else ():
                if match and e["state"] == "ran" and e.get("median") is not None:
                    size, of = int(match[1]), found[e["peer"]]
                    of[size] = min(of.get(size, float("inf")), e["median"])
    return found


def memory(data: Mapping[str, Any], series: str) -> Curves:
    found: dict[str, dict[int, float]] = defaultdict(dict)
    for setting in data["settings"]:
        for counted in setting["counts"]:
            for f in counted["figures"] if counted["name"] == f"{series}_memory" else ():
                match = re.fullmatch(rf"(\w+) {series}_(\d+)", f["name"])
                if match:
                    found[match[1]][int(match[2])] = f["value"]
    return found


def draw(data: Mapping[str, Any], path: Path, series: str = "scaling") -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    threads = next(s["threads"] for s in data["settings"])
    panels = [
        ("time of one call, median", "ms", times(data, series, threads)),
        ("rise of resident memory by the first calls", "MiB", memory(data, series)),
    ]
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.4))
    for axis, (title, unit, curves) in zip(axes, panels, strict=True):
        for peer in sorted(curves, key=lambda p: list(COLOURS).index(p)):
            sizes = sorted(curves[peer])
            values = [max(curves[peer][n], 1e-3) for n in sizes]
            width = 2.4 if peer == OURS else 1.4
            axis.plot(sizes, values, "o-", color=COLOURS[peer], label=peer, linewidth=width, markersize=4)
        axis.set(xscale="log", yscale="log", title=title, xlabel="n", ylabel=unit)
        sizes = sorted({n for of in curves.values() for n in of})
        axis.set_xticks(sizes, [str(n) for n in sizes], minor=False)
        axis.set_xticks([], minor=True)
        axis.grid(alpha=0.25)
        if curves:
            axis.legend(frameon=False)
    figure.suptitle(f"Jacobian of three tanh layers of n units, float32, {threads} thread{'s' * (threads > 1)}")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=140)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plot", description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("picture", type=Path)
    options = parser.parse_args()
    draw(json.loads(options.results.read_text(encoding="utf-8")), options.picture)


if __name__ == "__main__":
    main()
