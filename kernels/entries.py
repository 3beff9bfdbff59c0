"""Entries of machine code: from disk if it is there, else compiled and kept. Floor: kernels."""

from __future__ import annotations

import functools
import hashlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gradtape.kernels import arguments, disk
from gradtape.kernels.arguments import Entry, Parameter
from gradtape.kernels.linking import LINKER, processor
from gradtape.kernels.objects import ObjectCode, known_to_numba, maker

_check_layout = functools.cache(arguments.check_layout)


def key_of(text: str, parameters: Sequence[Parameter], options: Mapping[str, Any]) -> str:
    """The hash of what is compiled, of how, and of what compiles it."""
    how = [f"{k}={sorted(v) if isinstance(v, set) else v}" for k, v in options.items()]
    words = [maker(), sys.implementation.cache_tag or "", *how, *map(repr, parameters), text]
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:32]


def entry_of(name: str, parameters: Sequence[Parameter], make: Callable[[], ObjectCode]) -> tuple[Entry, bool]:
    """The entry of this name, and whether it was found on disk. The name says all that machine code depends on but the
    processor. Code that calls what only Numba's library has runs in this process, and is not kept."""
    _check_layout()
    file = f"{name}_{processor()}"
    kept = disk.read(file)
    if kept is not None:
        try:
            return Entry(LINKER.link(name, kept), parameters), True
        except RuntimeError:  # it calls what was there when it was compiled
            disk.forget(file)
    made = make()
    try:
        address = LINKER.link(name, made.code)
    except RuntimeError:
        return Entry(LINKER.link(name, made.code, known_to_numba(made.calls)), parameters), False
    disk.write(file, made.code)
    return Entry(address, parameters), False
