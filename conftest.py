"""Settings for every test and doctest: hypothesis profiles, and the names a doctest may use without importing them."""

import gc
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

# Print at the end, also where other processes run the tests: the counts of tests/op_table, and what had no compiler.
pytest_plugins = ["tests.op_table.tally", "tests.cuda_emulator.untested", "tests.devices"]

# Programs run op by op, so that no compiler works beside a test (it changes warning filters, and memory); tests of
# kernels ask for them.
os.environ.setdefault("GRADTAPE_KERNELS", "never")

# In CI the same examples every time: a red run must be red again when it is looked at.
settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("dev", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


# Twenty thousand tests and all that they import are there to the end: collections of garbage need not visit them.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Nor what the tests of a file leave behind, in caches above all."""
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()


@pytest.fixture(autouse=True)
def names_in_doctests(request: pytest.FixtureRequest) -> Iterator[None]:
    """Give doctests `tf` and `np`, as the docs' examples have them, and take back what has no public way back."""
    if isinstance(request.node, pytest.DoctestItem):
        namespace: dict[str, Any] = request.getfixturevalue("doctest_namespace")
        # Here, not at the top: a package that cannot be imported must fail its own tests, not the collection of all.
        import gradtape as tf

        namespace.update(tf=tf, np=np)
    yield
    if isinstance(request.node, pytest.DoctestItem):
        from gradtape.ir.determinism import DETERMINISM

        DETERMINISM.required = False
