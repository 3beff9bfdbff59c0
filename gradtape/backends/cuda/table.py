"""The ops that are no clusters on a device, by name. Floor: backends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradtape.backends.cuda import (
    assembling,
    checking,
    determinants,
    drawing,
    exponential,
    factorizations,
    moves,
    positions,
    scans,
    scattering,
    sorting,
    systems,
    transforms,
    windows,
)
from gradtape.ir.graph import Graph

TABLES = (assembling, moves, positions, scattering, windows, scans, drawing, sorting, transforms, checking)
OPS: dict[str, Callable[..., Any]] = {name: function for table in TABLES for name, function in table.OPS.items()}
GRAPHS = (systems, factorizations, determinants, exponential)
EXPANSIONS: dict[str, Callable[..., Graph]] = {
    name: graph for table in GRAPHS for name, graph in table.EXPANSIONS.items()
}
