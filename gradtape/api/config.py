"""`tf.config`: which devices there are, and whether functions are traced. Floor: api."""

from __future__ import annotations

from typing import NamedTuple

from gradtape.api import config_experimental as experimental
from gradtape.runtime.eagerness import EAGERNESS
from gradtape.runtime.placement import SOFT, names

__all__ = [
    "LogicalDevice",
    "PhysicalDevice",
    "experimental",
    "functions_run_eagerly",
    "get_soft_device_placement",
    "list_logical_devices",
    "list_physical_devices",
    "run_functions_eagerly",
    "set_soft_device_placement",
]


class PhysicalDevice(NamedTuple):
    """A device of the machine."""

    name: str
    device_type: str


class LogicalDevice(NamedTuple):
    """A device as `tf.device` takes it."""

    name: str
    device_type: str


def list_physical_devices(device_type: str | None = None) -> list[PhysicalDevice]:
    """The devices that tensors can be on.

    Args:
      device_type: "CPU" or "GPU"; None: all.

    >>> import gradtape as tf
    >>> tf.config.list_physical_devices("CPU")
    [PhysicalDevice(name='/physical_device:CPU:0', device_type='CPU')]
    """
    found = [PhysicalDevice(f"/physical_device:{n}", n[:3]) for n in names()]
    return [d for d in found if device_type is None or d.device_type == device_type]


def list_logical_devices(device_type: str | None = None) -> list[LogicalDevice]:
    """The devices by the names that `tf.device` takes.

    Args:
      device_type: "CPU" or "GPU"; None: all.

    >>> import gradtape as tf
    >>> tf.config.list_logical_devices("CPU")
    [LogicalDevice(name='/device:CPU:0', device_type='CPU')]
    """
    found = [LogicalDevice(f"/device:{n}", n[:3]) for n in names()]
    return [d for d in found if device_type is None or d.device_type == device_type]


def get_soft_device_placement() -> bool:
    """Whether work that is sent to a device that is not there runs on the host.

    >>> import gradtape as tf
    >>> tf.config.get_soft_device_placement()
    True
    """
    return SOFT.placement


def set_soft_device_placement(enabled: bool) -> None:
    """Let work that is sent to a device that is not there run on the host, or fail.

    >>> import gradtape as tf
    >>> tf.config.set_soft_device_placement(True)
    """
    SOFT.placement = bool(enabled)


def run_functions_eagerly(run_eagerly: bool) -> None:
    """Have every `tf.function` call its Python function, with no trace: for debuggers and prints. Traces that are there
    already wait until it is switched off.

    >>> import gradtape as tf
    >>> @tf.function
    ... def f(x):
    ...     print("Python")
    ...     return x * 2.0
    >>> tf.config.run_functions_eagerly(True)
    >>> float(f(tf.constant(1.0))), float(f(tf.constant(2.0)))
    Python
    Python
    (2.0, 4.0)
    >>> tf.config.run_functions_eagerly(False)

    Source: `tf.config.run_functions_eagerly` of TensorFlow 2.
    """
    EAGERNESS.of_functions = bool(run_eagerly)


def functions_run_eagerly() -> bool:
    """Whether functions call their Python functions, with no trace.

    >>> import gradtape as tf
    >>> tf.config.functions_run_eagerly()
    False
    """
    return EAGERNESS.of_functions
