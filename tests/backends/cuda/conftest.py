"""A device for a test's process; what each op executed on the emulated device, for the end of the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from gradtape.backends.cuda.blas import MATH
from gradtape.runtime.devices import DEVICES
from tests.cuda_emulator import cudnn_stand_in, cupy_stand_in
from tests.cuda_emulator.device import Counts, Device
from tests.cuda_emulator.devices import emulated
from tests.devices import EXECUTED


@pytest.fixture
def executed(request: pytest.FixtureRequest) -> Iterator[Callable[[str, Sequence[str]], None]]:
    """Call it with the name of an op and of what it executed."""
    found: dict[str, Counter[str]] = {}
    yield lambda op, names: found.setdefault(op, Counter()).update(names)
    request.node.user_properties.extend((EXECUTED, (op, dict(names))) for op, names in found.items())


@pytest.fixture
def counts() -> Iterator[Counts]:
    """A device for this process, and its counts."""
    before = DEVICES.device
    with cupy_stand_in.using_device() as device:
        DEVICES.use(emulated())
        yield device.counts
        device.synchronize("end of a test")  # its faults are its own
        DEVICES.use(None if before is None else before.cuda)


@pytest.fixture(autouse=True)
def all_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products use all bits of their factors, as on the host."""
    monkeypatch.setattr(MATH, "tf32", False)


@pytest.fixture
def cudnn_device() -> Iterator[Device]:
    """A device for this process whose convolutions cuDNN does."""
    before = DEVICES.device
    with cupy_stand_in.using_device() as device:
        DEVICES.use(emulated(cudnn_stand_in))
        yield device
        device.synchronize("end of a test")
        DEVICES.use(None if before is None else before.cuda)


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The names of the engines of all plans that are made."""
    made: list[str] = []
    build = cudnn_stand_in.pygraph.build_plans

    def noted(self: Any, policy: Any = None) -> None:
        build(self, policy)
        made.append(self._plan.engine.name)

    monkeypatch.setattr(cudnn_stand_in.pygraph, "build_plans", noted)
    return made
