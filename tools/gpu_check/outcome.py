"""What becomes of a section: passed, failed or not run. Needs nothing but Python, as the command itself."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

PASSED, FAILED, NOT_RUN = "passed", "failed", "not run"


class NotRun(Exception):
    """A section cannot be run here; the message says why."""


@dataclass
class Found:
    """What a section that passed has found: a line, and figures for the results."""

    text: str
    figures: dict[str, Any] = field(default_factory=dict)


@dataclass
class Outcome:
    """One section's outcome. `text`: what was found, or the reason; `log`: what it wrote, where it failed."""

    section: str
    state: str
    text: str
    seconds: float = 0.0
    figures: dict[str, Any] = field(default_factory=dict)
    log: str = ""

    def write(self, file: Path) -> None:
        file.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @staticmethod
    def read(file: Path) -> Outcome:
        return Outcome(**json.loads(file.read_text(encoding="utf-8")))
