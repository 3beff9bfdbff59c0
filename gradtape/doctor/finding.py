"""`Finding`: one line of the report. Floor: top."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    """One line of the report: what was looked at, what was found, and whether it must be mended."""

    name: str
    text: str
    fault: bool = False
