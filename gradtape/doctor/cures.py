"""What messages of CUDA's libraries mean, and what to do about them, in one line each. Floor: top."""

from __future__ import annotations

import re

NO_DRIVER = (
    "no NVIDIA driver was found. Install it on the host; in a container, start it with `--gpus all`. "
    "Until then tensors live on NumPy arrays"
)

# The first that is found in a message speaks. {0} is what its brackets hold.
CURES: tuple[tuple[str, str], ...] = (
    (
        r"CUDA driver version is insufficient|cudaErrorInsufficientDriver|CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
        "no NVIDIA driver was found, or one that is older than the CUDA packages. Install a newer driver (in a "
        "container: start it with `--gpus all`), or for a driver of CUDA 12: pip install 'gradtape[cu12]'",
    ),
    (r"CUDA driver library cannot be found|libcuda\.so|nvcuda\.dll|\"cuda\" is an NVIDIA driver library", NO_DRIVER),
    (
        r"no CUDA-capable device|cudaErrorNoDevice|CUDA_ERROR_NO_DEVICE",
        "the driver shows no GPU. Does CUDA_VISIBLE_DEVICES hide it? In a container, start it with `--gpus all`",
    ),
    (
        r"lib(\w+)\.so[.\d]*: cannot open shared object file",
        "the library {0} of CUDA is missing. Install the packages that hold it: pip install 'gradtape[cu13]'",
    ),
    (
        r"Failure finding \"(?:lib)?([A-Za-z]+)|DynamicLibNotFoundError.*?\"(\w+)\"",
        "the library {0} of CUDA is missing. Install the packages that hold it: pip install 'gradtape[cu13]'",
    ),
    (
        r"cannot open source file \"([\w./]+)\"|could not open source file \"([\w./]+)\"|([\w./]+\.h): No such file",
        "CUDA's headers ({0}) are missing. Install them: pip install 'cupy-cuda13x[ctk]'",
    ),
    (
        r"UNSUPPORTED_PTX_VERSION|PTX was compiled with an unsupported toolchain|unsupported PTX",
        "a kernel is newer than the driver. Unset CUPY_COMPILE_WITH_PTX, or install a newer driver",
    ),
    (
        r"no kernel image is available|NO_BINARY_FOR_GPU|NoKernelImageForDevice|invalid value for --gpu-architecture",
        "the CUDA packages do not know this GPU. Take those of its driver's version: pip install 'gradtape[cu12]'",
    ),
    (
        r"out of memory|OutOfMemory",
        "the GPU's memory is taken. `nvidia-smi` shows by whom; CUPY_GPU_MEMORY_LIMIT bounds what this process takes",
    ),
    (
        r"system not yet initialized|SYSTEM_NOT_READY",
        "the GPU's fabric is not ready. Start NVIDIA's fabric manager on the host",
    ),
    (
        r"Permission denied: '([^']*cupy[^']*)'",
        "CuPy's cache {0} cannot be written to. Set CUPY_CACHE_DIR to a folder of yours",
    ),
    (
        r"NOT_PERMITTED|Permission denied.*/dev/nvidia|/dev/nvidia.*Permission denied",
        "the GPU's device files may not be opened. Add the user to their group (`ls -l /dev/nvidia*`), or start the "
        "container with `--gpus all`",
    ),
    (
        r"numpy\.(?:core|_core)\.multiarray failed to import|numpy\.dtype size changed|compiled using NumPy 1",
        "CuPy and NumPy do not fit each other. Install both anew: pip install --force-reinstall 'gradtape[cu13]'",
    ),
)


def explained(message: str) -> str | None:
    """What a message means and what to do, in one line; None for one that is not known.

    >>> from gradtape.doctor.cures import explained
    >>> print(explained("ImportError: libcublas.so.13: cannot open shared object file: No such file or directory"))
    the library cublas of CUDA is missing. Install the packages that hold it: pip install 'gradtape[cu13]'
    """
    for pattern, cure in CURES:
        found = re.search(pattern, message, re.DOTALL)
        if found is not None:
            return cure.format(next((g for g in found.groups() if g), ""))
    return None


def told(message: str) -> str:
    """A message as a report tells it: what it means, or else its last line."""
    lines = message.strip().splitlines() or ["nothing was said"]
    return explained(message) or lines[-1]
