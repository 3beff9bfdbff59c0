"""NVIDIA's compiler without a device: CUDA C++ to code for any architecture, and what the assembler says of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from gradtape.kernels.cuda_render import TEMPLATES

ARCHITECTURES = (75, 80, 86, 89, 90, 100, 120)
FUNCTION = re.compile(r"(?:Compiling entry function|Function properties for) '?(\w+)'?")
STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers(?:.*?(\d+) bytes smem)?")


@dataclass
class Usage:
    """What a kernel takes, as the assembler reports it."""

    stack: int = 0
    spilled: int = 0
    registers: int = 0
    shared: int = 0


def compiled(text: str, architecture: int) -> tuple[dict[str, str], dict[str, Usage]]:
    """For each kernel of a source its PTX, and what it takes on an architecture."""
    from cuda.bindings import nvrtc

    def checked(answer: Any) -> Any:
        status, *found = answer
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise RuntimeError(f"NVRTC: {status}\n{_log(nvrtc, program)}")
        return found[0] if found else None

    program: Any = None
    program = checked(nvrtc.nvrtcCreateProgram(text.encode(), b"kernels.cu", 0, [], []))
    given = ["-std=c++17", f"-arch=sm_{architecture}", f"-I{TEMPLATES}", "--ptxas-options=-v"]
    checked(nvrtc.nvrtcCompileProgram(program, len(given), [o.encode() for o in given]))
    ptx = bytearray(checked(nvrtc.nvrtcGetPTXSize(program)))
    checked(nvrtc.nvrtcGetPTX(program, ptx))
    usage = _usage(_log(nvrtc, program))
    checked(nvrtc.nvrtcDestroyProgram(program))
    return _entries(ptx.decode(errors="replace")), usage


def _entries(ptx: str) -> dict[str, str]:
    """The text of each kernel."""
    _, *parts = re.split(r"\.entry (?=\w+\()", ptx)
    return {part.split("(")[0]: part for part in parts}


def _log(nvrtc: Any, program: Any) -> str:
    if program is None:
        return ""
    log = bytearray(nvrtc.nvrtcGetProgramLogSize(program)[1])
    nvrtc.nvrtcGetProgramLog(program, log)
    return log.decode(errors="replace").rstrip("\0")


def _usage(log: str) -> dict[str, Usage]:
    found: dict[str, Usage] = {}
    now = Usage()
    for line in log.splitlines():
        if match := FUNCTION.search(line):
            now = found.setdefault(match[1], Usage())
        if match := STACK.search(line):
            now.stack, now.spilled = int(match[1]), int(match[2]) + int(match[3])
        if match := USED.search(line):
            now.registers, now.shared = int(match[1]), int(match[2] or 0)
    return found
