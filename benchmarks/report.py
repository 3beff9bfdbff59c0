"""The table that people read, made from the results as JSON holds them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import OURS, by_speed

Data = dict[str, Any]


def markdown(data: Data) -> str:
    """The whole report: machine, races, counted figures, notes."""
    parts = ["# gradtape against its peers", _machine(data), _races(data), _counts(data), _notes(data)]
    return "\n\n".join(part for part in parts if part) + "\n"


def hand_out(data: Data, results: Path | None, table: Path | None) -> None:
    """Print the report; write everything as JSON, and the report, to files where some are given."""
    text = markdown(data)
    print(text)
    if results:
        results.write_text(json.dumps(data) + "\n", encoding="utf-8")
    if table:
        table.write_text(text, encoding="utf-8")


def number(value: float | None) -> str:
    """Three significant digits, without exponents where they can be avoided."""
    if value is None:
        return "-"
    size = abs(value)
    if value == int(value) and size < 1e9:
        return f"{int(value):,}"
    if size >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


# ---- parts -----------------------------------------------------------------------------------------------------------


def _machine(data: Data) -> str:
    m = data["machine"]
    versions: dict[str, str | None] = {}
    for setting in data["settings"]:
        versions |= setting["versions"]
    listed = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    lines = [
        f"{m['processor']}; {m['cores']} cores; {m['system']}; {m['python']}.",
        f"{listed}{'; commit ' + m['revision'] if m['revision'] else ''}; {m['date']}.",
    ]
    absent = [name for name, version in versions.items() if not version]
    if absent:
        lines.append(f"Missing peers: {', '.join(absent)}.")
    if m.get("gpu"):
        lines.append(
            f"On {m['gpu']}: all libraries with all bits of float32; a slice ends when the GPU is done. Results are "
            "checked, but not read in the timing."
        )
    if data["quick"]:
        lines.append("A quick run: small sizes and few slices, so these numbers say little.")
    return "\n".join(lines)


def _races(data: Data) -> str:
    races = [(setting["threads"], r) for setting in data["settings"] for r in setting["races"]]
    if not races:
        return ""
    peers = list(dict.fromkeys(e["peer"] for _, r in races for e in r["programs"] if _shown(r, e)))
    head = ["workload", "threads", "unit", *peers, "ours / best peer", "target", "met"]
    rows = [_row(threads, r, peers) for threads, r in sorted(races, key=lambda pair: _place(data, pair[1]["name"]))]
    explained = "Times are minimum / median of the undisturbed slices, and so are ratios."
    return f"## Times\n\n{explained}\n\n{table(head, rows)}"


def _place(data: Data, name: str) -> int:
    return [r["name"] for setting in data["settings"] for r in setting["races"]].index(name)


def _shown(race: Data, entry: Data) -> bool:
    return bool(entry["peer"] != race["baseline"])


def _row(threads: int, race: Data, peers: Sequence[str]) -> list[str]:
    cells = [_cell([e for e in race["programs"] if e["peer"] == peer and _shown(race, e)]) for peer in peers]
    best = race["ratios"].get(race["best"])
    ratio = f"{number(best['minimum'])} / {number(best['median'])} ({race['best']})" if best else "-"
    targets = "; ".join(t["text"] for t in race["targets"])
    met = "; ".join(t["met"] for t in race["targets"])
    return [f"`{race['name']}`", str(threads), race["unit"], *cells, ratio, targets, met]


def _cell(entries: Sequence[Data]) -> str:
    """A peer's fastest variant, or why there is none."""
    ran = [e for e in entries if e["state"] == "ran" and e.get("median") is not None]
    if ran:
        best = min(ran, key=lambda e: by_speed(e["median"], e["quiet"], e["dropped"]))
        name = f" ({best['variant']})" if len(entries) > 1 else ""
        return f"{number(best['minimum'])} / {number(best['median'])}{name}"
    for state in ("refused", "failed", "missing"):
        if any(e["state"] == state for e in entries):
            return state
    return "disturbed" if any("slices" in e for e in entries) else "-"


def _counts(data: Data) -> str:
    rows = [
        (f"`{c['name']}`", f["name"], f"{number(f['value'])} {f['unit']}".strip(), *_limit(f), f["note"])
        for setting in data["settings"]
        for c in setting["counts"]
        for f in c["figures"]
    ]
    return f"## Counts\n\n{table(('workload', 'figure', 'value', 'target', 'met', 'note'), rows)}" if rows else ""


def _limit(figure: Data) -> tuple[str, str]:
    if figure["limit"] is None:
        return "", ""
    return f"≤ {number(figure['limit'])} {figure['unit']}".strip(), "yes" if figure["met"] else "no"


def _notes(data: Data) -> str:
    """What each workload is, how many slices count, and what went wrong."""
    lines: dict[str, None] = {}
    for setting in data["settings"]:
        for r in setting["races"]:
            lines[f"- `{r['name']}`: {r['about']}."] = None
        for c in setting["counts"]:
            lines[f"- `{c['name']}`: {c['about']}."] = None
    for setting in data["settings"]:
        for r in setting["races"]:
            lines |= dict.fromkeys(_slices(setting["threads"], r))
    return "## Notes\n\n" + "\n".join(lines) if lines else ""


def _slices(threads: int, race: Data) -> list[str]:
    timed = [e for e in race["programs"] if "slices" in e]
    kept = ", ".join(f"{_name(e)} {e['quiet']} of {e['quiet'] + e['dropped']}" for e in timed)
    lines = [f"- `{race['name']}`, threads {threads}: slices without foreign load: {kept}."] if kept else []
    for e in race["programs"]:
        if e["state"] != "ran":
            own = " " if e["peer"] != OURS else " (ours) "
            lines.append(f"- `{race['name']}`, threads {threads}: {_name(e)}{own}{e['state']}: {e['note']}.")
    return lines


def _name(entry: Data) -> str:
    return f"{entry['peer']} {entry['variant']}".strip()
