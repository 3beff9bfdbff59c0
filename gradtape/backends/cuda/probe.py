"""What there is of CUDA on this machine, as JSON: asked in a process of its own, by `gradtape doctor`. Floor: backends.

    python -m gradtape.backends.cuda.probe driver|cupy|libraries|convolutions

Only what was asked for is loaded, and no GPU is needed."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gradtape.backends.cuda.cudnn import POLICY

# Under the names of `cuda.pathfinder`.
LIBRARIES = ("nvrtc", "cublas", "cusolver", "cusparse", "cudnn", "nccl")
MAJOR, MINOR = 75, 76  # attributes of a device: its compute capability
NAME_LENGTH = 256


def driver() -> dict[str, Any]:
    """The driver's version, 13000 for CUDA 13.0, and its GPUs; or why there is none."""
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        library = ctypes.CDLL(name)
    except OSError as e:
        return {"error": str(e)}
    status = library.cuInit(0)
    version = ctypes.c_int()
    library.cuDriverGetVersion(ctypes.byref(version))
    if status:
        return {"version": version.value, "error": f"{_error(library, status)} ({status}) from cuInit"}
    count = ctypes.c_int()
    library.cuDeviceGetCount(ctypes.byref(count))
    return {"version": version.value, "gpus": [_gpu(library, k) for k in range(count.value)]}


def _error(library: Any, status: int) -> str:
    text = ctypes.c_char_p()
    library.cuGetErrorName(status, ctypes.byref(text))
    return (text.value or b"an unknown error").decode()


def _gpu(library: Any, number: int) -> dict[str, Any]:
    device, name, size = ctypes.c_int(), ctypes.create_string_buffer(NAME_LENGTH), ctypes.c_size_t()
    library.cuDeviceGet(ctypes.byref(device), number)
    library.cuDeviceGetName(name, NAME_LENGTH, device)
    library.cuDeviceTotalMem_v2(ctypes.byref(size), device)
    capability = []
    for attribute in (MAJOR, MINOR):
        value = ctypes.c_int()
        library.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
        capability.append(value.value)
    return {"name": name.value.decode(), "capability": capability, "bytes": size.value}


def cupy() -> dict[str, Any]:
    """CuPy's version, and whether it sees a GPU.

    Only `is_available` is asked: it never raises, while everything else in CuPy that touches a device does on a machine
    without a driver, with a message that misleads."""
    module = importlib.import_module("cupy")
    return {"version": getattr(module, "__version__", "?"), "gpu": bool(module.is_available())}


def libraries() -> dict[str, Any]:
    """Where CUDA's libraries and headers are: paths, or what was said of one that was not found."""
    pathfinder = importlib.import_module("cuda.pathfinder")
    found = {name: _located(pathfinder, name) for name in LIBRARIES}
    try:
        folder = pathfinder.find_nvidia_header_directory("cudart")
    except (RuntimeError, OSError, ValueError) as e:
        return {"libraries": found, "headers": {"error": f"{type(e).__name__}: {e}"}}
    if folder is None or not (Path(folder) / "vector_types.h").is_file():
        return {"libraries": found, "headers": {"error": 'cannot open source file "vector_types.h"'}}
    return {"libraries": found, "headers": {"path": str(folder)}}


def _located(pathfinder: Any, name: str) -> dict[str, str]:
    try:
        return {"path": str(pathfinder.load_nvidia_dynamic_lib(name).abs_path)}
    except (RuntimeError, OSError, ValueError) as e:
        return {"error": f"{type(e).__name__}: {e}"}


def convolutions() -> dict[str, Any]:
    """The versions of cuDNN and of its frontend, which do convolutions; or why they do not."""
    if POLICY.use == "never":
        return {"without": "GRADTAPE_CUDNN=never asks for it"}
    if importlib.util.find_spec("cudnn") is None:
        return {"without": "nvidia-cudnn-frontend is not installed"}
    try:
        module = importlib.import_module("cudnn")
        number = module.backend_version()
    except (ImportError, RuntimeError, OSError) as e:
        return {"error": f"{type(e).__name__}: {e}"}
    return {"cudnn": f"{number // 10000}.{number % 10000 // 100}.{number % 100}", "frontend": module.__version__}


SECTIONS: dict[str, Callable[[], dict[str, Any]]] = {
    "driver": driver,
    "cupy": cupy,
    "libraries": libraries,
    "convolutions": convolutions,
}

if __name__ == "__main__":
    print(json.dumps(SECTIONS[sys.argv[1]]()))
