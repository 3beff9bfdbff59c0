"""How large an image of docker/ will be: the sizes of the wheels that its Dockerfile installs, which pip looks up
without downloading them.

python -m tools.image_size                          # both images
python -m tools.image_size docker/Dockerfile.cuda

Images are kept and sent compressed, as wheels are. What the base image holds comes on top.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DOCKERFILES = ("docker/Dockerfile.cpu", "docker/Dockerfile.cuda")
LIMIT = 3e9  # bytes


def extras(dockerfile: str) -> str:
    """The extras that a Dockerfile installs of the wheel, with its own defaults for build arguments."""
    defaults = dict(re.findall(r"^ARG (\w+)=(\S+)$", dockerfile, re.MULTILINE))
    found = re.search(r"\.whl\)\[([^]]+)\]", dockerfile)
    if found is None:
        raise ValueError('The Dockerfile installs no wheel with extras: `pip install "$(echo ...whl)[EXTRA]"`.')
    return re.sub(r"\$\{(\w+)\}", lambda m: defaults[m[1]], found[1])


def resolved(requirement: str) -> list[dict[str, Any]]:
    """What pip would install, as its report has it.

    Raises:
      RuntimeError: pip finds no way, or no packages.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
        done = subprocess.run(
            [*command, "--report", str(report), requirement], capture_output=True, text=True, check=False, cwd=ROOT
        )
        if done.returncode:
            raise RuntimeError(f"pip cannot resolve {requirement}:\n{done.stderr.strip()}")
        found: list[dict[str, Any]] = json.loads(report.read_text(encoding="utf-8"))["install"]
        return found


def size(url: str) -> int:
    """Bytes of a file: asked of its server, or read from the disk; a folder, such as the checkout, counts nothing."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "file":
        path = Path(urllib.request.url2pathname(parts.path))
        return path.stat().st_size if path.is_file() else 0
    with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=60) as answer:
        return int(answer.headers["Content-Length"])


def sizes(report: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Bytes by package and version, the largest first."""
    found = {f"{p['metadata']['name']} {p['metadata']['version']}": size(p["download_info"]["url"]) for p in report}
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def table(name: str, found: dict[str, int]) -> str:
    """Lines with megabytes, and their sum."""
    lines = [f"{count / 1e6:9.1f} MB  {package}" for package, count in found.items() if count]
    return "\n".join([f"{name}:", *lines, f"{sum(found.values()) / 1e6:9.1f} MB  in {len(lines)} packages"])


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table for each Dockerfile; 1 where one is too large."""
    parser = argparse.ArgumentParser(description="Add up the sizes of the wheels that go into an image.")
    parser.add_argument("dockerfiles", nargs="*", default=DOCKERFILES, help="which ones (both)")
    too_large = []
    for name in parser.parse_args(argv).dockerfiles:
        wanted = extras((ROOT / name).read_text(encoding="utf-8"))
        found = sizes(resolved(f".[{wanted}]"))
        print(table(f"{name} [{wanted}]", found), end="\n\n")
        if sum(found.values()) > LIMIT:
            too_large.append(name)
    if too_large:
        print(f"more than {LIMIT / 1e9:.0f} GB: {', '.join(too_large)}")
    return 1 if too_large else 0


if __name__ == "__main__":
    sys.exit(main())
