"""`tf.config.experimental`: how a device computes, and its memory. Floor: api."""

from __future__ import annotations

from typing import Any

from gradtape.backends.cuda.blas import MATH
from gradtape.ir.determinism import DETERMINISM
from gradtape.runtime.devices import DEVICES
from gradtape.runtime.placement import kind_of, names

__all__ = [
    "enable_op_determinism",
    "enable_tensor_float_32_execution",
    "get_memory_info",
    "set_memory_growth",
    "tensor_float_32_execution_enabled",
]


def enable_tensor_float_32_execution(enabled: bool) -> None:
    """Let products of float32 and complex64 matrices on a GPU round their factors to ten bits of fraction
    (TensorFloat-32), which is several times faster there. It is so from the start, as in TensorFlow; the host always
    computes with all bits.

    >>> import gradtape as tf
    >>> tf.config.experimental.enable_tensor_float_32_execution(True)
    """
    MATH.tf32 = bool(enabled)


def enable_op_determinism() -> None:
    """Let every run of a program give the same results, bit for bit, on the same machine with the same number of
    threads and the same versions. Some work is slower then, and there is no way back.

    Kernels are compiled before their first run, and nothing is computed otherwise meanwhile. Sums, and what is
    scattered to one place, are added in one order always, with determinism or without. Products on a GPU get memory of
    their own for each stream and thread, so that cuBLAS splits them up in one way. Random numbers need a seed:
    `tf.random.set_seed`, or one of the op's own. What is chance by its nature is refused:
    `tf.random.Generator.from_non_deterministic_state`, and `tf.random.get_global_generator` before
    `tf.random.set_global_generator`. What Python code does by itself, in `tf.py_function` or in threads, is its own.

    Raises:
      RuntimeError: later, from what cannot be the same in every run.

    >>> import gradtape as tf
    >>> tf.random.set_seed(1)
    >>> tf.config.experimental.enable_op_determinism()

    Source: `tf.config.experimental.enable_op_determinism` of TensorFlow 2.
    """
    DETERMINISM.required = True


def tensor_float_32_execution_enabled() -> bool:
    """Whether products on a GPU may round their factors, as they do from the start.

    >>> import gradtape as tf
    >>> tf.config.experimental.enable_tensor_float_32_execution(True)
    >>> tf.config.experimental.tensor_float_32_execution_enabled()
    True
    """
    return MATH.tf32


def get_memory_info(device: str) -> dict[str, int]:
    """The bytes that tensors hold on a device, under "current", and the most that its pool has held, under "peak"; for
    the host, which does not count them, 0.

    Args:
      device: such as "GPU:0".

    Raises:
      ValueError: a device that is not there.

    >>> import gradtape as tf
    >>> tf.config.experimental.get_memory_info("CPU:0")
    {'current': 0, 'peak': 0}
    """
    kind = kind_of(device)
    if "GPU" not in device.upper():
        return {"current": 0, "peak": 0}
    if kind != "GPU" or DEVICES.device is None:
        raise ValueError(
            f"No matching devices found for {device!r}: this process has {', '.join(names())}. `gradtape doctor` says "
            "why."
        )
    used, most = DEVICES.device.cuda.memory()
    return {"current": used, "peak": most}


def set_memory_growth(device: Any, enable: bool) -> None:
    """Taken for programs that ask for it: memory of a GPU always grows as it is needed.

    >>> import gradtape as tf
    >>> for gpu in tf.config.list_physical_devices("GPU"):
    ...     tf.config.experimental.set_memory_growth(gpu, True)
    """
