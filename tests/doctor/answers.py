"""Questions that are answered at once, in the place of those that run in processes of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from gradtape.doctor import gpu, packages, report
from gradtape.doctor.asking import Unanswered

H200 = {"name": "NVIDIA H200", "capability": [9, 0], "bytes": 139 * 2**30}
NO_LIBRARY = {"error": "libcuda.so.1: cannot open shared object file: No such file or directory"}
DRIVER = {"version": 13000, "gpus": [H200]}
CUPY = {"version": "14.2.0", "gpu": True}
LIBRARIES: dict[str, Any] = {
    "libraries": {name: {"path": f"/somewhere/lib{name}.so"} for name in ("nvrtc", "cublas", "cusolver", "cudnn")},
    "headers": {"path": "/somewhere/include"},
}
TRIAL = {"device": "GPU:0", "faults": [], "seconds": 0.5}
GOOD: dict[str, Any] = {
    "driver": DRIVER,
    "cupy": CUPY,
    "libraries": LIBRARIES,
    "convolutions": {"cudnn": "9.28.0", "frontend": "1.32.0"},
    "gradtape.doctor.trial": TRIAL,
}


class Answered:
    """A question with its answer; a text is what the process complained of."""

    said: Mapping[str, Any] = {}

    def __init__(self, words: Sequence[str]) -> None:
        self.about = words[-1]

    def answer(self) -> Any:
        found = self.said[self.about]
        if isinstance(found, str):
            raise Unanswered(found)
        return found


def answering(monkeypatch: pytest.MonkeyPatch, installed: Sequence[str] = ("cupy-cuda13x",), **said: Any) -> None:
    """A machine with these packages of CuPy, on which all is well but what is given."""
    kind = type("Answered", (Answered,), {"said": {**GOOD, **said}})
    monkeypatch.setattr(gpu, "Question", kind)
    monkeypatch.setattr(report, "Question", kind)
    known = packages.installed
    cupies = dict.fromkeys(installed, "14.2.0")
    monkeypatch.setattr(
        packages, "installed", lambda name: cupies.get(name) if name in packages.CUPY_PACKAGES else known(name)
    )
