"""Files that each version of the formats wrote: later versions read them, and compute what was computed then.

`python tests/saving/test_golden.py` writes them. That is done once for each version of a format, into a folder of its
own; folders that are there already are never written again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import optree
import pytest

import gradtape as tf
from gradtape.saving.object_graph import VERSION as CHECKPOINTS
from gradtape.saving.saved_model import VERSION as MODELS
from tests.saving.models import parts

GOLDEN = Path(__file__).with_name("golden")
SIZES = (1, 2, 5)


def inputs(n: int) -> Any:
    return tf.constant(np.cos(np.arange(3.0 * n)).reshape(n, 3), tf.float32)


def computed(model: Any) -> dict[str, Any]:
    """Values and gradients of a model, as lists."""
    found: dict[str, Any] = {}
    for n in SIZES:
        x = inputs(n)
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            f, loop = model.f(x), model.loop(x)
        results = [f, loop, tape.gradient(f["y"], [x, model.w]), tape.gradient(loop, [x, model.w, model.nested[0]])]
        found[str(n)] = [np.asarray(t).tolist() for t in optree.tree_leaves(results)]
    found["g"] = [np.asarray(t).tolist() for s in (1.0, 2.0) for t in model.g(inputs(2), s)]
    return found


@pytest.mark.parametrize("version", range(1, MODELS + 1))
def test_saved_models(version: int) -> None:
    folder = GOLDEN / f"saved_model_{version}"
    expected = json.loads((folder / "expected.json").read_text())
    model = tf.saved_model.load(folder)
    found = computed(model)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        for a, b in zip(found[name], values, strict=True):
            np.testing.assert_allclose(a, b, 1e-5, 1e-6)
    assert model.text.numpy().tolist() == [b"one", b"two"] and model.pair[0] is model.w and model.size == 3
    assert not model.count.trainable and int(model.count) == 2


@pytest.mark.parametrize("version", range(1, CHECKPOINTS + 1))
def test_checkpoints(version: int) -> None:
    optimizer = tf.keras.optimizers.Adam(0.5)
    random = tf.random.Generator.from_seed(0)
    v = [tf.Variable([0.0, 0.0]), {"step": tf.Variable(0, dtype=tf.int64)}, tf.Variable("")]
    status = tf.train.Checkpoint(v=v, optimizer=optimizer, random=random).restore(
        GOLDEN / f"checkpoint_{version}" / "ckpt-1"
    )
    expected = json.loads((GOLDEN / f"checkpoint_{version}" / "expected.json").read_text())
    assert v[0].numpy().tolist() == expected["v"] and int(v[1]["step"]) == 7 and v[2].numpy() == b"text"
    assert random.normal([3]).numpy().tolist() == pytest.approx(expected["random"])
    optimizer.apply([tf.constant([1.0, -1.0])], [v[0]])
    np.testing.assert_allclose(v[0].numpy(), expected["next"], 1e-6)
    status.assert_consumed()


def write() -> None:
    folder = GOLDEN / f"saved_model_{MODELS}"
    if not folder.exists():
        model = parts()
        tf.saved_model.save(model, folder)
        (folder / "expected.json").write_text(json.dumps(computed(model)))
    folder = GOLDEN / f"checkpoint_{CHECKPOINTS}"
    if not folder.exists():
        v = [tf.Variable([1.0, 2.0]), {"step": tf.Variable(7, dtype=tf.int64)}, tf.Variable("text")]
        optimizer, random = tf.keras.optimizers.Adam(0.1), tf.random.Generator.from_seed(3)
        random.normal([5])
        optimizer.apply([tf.constant([1.0, 2.0])], [v[0]])
        tf.train.Checkpoint(v=v, optimizer=optimizer, random=random).save(folder / "ckpt")
        expected = {"v": v[0].numpy().tolist(), "random": random.normal([3]).numpy().tolist()}
        optimizer.apply([tf.constant([1.0, -1.0])], [v[0]])
        (folder / "expected.json").write_text(json.dumps(expected | {"next": v[0].numpy().tolist()}))


if __name__ == "__main__":
    write()
