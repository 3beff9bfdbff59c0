"""Weights that are written before all of them are known: each at its place, and nothing left behind."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import optree
import pytest
import safetensors.numpy

import gradtape as tf
from gradtape.saving import files, weights
from gradtape.saving.objects import Objects
from gradtape.saving.weights import Writing, map_arrays
from tests.saving.models import parts

Arrays = dict[str, Any]
BFLOAT16 = tf.bfloat16.numpy_dtype
ONE = np.arange(12, dtype=np.float32)


@pytest.fixture(autouse=True)
def whatever_is_even_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "EARLY", 1)


def written(path: Path, early: Arrays, late: Arrays) -> Writing:
    with files.whole(str(path)) as file, Writing(file, {"key": "value"}) as writing:
        writing.begin(early)
        writing.finish(late)
    return writing


# What is known at first, and what comes then; arrays of an odd number of bytes wait.
CASES: dict[str, tuple[Arrays, Arrays]] = {
    "no arrays": ({}, {}),
    "nothing at first": ({}, {"a": ONE, "b": np.arange(3, dtype=np.int8)}),
    "nothing then": ({"a": ONE}, {}),
    "nothing that is even": ({"a": np.arange(3, dtype=np.uint8)}, {"c": np.float64(3.0) * np.ones(2)}),
    "no elements": ({"a": ONE, "b": ONE[:0]}, {"c": np.zeros((0, 3)), "d": np.ones(1, np.int64)}),
    "wide ones after narrow ones": (
        {"a": np.arange(16, dtype=np.int8), "b": np.ones(3, np.bool_), "c": ONE[:3]},
        {"constants/0": np.arange(5.0), "constants/1": np.ones((), np.complex128), "constants/2": ONE[:1]},
    ),
    "complex": (
        {"a": np.array([1 + 2j, 3 - 4j]), "b": np.array([1j], np.complex64), "c": ONE},
        {"d": np.full((2, 2), 2 - 1j), "e": np.array(5j, np.complex64)},
    ),
    "of two bytes": (
        {"a": np.arange(8).astype(BFLOAT16), "b": np.arange(3).astype(BFLOAT16)},
        {"c": np.arange(3, dtype=np.float16), "d": np.arange(2, dtype=np.uint64)},
    ),
    "one array twice": ({"a": ONE, "b": ONE}, {"c": ONE}),
    "not in a row": ({"a": np.arange(12.0).reshape(3, 4).T}, {"b": np.arange(12.0)[::-2]}),
}


@pytest.mark.parametrize("room", [0, 8, 1 << 12])
@pytest.mark.parametrize("name", CASES)
def test_all_is_where_the_header_says(name: str, room: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "ROOM", room)
    early, late = CASES[name]
    every = {**early, **late}
    written(tmp_path / "a", early, every)
    found, about = map_arrays(str(tmp_path / "a"), checked=True)
    assert about["key"] == "value" and found.keys() == every.keys()
    for key, array in every.items():
        assert found[key].dtype == array.dtype and found[key].shape == array.shape and found[key].flags.aligned
        np.testing.assert_array_equal(found[key], array)
    if BFLOAT16 not in [a.dtype for a in every.values()]:  # of which the library makes no array
        assert safetensors.numpy.load_file(tmp_path / "a").keys() == every.keys()


def test_a_header_that_outgrows_its_room_moves_the_arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more = {f"constants/{k}": np.full(1, float(k)) for k in range(50)}
    sizes = []
    for room in (0, 1 << 14):
        monkeypatch.setattr(weights, "ROOM", room)
        written(tmp_path / str(room), {"a": ONE}, {"a": ONE} | more)
        found = map_arrays(str(tmp_path / str(room)), checked=True)[0]
        assert len(found) == 51 and all(float(found[f"constants/{k}"][0]) == k for k in range(50))
        np.testing.assert_array_equal(found["a"], ONE)
        sizes.append((tmp_path / str(room)).stat().st_size)
    assert sizes[0] < sizes[1], "room was left in the second one only"


def test_what_has_changed_is_written_again(tmp_path: Path) -> None:
    early = {name: np.full(100, k) for k, name in enumerate("abc")}
    written(tmp_path / "a", early, early | {"b": np.full(100, 7), "d": np.arange(3)})
    found = map_arrays(str(tmp_path / "a"), checked=True)[0]
    assert {name: int(a[0]) for name, a in found.items()} == {"a": 0, "b": 7, "c": 2, "d": 0}


# ------------------------------------------------------------------ models


class Model(tf.Module):
    """Variables, and a function that calls something while it is traced for each size."""

    def __init__(self, meanwhile: Callable[[], Any] = lambda: None) -> None:
        super().__init__()
        self.w = tf.Variable(np.arange(4000.0).reshape(4, 1000))
        self.tied = self.w
        self.count = tf.Variable(0.0, dtype=tf.float64)

        @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float64)])
        def f(x: Any) -> Any:
            with tf.init_scope():
                meanwhile()
            return x[: tf.shape(x)[0] // 2] @ self.w

        self.f = f


def contents(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir()}


def test_variables_are_written_before_functions_are_traced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, seen = parts(), []
    model.large = tf.Variable(np.arange(4000.0))
    write_functions = Objects.write_functions

    def noted(self: Objects) -> None:
        (path,) = tmp_path.glob("*.safetensors")
        seen.append(model.large.numpy().tobytes() in path.read_bytes())
        write_functions(self)

    monkeypatch.setattr(Objects, "write_functions", noted)
    tf.saved_model.save(model, tmp_path)
    assert seen[0]
    loaded = tf.saved_model.load(tmp_path)
    tf.saved_model.verify(tmp_path)
    np.testing.assert_array_equal(loaded.large.numpy(), model.large.numpy())
    x = tf.ones([2, 3])
    for a, b in zip(optree.tree_leaves(model.f(x)), optree.tree_leaves(loaded.f(x)), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), 1e-6)


@pytest.mark.filterwarnings("ignore:.*traced anew:UserWarning")
def test_what_cannot_be_saved_leaves_the_old_model(tmp_path: Path) -> None:
    tf.saved_model.save(Model(), tmp_path)
    before = contents(tmp_path)
    refused = tf.Module()
    refused.w = tf.Variable(np.ones(1000))

    @tf.function(input_signature=[tf.TensorSpec([None])])
    def prints(x: Any) -> Any:
        tf.print(x)
        return x

    refused.f = prints
    for folder in (tmp_path, tmp_path / "a" / "b"):
        with pytest.raises(ValueError, match="`prints` cannot be saved"):
            tf.saved_model.save(refused, folder)
    with pytest.raises(ValueError, match=r"Only `tf\.functions`"):
        tf.saved_model.save(Model(), tmp_path / "a" / "b", signatures=print)
    assert contents(tmp_path) == before


@pytest.mark.filterwarnings("ignore:.*traced anew:UserWarning")
def test_values_are_those_after_tracing(tmp_path: Path) -> None:
    model = Model(lambda: model.count.assign_add(1.0))
    tf.saved_model.save(model, tmp_path)
    loaded = tf.saved_model.load(tmp_path)
    tf.saved_model.verify(tmp_path)
    assert float(loaded.count) == float(model.count) > 1.0
    assert loaded.tied is loaded.w


@pytest.mark.filterwarnings("ignore:.*traced anew:UserWarning")
def test_others_may_save_while_functions_are_traced(tmp_path: Path) -> None:
    other, saved = tf.Module(), []
    other.v = tf.Variable(3.0)

    def meanwhile() -> None:
        if not saved and list(tmp_path.iterdir()):
            saved.append(None)
            tf.saved_model.save(other, tmp_path)
            assert float(tf.saved_model.load(tmp_path).v) == 3.0

    model = Model(meanwhile)
    tf.saved_model.save(model, tmp_path)
    assert saved
    np.testing.assert_array_equal(tf.saved_model.load(tmp_path).w.numpy(), model.w.numpy())
    assert len(os.listdir(tmp_path)) == 2


def test_small_models_have_no_room_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    tf.saved_model.save(parts(), tmp_path)
    (path,) = tmp_path.glob("*.safetensors")
    assert path.stat().st_size < 1 << 13


def test_an_interruption_behind_the_last_step_leaves_the_new_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tf.Module()
    model.v = tf.Variable(1.0)
    tf.saved_model.save(model, tmp_path)
    model.v.assign(2.0)
    replace = os.replace

    def interrupted(*paths: str) -> None:
        replace(*paths)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            tf.saved_model.save(model, tmp_path)
    assert float(tf.saved_model.load(tmp_path).v) == 2.0


def test_files_of_others_are_not_swept_away(tmp_path: Path) -> None:
    weights, part = f"weights-{'0' * 16}.safetensors", f".{'a' * 16}.part"
    theirs = [f"{name}.bak" for name in ("saved_model.json", weights)] + ["saved_model.json.part"]
    ours = [weights, f"saved_model.json{part}", f"saved_model.json.{'0' * 8}.part", f"{weights}.{'0' * 8}.part"]
    for name in (*theirs, *ours):
        (tmp_path / name).write_bytes(b"")
    tf.saved_model.save(parts(), tmp_path)
    left = {p.name for p in tmp_path.iterdir()}
    assert left.isdisjoint(ours) and left.issuperset(theirs) and len(left) == len(theirs) + 2
