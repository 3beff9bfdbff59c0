"""The ops that are no clusters on a device, by name. Floor: backends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradtape.backends.cuda import assembling, moves, positions, scattering, windows
from gradtape.ir.graph import Graph

OPS: dict[str, Callable[..., Any]] = {**assembling.OPS, **moves.OPS, **positions.OPS, **scattering.OPS, **windows.OPS}
EXPANSIONS: dict[str, Callable[..., Graph]] = {}
