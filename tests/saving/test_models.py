"""`tf.saved_model`: objects, functions and signatures in a folder, and back."""

from __future__ import annotations

import collections
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import optree
import pytest

import gradtape as tf
from tests.saving.models import parts

F = tf.float32


def trip(model: Any, folder: Path, **options: Any) -> Any:
    tf.saved_model.save(model, folder, **options)
    return tf.saved_model.load(folder)


def assert_same(a: Any, b: Any, tolerance: float = 1e-5) -> None:
    first, second = optree.tree_leaves(a), optree.tree_leaves(b)
    assert len(first) == len(second) > 0
    for x, y in zip(first, second, strict=True):
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), tolerance, tolerance)


# ------------------------------------------------------------------ objects


def test_containers_aliases_and_values(tmp_path: Path) -> None:
    model = parts()
    loaded = trip(model, tmp_path)
    assert loaded.pair[0] is loaded.w and loaded.w.name == "weights:0"
    np.testing.assert_array_equal(loaded.nested[1]["a"].numpy(), [1, 2])
    assert isinstance(loaded.nested, list) and isinstance(loaded.pair, tuple)
    assert loaded.pair[1].dtype is tf.bfloat16 and float(loaded.pair[1][0]) == 0.5
    assert not loaded.count.trainable and loaded.text.numpy().tolist() == [b"one", b"two"]
    assert loaded.size == 3 and loaded.table.numpy().tolist() == [1.0, 2.0, 3.0]
    assert len(loaded.variables) == 6 and len(loaded.trainable_variables) == 5


def test_objects_that_hold_each_other(tmp_path: Path) -> None:
    model, child = tf.Module(), tf.Module()
    model.v = child.v = tf.Variable(1.0)
    model.child, child.parent = child, model
    model.by_name = {"x": model.v, 3: [child]}
    loaded = trip(model, tmp_path)
    assert loaded.child.parent is loaded and loaded.child.v is loaded.v
    assert loaded.by_name["x"] is loaded.v and loaded.by_name[3] == [loaded.child]


@pytest.mark.parametrize(
    "name", ["float16", "bfloat16", "float32", "float64", "int8", "int32", "int64", "uint8", "uint64"]
)
def test_dtypes(name: str, tmp_path: Path) -> None:
    model = tf.Module()
    values = np.array([[1, 2], [3, 4]])
    model.v = [tf.Variable(v, dtype=name) for v in (values, values[:0], 7)]
    loaded = trip(model, tmp_path)
    for a, b in zip(model.v, loaded.v, strict=True):
        assert a.dtype is b.dtype and a.shape == b.shape
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


@pytest.mark.parametrize("value", [True, 1 + 2j, np.complex128(3 - 1j), b"\xff", "text"])
def test_scalars_of_other_kinds(value: Any, tmp_path: Path) -> None:
    model = tf.Module()
    model.v = tf.Variable(value)
    loaded = trip(model, tmp_path)
    assert loaded.v.dtype is model.v.dtype and loaded.v.numpy() == model.v.numpy()


def test_weights_are_mapped_and_updates_leave_the_file_alone(tmp_path: Path) -> None:
    model = tf.Module()
    model.v = tf.Variable(np.ones([256, 256], np.float32))
    loaded = trip(model, tmp_path)
    array = np.asarray(loaded.v)
    assert not array.flags.owndata and not array.flags.writeable
    loaded.v.assign_add(tf.ones([256, 256]))
    loaded.v.scatter_add(tf.IndexedSlices(tf.ones([1, 256]), [0]))
    assert float(loaded.v[0, 0]) == 3.0 and float(tf.saved_model.load(tmp_path).v[0, 0]) == 1.0


def test_what_is_no_object_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Expected an object of type `Trackable`"):
        tf.saved_model.save(3, tmp_path)
    model = tf.Module()
    model.mixed = [tf.Variable(1.0), object()]
    with pytest.raises(ValueError, match=r"`mixed/1` is <object"):
        tf.saved_model.save(model, tmp_path)


def test_nothing_is_saved_while_a_function_is_traced(tmp_path: Path) -> None:
    @tf.function
    def f() -> None:
        tf.saved_model.save(tf.Module(), str(tmp_path))

    with pytest.raises(RuntimeError, match="cannot be saved while a function is traced"):
        f()


# ------------------------------------------------------------------ functions


def test_each_signature_and_each_python_value(tmp_path: Path) -> None:
    model = parts()
    loaded = trip(model, tmp_path)
    x = tf.constant([[1.0, -2.0, 0.5], [0.1, 0.2, 0.3]])
    assert_same(model.g(x), loaded.g(x))
    assert_same(model.g(x, 2.0), loaded.g(x.numpy().tolist(), scale=2.0))
    assert int(loaded.count) == 2
    with pytest.raises(ValueError, match="Could not find matching concrete function"):
        loaded.g(x, 3.0)
    with pytest.raises(ValueError, match=r"Option 2: \[TensorSpec\(shape=\(2, 3\)"):
        loaded.g(x[:1])
    with pytest.raises(ValueError, match="Could not find matching"):
        loaded.g(tf.cast(x, tf.float64))


def test_a_function_that_was_not_traced_has_no_signatures(tmp_path: Path) -> None:
    class Untraced(tf.Module):
        @tf.function
        def f(self, x: Any) -> Any:
            return x

    loaded = trip(Untraced(), tmp_path)
    with pytest.raises(ValueError, match="Found zero restored functions for caller function `f`"):
        loaded.f(1.0)


def test_structures_of_arguments_and_results(tmp_path: Path) -> None:
    point = collections.namedtuple("point", "a b")

    class Nested(tf.Module):
        @tf.function
        def f(self, d: Any, *args: Any, scale: float = 2.0, **others: Any) -> Any:
            return point(d["x"] * scale, [args[0], None]), {"z": others["k"]}

    model = Nested()
    x, y, z = tf.constant(1.0), tf.constant([2.0]), tf.constant(3.0)
    model.f({"x": x}, y, k=z)
    first, second = trip(model, tmp_path).f({"x": x}, y, k=3.0)
    assert type(first).__name__ == "point" and float(first.a) == 2.0 and first.b[1] is None
    assert float(second["z"]) == 3.0


def test_derivatives_of_all_kinds(tmp_path: Path) -> None:
    model = parts()
    loaded = trip(model, tmp_path)
    x = tf.constant([[1.0, -2.0, 0.5], [0.1, 0.2, 0.3]])

    def derivatives(of: Any) -> Any:
        with tf.GradientTape(persistent=True) as outer:
            outer.watch(x)
            with tf.GradientTape(persistent=True) as tape:
                tape.watch(x)
                y = of.f(x)["y"]
                part = y[:, 0]
            first = tape.gradient(part, [x, of.w])
        with tf.autodiff.ForwardAccumulator(of.w, tf.ones([3, 3])) as forward:
            again = of.f(x)["y"]
        return [
            *first,
            tape.jacobian(y, x),
            tape.batch_jacobian(y, x, on_dependence="ignore"),
            tape.jacobian(y, of.w),
            outer.gradient(first[1], of.w),
            outer.jacobian(first[1], of.w),
            forward.jvp(again),
            tf.vectorized_map(lambda row: of.f(row[None])["y"][0], x),
        ]

    assert_same(derivatives(model), derivatives(loaded))


def test_a_loaded_model_trains_as_the_one_that_was_saved(tmp_path: Path) -> None:
    model = parts()
    loaded = trip(model, tmp_path)
    for of in (model, loaded):
        optimizer = tf.keras.optimizers.Adam(0.1)
        for k in range(3):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(of.f(tf.ones([2 + k, 3]))["y"][:, 0] ** 2)
            variables = [of.w, of.nested[0]]
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
    assert_same([model.w, model.nested[0]], [loaded.w, loaded.nested[0]])


def test_a_whole_training_step_is_a_function(tmp_path: Path) -> None:
    class Trainer(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            layers = tf.keras.layers
            self.net = tf.keras.Sequential([layers.Dense(8, "relu", input_shape=(4,)), layers.BatchNormalization()])
            self.out = layers.Dense(3)
            self.out.build((None, 8))
            self.optimizer = tf.keras.optimizers.Adam(0.01)
            self.optimizer.build(self.net.trainable_variables)
            self.loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)

        @tf.function(input_signature=[tf.TensorSpec([None, 4], F), tf.TensorSpec([None], tf.int32)])
        def step(self, x: Any, y: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = self.loss(y, self.out(self.net(x, training=True)))
            variables = self.net.trainable_variables
            self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
            return loss

    model = Trainer()
    loaded = trip(model, tmp_path)
    rng = np.random.default_rng(3)
    for n in (6, 1, 17, 6):
        x, y = tf.constant(rng.standard_normal([n, 4]), F), tf.constant(np.arange(n) % 3, tf.int32)
        assert_same(model.step(x, y), loaded.step(x, y), 1e-4)
    assert int(loaded.optimizer.iterations) == 4
    assert_same(model.net.variables, loaded.net.variables, 1e-4)


def test_a_loaded_model_is_saved_again(tmp_path: Path) -> None:
    model = parts()
    first = trip(model, tmp_path / "a")
    second = trip(first, tmp_path / "b")
    for n in (1, 2, 5):
        x = tf.ones([n, 3]) * 0.3
        assert_same(model.f(x), second.f(x))
    assert second.pair[0] is second.w and second.saved_type == "Parts"


def test_other_gradients_for_ops_act_on_a_loaded_model(tmp_path: Path) -> None:
    class Net(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None])])
        def f(self, x: Any) -> Any:
            y = tf.nn.relu(x)
            if tf.reduce_sum(x) > 0:
                y += tf.square(x)
            for _ in tf.range(2):
                y = tf.nn.relu(y) * 1.0
            return y

    model = Net()
    loaded = trip(model, tmp_path)
    name = f"SevenTimes{id(model)}"
    tf.RegisterGradient(name)(lambda op, grad: grad * 7.0)
    scopes = [
        lambda: tf.override_gradient({"relu": lambda op, grad: grad * 10.0}),
        lambda: tf.gradient_override_map({"Square": name}),
        lambda: tf.override_gradient({}),
    ]
    x = tf.constant([-1.0, 2.0, 3.0])
    found = []
    for of in (model, loaded):
        for scope in scopes:
            with scope(), tf.GradientTape(persistent=True) as tape:
                tape.watch(x)
                y = of.f(x)
            found += [tape.gradient(y, x), tape.jacobian(y, x)]
    assert_same(found[:6], found[6:])
    assert np.abs(found[6] - found[10]).max() > 1 and np.abs(found[8] - found[10]).max() > 1


def test_random_numbers_are_drawn_anew_in_each_call(tmp_path: Path) -> None:
    class Noise(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None, 6])])
        def f(self, x: Any) -> Any:
            r, shape = tf.random, tf.shape(x)
            floats = tf.nn.dropout(x, 0.5), r.normal(shape), r.truncated_normal(shape), r.gamma([2], x), r.shuffle(x)
            return *floats, r.poisson([2], x), r.uniform(shape, 0, 9, tf.int32), r.categorical(x, 4)

    model = Noise()
    loaded = trip(model, tmp_path)
    x = tf.reshape(tf.range(60.0), [10, 6])
    tf.random.set_seed(3)
    expected = model.f(x)
    tf.random.set_seed(3)
    found = loaded.f(x)
    assert_same(expected, found)
    for before, after in zip(found, loaded.f(x), strict=True):
        assert np.any(before != after)


@pytest.mark.parametrize("what", ["print", "py_function"])
def test_python_in_a_graph_is_refused_with_its_name(what: str, tmp_path: Path) -> None:
    class Effects(tf.Module):
        @tf.function
        def f(self, x: Any) -> Any:
            if what == "print":
                tf.print(x)
                return x
            return tf.py_function(lambda v: v * 2.0, [x], F)

    model = Effects()
    model.f(tf.constant(1.0))
    with pytest.raises(ValueError, match=r"`f` cannot be saved: it .*Python function"):
        tf.saved_model.save(model, tmp_path)
    assert not tf.saved_model.contains_saved_model(tmp_path)


def test_an_argument_that_no_file_holds_is_refused(tmp_path: Path) -> None:
    class Odd(tf.Module):
        @tf.function
        def f(self, x: Any, o: Any) -> Any:
            return x

    model = Odd()
    model.f(tf.constant(1.0), object())
    with pytest.raises(ValueError, match="it was called with <object"):
        tf.saved_model.save(model, tmp_path)


# ------------------------------------------------------------------ signatures


def test_signatures_by_name(tmp_path: Path) -> None:
    class Two(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], F, name="first"), tf.TensorSpec([], F)])
        def f(self, x: Any, y: Any) -> Any:
            return {"sum": x + y, "product": x * y}

        @tf.function
        def g(self, x: Any) -> Any:
            return x, x * 2.0

    model = Two()
    chosen = {"f": model.f, "g": model.g.get_concrete_function(tf.TensorSpec([2], F))}
    loaded = trip(model, tmp_path, signatures=chosen)
    assert sorted(loaded.signatures) == ["f", "g"]
    found = loaded.signatures["f"](first=tf.constant([1.0, 2.0]), y=tf.constant(3.0))
    assert found["sum"].numpy().tolist() == [4.0, 5.0] and found["product"].numpy().tolist() == [3.0, 6.0]
    assert loaded.signatures["g"](tf.constant([1.0, 2.0]))["output_1"].numpy().tolist() == [2.0, 4.0]
    _, wanted = loaded.signatures["f"].structured_input_signature
    assert wanted["first"] == tf.TensorSpec([None], F) and wanted["y"] == tf.TensorSpec([], F)
    assert loaded.signatures["f"].structured_outputs["sum"] == tf.TensorSpec([None], F)
    with pytest.raises(TypeError, match=r"wants \['first', 'y'\], got \['x'\]"):
        loaded.signatures["f"](x=tf.constant([1.0]))
    with pytest.raises(TypeError, match="keyword arguments only"):
        loaded.signatures["f"](tf.constant([1.0]), tf.constant(1.0))


def test_the_one_function_that_can_be_a_signature_is_one(tmp_path: Path) -> None:
    class One(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], F, name="inp")])
        def __call__(self, x: Any) -> Any:
            return x * 2.0

    loaded = trip(One(), tmp_path)
    assert loaded([1.0]).numpy().tolist() == [2.0]
    served = loaded.signatures[tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY]
    assert served(inp=tf.constant([2.0]))["output_0"].numpy().tolist() == [4.0]


def test_what_is_no_signature_is_refused(tmp_path: Path) -> None:
    model = parts()
    with pytest.raises(ValueError, match=r"Only `tf\.functions` with an input signature or concrete functions"):
        tf.saved_model.save(model, tmp_path, signatures=model.g)
    with pytest.raises(ValueError, match="its results should be a single tensor"):
        tf.saved_model.save(model, tmp_path, signatures=model.f)


# ------------------------------------------------------------------ layers


def test_a_keras_model_is_called_as_before(tmp_path: Path) -> None:
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [layers.Dense(4, "relu", input_shape=(3,)), layers.BatchNormalization(), layers.Dense(2)]
    )
    model.layers[0].trainable = False
    x = tf.constant(np.random.default_rng(0).standard_normal([5, 3]), F)
    model(x, training=True)
    loaded = trip(model, tmp_path)
    assert_same(model(x), loaded(x))
    assert_same(model(x, training=True), loaded(x, training=True))
    assert [v.shape for v in loaded.variables] == [v.shape for v in model.variables]
    assert len(loaded.trainable_variables) == len(model.trainable_variables) == 4
    assert_same(loaded.signatures["serving_default"](inputs=x)["output_0"], model(x))
    with pytest.raises(ValueError, match="before it is built"):
        tf.saved_model.save(tf.keras.Sequential([layers.Dense(1)]), tmp_path)


def test_a_generator_goes_on_where_it_was(tmp_path: Path) -> None:
    class Noise(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.random = tf.random.Generator.from_seed(7)

        @tf.function(input_signature=[tf.TensorSpec([2], tf.int64)])
        def f(self, seed: Any) -> Any:
            return self.random.normal([4]), tf.random.stateless_uniform([3], tf.random.fold_in(seed, 5))

    model, seed = Noise(), tf.constant([1, 2], tf.int64)
    model.random.normal([3])
    loaded = trip(model, tmp_path)
    assert_same(model.random.normal([4]), loaded.random.normal([4]))
    assert_same(model.f(seed), loaded.f(seed))
    assert_same(model.f(seed), loaded.f(seed))
    assert_same(model.random.normal([4]), loaded.random.normal([4]))


# ------------------------------------------------------------------ folders


def test_folders_and_tags(tmp_path: Path) -> None:
    assert not tf.saved_model.contains_saved_model(tmp_path)
    with pytest.raises(OSError, match="SavedModel file does not exist"):
        tf.saved_model.load(tmp_path / "nowhere")
    tf.saved_model.save(tf.Module(), str(tmp_path))
    assert tf.saved_model.contains_saved_model(str(tmp_path))
    with pytest.raises(ValueError, match="incompatible argument to `tags`"):
        tf.saved_model.load(tmp_path, tags=["train"])
    tf.saved_model.load(tmp_path, tags="serve", options=tf.saved_model.LoadOptions())


def test_models_whose_inputs_are_whole_numbers(tmp_path: Path) -> None:
    model = tf.keras.Sequential([tf.keras.layers.Embedding(10, 4), tf.keras.layers.Dense(2)])
    ids = tf.constant([[1, 2, 3], [4, 5, 9]])
    expected = model(ids).numpy()
    tf.saved_model.save(model, tmp_path / "sequence")
    loaded = tf.saved_model.load(tmp_path / "sequence")
    np.testing.assert_allclose(loaded(ids).numpy(), expected, 1e-6)
    np.testing.assert_allclose(loaded([[1, 2, 3], [4, 5, 9]]).numpy(), expected, 1e-6)
    (given,) = loaded.signatures["serving_default"].structured_input_signature[1].values()
    assert given.dtype is tf.int32 and given.shape == [None, 3]


def test_an_embedding_that_was_never_called(tmp_path: Path) -> None:
    layer = tf.keras.layers.Embedding(10, 4)
    layer.build((None, 3))
    tf.saved_model.save(layer, tmp_path)
    ids = tf.constant([[1, 2, 9]])
    np.testing.assert_array_equal(tf.saved_model.load(tmp_path)(ids).numpy(), layer(ids).numpy())


def test_savers_and_loaders_of_one_folder(tmp_path: Path) -> None:
    def saver(value: float) -> None:
        module = tf.Module()
        module.v = tf.Variable(tf.fill([100], value))
        for _ in range(15):
            tf.saved_model.save(module, tmp_path)

    def loader() -> set[float]:
        return {float(n) for _ in range(30) for n in tf.saved_model.load(tmp_path).v.numpy()}

    saver(1.0)
    with ThreadPoolExecutor(4) as threads:
        savers = [threads.submit(saver, value) for value in (1.0, 2.0)]
        loaders = [threads.submit(loader) for _ in range(2)]
        assert all(f.result() is None for f in savers)
        assert set().union(*(f.result() for f in loaders)) <= {1.0, 2.0}
    assert len(list(tmp_path.iterdir())) == 2
