"""What becomes a tensor, of which dtype and shape; what does not, and why."""

from typing import Any

import numpy as np
import pytest

import gradtape as tf

# A value, the dtype it takes by itself, and the elements.
BY_ITSELF: list[tuple[Any, str, Any]] = [
    (1, "int32", 1),
    (1.5, "float32", 1.5),
    (True, "bool", True),
    (1 + 2j, "complex128", 1 + 2j),
    ("ä", "string", "ä".encode()),
    (b"\xff\x00", "string", b"\xff\x00"),
    (2**31, "int64", 2**31),
    (-(2**31), "int32", -(2**31)),
    ([1, 2], "int32", [1, 2]),
    ([1, 2.5], "float32", [1.0, 2.5]),
    ([1, 2**40], "int64", [1, 2**40]),
    ([[1.0], [2.0]], "float32", [[1.0], [2.0]]),
    ((1, (2, 3))[1], "int32", [2, 3]),
    ([True, False], "bool", [True, False]),
    ([1j, 2.0], "complex128", [1j, 2.0]),
    (["a", b"b"], "string", [b"a", b"b"]),
    ([], "float32", []),
    ([[], []], "float32", [[], []]),
    (np.float64(1.5), "float64", 1.5),
    (np.float32(1.5), "float32", 1.5),
    (np.int64(3), "int64", 3),
    (np.bool_(True), "bool", True),
    (np.arange(3), "int64", [0, 1, 2]),
    (np.ones(2, "float16"), "float16", [1.0, 1.0]),
    (np.array(["a", "bc"]), "string", [b"a", b"bc"]),
    (np.array([1, 2], ">i4"), "int32", [1, 2]),
    (np.arange(6).reshape(2, 3).T, "int64", [[0, 3], [1, 4], [2, 5]]),
    ([np.float64(1.0), np.float64(2.0)], "float64", [1.0, 2.0]),
    ([np.ones(2), np.zeros(2)], "float64", [[1.0, 1.0], [0.0, 0.0]]),
    (tf.TensorShape([2, 3]), "int32", [2, 3]),
    (range(3), "int32", [0, 1, 2]),
    (range(0), "int32", []),
    ([range(2), range(2)], "int32", [[0, 1], [0, 1]]),
    ([np.float32(1.0), 2.0], "float32", [1.0, 2.0]),
    ([2.0, np.float64(1.0)], "float32", [2.0, 1.0]),  # the first decides
    ([np.float64(1.0), np.float32(2.0)], "float64", [1.0, 2.0]),
    ([np.float16(1.0), 2.0], "float16", [1.0, 2.0]),
    ([1, np.float64(2.5)], "float32", [1.0, 2.5]),
    ([np.int64(1), 2], "int32", [1, 2]),
    ([np.uint8(1), np.int64(2**40)], "int64", [1, 2**40]),
    ([np.arange(2), np.arange(2)], "int32", [[0, 1], [0, 1]]),
    ([[3.0, 4.0], np.ones(2)], "float32", [[3.0, 4.0], [1.0, 1.0]]),
    ([np.complex64(1j), 2.0], "complex128", [1j, 2.0]),
    ([np.zeros(0)], "float32", [[]]),
]


@pytest.mark.parametrize(("value", "dtype", "elements"), BY_ITSELF, ids=lambda v: repr(v)[:40])
def test_dtypes_by_themselves(value: Any, dtype: str, elements: Any) -> None:
    for x in (tf.constant(value), tf.convert_to_tensor(value)):
        assert x.dtype.name == dtype
        assert x.numpy().tolist() == elements if hasattr(x.numpy(), "tolist") else x.numpy() == elements
        assert x.shape == np.shape(elements)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"])
def test_numbers_take_a_dtype_that_is_asked_for(dtype: str) -> None:
    for value in (2, 2.0, [1, 2], [[1.5]], np.ones(2, "int64"), np.ones(2, "float32")):
        x = tf.constant(value, dtype=dtype)
        assert x.dtype.name == dtype
        assert np.array_equal(np.asarray(tf.cast(x, tf.float64)), np.asarray(value, "float64"))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_integers_at_and_beyond_the_bounds(dtype: str) -> None:
    low, high = tf.as_dtype(dtype).min, tf.as_dtype(dtype).max
    for value in (int(low), int(high)):
        assert int(tf.constant(value, dtype)) == value
        assert tf.constant([value], dtype).numpy().tolist() == [value]
    for value in (int(low) - 1, int(high) + 1):
        with pytest.raises(ValueError, match=rf"{value}.*{dtype}.*out of range"):
            tf.constant(value, dtype)
        with pytest.raises(ValueError, match=rf"{value}.*{dtype}.*out of range"):
            tf.constant([0, value], dtype)
    with pytest.raises(ValueError, match="out of range"):
        tf.constant([2**70])


def test_what_a_float_cannot_hold_is_infinite() -> None:
    assert float(tf.constant(1e300)) == np.inf
    assert tf.constant([-1e300, 1.0]).numpy().tolist() == [-np.inf, 1.0]
    assert float(tf.constant(1e6, tf.float16)) == np.inf


REFUSED: list[tuple[Any, Any, str]] = [
    (1.5, "int32", r"1\.5.*int32"),
    ([1.5, 2.0], "int32", r"1\.5.*int32"),
    (1, "bool", "bool"),
    (True, "string", "True.*string"),
    (np.array([1j]), "float32", "float32"),
    (np.array([1.0]), "string", "string"),
    (1j, "float32", "float32"),
    ("a", "float32", "'a'.*float32"),
    (1, "string", "string"),
    ([1.0], "string", "string"),
]


@pytest.mark.parametrize(("value", "dtype", "words"), REFUSED, ids=repr)
def test_what_a_dtype_does_not_take(value: Any, dtype: str, words: str) -> None:
    with pytest.raises(TypeError, match=rf"Cannot convert .*{words}"):
        tf.constant(value, dtype=dtype)


@pytest.mark.parametrize("value", [[[1, 2], [3]], [[1.0], 2.0], [1, [2]], [[], [1]]])
def test_ragged_lists(value: Any) -> None:
    with pytest.raises(ValueError, match=r"non-rectangular Python sequence.*one length"):
        tf.constant(value)


@pytest.mark.parametrize("value", [None, object(), {"a": 1}, [None], [1.0, None], {1, 2}, lambda: 1])
def test_objects_that_are_no_values(value: Any) -> None:
    with pytest.raises(ValueError, match=r"unsupported type.*numbers, strings, arrays"):
        tf.constant(value)


@pytest.mark.parametrize(
    "value",
    [
        [1, "a"],
        ["a", 1],
        ("a", 1.0),
        [[1], ["a"]],
        [True, "a"],
        [np.int32(1), b"a"],
        [True, 1],
        [[np.True_, 1.5]],
        [1, 2j],
    ],
)
def test_lists_of_mixed_types(value: Any) -> None:
    with pytest.raises(ValueError, match="mixed types"):
        tf.constant(value)


def test_truth_values_are_numbers_where_a_dtype_or_the_first_number_says_so() -> None:
    assert tf.constant([True, 2], tf.int32).numpy().tolist() == [1, 2]
    assert tf.constant([2, True]).numpy().tolist() == [2, 1]
    assert tf.constant([b"a", "b"]).numpy().tolist() == [b"a", b"b"]
    assert tf.constant([np.array(["a"]), ["b"]]).numpy().tolist() == [[b"a"], [b"b"]]


@pytest.mark.parametrize("value", [np.array(["2020-01-01"], "datetime64[D]"), np.array([(1, 2)], "i4,i4")])
def test_arrays_that_are_no_values(value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"dtype|type"):
        tf.constant(value)


def test_tensors_pass_through_and_are_not_cast() -> None:
    x = tf.constant([1.0])
    assert tf.convert_to_tensor(x) is x
    assert tf.convert_to_tensor(x, tf.float32) is x
    with pytest.raises(ValueError, match=r"requested dtype float64.*float32.*tf\.cast"):
        tf.convert_to_tensor(x, tf.float64)
    with pytest.raises(ValueError, match="requested dtype"):
        tf.convert_to_tensor(tf.Variable(1.0), tf.int32)


def test_a_dtype_hint_is_taken_where_it_fits() -> None:
    assert tf.convert_to_tensor(1, dtype_hint=tf.float32).dtype == tf.float32
    assert tf.convert_to_tensor(1.5, dtype_hint=tf.int32).dtype == tf.float32
    assert tf.convert_to_tensor(tf.constant(1), dtype_hint=tf.float32).dtype == tf.int32


def test_lists_with_tensors_among_them_are_stacked() -> None:
    x, v = tf.constant(2.0, tf.float64), tf.Variable([1.0, 2.0], dtype=tf.float64)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.convert_to_tensor([[x, 3], v, [v[0], x * x]])
        z = tf.reduce_sum(y * [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    assert y.numpy().tolist() == [[2.0, 3.0], [1.0, 2.0], [1.0, 4.0]]
    assert y.dtype == tf.float64
    gx, gv = tape.gradient(z, [x, v])
    assert float(gx) == 1.0 + 6.0 * 4.0
    assert gv.numpy().tolist() == [3.0 + 5.0, 4.0]


def test_constant_with_a_shape() -> None:
    assert tf.constant(7, shape=[2, 2]).numpy().tolist() == [[7, 7], [7, 7]]
    assert tf.constant([1, 2, 3, 4], shape=(2, 2)).numpy().tolist() == [[1, 2], [3, 4]]
    assert tf.constant(1.0, shape=[0]).shape == [0]
    with pytest.raises(TypeError, match=r"unsupported shape.*3 elements.*\(2, 2\)"):
        tf.constant([1, 2, 3], shape=[2, 2])


def test_subclasses_of_pythons_numbers() -> None:
    import enum

    class Level(enum.IntEnum):
        HIGH = 3

    class Length(float):
        pass

    assert int(tf.constant(Level.HIGH)) == 3
    assert float(tf.constant(Length(1.5))) == 1.5
    assert (tf.constant([1.0]) * Length(1.5)).dtype == tf.float32
    assert (tf.constant([1], tf.int64) * Level.HIGH).dtype == tf.int64


def test_anything_with_array_is_an_array() -> None:
    class Measured:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return np.array([1.0, 2.0], dtype)

    assert tf.constant(Measured()).numpy().tolist() == [1.0, 2.0]
    assert (tf.constant([1.0, 1.0], tf.float64) + Measured()).numpy().tolist() == [2.0, 3.0]


def test_dtypes_by_every_name() -> None:
    for name in (tf.float64, "float64", "double", np.float64, np.dtype("float64")):
        assert tf.zeros([1], name).dtype is tf.float64
    assert (tf.as_dtype(float), tf.as_dtype(int), tf.as_dtype(bool)) == (tf.float32, tf.int32, tf.bool)
    with pytest.raises(TypeError, match=r"'no such'.*Known dtypes"):
        tf.zeros([1], "no such")


CAST: list[tuple[Any, Any, Any]] = [
    (True, "int32", 1),
    (True, "float32", 1.0),
    ([True, False], "float64", [1.0, 0.0]),
    (np.array([True, False]), "float16", [1.0, 0.0]),
    (np.array([2.7, -2.7]), "int32", [2, -2]),
    (np.float32(2.7), "uint8", 2),
    (np.array([2, 0]), "bool", [True, False]),
    (np.array([0.5, 0.0]), "bool", [True, False]),
]


@pytest.mark.parametrize(("value", "dtype", "want"), CAST, ids=repr)
def test_what_is_cast_where_the_dtype_was_asked_for(value: Any, dtype: str, want: Any) -> None:
    for made in (tf.constant, tf.convert_to_tensor, tf.Variable):
        got = made(value, dtype=dtype)
        assert (got.dtype, got.numpy().tolist()) == (dtype, want)


def test_fractions_are_not_cut_off_unasked() -> None:
    with pytest.raises(TypeError, match="int32"):
        tf.Variable([1, 2]).assign(np.array([1.5, 2.5]))
    with pytest.raises(TypeError, match="int32"):
        tf.concat([tf.constant([1]), np.array([1.5])], axis=0)
