"""Saved models: how long saving and loading takes beside a plain copy of the file, and what loading holds in memory."""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import gradtape as tf
from benchmarks.workload import Count, Figure, Setting

TRIES = 15  # in turns, so that what disturbs one disturbs the others
SLOWER = 2.0  # as many times a copy may saving and loading take


def model(size: int) -> Any:
    """A module of 16 matrices and a function, of so many bytes."""
    made = tf.Module()
    side = int((size / 64) ** 0.5)
    made.w = [tf.Variable(np.full((side, side), k, np.float32)) for k in range(16)]
    made.f = tf.function(lambda x: x @ made.w[0], input_signature=[tf.TensorSpec([None, side])])
    return made


def copied(path: Path, to: Path, settled: bool) -> None:
    """A plain copy to a new file; `settled`: brought to the disk, as a saved model is."""
    shutil.copyfile(path, to)
    if settled:
        with open(to, "rb+") as file:
            os.fsync(file.fileno())


def figures(setting: Setting) -> list[Figure]:
    size = 1_000_000 if setting.quick else 100_000_000
    with tempfile.TemporaryDirectory() as folder:
        return _figures(model(size), Path(folder), 1 if setting.quick else TRIES)


def _figures(made: Any, folder: Path, tries: int) -> list[Figure]:
    tf.saved_model.save(made, folder / "model")
    plain, settled, both, load = [], [], [], []
    size = 0
    for _ in range(tries):
        weights = next((folder / "model").glob("*.safetensors"))
        size = weights.stat().st_size
        plain.append(_seconds(lambda w=weights: copied(w, folder / "copy", False), folder / "copy"))
        settled.append(_seconds(lambda w=weights: copied(w, folder / "copy", True), folder / "copy"))
        both.append(_seconds(lambda: (tf.saved_model.save(made, folder / "model"), _read(folder))))
        load.append(_seconds(lambda: _read(folder)))
    times = {k: (min(v), statistics.median(v)) for k, v in zip("psbl", (plain, settled, both, load), strict=True)}
    note = f"{_shown(times['b'])} s; the copy takes {_shown(times['s'])} s"
    return [
        Figure("save + load, in copies that reach the disk", times["b"][0] / times["s"][0], "x", SLOWER, note),
        Figure(
            "save + load, in copies that need not",
            times["b"][0] / times["p"][0],
            "x",
            SLOWER,
            f"the copy takes {_shown(times['p'])} s",
        ),
        Figure("load alone", times["l"][0], "s", None, f"{size / 1e6:.1f} MB are mapped, not read"),
        Figure("bytes of the loaded weights that are no part of the file", _unmapped(folder), "B", 0.0),
    ]


def _shown(pair: tuple[float, float]) -> str:
    return f"{pair[0]:.3f} (median {pair[1]:.3f})"


def _seconds(f: Callable[[], Any], gone: Path | None = None) -> float:
    """How long it takes, when the system has given back the room of removed files; `gone`: one that is to be."""
    if gone is not None:
        gone.unlink(missing_ok=True)
    time.sleep(0.1)
    begin = time.perf_counter()
    f()
    return time.perf_counter() - begin


def _read(folder: Path) -> Any:
    return tf.saved_model.load(folder / "model")


def _unmapped(folder: Path) -> float:
    """Bytes of variables whose arrays own their memory."""
    arrays = [np.asarray(v) for v in _read(folder).w]
    return float(sum(a.nbytes for a in arrays if a.flags.owndata))


WORKLOADS = [
    Count(
        "saving",
        "saving and loading a model of 100 MB, in terms of a copy of its weights in the same run",
        figures,
    )
]
