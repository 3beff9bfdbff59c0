"""Scopes of names, modules that name their variables, and what TensorFlow's graphs say of order and of assertions."""

import copy
import pickle
from typing import Any

import pytest

import gradtape as tf


class Line(tf.Module):
    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        with self.name_scope:
            self.w = tf.Variable(1.0, name="w")

    @tf.Module.with_name_scope
    def build(self) -> None:
        """Make the rest."""
        self.b = tf.Variable(0.0, name="b")


def test_scopes_within_each_other() -> None:
    with tf.name_scope("a") as outer:
        assert outer == "a/"
        assert tf.Variable(1.0).name == "a/Variable:0"
        with tf.name_scope("b") as inner:
            assert inner == "a/b/"
            v = tf.Variable(1.0, name="v")
        with tf.name_scope("c/") as whole:
            assert whole == "c/"
            assert copy.deepcopy(v).name == pickle.loads(pickle.dumps(v)).name == v.name == "a/b/v:0"
        with tf.name_scope(""):
            assert tf.Variable(1.0, name="v").name == "v:0"
        assert tf.name_scope("d").name == "d"
        assert tf.Variable(1.0, name="v").name == "a/v:0"
    assert tf.Variable(1.0, name="v").name == "v:0"
    with pytest.raises(ValueError, match="name for name_scope must be a string"):
        tf.name_scope(3)  # type: ignore[arg-type]


def test_a_scope_that_ends_with_an_error() -> None:
    with pytest.raises(KeyError), tf.name_scope("a"):
        raise KeyError
    assert tf.Variable(1.0, name="v").name == "v:0"


def test_modules_name_their_variables() -> None:
    line = Line("first")
    line.build()
    assert (line.w.name, line.b.name) == ("first/w:0", "first/b:0")
    assert line.name_scope.name == "first/"
    assert Line.build.__doc__ == "Make the rest."
    with tf.name_scope("outer"):
        within = Line()
    within.build()
    assert (within.w.name, within.b.name) == ("outer/line/w:0", "outer/line/b:0")


def test_a_loaded_module_has_a_scope(tmp_path: Any) -> None:
    tf.saved_model.save(Line("first"), tmp_path)
    loaded = tf.saved_model.load(tmp_path)
    assert loaded.w.name == "first/w:0"
    assert loaded.name_scope.name == "loaded/"
    tf.saved_model.save(loaded, tmp_path / "again")
    assert tf.saved_model.load(tmp_path / "again").w.name == "first/w:0"


def test_what_is_in_a_module() -> None:
    outer = tf.Module()
    inner = Line()
    outer.parts = {"b": [inner, inner], "a": tf.constant(2.0)}
    outer.size = 3
    is_variable = lambda x: isinstance(x, tf.Variable)  # noqa: E731
    assert list(outer._flatten(predicate=is_variable)) == [inner.w]
    assert list(outer._flatten(recursive=False, predicate=is_variable)) == []
    assert list(outer._flatten(predicate=lambda x: isinstance(x, tf.Module))) == [inner]
    assert list(outer._flatten(predicate=is_variable, with_path=True)) == [(("parts", "b", 0, "w"), inner.w)]
    assert list(outer._flatten(predicate=lambda x: type(x) is int)) == [3]
    backwards = dict.fromkeys(["size", "parts"])
    found = list(outer._flatten(predicate=lambda x: isinstance(x, tf.Module | int), with_path=True))
    assert [p[0] for p, x in found] == list(reversed(backwards))


@pytest.mark.parametrize("traced", [False, True])
def test_order_is_that_of_the_program(traced: bool) -> None:
    v = tf.Variable(1.0)

    def f(x: Any) -> Any:
        with tf.control_dependencies([v.assign_add(x)]):
            y = v * 2.0
        tf.group(v.assign_add(x), [v.assign_add(x)], name="all")
        return y

    g = tf.function(f) if traced else f
    assert float(g(tf.constant(1.0))) == 4.0
    assert float(v) == 4.0
    assert tf.group() is None
    with tf.control_dependencies(None):
        pass
    with pytest.raises(ValueError, match="Unknown keyword arguments: how"):
        tf.group(v, how=1)


def test_after_an_assertion() -> None:
    @tf.function
    def f(x: Any) -> Any:
        with tf.control_dependencies([tf.Assert(x > 0.0, [x])]):
            return tf.identity(x)

    assert float(f(tf.constant(1.0))) == 1.0
    with pytest.raises(tf.errors.InvalidArgumentError):
        f(tf.constant(-2.0))


def test_what_a_checkpoint_holds(tmp_path: Any) -> None:
    path = tf.train.Checkpoint(line=Line()).write(str(tmp_path / "c"))
    reader = tf.train.load_checkpoint(path)
    name = "line/w/.ATTRIBUTES/VARIABLE_VALUE"
    assert reader.get_variable_to_shape_map() == {name: []}
    assert reader.get_variable_to_dtype_map() == {name: tf.float32}
    assert reader.has_tensor(name) and not reader.has_tensor("line/b")
    assert reader.get_tensor(name) == 1.0
    with pytest.raises(tf.errors.NotFoundError, match="Key line/b not found in checkpoint"):
        reader.get_tensor("line/b")
    with pytest.raises(tf.errors.NotFoundError):
        tf.train.load_checkpoint(str(tmp_path / "none"))


def test_names_without_a_gradient() -> None:
    name = "NamesAndDependenciesNothing"
    tf.no_gradient(name)
    x = tf.constant(2.0)
    with tf.GradientTape() as tape, tf.gradient_override_map({"Square": name}):
        tape.watch(x)
        y = tf.square(x)
    assert tape.gradient(y, x) is None
    with pytest.raises(KeyError, match="two gradients"):
        tf.no_gradient(name)
    with pytest.raises(TypeError, match="must be a string"):
        tf.no_gradient(3)  # type: ignore[arg-type]
