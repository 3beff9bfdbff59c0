"""Object code put into memory by hand. Floor: kernels.

LLVM's own linker takes 50 MB and a tenth of a second before it links anything. In LLVM's large model, which Numba uses
on x86-64, code names every place by its whole address: all there is to do is to lay its sections side by side and to
write addresses into them. What is not of that kind is left to LLVM."""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Mapping
from typing import NamedTuple

CLASS = b"\x7fELF\x02\x01\x01"  # 64 bits, little-endian, the first version
RELOCATABLE, X86_64 = 1, 62
ALLOCATED, WRITABLE = 2, 1  # flags of sections
SYMBOLS, RELOCATIONS, NO_BITS = 2, 4, 8  # types of sections
UNDEFINED, ABSOLUTE, COMMON = 0, 0xFFF1, 0xFFF2  # places of symbols
WHOLE, RELATIVE, CALL, RELATIVE_WHOLE = 1, 2, 4, 24  # types of relocations
FRAMES = b".eh_frame"  # for exceptions, which nothing here raises

_held: list[mmap.mmap] = []  # code stays in memory


class Unsupported(Exception):
    """Object code that this module does not know how to load."""


class Missing(Exception):
    """Object code that calls what is nowhere."""


class _Section(NamedTuple):
    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry: int


class _Symbol(NamedTuple):
    name: int
    info: int
    other: int
    section: int
    value: int
    size: int


def load(name: str, code: bytes, given: Mapping[str, int]) -> int:
    """The address of a function in object code that is put into memory.

    Raises:
      Unsupported: code for another processor, or of another kind.
      Missing: what it calls is neither in this process's libraries nor among `given`.
    """
    return _Object(code).loaded(name, given)


class _Object:
    """Object code of one function and what it needs."""

    def __init__(self, code: bytes) -> None:
        if len(code) < 64 or not code.startswith(CLASS):
            raise Unsupported("no ELF file of 64 bits")
        kind, machine = struct.unpack_from("<HH", code, 16)
        if (kind, machine) != (RELOCATABLE, X86_64):
            raise Unsupported(f"machine {machine}, type {kind}")
        (begin,) = struct.unpack_from("<Q", code, 40)
        width, count, names = struct.unpack_from("<HHH", code, 58)
        self.code = code
        self.sections = [_Section(*struct.unpack_from("<IIQQQQIIQQ", code, begin + width * k)) for k in range(count)]
        self.names = self.sections[names].offset
        tables = [s for s in self.sections if s.kind == SYMBOLS]
        if len(tables) != 1:
            raise Unsupported(f"{len(tables)} tables of symbols")
        (table,) = tables
        steps = range(table.offset, table.offset + table.size, table.entry)
        self.symbols = [_Symbol(*struct.unpack_from("<IBBHQQ", code, at)) for at in steps]
        self.strings = self.sections[table.link].offset

    def loaded(self, name: str, given: Mapping[str, int]) -> int:
        places, size = self._layout()
        block = mmap.mmap(-1, size)
        base = ctypes.addressof(ctypes.c_char.from_buffer(block))
        for k, place in places.items():
            s = self.sections[k]
            if s.kind != NO_BITS:
                block[place : place + s.size] = self.code[s.offset : s.offset + s.size]
        addresses = self._addresses(base, places, size, given)
        for s in self.sections:
            if s.kind == RELOCATIONS and s.info in places:
                self._relocate(block, base, places[s.info], s, addresses)
        found = [
            a for a, v in zip(addresses, self.symbols, strict=True) if v.section and self._named(v) == name.encode()
        ]
        if len(found) != 1 or found[0] is None:
            raise Unsupported(f"{len(found)} functions called {name}")
        _execute(base, size)
        _held.append(block)
        return found[0]

    def _layout(self) -> tuple[dict[int, int], int]:
        """Where the sections lie that a process needs, and how large all is; behind them lie what symbols ask for."""
        places, at = {}, 0
        for k, s in enumerate(self.sections):
            if s.flags & ALLOCATED and s.size and not self._text(self.names + s.name).startswith(FRAMES):
                if s.flags & WRITABLE and not self._text(self.names + s.name).startswith(b".data.rel.ro"):
                    raise Unsupported("memory that is written to")
                at = -(-at // max(1, s.align)) * max(1, s.align)
                places[k] = at
                at += s.size
        self.behind = at
        for v in self.symbols:
            if v.section == COMMON:
                at = -(-at // max(1, v.value)) * max(1, v.value) + v.size
        return places, -(-max(at, 1) // mmap.PAGESIZE) * mmap.PAGESIZE

    def _addresses(self, base: int, places: Mapping[int, int], size: int, given: Mapping[str, int]) -> list[int | None]:
        """The address of each symbol; None where it has none."""
        found: list[int | None] = []
        at = self.behind
        for k, v in enumerate(self.symbols):
            if v.section == COMMON:
                at = -(-at // max(1, v.value)) * max(1, v.value)
                found.append(base + at)
                at += v.size
            elif v.section == UNDEFINED:
                found.append(_outside(self._named(v).decode(), given) if k else None)
            elif v.section == ABSOLUTE:
                found.append(v.value)
            else:
                found.append(base + places[v.section] + v.value if v.section in places else None)
        return found

    def _relocate(self, block: mmap.mmap, base: int, place: int, s: _Section, addresses: list[int | None]) -> None:
        for at in range(s.offset, s.offset + s.size, s.entry):
            offset, info, addend = struct.unpack_from("<QQq", self.code, at)
            address, kind, here = addresses[info >> 32], info & 0xFFFFFFFF, place + offset
            if address is None:
                raise Unsupported("a place in a section that is not loaded")
            value = address + addend
            try:
                if kind == WHOLE:
                    struct.pack_into("<Q", block, here, value & 0xFFFFFFFFFFFFFFFF)
                elif kind == RELATIVE_WHOLE:
                    struct.pack_into("<q", block, here, value - base - here)
                elif kind in (RELATIVE, CALL):
                    struct.pack_into("<i", block, here, value - base - here)
                else:
                    raise Unsupported(f"relocation {kind}")
            except struct.error:
                raise Unsupported("a place too far away") from None

    def _named(self, v: _Symbol) -> bytes:
        return self._text(self.strings + v.name)

    def _text(self, at: int) -> bytes:
        return self.code[at : self.code.index(b"\0", at)]


def _outside(name: str, given: Mapping[str, int]) -> int:
    """The address of a function of the libraries in this process."""
    if name in given:
        return given[name]
    try:
        function = getattr(ctypes.CDLL(None), name)
    except AttributeError:
        raise Missing(name) from None
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _execute(base: int, size: int) -> None:
    """Let memory be run, and no longer written to."""
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    if protect(base, size, mmap.PROT_READ | mmap.PROT_EXEC):
        raise Unsupported(f"memory that may not be run (error {ctypes.get_errno()})")
