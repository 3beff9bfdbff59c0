"""What questions for many rows are asked with: checks of the arguments that they share. Floor: tape."""

from __future__ import annotations

import numpy as np

from gradtape.runtime.jacobian import MODES


def check_rows(parallel_iterations: int | None, mode: str) -> None:
    """Whether a number of rows and a mode make sense.

    Raises:
      ValueError: they do not."""
    whole = isinstance(parallel_iterations, int | np.integer) and not isinstance(parallel_iterations, bool)
    if parallel_iterations is not None and (not whole or parallel_iterations < 1):
        raise ValueError(f"`parallel_iterations` should be a positive integer or None, got {parallel_iterations!r}.")
    if mode not in MODES:
        raise ValueError(f"`mode` should be one of {', '.join(map(repr, MODES))}, got {mode!r}.")


def check_loop(at_once: bool, persistent: bool) -> None:
    """Whether a tape may be asked for one gradient after the other.

    Raises:
      RuntimeError: one that is not persistent."""
    if not at_once and not persistent:
        raise RuntimeError(
            "`experimental_use_pfor=False` asks for one gradient per row, for which the tape must have been made "
            "with `persistent=True`. Leave the argument out to compute all rows at once."
        )
