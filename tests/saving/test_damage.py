"""Files that are damaged, cut off or made to harm: one clear error each, and no hang."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import optree
import pytest

import gradtape as tf
from gradtape.ops.op import all_ops
from gradtape.saving import files, weights
from gradtape.saving.saved_model import KIND, MODEL, VERSION
from tests.saving.models import parts

SEEDS = range(8)
CHANGES = 40  # for each seed


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    tf.saved_model.save(parts(), folder)
    return folder


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    shutil.copytree(original, tmp_path / "m")
    return tmp_path / "m"


def content_of(folder: Path) -> Any:
    return json.loads((folder / MODEL).read_text())["content"]


def write(folder: Path, content: Any) -> None:
    """The content with a digest that fits it, as who wants to do harm would write it."""
    (folder / MODEL).write_bytes(files.sealed(KIND, VERSION, content))


def weights_of(folder: Path) -> Path:
    return next(folder.glob("*.safetensors"))


def refused(folder: Path, match: str = "cannot be read") -> None:
    with pytest.raises(tf.errors.DataLossError, match=match) as caught:
        tf.saved_model.load(folder)
    assert "cannot be read" in str(caught.value) and len(str(caught.value)) < 1500


# ------------------------------------------------------------------ by accident


def test_every_cut_of_the_json_is_seen(folder: Path) -> None:
    whole = (folder / MODEL).read_bytes()
    for size in (0, 1, 10, len(whole) // 2, len(whole) - 2):
        (folder / MODEL).write_bytes(whole[:size])
        refused(folder)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_changed_byte_of_the_json_is_seen(seed: int, folder: Path) -> None:
    whole, rng = (folder / MODEL).read_bytes(), random.Random(seed)
    for _ in range(10):
        at = rng.randrange(len(whole) - 1)
        changed = bytearray(whole)
        changed[at] ^= 1 << rng.randrange(8)
        if json_or_none(changed) == json.loads(whole):
            continue  # a blank for a blank
        (folder / MODEL).write_bytes(changed)
        try:
            tf.saved_model.load(folder)
        except tf.errors.DataLossError:
            continue
        head = json.loads(changed)
        assert head["content"] == json.loads(whole)["content"], "only who wrote it may have changed"


def json_or_none(text: bytes | bytearray) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def test_every_cut_of_the_weights_is_seen(folder: Path) -> None:
    path = weights_of(folder)
    whole = path.read_bytes()
    for size in (0, 4, 8, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        refused(folder)
    path.write_bytes(whole + b"x")
    refused(folder)
    path.unlink()
    refused(folder)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_changed_header_of_the_weights_is_seen_or_harmless(seed: int, folder: Path) -> None:
    path, rng = weights_of(folder), random.Random(seed)
    whole = path.read_bytes()
    header = int.from_bytes(whole[:8], "little")
    for _ in range(10):
        changed = bytearray(whole)
        changed[rng.randrange(8 + header)] ^= 1 << rng.randrange(8)
        path.write_bytes(changed)
        try:
            loaded = tf.saved_model.load(folder)
        except tf.errors.DataLossError:
            continue
        assert loaded.w.shape == (3, 3)


def test_every_changed_byte_of_the_weights_is_seen(folder: Path) -> None:
    path = weights_of(folder)
    whole = path.read_bytes()
    begin = 8 + int.from_bytes(whole[:8], "little")
    tf.saved_model.verify(folder)
    for at in range(begin, len(whole), 5):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 64]) + whole[at + 1 :])
        refused(folder, "the digest of `.*` in weights-.* is another one")
        with pytest.raises(tf.errors.DataLossError, match="is another one"):
            tf.saved_model.verify(folder)


def test_large_weights_are_checked_when_asked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "CHECKED", 100)
    path = weights_of(folder)
    changed = bytearray(path.read_bytes())
    changed[-1] ^= 1
    path.write_bytes(changed)
    tf.saved_model.load(folder)
    with pytest.raises(tf.errors.DataLossError, match="is another one"):
        tf.saved_model.verify(folder)


def test_changed_bytes_of_a_checkpoint_are_seen(tmp_path: Path) -> None:
    v = tf.Variable([1.0, 2.0, 3.0])
    path = tf.train.Checkpoint(v=v).write(tmp_path / "c")
    tf.train.verify_checkpoint(path)
    changed = bytearray((tmp_path / "c.safetensors").read_bytes())
    changed[-3] ^= 1
    (tmp_path / "c.safetensors").write_bytes(changed)
    for read in (tf.train.Checkpoint(v=v).restore, tf.train.verify_checkpoint, tf.train.list_variables):
        with pytest.raises(tf.errors.DataLossError, match=r"the digest of `v/\.ATTRIBUTES/VARIABLE_VALUE`"):
            read(path)
    assert v.numpy().tolist() == [1.0, 2.0, 3.0]


def test_what_has_no_digests_is_not_said_to_be_whole() -> None:
    golden = Path(__file__).with_name("golden")
    with pytest.raises(ValueError, match="written by an earlier version, without digests"):
        tf.saved_model.verify(golden / "saved_model_1")
    with pytest.raises(ValueError, match="written by an earlier version, without digests"):
        tf.train.verify_checkpoint(golden / "checkpoint_1" / "ckpt-1")


def test_a_later_version_says_so(folder: Path) -> None:
    whole = json.loads((folder / MODEL).read_text())
    (folder / MODEL).write_text(json.dumps(whole | {"version": 99}))
    refused(folder, "it is of version 99, and gradtape .* reads versions 1 to 2")
    (folder / MODEL).write_text(json.dumps(whole | {"format": "something else"}))
    refused(folder, "does not say that it is a gradtape saved model")


# ------------------------------------------------------------------ on purpose


def at(content: Any, *path: Any) -> Any:
    for key in path:
        content = content[key]
    return content


def variant(content: Any) -> Any:
    return next(f for f in content["functions"] if f["name"] == "f")["variants"][0]


def body(content: Any) -> Any:
    return variant(content)["bodies"][-1]["body"]


def deep(n: int) -> Any:
    found: Any = 3
    for _ in range(n):
        found = {"list": [found]}
    return found


def put(where: Callable[[Any], Any], key: Any, value: Any) -> Callable[[Any], None]:
    def change(content: Any) -> None:
        where(content)[key] = value

    return change


def node(name: str) -> Callable[[Any], Any]:
    return lambda content: next(n for n in body(content)["graph"]["nodes"] if n["op"] == name)


HOSTILE: dict[str, Callable[[Any], None]] = {
    "weights in another folder": put(lambda c: c, "weights", "../../etc/passwd"),
    "weights by an absolute path": put(lambda c: c, "weights", "/etc/passwd"),
    "weights with a null byte": put(lambda c: c, "weights", "weights-0123456789abcdef.safetensors\0"),
    "an op that there is not": put(node("tanh"), "op", "tanhh"),
    "an op that is Python": put(node("tanh"), "op", "host"),
    "an op of lowered graphs": put(node("tanh"), "op", "fused"),
    "too many operands": put(node("tanh"), "inputs", [0, 0, 0]),
    "too few operands": put(node("contract"), "inputs", [0]),
    "an operand that comes later": put(node("tanh"), "inputs", [10_000]),
    "a node that uses itself": put(node("tanh"), "inputs", [5]),
    "a negative operand": put(node("tanh"), "inputs", [-1]),
    "a shape of NaN": put(node("tanh"), "outputs", [["float32", "nan", 3]]),
    "a negative size": put(node("tanh"), "outputs", [["float32", -1, 3]]),
    "a huge size": put(node("tanh"), "outputs", [["float32", 10**15, 10**15]]),
    "a size beyond all numbers": put(node("tanh"), "outputs", [["float32", 10**400]]),
    "too many axes": put(node("tanh"), "outputs", [["float32", *[1] * 10_000]]),
    "a dtype that there is not": put(node("tanh"), "outputs", [["float33", 3]]),
    "another dtype": put(node("tanh"), "outputs", [["float64", {"size": 0}, 3]]),
    "parameters that the op has not": put(node("tanh"), "params", {"axis": 3}),
    "a formula that divides by 0": put(
        node("tanh"), "outputs", [["float32", {"of_sizes": {"terms": [], "over": 0}}, 3]]
    ),
    "a formula without end": put(
        node("tanh"), "outputs", [["float32", {"of_sizes": {"terms": [[1, [10**9]]], "over": 1}}, 3]]
    ),
    "a row of positions without end": put(
        node("contract"), "params", {"subscripts": {"positions": {"steps_of_sizes": [0, 1, 10**12]}}}
    ),
    "a part of a size that there is not": put(body, "parts", [[9, 0, 2]]),
    "a part that divides by 0": put(body, "parts", [[0, 0, 0]]),
    "parts without end": put(body, "parts", [[0, 0, 2]] * 10_000),
    "ranges of other sizes": put(lambda c: variant(c)["bodies"][-1], "ranges", []),
    "a range that is none": put(lambda c: variant(c)["bodies"][-1], "ranges", [["a", None]]),
    "questions that there are not": put(body, "asked", {"graph": 3, "answers": [], "constants": []}),
    "answers without questions": put(lambda c: body(c)["asked"], "answers", [[1]]),
    "a result that there is not": put(body, "results", {"leaf": 99}),
    "state that there is not": put(body, "state", [{"variable": 99}]),
    "a constant that there is not": put(body, "constants", [99]),
    "nested structures": put(body, "results", deep(300)),
    "an attribute of Python's": put(lambda c: c["objects"][0], "attributes", [["__class__", 0]]),
    "an attribute that is no name": put(lambda c: c["objects"][0], "attributes", [["a b", 0]]),
    "a root that is no module": put(lambda c: c["objects"], 0, {"value": 3}),
    "a list that holds itself": put(lambda c: c["objects"], 0, {"list": [0]}),
    "a variable of another shape": put(lambda c: c["variables"][0], "aval", ["float32", 9]),
    "a variable without an array": put(lambda c: c["variables"][0], "array", "nothing"),
    "a named tuple with a body": put(
        body, "results", {"named": {"name": "x", "fields": [["a):\n  import os\ndef f(b", {"leaf": 0}]]}}
    ),
    "no objects": put(lambda c: c, "objects", []),
    "other fields": put(lambda c: c, "code", "print(1)"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_content_is_refused(name: str, folder: Path) -> None:
    content = content_of(folder)
    HOSTILE[name](content)
    write(folder, content)
    refused(folder)


def test_deeply_nested_json_is_refused(folder: Path) -> None:
    (folder / MODEL).write_text("[" * 200_000 + "]" * 200_000)
    refused(folder)
    (folder / MODEL).write_text('{"a":' * 100_000)
    refused(folder)


def test_numbers_that_are_none_and_names_that_stand_twice_are_refused(folder: Path) -> None:
    (folder / MODEL).write_text('{"format": NaN}')
    refused(folder, "NaN is no JSON")
    (folder / MODEL).write_text('{"format": 1, "format": 2}')
    refused(folder, "stands twice")


def test_files_that_are_too_long_are_refused_unread(folder: Path) -> None:
    with open(folder / MODEL, "r+b") as file:
        file.truncate(files.MAX_JSON + 1)
    refused(folder, "bytes of JSON")


HEADERS: dict[str, Any] = {
    "a size that overflows": {"dtype": "F32", "shape": [2**62, 8], "data_offsets": [0, 36]},
    "a negative size": {"dtype": "F32", "shape": [-9], "data_offsets": [0, 36]},
    "a place outside": {"dtype": "F32", "shape": [9], "data_offsets": [10**9, 10**9 + 36]},
    "a place backwards": {"dtype": "F32", "shape": [9], "data_offsets": [36, 0]},
    "another dtype": {"dtype": "PICKLE", "shape": [9], "data_offsets": [0, 36]},
    "no place": {"dtype": "F32", "shape": [9]},
    "text": "w",
}


@pytest.mark.parametrize("name", HEADERS)
def test_hostile_headers_of_weights_are_refused(name: str, folder: Path) -> None:
    header = json.dumps({"w": HEADERS[name]}).encode()
    weights_of(folder).write_bytes(len(header).to_bytes(8, "little") + header + bytes(36))
    refused(folder)


def test_a_header_that_is_longer_than_its_file_is_refused(folder: Path) -> None:
    weights_of(folder).write_bytes((2**63 - 1).to_bytes(8, "little") + b"{}")
    refused(folder)


# ------------------------------------------------------------------ by chance


def places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(tree, dict):
        for k in tree:
            yield from places(tree[k], (*path, k))
    elif isinstance(tree, list):
        for i in range(len(tree)):
            yield from places(tree[i], (*path, i))


def changed(content: Any, paths: list[Any], rng: random.Random) -> Any:
    """The content with one place that is another: a value, a part of elsewhere, a number next to it, nothing."""
    content = copy.deepcopy(content)
    path = rng.choice(paths[1:])
    holder = at(content, *path[:-1])
    old = holder[path[-1]]
    values = [None, -1, 0, 1, 7, 10**6, 10**18, 10**40, 1.5, "", "x", [], {}, True, [0, 1], {"size": 0}, deep(50)]
    values += ["float64", ["float32", 3], rng.choice([op.name for op in all_ops()])]
    if type(old) is int:
        values += [old + 1, old - 1, -old, old * 1000] * 3
    if isinstance(old, list):
        values += [old[::-1], old + old, old[1:]] * 2
    kind = rng.random()
    if kind < 0.1 and isinstance(holder, dict):
        del holder[path[-1]]
    elif kind < 0.3:
        holder[path[-1]] = copy.deepcopy(at(content, *rng.choice(paths[1:])[:6])) if kind < 0.2 else old
    else:
        holder[path[-1]] = rng.choice(values)
    return content


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", SEEDS)
def test_changed_content_is_refused_or_runs(seed: int, folder: Path) -> None:
    """What is not refused when it is loaded computes something, or says why not, and ends: there is no loop in what is
    called, since a loop that was changed may run as long as any program."""
    content, rng = content_of(folder), random.Random(seed)
    paths = list(places(content))
    x = tf.ones([2, 3])
    refusals = 0
    for _ in range(CHANGES):
        other = changed(content, paths, rng)
        write(folder, other)
        try:
            loaded = tf.saved_model.load(folder)
        except tf.errors.DataLossError:
            refusals += 1
            continue
        for name in ("f", "g"):
            f = getattr(loaded, name, None)
            if callable(f):
                with contextlib.suppress(Exception):  # any error will do: that there is an end to it is the point
                    optree.tree_map(np.asarray, f(x))
    assert refusals > CHANGES // 2


# ------------------------------------------------------------------ crashes


class Crash(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("step", range(7))
def test_a_crash_leaves_the_old_model_or_the_new(step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tf.Module()
    model.v = tf.Variable(1.0)
    tf.saved_model.save(model, tmp_path)
    model.v.assign(2.0)
    left, counting = [step], threading.Lock()

    def crashing(f: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            with counting:  # several threads wait for the disk
                if left[0] == 0:
                    raise Crash
                left[0] -= 1
            return f(*args)

        return run

    with monkeypatch.context() as patch:
        for name in ("replace", "fsync", "unlink"):
            patch.setattr(os, name, crashing(getattr(os, name)))
        try:
            tf.saved_model.save(model, tmp_path)
        except Crash:
            pass
        else:
            assert left[0] == 0 or step == 6
    assert float(tf.saved_model.load(tmp_path).v) in (1.0, 2.0)
    tf.saved_model.save(model, tmp_path)
    assert float(tf.saved_model.load(tmp_path).v) == 2.0
    assert len(list(tmp_path.iterdir())) == 2, "what a crash left behind is swept away"
