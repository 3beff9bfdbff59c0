"""How far results are apart."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def apart(found: Array, wanted: Array) -> float:
    """The largest difference in terms of the largest wanted number; 0 where no bit differs. What is not finite has to
    be the same.

    Raises:
      AssertionError: shapes or dtypes differ."""
    assert found.shape == wanted.shape, f"shape {found.shape}, wanted {wanted.shape}"
    assert found.dtype == wanted.dtype, f"{found.dtype}, wanted {wanted.dtype}"
    if found.tobytes() == wanted.tobytes():
        return 0.0
    kind = np.complex128 if wanted.dtype.kind == "c" else np.float64
    a, b = found.astype(kind), wanted.astype(kind)
    finite = np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return float("inf")
    off = np.abs(a - b)[finite]
    if np.isnan(off).any():
        return float("inf")
    largest = float(np.abs(b[finite]).max(initial=0.0))
    return float(off.max(initial=0.0)) / (largest or 1.0)


def agree(what: str, found: Any, wanted: Any, tolerance: float) -> float:
    """How far results are apart.

    Raises:
      AssertionError: further than they may."""
    error = apart(np.asarray(found), np.asarray(wanted))
    assert error <= tolerance, f"{what}: apart by {error:.3g} of the largest number, {tolerance:g} are allowed"
    return error
