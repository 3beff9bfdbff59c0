"""The file that says which checkpoints a folder has, and which is the latest. Floor: saving."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gradtape.saving.damage import Damaged, reading
from gradtape.saving.files import whole

NAME = "checkpoint"
LINE = re.compile(r'(\w+): (?:"((?:[^"\\]|\\.)*)"|([-+0-9.e]+))')
MAX_BYTES = 1 << 24


@dataclass
class State:
    """The checkpoints of a folder, oldest first, with the times at which they were made. `preserved`: when the last of
    those was made that are never deleted."""

    latest: str = ""
    paths: list[str] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    preserved: float = 0.0


def record(latest: str, paths: Sequence[str], times: Sequence[float] = (), preserved: float = 0.0) -> None:
    """Write the file of a folder, in the text format that TensorFlow uses. Paths are written as names in the folder."""
    lines = [f'model_checkpoint_path: "{_quoted(latest)}"']
    lines += [f'all_model_checkpoint_paths: "{_quoted(p)}"' for p in paths]
    lines += [f"all_model_checkpoint_timestamps: {t!r}" for t in times]
    lines += [f"last_preserved_timestamp: {preserved!r}"] if times else []
    with whole(os.path.join(os.path.dirname(latest), NAME)) as file:
        file.write(("\n".join(lines) + "\n").encode())


def _quoted(path: str) -> str:
    return os.path.basename(path).replace("\\", "\\\\").replace('"', '\\"')


def state_of(folder: str, name: str | None = None) -> State | None:
    """What the file of a folder says; None where there is none.

    Raises:
      DataLossError: it is damaged.
    """
    path = os.path.join(folder, name or NAME)
    if not os.path.isfile(path):
        return None
    with reading(path, "list of checkpoints"):
        if os.path.getsize(path) > MAX_BYTES:
            raise Damaged("it is too long")
        with open(path, encoding="utf-8") as file:
            return _read(folder, file.read())


def _read(folder: str, text: str) -> State:
    state = State()
    for line in text.splitlines():
        found = LINE.fullmatch(line.strip())
        if found is None:
            raise Damaged(f"{line[:80]!r} is no line of it")
        key, quoted, number = found.groups()
        if key == "model_checkpoint_path":
            state.latest = _path(folder, quoted)
        elif key == "all_model_checkpoint_paths":
            state.paths.append(_path(folder, quoted))
        elif key == "all_model_checkpoint_timestamps":
            state.times.append(float(number))
        elif key == "last_preserved_timestamp":
            state.preserved = float(number)
    if not state.latest:
        raise Damaged("it names no checkpoint")
    return state


def _path(folder: str, quoted: Any) -> str:
    name = re.sub(r"\\(.)", r"\1", quoted or "")
    if name in ("", ".", "..") or os.path.basename(name) != name:
        raise Damaged(f"{name[:80]!r} is no name of a checkpoint in this folder")
    return os.path.join(folder, name)
