"""Machine code on disk: files that are believed only where they are what was written. Floor: kernels."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import stat
import tempfile
from pathlib import Path

MAX_FILES = 1024  # kept on disk; the oldest go first
HEAD = b"gradtape machine code 1\n"  # then what the name and the rest add up to, then the rest
SUM = hashlib.sha256().digest_size


def cache_folder() -> Path:
    """Where machine code is kept: `GRADTAPE_CACHE`, or a folder in the user's cache."""
    chosen = os.environ.get("GRADTAPE_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "gradtape" / "kernels"


def read(name: str) -> bytes | None:
    """What was written under a name. None: nothing, or not by this user, or something else than was written, which
    processes that end while they write and disks that fail leave behind."""
    path = _path(name)
    try:
        if not _is_own(path.parent):
            return None
        found = path.read_bytes()
    except OSError:
        return None
    begin = len(HEAD) + SUM
    if found[:begin] == HEAD + _sum(name, found[begin:]):
        return found[begin:]
    forget(name)
    return None


def write(name: str, content: bytes) -> bool:
    """Keep what `read` gives other processes; False where nothing can be kept."""
    path = _path(name)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_own(path.parent):
            return False
        _put(path, HEAD + _sum(name, content) + content)
        _bound(path.parent)
    except OSError:
        return False
    return True


def forget(name: str) -> None:
    """Drop what is kept under a name."""
    with contextlib.suppress(OSError):  # in a folder that cannot be written to it is not believed the next time either
        _path(name).unlink()


def _path(name: str) -> Path:
    return cache_folder() / f"{name}.code"


def _sum(name: str, content: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\n" + content).digest()


def _put(path: Path, content: bytes) -> None:
    """Write a file so that whoever reads it finds all of it, or what was there before."""
    handle, part = tempfile.mkstemp(dir=path.parent, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as f:
            f.write(content)
        os.replace(part, path)
    except OSError:
        os.unlink(part)
        raise


def _is_own(folder: Path) -> bool:
    """Whether nobody else can put machine code into a folder."""
    if not hasattr(os, "getuid"):
        return True
    found = folder.stat()
    return found.st_uid == os.getuid() and not found.st_mode & stat.S_IWOTH


def _bound(folder: Path) -> None:
    """Drop the oldest files beyond the bound."""
    kept = sorted(folder.glob("*.code"), key=lambda p: p.stat().st_mtime)
    for path in itertools.islice(kept, max(0, len(kept) - MAX_FILES)):
        path.unlink(missing_ok=True)
