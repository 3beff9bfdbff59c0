"""A device of NVIDIA's, by CuPy: kernels compiled by NVRTC and kept on disk, cuBLAS from its own library. Floor:
backends."""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import importlib.util
import tempfile
import warnings
from pathlib import Path
from typing import Any

from gradtape.backends.cuda.cudnn import Cudnn
from gradtape.backends.cuda.device import Cuda
from gradtape.kernels import disk

OPTIONS = ("-std=c++17",)
ADDRESS, INT, LONG, SIZE = ctypes.c_void_p, ctypes.c_int, ctypes.c_longlong, ctypes.c_size_t
GEMM = (
    *(ADDRESS, INT, INT, LONG, LONG, LONG, ADDRESS),
    *(ADDRESS, INT, LONG, LONG, ADDRESS, INT, LONG, LONG, ADDRESS),
    *(ADDRESS, INT, LONG, LONG, LONG, INT, INT),
)
FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cublasCreate_v2": (ADDRESS,),
    "cublasSetStream_v2": (ADDRESS, ADDRESS),
    "cublasSetWorkspace_v2": (ADDRESS, ADDRESS, SIZE),
    "cublasGemmStridedBatchedEx": GEMM,
}
# Whose sizes have 64 bits: ctypes would cut longer ones without a word. Since CUDA 12.
WIDE = {"cublasGemmStridedBatchedEx": "cublasGemmStridedBatchedEx_64"}


class NoDevice(RuntimeError):
    """There is no device to use; the message says why, and what to do."""


def present() -> Any:
    """CuPy, where it finds a device.

    Raises:
      NoDevice: it finds none.
    """
    try:
        cupy = importlib.import_module("cupy")
    except ImportError as e:
        raise NoDevice(
            f"CuPy is installed but cannot be loaded ({e}). Install it anew: `pip install gradtape[cu13]`."
        ) from e
    if not _sees_a_gpu(cupy):
        raise NoDevice(
            "CuPy found no NVIDIA driver that it can use, or no GPU. Install the driver (in a container: start it with "
            "`--gpus all`), or set GRADTAPE_DEVICE=cpu; `gradtape doctor` says more."
        )
    return cupy


def _sees_a_gpu(cupy: Any) -> bool:
    """Whether CuPy finds a device. Versions that raise here say of a driver that is not there that it is older than the
    runtime, which misleads."""
    try:
        return bool(cupy.is_available())
    except RuntimeError:
        return False


def device() -> Cuda:
    """The present device of CuPy.

    Raises:
      NoDevice: there is none.
    """
    cupy = present()
    compiler = Compiler(cupy)

    def stream() -> int:
        return int(cupy.cuda.get_current_stream().ptr)

    return Cuda("GPU:0", cupy, compiler.load, cublas(), stream, cudnn=Cudnn(cudnn, stream))


def cublas() -> Any:
    """The functions of cuBLAS that are used, with the types of their arguments."""
    try:
        pathfinder = importlib.import_module("cuda.pathfinder")
        library = ctypes.CDLL(pathfinder.load_nvidia_dynamic_lib("cublas").abs_path)
    except (ImportError, RuntimeError, OSError) as e:
        raise NoDevice(f"cuBLAS was not found ({e}). Install it: `pip install gradtape[cu13]`.") from e
    for name, types in FUNCTIONS.items():
        function = library[WIDE.get(name, name)]
        function.argtypes = types
        setattr(library, name, function)
    return library


def cudnn() -> Any:
    """The module of cuDNN's frontend, where it is installed; None elsewhere, and where it cannot be loaded, which a
    warning says."""
    if importlib.util.find_spec("cudnn") is None:
        return None
    try:
        return importlib.import_module("cudnn")
    except (ImportError, RuntimeError, OSError) as e:
        warnings.warn(
            f"nvidia-cudnn-frontend is installed and cannot be loaded ({e}); im2col and cuBLAS do convolutions. "
            "Install cuDNN too: `pip install gradtape[cudnn-cu13]`. With GRADTAPE_CUDNN=never nobody looks for it.",
            RuntimeWarning,
            stacklevel=2,
        )
        return None


class Compiler:
    """NVRTC for the present device: machine code, which is kept on disk.

    Args:
      cupy: loads what was compiled; None where that is not asked for.
      architecture: such as "sm_90"; the default is the present device's. Any other needs no device.
    """

    def __init__(self, cupy: Any, architecture: str | None = None) -> None:
        self.cupy = cupy
        try:
            self.nvrtc = importlib.import_module("cuda.bindings.nvrtc")
        except (ImportError, RuntimeError, OSError) as e:
            raise NoDevice(f"NVIDIA's compiler was not found ({e}). Install it: `pip install gradtape[cu13]`.") from e
        self.architecture = architecture or f"sm_{cupy.cuda.Device().compute_capability}"
        version = ".".join(map(str, self._checked(self.nvrtc.nvrtcVersion(), None, 2)))
        self.how = [version, self.architecture, *OPTIONS]

    def load(self, text: str) -> Any:
        """The module of a text."""
        code = self.code(text)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "kernels.cubin"
            path.write_bytes(code)
            module = self.cupy.RawModule(path=str(path))
            module.compile()
        return module

    def code(self, text: str) -> bytes:
        """Machine code of a text: what is kept on disk, or compiled now and kept."""
        name = "cuda_" + hashlib.sha256("\n".join([*self.how, text]).encode()).hexdigest()[:40]
        found = disk.read(name)
        if found is None:
            found = self.compiled(text)
            disk.write(name, found)
        return found

    def compiled(self, text: str) -> bytes:
        """Machine code for this architecture."""
        nvrtc = self.nvrtc
        program = self._checked(nvrtc.nvrtcCreateProgram(text.encode(), b"kernels.cu", 0, [], []), None)
        given = [*OPTIONS, f"-arch={self.architecture}", *[f"-I{path}" for path in self._headers()]]
        self._checked(nvrtc.nvrtcCompileProgram(program, len(given), [o.encode() for o in given]), program)
        code = bytearray(self._checked(nvrtc.nvrtcGetCUBINSize(program), program))
        self._checked(nvrtc.nvrtcGetCUBIN(program, code), program)
        self._checked(nvrtc.nvrtcDestroyProgram(program), None)
        return bytes(code)

    def _headers(self) -> list[str]:
        """Where CUDA's own headers are."""
        pathfinder = importlib.import_module("cuda.pathfinder")
        found = pathfinder.find_nvidia_header_directory("cudart")
        return [found] if found else []

    def _checked(self, answer: Any, program: Any, results: int = 1) -> Any:
        status, *found = answer
        if status != self.nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise RuntimeError(f"NVRTC: {status}.\n{self._log(program)}")
        return found if results > 1 else found[0] if found else None

    def _log(self, program: Any) -> str:
        if program is None:
            return ""
        log = bytearray(self.nvrtc.nvrtcGetProgramLogSize(program)[1])
        self.nvrtc.nvrtcGetProgramLog(program, log)
        return log.decode(errors="replace").rstrip("\0")
