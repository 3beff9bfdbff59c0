"""Files that are there whole or not at all, and JSON that says when it was changed. Floor: saving.

A file is written under another name, brought to the disk, and given its name last. What consists of several files has
one that names the others, under names never used before; it comes last, and what nothing names is swept away."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import io
import json
import os
import secrets
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from gradtape.saving.damage import Damaged, fields
from gradtape.version import __version__

try:
    import fcntl
except ImportError:  # where the system has none
    fcntl = None  # type: ignore[assignment]

KEPT = () if fcntl is not None else (PermissionError,)  # raised where nobody removes a file that is being written
SAVING = threading.RLock()
MAX_JSON = 1 << 31  # bytes
PART = ".part"  # at the end of names of files that are being written
LARGE = 1 << 24  # bytes of a file whose room is given back aside
STEP = 1 << 22  # bytes after which the disk begins to take what was written, while more is


def _of_linux(name: str, *types: Any) -> Callable[..., int] | None:
    """A function of the system that Python has no name for; None where the system is another one."""
    found = getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" and sys.maxsize > 1 << 32 else None
    if found is not None:
        found.argtypes = types
    return found


TRANSFER = _of_linux("sync_file_range", ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
START = 2  # what it is to do: begin, and not wait
RESERVE = _of_linux("fallocate", ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


class Settling(io.FileIO):
    """A new file that goes to the disk while it is written."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "x")
        self._written = self._begun = 0  # bytes before which all is there, and those that the disk was told to take
        self._aside: ThreadPoolExecutor | None = None
        self.kept = False  # something names it, or is about to

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        done = 0
        while done < len(view):  # one call of the system may take a part
            done += super().write(view[done : done + STEP])
            self._begin(self.tell() // STEP * STEP)
        return done

    def _begin(self, end: int) -> None:
        """Have the disk take what lies before a place, in whole steps, while more is written."""
        if end <= self._written or TRANSFER is None:
            return
        if self._aside is None:
            self._aside = ThreadPoolExecutor(1, "gradtape-settling")
        self._written = end
        self._aside.submit(self._transfer)

    def _transfer(self) -> None:
        """Begin with all that was written since; what goes wrong is told by `settle`."""
        begin, self._begun = self._begun, self._written
        if begin < self._begun and TRANSFER is not None:
            TRANSFER(self.fileno(), begin, self._begun - begin, START)

    def reserve(self, size: int) -> None:
        """Take room for so many bytes at once, which costs less than step by step. Where the system cannot, it is taken
        when they are written; where there is none, that is told then."""
        if RESERVE is not None and size > STEP:
            RESERVE(self.fileno(), 0, 0, size)

    def settle(self) -> None:
        """Wait until all is on the disk."""
        os.fsync(self.fileno())

    @contextlib.contextmanager
    def keeping(self) -> Iterator[None]:
        """A block after which something names the file, which is closed then. It stays where the block is interrupted:
        nobody knows how far that was."""
        self.kept = True
        try:
            yield
        except Exception:
            self.kept = False
            raise
        self.close()

    def close(self) -> None:
        if self._aside is not None:
            self._aside.shutdown(cancel_futures=True)  # nobody else may get the number of the file before
            self._aside = None
        super().close()


@contextlib.contextmanager
def whole(path: str) -> Iterator[Settling]:
    """A file that gets its name when the block ends well, and is gone when it does not."""
    part = f"{path}.{secrets.token_hex(4)}{PART}"
    try:
        with Settling(part) as file:
            yield file
            file.settle()
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)
        raise
    settle(os.path.dirname(path) or ".")


@contextlib.contextmanager
def new(folder: str, name: str) -> Iterator[Settling]:
    """A file of a name that was never used, and that nothing mentions yet. It is gone when the block does not end well,
    unless it is kept. Until it is closed, others that save in the folder leave it there."""
    path = os.path.join(folder, name)
    with turn(folder):
        file = Settling(path)
        if fcntl is not None:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX)
    try:
        yield file
    except BaseException:
        file.close()
        if not file.kept:
            with contextlib.suppress(FileNotFoundError):  # it has another name
                os.unlink(path)
        raise
    file.close()


def settle_all(folder: str, *files: Settling) -> None:
    """Wait until files and their names in the folder are on the disk, in no order."""
    with ThreadPoolExecutor(len(files) + 1, "gradtape-settling") as threads:
        waits = [threads.submit(file.settle) for file in files]
        settle(folder)
        for wait in waits:
            wait.result()


@contextlib.contextmanager
def made(folder: str) -> Iterator[None]:
    """A block for which a folder is made, if there is none; then it is gone when the block does not end well."""
    missing = []
    path = os.path.abspath(folder)
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    os.makedirs(folder, exist_ok=True)
    try:
        for path in missing:
            settle(os.path.dirname(path))
        yield
    except BaseException:
        with contextlib.suppress(OSError):  # somebody has put something there
            for path in missing:
                os.rmdir(path)
        raise


def settle(folder: str) -> None:
    """Bring the names in a folder to the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def turn(folder: str) -> Iterator[None]:
    """A block in which nobody else saves in a folder: other threads and, where the system has locks of folders, other
    processes wait."""
    handle = os.open(folder, os.O_RDONLY) if fcntl is not None else None
    try:
        with SAVING:
            if handle is not None and fcntl is not None:
                fcntl.flock(handle, fcntl.LOCK_EX)
            yield
    finally:
        if handle is not None:
            os.close(handle)  # which gives the lock back


def sweep(folder: str, is_ours: Callable[[str], bool], kept: Iterable[str]) -> None:
    """Remove files that a save left behind: those of ours but the ones that are named, or are being written."""
    wanted = set(kept)
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if name not in wanted and is_ours(name) and not _is_being_written(path):
            with contextlib.suppress(*KEPT):
                remove(path)


def _is_being_written(path: str) -> bool:
    """Whether a file that `new` made is not closed yet."""
    if fcntl is None:
        return False  # the system does not let it be removed
    with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:  # who made it may have removed it
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def remove(path: str) -> None:
    """Remove a file, if it is there. A large one gives its room back aside, which takes the system a while."""
    with contextlib.suppress(FileNotFoundError):
        large = fcntl is not None and os.path.getsize(path) > LARGE  # elsewhere, nobody removes what is open
        handle = os.open(path, os.O_RDONLY) if large else None
        try:
            os.unlink(path)
        finally:
            if handle is not None:
                threading.Thread(target=os.close, args=(handle,), name="gradtape-removing").start()


def sealed(kind: str, version: int, content: Any) -> bytes:
    """Content as JSON, with what it is and a digest."""
    try:
        text = _dumped(content)
    except RecursionError:
        raise ValueError("What is to be saved is nested too deeply for any file.") from None
    head = {"format": f"gradtape {kind}", "version": version, "written_by": __version__, "sha256": _digest(text)}
    return f'{_dumped(head)[:-1]},"content":{text}}}\n'.encode()


def opened(path: str, kind: str, version: int) -> Any:
    """The content of a sealed file.

    Raises:
      Damaged: it is none, was changed, or was written by a later version.
    """
    size = os.path.getsize(path)
    if size > MAX_JSON:
        raise Damaged(f"{size} bytes of JSON are more than any file of ours has")
    with open(path, "rb") as file:
        whole = json.loads(file.read().decode(), parse_constant=_refused, object_pairs_hook=_object)
    if not isinstance(whole, dict) or whole.get("format") != f"gradtape {kind}":
        raise Damaged(f"it does not say that it is a gradtape {kind}")
    if type(whole.get("version")) is not int or not 1 <= whole["version"] <= version:
        raise Damaged(
            f"it is of version {whole.get('version')!r}, and gradtape {__version__} reads versions 1 to {version}. "
            f"Install the gradtape that wrote it ({str(whole.get('written_by'))[:40]}) or a later one"
        )
    _, _, _, digest, content = fields(whole, "format", "version", "written_by", "sha256", "content")
    if digest != _digest(_dumped(content)):
        raise Damaged("its digest is another one: it was changed after it was written")
    return content


def _dumped(content: Any) -> str:
    return json.dumps(content, separators=(",", ":"), allow_nan=False, ensure_ascii=True)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _refused(text: str) -> Any:
    raise Damaged(f"{text} is no JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Damaged("a name stands twice in an object")
    return found
