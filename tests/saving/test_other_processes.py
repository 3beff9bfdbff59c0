"""Saved models where the code that made them is absent: in fresh processes in which `pickle` cannot be imported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gradtape as tf

ROOT = Path(__file__).parents[2]

MODEL = """
import gradtape as tf

@tf.custom_gradient
def halved(x):
    return tf.tanh(x), lambda up: up * 0.5

class Model(tf.Module):
    def __init__(self):
        super().__init__()
        self.w = tf.Variable([[0.5, -1.0], [2.0, 0.25]])

    @tf.function(input_signature=[tf.TensorSpec([None, 2])])
    def f(self, x):
        return halved(x @ self.w)
"""

STEP = """
import json, sys
import gradtape as tf

def step(model):
    x = tf.constant([[1.0, 2.0], [0.5, -1.0], [3.0, 0.1]])
    optimizer = tf.keras.optimizers.SGD(0.1)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model.f(x) ** 2)
    optimizer.apply_gradients([(tape.gradient(loss, model.w), model.w)])
    return [float(loss), model.w.numpy().tolist()]
"""

BLOCKED = """
import sys
class Refuse:
    def find_spec(self, name, *rest):
        if name.split(".")[0] in ("pickle", "_pickle", "cloudpickle", "dill"):
            raise ImportError(f"{name} is not to be imported")
for name in [n for n in sys.modules if n.split(".")[0] in ("pickle", "_pickle", "cloudpickle")]:
    del sys.modules[name]
"""


def run(script: str, *args: str) -> Any:
    made = subprocess.run(
        [sys.executable, "-c", script, *args], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )
    assert made.returncode == 0, made.stderr
    return json.loads(made.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the model's source, which its module is imported from."""
    folder = tmp_path_factory.mktemp("source")
    (folder / "its_model.py").write_text(MODEL)
    return folder


def saved(source: Path, folder: Path, with_rules: bool) -> Any:
    """Save the model in a process of its own; what one step of training made of it there."""
    script = STEP + (
        "sys.path.insert(0, sys.argv[1])\n"
        "from its_model import Model\n"
        "model = Model()\n"
        f"options = tf.saved_model.SaveOptions(experimental_custom_gradients={with_rules})\n"
        "tf.saved_model.save(model, sys.argv[2], options=options)\n"
        "print(json.dumps(step(model)))\n"
    )
    return run(script, str(source), str(folder))


def test_trained_where_neither_source_nor_pickle_is(source: Path, tmp_path: Path) -> None:
    expected = saved(source, tmp_path, with_rules=True)
    load = "model = tf.saved_model.load(sys.argv[1])\nassert 'its_model' not in sys.modules\n"
    load += "assert not {'pickle', '_pickle', 'cloudpickle'} & set(sys.modules)\n"
    script = "import gradtape, numpy\n" + BLOCKED + "sys.meta_path.insert(0, Refuse())\n" + STEP + load
    found = run(script + "print(json.dumps(step(model)))\n", str(tmp_path))
    assert found[0] == pytest.approx(expected[0], rel=1e-6)
    np.testing.assert_allclose(found[1], expected[1], 1e-6)


def test_rules_that_were_not_saved_are_missed_by_name(source: Path, tmp_path: Path) -> None:
    expected = saved(source, tmp_path, with_rules=False)
    model = tf.saved_model.load(tmp_path)
    x = tf.constant([[1.0, 2.0], [0.5, -1.0], [3.0, 0.1]])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = model.f(x)
        loss = tf.reduce_sum(y**2)
    assert float(loss) == pytest.approx(expected[0], rel=1e-6)
    for ask in (
        lambda: tape.gradient(loss, model.w),
        lambda: tape.jacobian(y, x),
        lambda: tape.batch_jacobian(y, x, on_dependence="ignore"),
    ):
        with pytest.raises(LookupError, match=r"No gradient defined for operation 'CustomGradient-[0-9a-f]{32}'"):
            ask()
    assert tape.gradient(loss, tf.constant(1.0)) is None


def test_rules_that_were_not_saved_are_known_in_this_process(tmp_path: Path) -> None:
    @tf.custom_gradient
    def scaled(x: Any) -> Any:
        return x * 1.0, lambda up: up * 100.0

    class Model(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None])])
        def f(self, x: Any) -> Any:
            return scaled(x) + x

    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    tf.saved_model.save(Model(), tmp_path, options=options)
    assert "registered" in (tmp_path / "saved_model.json").read_text()
    first = tf.saved_model.load(tmp_path)
    tf.saved_model.save(first, tmp_path / "again", options=options)
    for model in (first, tf.saved_model.load(tmp_path / "again")):
        for n in (1, 3):
            x = tf.ones([n])
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = model.f(x)
            assert tape.gradient(y, x).numpy().tolist() == [101.0] * n
