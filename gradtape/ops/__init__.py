"""The op table: kinds, registry, declarations. Importing this package declares every built-in op. Floor: ops."""

from gradtape.ops import (
    arithmetic,
    call,
    comparison,
    contractions,
    elementary,
    indexing,
    layout,
    ordering,
    placement,
    random_bits,
    reductions,
    rowwise,
    scans,
)

__all__ = [
    "arithmetic",
    "call",
    "comparison",
    "contractions",
    "elementary",
    "indexing",
    "layout",
    "ordering",
    "placement",
    "random_bits",
    "reductions",
    "rowwise",
    "scans",
]
