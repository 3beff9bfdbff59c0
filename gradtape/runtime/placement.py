"""Names of devices, and scopes that send work to one. Floor: runtime."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

from gradtape.runtime.devices import DEVICES
from gradtape.runtime.state import STATE

DEVICE = re.compile(
    r"/?(?:job:\w+/?)?(?:/?replica:\d+/?)?(?:/?task:\d+/?)?(?:/?(?:device:|physical_device:)?(?P<kind>CPU|GPU)"
    r"(?::(?P<number>\d+|\*))?)?",
    re.IGNORECASE,
)


class Soft:
    """Whether work that is sent to a device that is not there runs on another one, as TensorFlow's default is."""

    def __init__(self) -> None:
        self.placement = True


SOFT = Soft()


def names() -> list[str]:
    """The devices of this process, the host first."""
    return ["CPU:0", *([DEVICES.device.name] if DEVICES.device is not None else [])]


def kind_of(name: str) -> str | None:
    """What a device's name asks for: "CPU", "GPU", or None for no device in particular.

    Raises:
      ValueError: it is no name of a device.
    """
    found = DEVICE.fullmatch(name)
    if found is None:
        raise ValueError(
            f"Unknown attribute is encountered while parsing the device spec: {name!r}. Write '/CPU:0' or '/GPU:0'."
        )
    kind = found["kind"] and found["kind"].upper()
    if kind == "GPU" and not SOFT.placement:
        number = found["number"] or "0"
        if DEVICES.device is None or number not in ("0", "*"):
            raise RuntimeError(
                f"{name!r}: unknown device. This process has {', '.join(names())}; `gradtape doctor` says why."
            )
    return kind if kind != "GPU" or DEVICES.device is not None else "CPU"


@contextlib.contextmanager
def device(device_name: Any) -> Iterator[None]:
    """A block whose ops run on a device, and whose new tensors are there.

    Outside of such blocks floating and complex arrays go to the GPU of this process, where it has one; integers,
    truth values and strings stay on the host until an op with an operand on the GPU needs them. An op runs where its
    operands are; those on the host follow the others. A traced function runs where its operands are, whatever stands
    around the code that it was traced from.

    Args:
      device_name: such as "/CPU:0", "GPU:0" or "/job:localhost/device:GPU:0"; None for the rule above. Where there is
        no GPU its work runs on the host (see `tf.config.set_soft_device_placement`).

    Raises:
      ValueError: what is no name of a device.
      RuntimeError: a device that is not there, without soft placement.

    >>> import gradtape as tf
    >>> with tf.device("/CPU:0"):
    ...     x = tf.constant([1.0, 2.0]) * 2
    >>> x.device
    '/job:localhost/replica:0/task:0/device:CPU:0'
    """
    place = None if device_name is None else kind_of(str(device_name))
    outer, STATE.place = STATE.place, place
    try:
        yield
    finally:
        STATE.place = outer
