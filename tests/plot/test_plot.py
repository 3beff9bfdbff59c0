"""Pictures of Jacobians: what is drawn, as text and by Matplotlib, which is loaded only then."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from gradtape.api.plot import WIDTH, braille

ROOT = Path(__file__).parents[2]


@pytest.fixture
def axes() -> Any:
    plt = pytest.importorskip("matplotlib.pyplot", reason="pictures want Matplotlib (extra `plot`)")
    plt.switch_backend("Agg")
    figure, ax = plt.subplots()
    yield ax
    plt.close(figure)


def dots(text: str) -> np.ndarray:
    """The matrix that a text shows, character by character."""
    bits = [[0, 3], [1, 4], [2, 5], [6, 7]]
    rows = []
    for line in text.splitlines():
        codes = [ord(c) - 0x2800 for c in line]
        rows += [[(c >> b) & 1 for c in codes for b in pair] for pair in bits]
    return np.array(rows, bool)


@pytest.mark.parametrize("shape", [(4, 2), (8, 6), (5, 3), (1, 1), (3, 9)])
def test_braille_shows_each_entry(shape: tuple[int, int]) -> None:
    marks = np.random.default_rng(0).random(shape) < 0.4
    found = dots(braille(marks))
    assert (found[: shape[0], : shape[1]] == marks).all()
    assert found.sum() == marks.sum()


def test_wide_matrices_are_made_smaller() -> None:
    marks = np.zeros((1000, 1000), bool)
    marks[999, 0] = marks[0, 999] = True
    lines = braille(marks).splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert dots("\n".join(lines)).sum() == 2, "one entry alone is still seen"


def test_texts() -> None:
    x = tf.constant(np.arange(1.0, 9.0))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = tf.sin(x)
        z = tf.reduce_sum(y * y)
    j = tape.jacobian(y, x, structured=True)
    assert tf.plot.jacobian(j, text=True) == tf.plot.jacobian(tape.jacobian(y, x), text=True) == "⠑⢄⠀⠀\n⠀⠀⠑⢄"
    assert tf.plot.structure(j, text=True) == "a | a : (a)\n⠑⢄⠀⠀\n⠀⠀⠑⢄"
    assert tf.plot.hessian(tape.hessian(z, x, flat=True), text=True) == "⠑⢄⠀⠀\n⠀⠀⠑⢄"
    assert tf.plot.jacobian(tf.ones([2, 3, 4]), rows=1, text=True).count("\n") == 0


def test_structure_is_not_values() -> None:
    x = tf.constant([0.0, 1.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x * x
    j = tape.jacobian(y, x, structured=True)
    assert j.pattern().numpy().tolist() == [[True, False], [False, True]]
    assert j.dense().numpy()[0, 0] == 0.0


def test_wrong_shapes() -> None:
    with pytest.raises(ValueError, match=r"cannot be halved.*`rows=`"):
        tf.plot.jacobian(tf.ones([2, 3, 4]), text=True)
    with pytest.raises(ValueError, match="as many rows as columns"):
        tf.plot.hessian(tf.ones([2, 3]), text=True)
    with pytest.raises(ValueError, match="`blocks` wants shape"):
        tf.plot.blocks(tf.ones([2, 3]), text=True)
    with pytest.raises(TypeError, match="structured=True"):
        tf.plot.structure(tf.ones([2, 2]), text=True)


def test_heat_maps_have_zero_in_the_middle(axes: Any) -> None:
    assert tf.plot.jacobian(tf.constant([[1.0, -3.0], [2.0, np.nan]]), ax=axes) is axes
    (image,) = axes.images
    assert image.get_clim() == (-3.0, 3.0)
    assert image.get_array().shape == (2, 2)


def test_blocks_are_patches(axes: Any) -> None:
    j = tf.einsum("ab,oi->aobi", tf.eye(3), tf.constant([[1.0, 2.0]]))
    tf.plot.blocks(j, ax=axes)
    picture = np.asarray(axes.images[0].get_array())
    assert picture.shape == (3, 7)
    assert (picture[:, :3] == np.eye(3)).all() and (picture[:, 4:] == 2 * np.eye(3)).all()
    assert (picture[:, 3] == -2.0).all(), "the seams"


def test_matplotlib_is_loaded_for_pictures_only() -> None:
    script = "import sys, gradtape as tf; tf.plot.jacobian(tf.eye(4), text=True); print('matplotlib' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.stdout.strip() == "False", run.stderr


def test_the_example(capsys: pytest.CaptureFixture[str]) -> None:
    spec = importlib.util.spec_from_file_location("jacobians", ROOT / "examples" / "jacobians.py")
    assert spec is not None and spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    assert example.main(["--text"]) == 0
    said = capsys.readouterr().out
    assert "without batch normalisation: examples independent: True" in said
    assert "with batch normalisation: examples independent: False" in said
    sizes = example.calm_layer()
    assert sizes[-1] < sizes[0]
