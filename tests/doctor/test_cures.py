"""Messages of CUDA's libraries as users meet them, and the line that the doctor makes of each."""

from __future__ import annotations

import pytest

from gradtape.doctor.cures import CURES, explained, told

MESSAGES = [
    ("cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime version", "--gpus all"),
    (
        "CudaSupportError: Error at driver init: CUDA driver library cannot be found. Ensure that a compatible NVIDIA "
        "driver is installed",
        "no NVIDIA driver was found",
    ),
    (
        'DynamicLibNotFoundError: "cuda" is an NVIDIA driver library and can only be found via system search. Ensure '
        "the NVIDIA display driver is installed.",
        "no NVIDIA driver was found",
    ),
    ("ImportError: libcublas.so.13: cannot open shared object file", "library cublas of CUDA is missing"),
    ('Failure finding "libcublasLt.so.13 or libcublasLt.so": a listing', "library cublasLt of CUDA is missing"),
    ('kernel.cu(1): catastrophic error: cannot open source file "vector_types.h"', "(vector_types.h) are missing"),
    ("cudaErrorNoDevice: no CUDA-capable device is detected", "CUDA_VISIBLE_DEVICES"),
    ("CUDA_ERROR_UNSUPPORTED_PTX_VERSION: the provided PTX", "CUPY_COMPILE_WITH_PTX"),
    ("no kernel image is available for execution on the device", "do not know this GPU"),
    ("OutOfMemoryError: Out of memory allocating 1,024 bytes", "nvidia-smi"),
    ("CUDA_ERROR_SYSTEM_NOT_READY", "fabric manager"),
    ("CUDA_ERROR_NOT_PERMITTED: operation not permitted", "device files"),
    ("PermissionError: [Errno 13] Permission denied: '/x/.cupy/kernel_cache/a'", "Set CUPY_CACHE_DIR"),
    ("ImportError: numpy.core.multiarray failed to import", "do not fit each other"),
]


@pytest.mark.parametrize("message, part", MESSAGES)
def test_messages_are_explained_in_one_line(message: str, part: str) -> None:
    found = explained(f"Traceback (most recent call last):\n{message}")
    assert found is not None and part in found and "\n" not in found
    assert told(message) == found


def test_every_cure_is_reached() -> None:
    assert {explained(m) for m, _ in MESSAGES} >= {c for _, c in CURES if "{0}" not in c}
    assert len({explained(m) for m, _ in MESSAGES}) >= len(CURES)


def test_what_is_not_known_is_told_as_it_is() -> None:
    assert explained("something else") is None
    assert told("Traceback\n  ...\nValueError: something else\n") == "ValueError: something else"
    assert told(" ") == "nothing was said"
