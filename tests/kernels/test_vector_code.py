"""Loops over functions of single elements become vector code: read in the assembler text."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from gradtape.kernels import vector_math
from tests.kernels import compiled

ROOT = Path(__file__).parents[2]
# Loops that only copy are left to the C library.
COPIES = {"identity", "stop_gradient", "assigned"}
OF_FLOATS = [(name, dtype) for name, dtype in compiled.cases() if name not in COPIES]

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="reads the assembler of x86-64")


def has_wide_registers() -> bool:
    """Whether this processor has registers of 256 bits, and `fma`."""
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
    return " avx2 " in flags and " fma " in flags


@pytest.mark.skipif(not has_wide_registers(), reason="this processor has no AVX2")
@pytest.mark.parametrize("name, dtype", OF_FLOATS)
def test_loop_is_vector_code(name: str, dtype: str) -> None:
    form, text = vector_math.FORMS[name], compiled.assembler(name, dtype)
    assert compiled.is_vector_code(text) is form.vector


SCRIPT = """
import json, sys
from tests.kernels import compiled
print(json.dumps([compiled.joint(dtype) for dtype in sys.argv[1:]]))
"""


@pytest.mark.parametrize(
    "processor, register, dtypes", [("haswell", "%ymm", ["float32", "float64"]), ("znver4", "%zmm", ["float32"])]
)
def test_other_processors(processor: str, register: str, dtypes: list[str]) -> None:
    """Compiled for a processor, not run: one function with a loop for each op."""
    names = {"NUMBA_CPU_NAME": processor, "NUMBA_CPU_FEATURES": ""}
    command = [sys.executable, "-c", SCRIPT, *dtypes]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **names}, capture_output=True, text=True, check=False, timeout=200
    )
    assert done.returncode == 0, done.stderr
    for text in json.loads(done.stdout):
        bodies = [body for body in compiled.inner_loops(text) if compiled.PACKED.search(body) and register in body]
        packed = [body for body in bodies if not compiled.CALL.search(body)]
        assert len(packed) >= len(compiled.VECTOR), f"{len(packed)} loops of {len(compiled.VECTOR)} are vector code"
        assert not compiled.called(text)


def test_planted_faults_are_seen() -> None:
    """A loop that calls, and one that has scalars, are no vector code."""
    assert compiled.called(compiled.assembler("sin_anywhere", "float64")) == {"sin"}
    assert not compiled.is_vector_code(compiled.assembler("sin_anywhere", "float64"))
    scalar = ".LBB0_1:\n\tvmulss\t(%rdx), %xmm0, %xmm0\n\tjne\t.LBB0_1\n"
    assert compiled.inner_loops(scalar) and not compiled.is_vector_code(scalar)
    packed = scalar.replace("vmulss", "vmulps").replace("xmm", "ymm")
    assert compiled.is_vector_code(packed)
    assert not compiled.is_vector_code(packed.replace("\tjne", "\tcallq\t*%rax\n\tjne"))
