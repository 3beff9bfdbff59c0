"""Where kernel ops run: by their form for the host, and as kernels on the emulated device."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gradtape.runtime.devices import DEVICES
from tests.cuda_emulator import cupy_stand_in
from tests.cuda_emulator.device import Device
from tests.cuda_emulator.devices import emulated


@pytest.fixture
def device() -> Iterator[Device]:
    """The emulated device, for one test."""
    before = DEVICES.device
    with cupy_stand_in.using_device() as found:
        DEVICES.use(emulated())
        try:
            yield found
            found.synchronize("end of a test")
        finally:
            DEVICES.use(None if before is None else before.cuda)


@pytest.fixture(params=["host", "device"])
def place(request: pytest.FixtureRequest) -> str:
    """Each of both in turn."""
    if request.param == "device":
        request.getfixturevalue("device")
    return str(request.param)
