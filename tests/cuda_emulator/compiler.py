"""g++ as the compiler of kernels: many modules in one call, kept in a folder under the hash of all that made them."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.cuda_emulator.faults import CompilerMissing, KernelCompileError
from tests.cuda_emulator.text import Source

__all__ = ["Compiled", "SharedVariable", "compile_sources", "line_of", "runtime_library"]

NATIVE = Path(__file__).parent / "native"
RUNTIME_PARTS = (
    "fibers.cpp",
    "collectives.cpp",
    "memory.cpp",
    "accesses.cpp",
    "undefined.cpp",
    "special.cpp",
    "warps.cpp",
)
TOOLS = ("g++", "ld", "readelf", "addr2line")
OLDEST = 14 * 24 * 3600  # seconds after which what nobody used is thrown away

LIBRARY_OPTIONS = ("-std=c++17", "-O2", "-g1", "-fPIC", "-shared", "-fno-strict-aliasing", "-U_FORTIFY_SOURCE")
KERNEL_OPTIONS = (
    *("-std=c++17", "-O1", "-g1", "-fPIC", "-c", "-w", "-fvisibility=hidden"),
    # Every load and store calls the runtime (accesses.cpp), undefined behaviour does too (undefined.cpp).
    *("-fsanitize=thread", "-fsanitize=alignment,signed-integer-overflow,integer-divide-by-zero,shift-exponent,bounds"),
    # What a kernel says is what is counted: no structure is taken apart, no loop becomes a call of the library.
    *("-fno-tree-sra", "-fno-tree-loop-distribute-patterns", "-fno-strict-aliasing", "-fno-store-merging"),
    # Other threads write shared memory while a barrier waits: nothing may be concluded from what a call cannot reach.
    *("-fno-ipa-reference", "-fno-ipa-pure-const", "-fno-ipa-modref"),
    *("-ffp-contract=off", "-fno-math-errno", "-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics"),
    # After the calls for loads and stores are in the code, which settles their number and lines, g++ does only little:
    # more of it takes longer than it saves in kernels that run a few times.
    *("-fno-tree-loop-optimize", "-fno-tree-slsr", "-fno-split-wide-types", "-fno-forward-propagate"),
    *("-fno-if-conversion", "-fno-if-conversion2", "-fno-move-loop-invariants", "-fno-dse", "-fno-dce"),
    *("-fira-algorithm=priority", "-fira-region=one", "--param=max-combine-insns=2", "-fno-cprop-registers"),
    *("-fno-compare-elim", "-fno-combine-stack-adjustments", "-fno-shrink-wrap", "-fno-peephole"),
)
BRIEF = "-fsanitize-undefined-trap-on-error"  # which undefined behaviour it was is not told; a quarter is saved


@dataclass(frozen=True)
class SharedVariable:
    """A `__shared__` variable: where it lies in its library's block of them, and how the kernel calls it."""

    offset: int
    size: int
    name: str


@dataclass(frozen=True)
class Compiled:
    """The library that a module is in, and the shared memory of its functions."""

    library: Path
    variables: tuple[SharedVariable, ...]
    anchor: int  # offset of `emulator_anchor` in the block of shared variables


@functools.cache
def folder() -> Path:
    """The cache: of this user alone, and cleared of what has not been used for long."""
    path = Path(tempfile.gettempdir()) / f"cuda-emulator-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.stat()
    if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise PermissionError(f"{path} is open to other users: remove it, or run `chmod 700` on it")
    for file in path.iterdir():
        if file.is_file() and time.time() - file.stat().st_mtime > OLDEST:
            file.unlink(missing_ok=True)
    return path


@functools.cache
def require_tools() -> None:
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        raise CompilerMissing(
            f"the CUDA emulator needs {', '.join(missing)}, not found on this machine: install g++ and binutils. "
            "Without them the emulated device is untested"
        )


@functools.cache
def state_of_emulator() -> str:
    """Changes with every file that goes into what g++ makes, and with g++."""
    state = hashlib.sha256(repr((LIBRARY_OPTIONS, KERNEL_OPTIONS, BRIEF)).encode())
    state.update(subprocess.run(["g++", "--version"], capture_output=True, check=True).stdout)
    for path in sorted(NATIVE.iterdir()):
        state.update(path.read_bytes())
    return state.hexdigest()[:16]


def call(command: Sequence[str], directory: Path) -> str:
    run = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise KernelCompileError(f"{command[0]} refused the text:\n{run.stderr.strip()}")
    return run.stdout


@functools.cache
def runtime_library() -> Path:
    """The emulated device itself."""
    require_tools()
    library = folder() / f"device-{state_of_emulator()}.so"
    if library.exists():
        os.utime(library)
        return library
    with tempfile.TemporaryDirectory(dir=folder()) as work:
        parts = [str(NATIVE / part) for part in RUNTIME_PARTS]
        call(["g++", *LIBRARY_OPTIONS, "-o", f"{work}/device.so", *parts], Path(work))
        os.replace(f"{work}/device.so", library)
    return library


def shared_variables(library: Path) -> list[tuple[int, int, str]]:
    """Offset, size and full name of each thread-local variable, which is what a `__shared__` one is here."""
    listing = call(["readelf", "--symbols", "--wide", "--demangle", str(library)], library.parent)
    found = set()
    for line in listing.splitlines():
        fields = line.split(maxsplit=7)
        if len(fields) == 8 and fields[3] == "TLS" and fields[6] != "UND":
            found.add((int(fields[1], 16), int(fields[2], 0), fields[7]))
    return sorted(found)


def ending(wordy: bool) -> str:
    """Of the names of files, by how they were compiled."""
    return f"{'' if wordy else 'brief-'}{state_of_emulator()}"


def kernel_options(wordy: bool) -> tuple[str, ...]:
    return KERNEL_OPTIONS if wordy else (*KERNEL_OPTIONS, BRIEF)


def record_path(source: Source, wordy: bool) -> Path:
    return folder() / f"{source.key}-{ending(wordy)}.json"


def read_record(source: Source, wordy: bool) -> Compiled | None:
    path = record_path(source, wordy)
    if not path.exists():
        return None
    record = json.loads(path.read_text(encoding="utf-8"))
    library = folder() / record["library"]
    if not library.exists():
        return None
    os.utime(path)
    os.utime(library)
    variables = tuple(SharedVariable(*variable) for variable in record["variables"])
    return Compiled(library, variables, record["anchor"])


def write_record(source: Source, wordy: bool, library: Path, symbols: list[tuple[int, int, str]]) -> None:
    own = [(offset, size, name.rsplit("::", 1)[-1]) for offset, size, name in symbols if source.key in name]
    anchor = next(offset for offset, _, name in symbols if name == "emulator_anchor")
    record = {"library": library.name, "variables": own, "anchor": anchor}
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=folder(), suffix=".tmp", delete=False) as file:
        json.dump(record, file)
    os.replace(file.name, record_path(source, wordy))


@functools.cache
def device_header(wordy: bool) -> Path:
    """What comes before every kernel, which g++ has read already: beside it lies what it made of it."""
    header = folder() / f"device-{ending(wordy)}.hpp"
    read = header.with_suffix(".hpp.gch")
    if read.exists():
        os.utime(read)
        return header
    with tempfile.TemporaryDirectory(dir=folder()) as directory:
        work = Path(directory)
        (work / "head.hpp").write_text('#include "device.hpp"\n', encoding="utf-8")
        options = [*kernel_options(wordy), "-I", str(NATIVE), "-x", "c++-header"]
        call(["g++", *options, "-o", "head.gch", "head.hpp"], work)
        os.replace(work / "head.hpp", header)
        os.replace(work / "head.gch", read)
    return header


def make_library(sources: Sequence[Source], wordy: bool) -> Path:
    """All sources through one call of g++."""
    runtime = runtime_library()
    name = "kernels-" + hashlib.sha256("".join(source.key for source in sources).encode()).hexdigest()[:16]
    library = folder() / f"{name}-{ending(wordy)}.so"
    with tempfile.TemporaryDirectory(dir=folder()) as directory:
        work = Path(directory)
        (work / "batch.cpp").write_text("".join(source.for_gxx() for source in sources), encoding="utf-8")
        options = [*kernel_options(wordy), "-I", str(NATIVE), "-include", str(device_header(wordy))]
        call(["g++", *options, "-o", "batch.o", "batch.cpp"], work)
        # All that kernels call is in what the runtime itself is linked to; g++ would look for more, and take longer.
        call(["ld", "-shared", "-o", "batch.so", "batch.o", str(runtime)], work)
        os.replace(work / "batch.so", library)
    return library


def compile_sources(sources: Sequence[Source], wordy: bool = True) -> list[Compiled]:
    """Every module's library. What is not in the cache is compiled in one call. `wordy`: faults say which undefined
    behaviour it was, and not only where."""
    require_tools()
    missing = list({source.key: source for source in sources if read_record(source, wordy) is None}.values())
    if missing:
        library = make_library(missing, wordy)
        symbols = shared_variables(library)
        for source in missing:
            write_record(source, wordy, library, symbols)
    found = [read_record(source, wordy) for source in sources]
    return [compiled for compiled in found if compiled is not None]


def line_of(library: Path, offset: int) -> int | None:
    """The line of a kernel's text that an address was made from; what of the emulator was inlined there is passed."""
    told = call(["addr2line", "--inlines", "--exe", str(library), hex(offset)], library.parent)
    for place in told.splitlines():
        match = re.fullmatch(r"(.*):(\d+)(?: .*)?", place)
        if match and Path(match[1]).suffix != ".hpp":
            return int(match[2])
    return None
