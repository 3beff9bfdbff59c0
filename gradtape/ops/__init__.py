"""The op table: kinds, registry, declarations. Importing this package declares every built-in op. Floor: ops."""

from gradtape.ops import (
    arithmetic,
    call,
    comparison,
    contractions,
    convolution,
    elementary,
    indexing,
    layout,
    ordering,
    placement,
    pooling,
    random_bits,
    reductions,
    rowwise,
    scans,
    windows,
)

__all__ = [
    "arithmetic",
    "call",
    "comparison",
    "contractions",
    "convolution",
    "elementary",
    "indexing",
    "layout",
    "ordering",
    "placement",
    "pooling",
    "random_bits",
    "reductions",
    "rowwise",
    "scans",
    "windows",
]
