"""Places in the user's program: who called, by file and line. Floor: runtime.

Code that was generated from the user's (converted `if` and `while` statements) has a translation of its lines."""

from __future__ import annotations

import functools
import os
import sys
import weakref
from collections.abc import Callable
from types import CodeType, FrameType

PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep
CONVERTED = os.path.join(PACKAGE, "tracing") + os.sep  # what converted code calls in the place of statements
SKIPPED: list[str] = [PACKAGE]  # beginnings of file names that are not the user's; see `skip`
TRANSLATIONS: dict[str, Callable[[int], tuple[str, int]]] = {}  # by name of a generated file
NOTES: weakref.WeakKeyDictionary[CodeType, str] = weakref.WeakKeyDictionary()  # what is to be said of a function


@functools.cache
def is_own_file(name: str) -> bool:
    """Whether a file belongs to the package, or to the library that converts code for it."""
    return name.startswith(tuple(SKIPPED))


def skip(folder: str) -> None:
    """Take the files in a folder for none of the user's."""
    SKIPPED.append(folder + os.sep)
    is_own_file.cache_clear()


def is_own(frame: FrameType) -> bool:
    """Whether a frame runs code of such a file."""
    return is_own_file(frame.f_code.co_filename)


def line_of(frame: FrameType) -> tuple[str, int]:
    """The file and line of a frame, as the code has them."""
    return frame.f_code.co_filename, frame.f_lineno


def place_at(name: str, line: int) -> str:
    """A file and line as the user has them."""
    if name in TRANSLATIONS:
        name, line = TRANSLATIONS[name](line)
    return f"{name}:{line}"


def place_of(frame: FrameType) -> str:
    """Where a frame is at."""
    return place_at(*line_of(frame))


def asked_by_user(depth: int) -> bool:
    """Whether the caller so many frames up is the user's; what converted code calls, the user calls."""
    frame: FrameType | None = sys._getframe(depth + 1)
    while frame is not None and frame.f_code.co_filename.startswith(CONVERTED):
        frame = frame.f_back
    return frame is not None and not is_own(frame)


def user_frame() -> FrameType:
    """The innermost frame that is the user's."""
    frame = sys._getframe(1)
    while frame.f_back is not None and is_own_file(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def note_on(frame: FrameType) -> str | None:
    """What is to be said of the function that a user's frame runs, or of one of those that led there."""
    found: FrameType | None = frame
    while found is not None and not is_own(found):
        if found.f_code in NOTES:
            return NOTES[found.f_code]
        found = found.f_back
    return None


def calling_place() -> str:
    """Where the package was called from, and which of its functions: "`softmax` called at model.py:12"."""
    frame, function = sys._getframe(1), ""
    while frame.f_back is not None and is_own(frame):
        name = frame.f_code.co_name
        function = f"`{name}` " if name[:1].isalpha() and name in frame.f_globals else ""  # no operator, no closure
        frame = frame.f_back
    return sys.intern(f"{function}called at {place_of(frame)}")
