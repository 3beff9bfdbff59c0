"""Kernels that users write with `numba.cuda.jit`: what they are, and how they are launched. Floor: kernels.

Numba is loaded by whoever made such a kernel."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from gradtape.ir.errors import UnimplementedError

SIMULATED = "numba.cuda.simulator"


def is_kernel(f: Any) -> bool:
    """Whether it is a kernel of `numba.cuda`, or of its simulator."""
    return type(f).__module__.startswith(("numba.cuda.", "numba_cuda.")) and callable(f)


def is_function(f: Any) -> bool:
    """Whether it is a function for kernels to call (`device=True`), and no kernel."""
    return bool(getattr(f, "_device", False) or getattr(f, "targetoptions", {}).get("device"))


def is_simulated(kernel: Any) -> bool:
    """Whether it runs on the host: `NUMBA_ENABLE_CUDASIM=1` was set when Numba was loaded."""
    return type(kernel).__module__.startswith(SIMULATED)


def parameters_of(kernel: Any) -> list[str]:
    """The names of a kernel's parameters."""
    return list(inspect.signature(python_of(kernel)).parameters)


def python_of(f: Any) -> Any:
    """The Python function that was compiled."""
    return getattr(f, "py_func", None) or f.__wrapped__


def launch(
    kernel: Any,
    grid: tuple[int, ...],
    block: tuple[int, ...],
    stream: int,
    shared: int,
    arrays: Sequence[Any],
    numbers: Sequence[Any],
) -> None:
    """Queue a kernel on a stream, given by its address; nobody waits for the streams that arrays come from.

    Raises:
      UnimplementedError: a kernel of the simulator.
    """
    from numba import cuda

    if is_simulated(kernel):
        raise UnimplementedError(
            f"`{kernel.__name__}` is a kernel of Numba's simulator, which does not run on a GPU. Unset "
            "NUMBA_ENABLE_CUDASIM, or run it on the host: `with tf.device('/CPU:0'):`."
        )
    given = [cuda.from_cuda_array_interface(a.__cuda_array_interface__, owner=a, sync=False) for a in arrays]
    kernel[grid, block, cuda.external_stream(stream) if stream else 0, shared](*given, *numbers)


def simulate(
    kernel: Any,
    grid: tuple[int, ...],
    block: tuple[int, ...],
    shared: int,
    operands: Sequence[Any],
    results: Sequence[Any],
    numbers: Sequence[Any],
) -> None:
    """Run a kernel of the simulator on arrays of the host, whose results it writes."""
    from numba import cuda

    given = [*(cuda.In(a) for a in operands), *(cuda.Out(r) for r in results)]
    kernel[grid, block, 0, shared](*given, *numbers)
