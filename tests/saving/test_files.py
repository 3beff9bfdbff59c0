"""Files that go to the disk while they are written, and names that are given last."""

from __future__ import annotations

import errno
import itertools
import os
import stat
import threading
from pathlib import Path

import numpy as np
import pytest

import gradtape as tf
from gradtape.saving import files

LARGE = np.arange(50_000, dtype=np.uint16)


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "STEP", 1000)
    monkeypatch.setattr(files, "LARGE", 1000)


@pytest.mark.parametrize("system", ["with its functions", "without", "with functions that fail"])
def test_all_is_there_however_it_comes_to_the_disk(
    system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if system != "with its functions":
        failing = None if system == "without" else lambda *args: -1
        monkeypatch.setattr(files, "TRANSFER", failing)
        monkeypatch.setattr(files, "RESERVE", failing)
    with files.whole(str(tmp_path / "a")) as file:
        file.reserve(2003 + LARGE.nbytes)
        file.seek(2000)
        assert file.write(LARGE) == LARGE.nbytes
        assert file.write(b"end") == 3
        file.seek(0)
        file.write(b"\7")
    assert (tmp_path / "a").read_bytes() == b"\7" + bytes(1999) + LARGE.tobytes() + b"end"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_the_disk_begins_while_more_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[tuple[int, int]] = []
    threads, first = set(), threading.Event()

    def transfer(handle: int, begin: int, size: int, how: int) -> int:
        begun.append((begin, begin + size))
        threads.add(threading.current_thread().name)
        first.set()
        return 0

    monkeypatch.setattr(files, "TRANSFER", transfer)
    with files.whole(str(tmp_path / "a")) as file:
        file.write(LARGE[:10_000])
        assert first.wait(10), "before all is written"
        file.write(LARGE[10_000:])
        file.seek(0)
        file.write(LARGE[:2000])  # what was begun with is not begun with again
    assert begun[0][0] == 0 and all(a[1] == b[0] for a, b in itertools.pairwise(begun))
    assert begun[-1][1] <= LARGE.nbytes and all(end % 1000 == 0 for _, end in begun)
    assert all(name.startswith("gradtape-settling") for name in threads)
    assert not any(t.name.startswith("gradtape-settling") for t in threading.enumerate())


def test_a_file_has_reached_the_disk_before_it_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, os.replace

    def settled(handle: int) -> None:
        done.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        fsync(handle)

    def renamed(old: str, new: str) -> None:
        done.append("name")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", settled)
    monkeypatch.setattr(os, "replace", renamed)
    with files.whole(str(tmp_path / "a")) as file:
        file.write(LARGE)
    assert done == ["file", "name", "folder"]
    done.clear()
    model = tf.Module()
    model.v = tf.Variable(1.0)
    tf.saved_model.save(model, tmp_path / "b")
    assert done.pop(0) == "folder", "the new one"
    assert sorted(done[:3]) == ["file", "file", "folder"] and done[3:] == ["name", "folder"]


def test_an_error_of_the_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(b"before")

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"), files.whole(str(tmp_path / "a")) as file:
        file.write(LARGE)
    assert (tmp_path / "a").read_bytes() == b"before"
    model = tf.Module()
    model.v = tf.Variable(1.0)
    for folder in (tmp_path, tmp_path / "b" / "c"):
        with pytest.raises(OSError, match="No space left"):
            tf.saved_model.save(model, folder)
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("late", [False, True])
def test_an_error_before_or_after_the_model_has_its_name(
    late: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tf.Module()
    model.v = tf.Variable(1.0)
    tf.saved_model.save(model, tmp_path)
    before = set(tmp_path.iterdir())
    model.v.assign(2.0)
    replace = os.replace

    def full(handle: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    def renamed(old: str, new: str) -> None:
        if late:
            replace(old, new)
            monkeypatch.setattr(os, "fsync", full)
        else:
            full(0)

    monkeypatch.setattr(os, "replace", renamed)
    with pytest.raises(OSError, match="Input/output error"):
        tf.saved_model.save(model, tmp_path)
    monkeypatch.undo()
    assert float(tf.saved_model.load(tmp_path).v) == (2.0 if late else 1.0)
    assert late or set(tmp_path.iterdir()) == before


def test_what_is_being_written_is_not_swept_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "old").touch()
    with files.new(str(tmp_path), "a"):
        files.sweep(str(tmp_path), lambda name: True, [])
        assert [p.name for p in tmp_path.iterdir()] == ["a"]
        with monkeypatch.context() as patch:  # where the system has no locks, it keeps open files

            def kept(path: str) -> None:
                raise PermissionError

            patch.setattr(files, "fcntl", None)
            patch.setattr(files, "KEPT", (PermissionError,))
            patch.setattr(os, "unlink", kept)
            files.sweep(str(tmp_path), lambda name: True, [])
    files.sweep(str(tmp_path), lambda name: True, ["a"])
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
    files.sweep(str(tmp_path), lambda name: True, [])
    assert not list(tmp_path.iterdir())


def test_a_folder_is_gone_with_what_was_to_be_in_it(tmp_path: Path) -> None:
    def fail(folder: Path, other: bool = False) -> None:
        with files.made(str(folder)):
            assert folder.is_dir()
            if other:
                (folder.parent / "c").touch()
            raise KeyError

    for others in (False, True):
        with pytest.raises(KeyError):
            fail(tmp_path / "a" / "b", others)
        assert [p.name for p in tmp_path.rglob("*")] == (["a", "c"] if others else [])
    with files.made(str(tmp_path / "d")):
        pass
    with pytest.raises(KeyError):
        fail(tmp_path / "d")
    assert (tmp_path / "d").is_dir(), "it was there before"


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
