"""The ops that are no clusters on a device, by name. Floor: backends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradtape.backends.cuda import (
    assembling,
    drawing,
    moves,
    positions,
    scans,
    scattering,
    sorting,
    transforms,
    windows,
)
from gradtape.ir.graph import Graph

TABLES = (assembling, moves, positions, scattering, windows, scans, drawing, sorting, transforms)
OPS: dict[str, Callable[..., Any]] = {name: function for table in TABLES for name, function in table.OPS.items()}
EXPANSIONS: dict[str, Callable[..., Graph]] = {}
