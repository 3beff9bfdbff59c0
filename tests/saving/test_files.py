"""Files that go to the disk while they are written, and names that are given last."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import numpy as np
import pytest

from gradtape.saving import files

LARGE = np.arange(50_000, dtype=np.uint16)


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "STEP", 1000)


def test_all_is_there_and_some_was_on_the_disk_before_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []
    fsync = os.fsync

    def noted(handle: int) -> None:
        threads.append(threading.current_thread())
        fsync(handle)

    monkeypatch.setattr(os, "fsync", noted)
    with files.whole(str(tmp_path / "a")) as file:
        assert file.write(LARGE) == LARGE.nbytes
        assert file.write(b"end") == 3
        file.seek(0)
        file.write(b"\7")
    kept = (tmp_path / "a").read_bytes()
    assert kept == b"\7" + LARGE.tobytes()[1:] + b"end"
    assert any(t is not threading.main_thread() for t in threads)
    assert sum(t is threading.main_thread() for t in threads) == 2, "the whole file at the end, and its folder"
    assert not any(t.name.startswith("gradtape-settling") for t in threading.enumerate())


def test_an_error_of_the_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(b"before")

    def full(handle: int) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"), files.whole(str(tmp_path / "a")) as file:
        file.write(LARGE)
    assert (tmp_path / "a").read_bytes() == b"before"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_what_is_removed_is_gone_at_once(tmp_path: Path) -> None:
    for size in (3, 5000):
        path = tmp_path / str(size)
        path.write_bytes(bytes(size))
        files.remove(str(path))
        assert not path.exists()
        files.remove(str(path))  # nothing is there
    for t in threading.enumerate():
        if t.name == "gradtape-removing":
            t.join()
