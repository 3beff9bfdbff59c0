"""`tf.train`: checkpoints, what can be asked of them, what is restored later, and their manager."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from gradtape.runtime.attaching import WAITING


class Net(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.v = tf.Variable([1.0, 2.0])
        self.list = [tf.Variable(3), {"a": tf.Variable(4.0)}]
        self.same = self.v


def path_of(tmp_path: Path, **objects: Any) -> str:
    return tf.train.Checkpoint(**objects).save(tmp_path / "ckpt")


# ------------------------------------------------------------------ values


def test_values_come_back_and_shared_variables_are_saved_once(tmp_path: Path) -> None:
    net, step = Net(), tf.Variable(5, dtype=tf.int64)
    path = path_of(tmp_path, net=net, step=step)
    assert [n for n, _ in tf.train.list_variables(path)] == [
        "net/list/0/.ATTRIBUTES/VARIABLE_VALUE",
        "net/list/1/a/.ATTRIBUTES/VARIABLE_VALUE",
        "net/v/.ATTRIBUTES/VARIABLE_VALUE",
        "save_counter/.ATTRIBUTES/VARIABLE_VALUE",
        "step/.ATTRIBUTES/VARIABLE_VALUE",
    ]
    other = Net()
    for v in other.variables:
        v.assign(tf.zeros_like(v))
    counter = tf.Variable(0, dtype=tf.int64)
    tf.train.Checkpoint(net=other, step=counter).restore(path).assert_consumed()
    assert other.v.numpy().tolist() == [1.0, 2.0] and int(other.list[0]) == 3 and float(other.list[1]["a"]) == 4.0
    assert int(counter) == 5 and tf.train.load_variable(path, "net/v").tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    "name", ["float16", "bfloat16", "float64", "int8", "uint64", "bool", "complex64", "complex128"]
)
def test_dtypes(name: str, tmp_path: Path) -> None:
    values = np.array([[0, 1], [1, 0]])
    a = [tf.Variable(tf.cast(values, name)), tf.Variable(tf.cast(1, name))]
    b = [tf.Variable(tf.cast(values * 0, name)), tf.Variable(tf.cast(0, name))]
    path = path_of(tmp_path, v=a)
    tf.train.Checkpoint(v=b).restore(path).assert_consumed()
    for x, y in zip(a, b, strict=True):
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


def test_strings_and_a_root(tmp_path: Path) -> None:
    net, text = Net(), tf.Variable(["a", "b"])
    path = tf.train.Checkpoint(net, text=text).write(tmp_path / "c")
    other, again = Net(), tf.Variable(["", ""])
    other.v.assign([0.0, 0.0])
    tf.train.Checkpoint(root=other, text=again).read(path).assert_consumed()
    assert again.numpy().tolist() == [b"a", b"b"] and other.v.numpy().tolist() == [1.0, 2.0]


def made() -> tuple[Any, Any, Any]:
    layers = tf.keras.layers
    net = tf.keras.Sequential([layers.Dense(4, "tanh"), layers.BatchNormalization(), layers.Dense(1)])
    return net, tf.keras.optimizers.Adam(0.1), tf.random.Generator.from_seed(5)


def trained(net: Any, optimizer: Any, numbers: Any) -> float:
    x = numbers.normal([8, 3])
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(net(x, training=True) ** 2)
    optimizer.apply_gradients(zip(tape.gradient(loss, net.trainable_variables), net.trainable_variables))
    return float(loss)


def test_training_goes_on_as_if_it_had_not_stopped(tmp_path: Path) -> None:
    """Slots, counters and random numbers; the second model has neither weights nor slots when it is restored."""
    parts = made()
    for _ in range(3):
        trained(*parts)
    path = path_of(tmp_path, net=parts[0], optimizer=parts[1], numbers=parts[2])
    expected = [trained(*parts) for _ in range(3)]
    parts = made()
    status = tf.train.Checkpoint(net=parts[0], optimizer=parts[1], numbers=parts[2]).restore(path)
    assert [trained(*parts) for _ in range(3)] == expected
    status.assert_consumed()


# ------------------------------------------------------------------ what can be asked


def test_what_is_asserted(tmp_path: Path) -> None:
    path = path_of(tmp_path, net=Net(), step=tf.Variable(1))
    partial = tf.train.Checkpoint(step=tf.Variable(7))
    status = partial.restore(path).expect_partial()
    assert int(partial.step) == 1
    status.assert_existing_objects_matched().assert_nontrivial_match()
    with pytest.raises(AssertionError, match=r"Unresolved object in checkpoint \(root\)\.net\.v"):
        status.assert_consumed()
    status = tf.train.Checkpoint(step=tf.Variable(7), other=tf.Variable(1.0)).restore(path).expect_partial()
    with pytest.raises(AssertionError, match=r"Found 1 Python objects that were not bound.*other <tf\.Variable"):
        status.assert_existing_objects_matched()
    status = tf.train.Checkpoint(nothing=tf.Variable(1.0)).read(path).expect_partial()
    with pytest.raises(AssertionError, match="Nothing to load"):
        status.assert_nontrivial_match()
    nothing = partial.restore(None)
    nothing.initialize_or_restore()
    with pytest.raises(AssertionError, match="No checkpoint specified"):
        nothing.expect_partial().assert_consumed()


def test_what_is_left_over_is_told_unless_it_was_expected(tmp_path: Path) -> None:
    path = path_of(tmp_path, net=Net(), step=tf.Variable(1))

    def restored_and_gone() -> None:
        tf.train.Checkpoint(step=tf.Variable(0)).restore(path)
        gc.collect()

    with pytest.warns(UserWarning, match=r"3 of its values found no variable: \(root\)\.net\.v"):
        restored_and_gone()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tf.train.Checkpoint(step=tf.Variable(0)).restore(path).expect_partial()
        gc.collect()


def test_a_variable_that_does_not_fit_leaves_all_as_they_are(tmp_path: Path) -> None:
    path = path_of(tmp_path, a=tf.Variable(1.0), b=tf.Variable([1.0, 2.0]))
    a = tf.Variable(9.0)
    with pytest.raises(ValueError, match=r"incompatible tensor with shape \(2,\).*variable with shape \(3,\)"):
        tf.train.Checkpoint(a=a, b=tf.Variable(tf.zeros(3))).restore(path)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"dtype float32 for the variable .* is int32"):
        tf.train.Checkpoint(a=a, b=tf.Variable([1, 2])).restore(path)
    assert float(a) == 9.0


def test_what_cannot_be_saved_or_found(tmp_path: Path) -> None:
    for wrong in (3, np.ones(2), "text", tf.constant(1.0)):
        with pytest.raises(ValueError, match="expecting x to be a trackable object"):
            tf.train.Checkpoint(x=wrong)
    with pytest.raises(tf.errors.NotFoundError, match="You may be missing the checkpoint suffix"):
        tf.train.Checkpoint(x=tf.Variable(1.0)).restore(tmp_path / "nothing")
    path = path_of(tmp_path, v=tf.Variable(1.0))
    with pytest.raises(tf.errors.NotFoundError, match="Key w not found in checkpoint"):
        tf.train.load_variable(path, "w")


# ------------------------------------------------------------------ variables made later


def test_variables_made_later_get_their_values(tmp_path: Path) -> None:
    path = path_of(tmp_path, net=Net())
    later = tf.Module()
    status = tf.train.Checkpoint(net=later).restore(path)
    with pytest.raises(AssertionError, match="Unresolved object"):
        status.assert_consumed()
    later.v = tf.Variable([0.0, 0.0])
    assert later.v.numpy().tolist() == [1.0, 2.0]
    later.list = [tf.Variable(0), {}]
    later.list[1]["a"] = tf.Variable(0.0)
    later.same = later.v
    assert int(later.list[0]) == 3
    status.assert_consumed()
    assert float(later.list[1]["a"]) == 4.0


def test_objects_made_later_and_the_root(tmp_path: Path) -> None:
    net = Net()
    path = tf.train.Checkpoint(net, inner=Net()).write(tmp_path / "c")
    root = tf.Module()
    checkpoint = tf.train.Checkpoint(root)
    status = checkpoint.read(path)
    checkpoint.inner = Net.__new__(Net)
    checkpoint.inner.v = tf.Variable([0.0, 0.0])
    root.v = tf.Variable([0.0, 0.0])
    assert checkpoint.inner.v.numpy().tolist() == root.v.numpy().tolist() == [1.0, 2.0]
    status.expect_partial()


def test_a_value_does_not_wait_for_what_is_gone(tmp_path: Path) -> None:
    path = path_of(tmp_path, net=Net())
    before = len(WAITING)
    later = tf.Module()
    tf.train.Checkpoint(net=later).restore(path).expect_partial()
    assert len(WAITING) > before
    del later
    gc.collect()
    assert len(WAITING) == before
    net = Net()
    tf.train.Checkpoint(net=net).restore(path).assert_consumed()
    assert len(WAITING) == before, "nothing waits where all is restored"


# ------------------------------------------------------------------ damage


@pytest.mark.parametrize("seed", range(6))
def test_damage_is_one_error(seed: int, tmp_path: Path) -> None:
    path = path_of(tmp_path, net=Net(), text=tf.Variable("text"))
    whole, rng = Path(path + ".safetensors").read_bytes(), random.Random(seed)
    header = int.from_bytes(whole[:8], "little")
    for _ in range(20):
        changed = bytearray(whole)
        changed[rng.randrange(8 + header)] ^= 1 << rng.randrange(8)
        if rng.random() < 0.3:
            changed = changed[: rng.randrange(len(changed))]
        Path(path + ".safetensors").write_bytes(changed)
        with contextlib.suppress(tf.errors.DataLossError, tf.errors.InvalidArgumentError, ValueError):
            tf.train.Checkpoint(net=Net()).restore(path).expect_partial()


def test_a_list_of_checkpoints_that_names_other_folders_is_refused(tmp_path: Path) -> None:
    path_of(tmp_path, v=tf.Variable(1.0))
    for text in ('model_checkpoint_path: "../x"\n', 'model_checkpoint_path: "/etc/passwd"\n', "nonsense\n", ""):
        (tmp_path / "checkpoint").write_text(text)
        with pytest.raises(tf.errors.DataLossError, match="list of checkpoints"):
            tf.train.latest_checkpoint(tmp_path)


def test_a_crash_leaves_the_old_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    v = tf.Variable(1.0)
    checkpoint = tf.train.Checkpoint(v=v)
    path = checkpoint.write(tmp_path / "c")
    v.assign(2.0)

    def crash(*args: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", crash)
        with pytest.raises(KeyboardInterrupt):
            checkpoint.write(path)
    checkpoint.read(path)
    assert float(v) == 1.0 and os.listdir(tmp_path) == ["c.safetensors"]


# ------------------------------------------------------------------ the manager


def names(paths: Any) -> list[str]:
    return [os.path.basename(p) for p in paths]


def test_only_the_latest_are_kept(tmp_path: Path) -> None:
    v = tf.Variable(0.0)
    checkpoint = tf.train.Checkpoint(v=v)
    manager = tf.train.CheckpointManager(checkpoint, tmp_path, max_to_keep=2)
    assert manager.latest_checkpoint is None and manager.restore_or_initialize() is None
    for k in range(4):
        v.assign(float(k))
        assert os.path.basename(str(manager.save())) == f"ckpt-{k + 1}"
    assert names(manager.checkpoints) == ["ckpt-3", "ckpt-4"]
    assert sorted(os.listdir(tmp_path)) == ["checkpoint", "ckpt-3.safetensors", "ckpt-4.safetensors"]
    assert tf.train.latest_checkpoint(tmp_path) == manager.latest_checkpoint == str(tmp_path / "ckpt-4")
    v.assign(9.0)
    again = tf.train.CheckpointManager(checkpoint, str(tmp_path), max_to_keep=2)
    assert again.restore_or_initialize() == str(tmp_path / "ckpt-4") and float(v) == 3.0
    assert names([again.save(), *again.checkpoints]) == ["ckpt-5", "ckpt-4", "ckpt-5"]
    assert os.path.basename(str(again.save(checkpoint_number=77))) == "ckpt-77"
    assert (again.directory, again.checkpoint, again.checkpoint_interval) == (str(tmp_path), checkpoint, None)


def test_intervals_and_what_begins(tmp_path: Path) -> None:
    step, begun = tf.Variable(0), []
    manager = tf.train.CheckpointManager(
        tf.train.Checkpoint(step=step),
        tmp_path,
        None,
        step_counter=step,
        checkpoint_interval=3,
        init_fn=lambda: begun.append(1),
    )
    assert manager.restore_or_initialize() is None and begun == [1]
    saved = []
    for k in range(8):
        step.assign(k)
        saved.append(manager.save() is not None)
    assert saved == [True, False, False, True, False, False, True, False]
    assert manager.save(check_interval=False) is not None and len(manager.checkpoints) == 4


def test_some_are_kept_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("gradtape.saving.manager.time.time", lambda: now[0])
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(v=tf.Variable(1.0)), tmp_path, 1, 1.0)
    for _ in range(5):
        manager.save()
        now[0] += 2400.0
    kept = sorted(n for n in os.listdir(tmp_path) if n != "checkpoint")
    assert kept == ["ckpt-3.safetensors", "ckpt-5.safetensors"] and names(manager.checkpoints) == ["ckpt-5"]


def test_wrong_arguments_of_the_manager(tmp_path: Path) -> None:
    checkpoint = tf.train.Checkpoint(v=tf.Variable(1.0))
    with pytest.raises(ValueError, match="Expected a positive integer or `None` for `max_to_keep`, got 0"):
        tf.train.CheckpointManager(checkpoint, tmp_path, max_to_keep=0)
    with pytest.raises(ValueError, match="`step_counter` should be passed"):
        tf.train.CheckpointManager(checkpoint, tmp_path, 3, checkpoint_interval=2)


def test_no_checkpoint_is_written_while_a_function_is_traced(tmp_path: Path) -> None:
    checkpoint = tf.train.Checkpoint(v=tf.Variable(1.0))

    @tf.function
    def f() -> None:
        checkpoint.write(tmp_path / "c")

    with pytest.raises(RuntimeError, match="cannot be written while a function is traced"):
        f()
