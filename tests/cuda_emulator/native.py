"""The emulated device's library through ctypes: its functions, and the layouts that both sides know."""

from __future__ import annotations

import ctypes
import functools
from ctypes import POINTER, Structure, c_char, c_char_p, c_int, c_uint, c_uint32, c_uint64, c_void_p

from tests.cuda_emulator.compiler import runtime_library

__all__ = ["Kernel", "Launch", "Report", "SharedVariable", "Traffic", "runtime"]


class Index(Structure):
    _fields_ = [("x", c_uint), ("y", c_uint), ("z", c_uint)]

    def as_tuple(self) -> tuple[int, int, int]:
        return (self.x, self.y, self.z)


class SharedVariable(Structure):
    _fields_ = [("offset", c_uint64), ("size", c_uint64), ("name", c_char_p)]


class Launch(Structure):
    _fields_ = [
        ("call", c_void_p),
        ("arguments", POINTER(c_void_p)),
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("dynamic_shared", c_uint64),
        ("seed", c_uint64),
        ("static_shared", c_void_p),
        ("variables", POINTER(SharedVariable)),
        ("variable_count", c_uint64),
        ("static_limit", c_uint64),
        ("shared_limit", c_uint64),
        ("most_steps", c_uint64),
        ("watch_warps", c_uint64),
    ]


class Site(Structure):
    _fields_ = [("file", c_char_p), ("line", c_int)]


class Report(Structure):
    _fields_ = [
        ("kind", c_char * 32),
        ("message", c_char * 4000),
        ("block", Index),
        ("thread", Index),
        ("place", c_void_p),
        ("site", Site),
    ]


class Traffic(Structure):
    """What one launch did with one buffer. Unique bytes are counted once, however often they are touched."""

    _fields_ = [
        (name, c_uint64)
        for name in (
            *("reads", "bytes_read", "unique_bytes_read"),
            *("writes", "bytes_written", "unique_bytes_written"),
            *("atomics", "wide_reads", "wide_writes"),
            *("_sectors_read", "_sectors_written", "_passes", "_instructions"),
        )
    ]
    reads: int
    bytes_read: int
    unique_bytes_read: int
    writes: int
    bytes_written: int
    unique_bytes_written: int
    atomics: int
    wide_reads: int
    wide_writes: int
    # Zeros unless warps are watched: `LaunchCount` tells them.
    _sectors_read: int
    _sectors_written: int
    _passes: int
    _instructions: int

    def __repr__(self) -> str:
        return "Traffic(" + ", ".join(f"{name}={getattr(self, name)}" for name, *_ in self._fields_) + ")"


class Parameter(Structure):
    _fields_ = [("size", c_int), ("kind", c_int)]


class Kernel(Structure):
    _fields_ = [
        ("call", c_void_p),
        ("parameters", POINTER(Parameter)),
        ("parameter_count", c_int),
        ("most_threads", c_int),
    ]


SIGNATURES = {
    "emulator_launch": ([POINTER(Launch)], c_int),
    "emulator_report": ([], POINTER(Report)),
    "emulator_allocate": ([c_uint64, c_char_p], c_void_p),
    "emulator_free": ([c_void_p], None),
    "emulator_define": ([c_void_p, c_uint64, c_uint64], None),
    "emulator_buffer_at": ([c_void_p], c_void_p),
    "emulator_traffic": ([c_void_p, c_uint32, POINTER(Traffic)], c_int),
    "emulator_shared_traffic": ([POINTER(Traffic)], None),
    "emulator_add_module": ([c_void_p], None),
    "emulator_marks": ([c_void_p, POINTER(c_uint64), POINTER(c_uint64), POINTER(c_int)], c_void_p),
    "emulator_offset": ([c_void_p], c_uint64),
    "emulator_launch_number": ([], c_uint32),
}


@functools.cache
def runtime() -> ctypes.PyDLL:
    """The library, loaded once for this process. It knows no threads: calls keep Python's lock, one after the other."""
    library = ctypes.PyDLL(str(runtime_library()))
    for name, (arguments, result) in SIGNATURES.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, result
    return library
