"""Files that are there whole or not at all, and JSON that says when it was changed. Floor: saving.

A file is written under another name, brought to the disk, and given its name last. What consists of several files has
one that names the others, under names never used before; it comes last, and what nothing names is swept away."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from gradtape.saving.damage import Damaged, fields
from gradtape.version import __version__

try:
    import fcntl
except ImportError:  # where the system has none
    fcntl = None  # type: ignore[assignment]

SAVING = threading.RLock()
MAX_JSON = 1 << 31  # bytes
PART = ".part"  # at the end of names of files that are being written
STEP = 1 << 24  # bytes after which what was written is brought to the disk while more is written


class Settling(io.FileIO):
    """A new file that goes to the disk while it is written."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "x")
        self._fresh = 0  # bytes written since the disk was last asked to take them
        self._aside: ThreadPoolExecutor | None = None
        self._asked: Future[None] | None = None

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        done = 0
        while done < len(view):  # one call of the system may take a part
            done += super().write(view[done : done + STEP])
            self._ask(done)
        return done

    def _ask(self, more: int) -> None:
        self._fresh += more
        if self._fresh < STEP or (self._asked is not None and not self._asked.done()):
            return
        if self._aside is None:
            self._aside = ThreadPoolExecutor(1, "gradtape-settling")
        if self._asked is not None:
            self._asked.result()  # an error of the disk
        self._asked, self._fresh = self._aside.submit(os.fsync, self.fileno()), 0

    def settle(self) -> None:
        """Wait until all is on the disk."""
        if self._asked is not None:
            self._asked.result()
        os.fsync(self.fileno())

    def close(self) -> None:
        if self._aside is not None:
            self._aside.shutdown()  # nobody else may get the number of the file before
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
    _settle(os.path.dirname(path) or ".")


def _settle(folder: str) -> None:
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
    """Remove files that a save left behind: those of ours but the ones that are named."""
    wanted = set(kept)
    for name in os.listdir(folder):
        if name not in wanted and is_ours(name):
            remove(os.path.join(folder, name))


def remove(path: str) -> None:
    """Remove a file, if it is there. A large one gives its room back aside, which takes the system a while."""
    with contextlib.suppress(FileNotFoundError):
        large = fcntl is not None and os.path.getsize(path) > STEP  # elsewhere, nobody removes what is open
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
