"""The one error of files that cannot be read, and the first checks of what is in them. Floor: saving."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from gradtape.ir.errors import DataLossError


class Undigested(ValueError):
    """A file has no digests to compare its arrays with."""


class Damaged(Exception):
    """Something in a file is not what it should be; `reading` makes the error of it."""


@contextlib.contextmanager
def reading(path: str, what: str = "saved model") -> Iterator[None]:
    """A block that reads a file: whatever goes wrong in it is one error that names the file.

    Raises:
      DataLossError: the file is damaged, or was not written by this package.
    """
    try:
        yield
    except (DataLossError, Undigested, KeyboardInterrupt):
        raise
    except Exception as e:
        why = str(e).strip("'") if isinstance(e, Damaged) else f"{type(e).__name__}: {str(e)[:200]}"
        raise DataLossError(
            f"The {what} at {path} cannot be read: {why}. The file is damaged, or is not one that gradtape wrote. Save "
            "the model again, or take another copy."
        ) from e


def fields(text: Any, *names: str) -> list[Any]:
    """The fields of an object that has these and no others.

    Raises:
      Damaged: it has others.
    """
    if not isinstance(text, dict) or set(text) != set(names):
        found = sorted(text) if isinstance(text, dict) else type(text).__name__
        raise Damaged(f"an object should have {list(names)}, got {str(found)[:120]}")
    return [text[n] for n in names]


def listed(text: Any) -> list[Any]:
    """A list.

    Raises:
      Damaged: it is none.
    """
    if not isinstance(text, list):
        raise Damaged(f"a list was expected, there is {str(text)[:80]}")
    return text


def numbered(text: Any, among: Sequence[Any], what: str) -> Any:
    """The entry of a list that a number names.

    Raises:
      Damaged: there is none.
    """
    if type(text) is not int or not 0 <= text < len(among):
        raise Damaged(f"there is no {what} number {text!r}; there are {len(among)}")
    return among[text]
