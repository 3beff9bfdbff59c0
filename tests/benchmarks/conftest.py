"""What holds for every test of the benchmarks."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def what_was_frozen_is_frozen_again() -> Iterator[None]:
    """A measurement lets go of all that is frozen, also of what the whole run keeps from the collector."""
    frozen = gc.get_freeze_count()
    yield
    if frozen and not gc.get_freeze_count():
        gc.freeze()
