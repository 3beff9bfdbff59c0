"""`gradtape doctor`, and whether tensors are on the device that it found."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from typing import Any

import numpy as np

import gradtape as tf
from gradtape.version import __version__
from tools.gpu_check.outcome import Found
from tools.gpu_check.setting import Setting


def run(s: Setting) -> Found:
    found: dict[str, Any] = {"gradtape": __version__, "numpy": np.__version__, "python": platform.python_version()}
    if s.emulated:
        found["name"] = "emulated device"
        doctor = []
    else:
        found |= _described(s)
        doctor = _doctor()
    place = tf.constant(np.ones(100, np.float32)).device
    assert place.endswith("GPU:0"), f"a tensor of 100 floats is on {place}"
    found["doctor"] = doctor
    return Found(f"{found['name']}; tensors are on {place.rsplit(':', 2)[-2]}:0", found)


def _described(s: Setting) -> dict[str, Any]:
    """The GPU and what runs it."""
    cuda = s.xp.cuda
    properties = cuda.runtime.getDeviceProperties(cuda.Device().id)
    return {
        "name": properties["name"].decode(),
        "architecture": f"sm_{cuda.Device().compute_capability}",
        "multiprocessors": properties["multiProcessorCount"],
        "bytes": cuda.Device().mem_info[1],
        "driver": cuda.runtime.driverGetVersion(),
        "runtime": cuda.runtime.runtimeGetVersion(),
        "cupy": s.xp.__version__,
    }


def _doctor() -> list[Any]:
    """What `gradtape doctor --require-gpu` found.

    Raises:
      AssertionError: faults."""
    command = [sys.executable, "-m", "gradtape", "doctor", "--require-gpu", "--json"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.stdout, run.stderr
    found = json.loads(run.stdout)
    faults = [line for line in found["findings"] if line["fault"]]
    assert not faults and not run.returncode, f"`gradtape doctor` found faults: {faults}"
    return list(found["findings"])
