"""The counter that every check of the op table increments."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.op_table.tally import PROPERTY, Checks


@pytest.fixture
def checks(request: pytest.FixtureRequest) -> Iterator[Checks]:
    """Call it once per comparison. A test of an op that compared nothing is an error."""
    made = Checks()
    failed = request.session.testsfailed
    yield made
    op = request.node.callspec.params["op"]
    request.node.user_properties.append((PROPERTY, (op.name, made.count)))
    assert made.count or request.session.testsfailed > failed, f"this test of `{op.name}` compared nothing"
