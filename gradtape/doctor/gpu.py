"""The driver, CuPy and CUDA's libraries: what a GPU needs. Floor: top."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gradtape.doctor.asking import Question, Unanswered
from gradtape.doctor.cures import told
from gradtape.doctor.finding import Finding
from gradtape.doctor.packages import cuda_wheels, cupy_packages

PROBE = "gradtape.backends.cuda.probe"
NEEDED = ("nvrtc", "cublas")  # the others are asked for by few programs
OLDEST = 12000  # the version of a driver, 12.0, for which there are packages
USES = {"cudnn": "faster convolutions", "nccl": "several GPUs"}


def extra_for(version: int) -> str:
    """The extra whose packages a driver can run.

    >>> from gradtape.doctor.gpu import extra_for
    >>> extra_for(13000), extra_for(12040)
    ('cu13', 'cu12')
    """
    return "cu13" if version >= 13000 else "cu12"


class Cuda:
    """What was found of CUDA; the questions run beside each other. `libraries`: whether these are asked for too."""

    def __init__(self, libraries: bool = True) -> None:
        self.packages = cupy_packages()
        self.driver = Question([PROBE, "driver"])
        self.cupy = Question([PROBE, "cupy"]) if len(self.packages) == 1 else None
        self.libraries = Question([PROBE, "libraries"]) if libraries and self.packages else None
        self.convolutions = Question([PROBE, "convolutions"]) if libraries and self.packages else None
        self.version = 0
        self.gpus: list[dict[str, Any]] = []

    def findings(self) -> list[Finding]:
        """A line for the driver, one for CuPy, and where it is installed those for the libraries."""
        found = [self._driver(), self._cupy()]
        if self.libraries is not None:
            found += self._libraries(self.libraries)
        if self.convolutions is not None:
            found.append(self._convolutions(self.convolutions))
        return found

    def is_usable(self, findings: list[Finding]) -> bool:
        """Whether there is a GPU, and nothing in its way."""
        return bool(self.gpus) and len(self.packages) == 1 and not any(f.fault for f in findings)

    def _driver(self) -> Finding:
        try:
            found = self.driver.answer()
        except Unanswered as e:
            return Finding("driver", told(str(e)), fault=bool(self.packages))
        self.version, self.gpus = found.get("version", 0), found.get("gpus", [])
        if "error" in found:
            return Finding("driver", told(found["error"]), fault=bool(self.version and self.packages))
        if not self.gpus:
            return Finding("driver", told("no CUDA-capable device"), fault=bool(self.packages))
        text = f"CUDA {self.version // 1000}.{self.version % 1000 // 10}, {', '.join(map(_described, self.gpus))}"
        if self.version < OLDEST:
            return Finding("driver", f"{text}: older than CUDA 12. Install a newer driver", bool(self.packages))
        return Finding("driver", text)

    def _cupy(self) -> Finding:
        if self.cupy is None:
            return self._cupy_packages()
        ((package, version),) = self.packages
        named = f"{package} {version}"
        if package == "cupy-cuda13x" and self.gpus and extra_for(self.version) == "cu12":
            return Finding("cupy", f"{named} wants a driver of CUDA 13. {_instead(package, 'cu12')}", fault=True)
        try:
            found = self.cupy.answer()
        except Unanswered as e:
            return Finding("cupy", f"{named}: {told(str(e))}", fault=True)
        if found["gpu"]:
            return Finding("cupy", f"{named}: it sees a GPU")
        text = "it sees no usable GPU; without an NVIDIA driver tensors live on NumPy arrays"
        return Finding("cupy", f"{named}: {text}", fault=bool(self.gpus))

    def _cupy_packages(self) -> Finding:
        if not self.packages:
            extra = extra_for(self.version or 13000)
            where = "For this GPU" if self.gpus else "On a machine with an NVIDIA GPU"
            text = "not installed; tensors live on NumPy arrays"
            return Finding("cupy", f"{text}. {where}: pip install 'gradtape[{extra}]'")
        named = ", ".join(f"{package} {version}" for package, version in self.packages)
        surplus = " ".join(package for package, _ in self.packages[1:])
        text = f"{named}: they overwrite each other. Keep one: pip uninstall {surplus}"
        return Finding("cupy", text, fault=True)

    def _libraries(self, question: Question) -> list[Finding]:
        try:
            found = question.answer()
        except Unanswered as e:
            return [cuda_wheels(), Finding("cuda libraries", told(str(e)), fault=bool(self.gpus))]
        lines = [self._located(name, at) for name, at in found["libraries"].items()]
        headers = found["headers"]
        text = headers.get("path") or told(headers["error"])
        return [cuda_wheels(), *lines, Finding("cuda headers", text, "error" in headers and bool(self.gpus))]

    def _convolutions(self, question: Question) -> Finding:
        """What does them; cuDNN is faster, and not needed."""
        others = "im2col and cuBLAS do them"
        try:
            found = question.answer()
        except Unanswered as e:
            return Finding("convolutions", f"{others}, since cuDNN does not answer: {told(str(e))}")
        if "cudnn" in found:
            return Finding("convolutions", f"cuDNN {found['cudnn']}, by nvidia-cudnn-frontend {found['frontend']}")
        if "error" in found:
            return Finding("convolutions", f"{others}, since cuDNN cannot be loaded: {told(found['error'])}")
        return Finding("convolutions", f"{others}: {found['without']}")

    def _located(self, name: str, at: Mapping[str, str]) -> Finding:
        if "path" in at:
            return Finding(name, at["path"])
        if name in USES:
            return Finding(name, f"not found. It is for {USES[name]} only")
        return Finding(name, told(at["error"]), fault=name in NEEDED and bool(self.gpus))


def _described(gpu: Mapping[str, Any]) -> str:
    major, minor = gpu["capability"]
    return f"{gpu['name']} (sm_{major}{minor}, {gpu['bytes'] / 2**30:.0f} GiB)"


def _instead(package: str, extra: str) -> str:
    return f"Take the older one: pip uninstall {package} && pip install 'gradtape[{extra}]'"
