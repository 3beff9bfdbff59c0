"""Python's operators: values, TensorFlow's dtype rules, what numbers and arrays become, and what is refused."""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as tf

ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
}
OTHERS: dict[str, Callable[[Any], Any]] = {
    "a tensor": tf.constant,
    "a variable": tf.Variable,
    "an array": lambda a: a,
    "a float64 array": lambda a: a.astype("float64"),
    "a list": lambda a: a.tolist(),
    "a tuple": lambda a: tuple(a.tolist()),
    "a number": lambda a: float(a[0]),
    "an integer": lambda a: 2,
    "a NumPy number": lambda a: np.float64(a[0]),
}


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("sign", ARITHMETIC)
def test_arithmetic_from_both_sides(sign: str, other: str) -> None:
    f, make = ARITHMETIC[sign], OTHERS[other]
    a, b = np.array([1.5, 2.0, 3.5], "float32"), np.array([2.0, 0.5, 4.0], "float32")
    plain = 2 if other == "an integer" else b[0] if "number" in other.lower() else b
    for x in (tf.constant(a), tf.Variable(a)):
        got, back = f(x, make(b)), f(make(b), x)
        assert isinstance(got, tf.Tensor)
        assert isinstance(back, tf.Tensor)
        assert (got.dtype, back.dtype) == (tf.float32, tf.float32)
        assert np.allclose(got, f(a, plain))
        assert np.allclose(back, f(plain, a))


def test_unary_operators() -> None:
    x = tf.constant([-1.5, 2.0])
    assert (-x).numpy().tolist() == [1.5, -2.0]
    assert (+x).numpy().tolist() == [-1.5, 2.0]
    assert abs(x).numpy().tolist() == [1.5, 2.0]
    assert (~tf.constant([True, False])).numpy().tolist() == [False, True]
    assert float(abs(tf.constant(3 + 4j))) == 5.0


def test_products_of_matrices() -> None:
    a, b = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)
    assert np.array_equal(tf.constant(a) @ tf.constant(b), a @ b)
    assert np.array_equal(tf.constant(a) @ b, a @ b)
    assert np.array_equal(a @ tf.constant(b), a @ b)
    assert isinstance(a @ tf.Variable(b), tf.Tensor)


def test_logic_of_bool_tensors() -> None:
    a, b = tf.constant([True, True, False]), tf.constant([True, False, False])
    assert (a & b).numpy().tolist() == [True, False, False]
    assert (a | b).numpy().tolist() == [True, True, False]
    assert (a ^ b).numpy().tolist() == [False, True, False]
    assert (True & b).numpy().tolist() == [True, False, False]
    for f in (operator.and_, operator.or_, operator.xor):
        with pytest.raises(TypeError, match=r"bool or integer tensors, got a float tensor"):
            f(tf.constant(1.0), 1)
        with pytest.raises(tf.errors.InvalidArgumentError, match="one dtype"):
            f(tf.constant([True]), tf.constant([2]))
        with pytest.raises(TypeError, match="bool"):
            f(tf.constant(True), 1)
    with pytest.raises(TypeError, match="bool or integer tensors"):
        operator.invert(tf.constant([1.0]))


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
@pytest.mark.parametrize("f", [operator.and_, operator.or_, operator.xor])
def test_logic_of_integers_is_bitwise(f: Any, dtype: str) -> None:
    a = np.array([12, 10, 3], dtype)
    t = tf.constant(a)
    for found in (f(t, 6), f(6, t), f(t, tf.constant(6, dtype)), f(tf.Variable(a), 6), tf.function(f)(t, 6)):
        assert found.dtype.name == dtype
        assert found.numpy().tolist() == f(a, 6).tolist()
    assert (~t).numpy().tolist() == (~a).tolist()


INT, LONG, FLOAT, WIDE = (tf.constant([1, 2], d) for d in ("int32", "int64", "float32", "float64"))


@pytest.mark.parametrize(
    ("a", "b", "number", "target"),
    [(INT, FLOAT, 1, "float32"), (FLOAT, INT, 2, "float32"), (LONG, INT, 2, "int64"), (FLOAT, WIDE, 1, "float64")],
)
def test_the_operand_that_loses_less_is_to_be_converted(a: Any, b: Any, number: int, target: str) -> None:
    for f in (operator.truediv, operator.add, operator.mul):
        error = TypeError if f is operator.truediv else tf.errors.InvalidArgumentError
        with pytest.raises(error, match=rf"operand {number} with `tf\.cast\(x, tf\.{target}\)"):
            f(a, b)
    with pytest.raises(tf.errors.InvalidArgumentError, match=rf"tf\.cast\(x, tf\.{target}\)"):
        tf.matmul(a[None], b[:, None])


@pytest.mark.parametrize("sign", ARITHMETIC)
def test_mixed_dtypes_are_an_error_that_names_both(sign: str) -> None:
    f = ARITHMETIC[sign]
    pairs = [("float32", "float64", "float", "double"), ("float32", "int32", "float", "int32")]
    pairs += [("int32", "int64", "int32", "int64"), ("float16", "float32", "half", "float")]
    for one, two, first, second in pairs:
        error = TypeError if sign == "/" else tf.errors.InvalidArgumentError
        with pytest.raises(error, match=rf"\b{first}\b.*\b{second}\b.*tf\.cast"):
            f(tf.ones([2], one), tf.ones([2], two))
        with pytest.raises(error, match=rf"\b{second}\b.*\b{first}\b"):
            f(tf.Variable(tf.ones([2], two)), tf.ones([2], one))


def test_integers_are_divided_as_floats() -> None:
    a, b = tf.constant([7, -7]), tf.constant([2, 2])
    assert ((a / b).dtype, (a / b).numpy().tolist()) == (tf.float64, [3.5, -3.5])
    assert ((a / 2).dtype, (7 / b).dtype) == (tf.float64, tf.float64)
    assert (tf.constant([7], tf.int64) / 2).dtype == tf.float64
    for small in ("int8", "uint8", "int16", "uint16"):
        assert (tf.constant([7], small) / tf.constant([2], small)).dtype == tf.float32
    assert ((a // b).dtype, (a // b).numpy().tolist()) == (tf.int32, [3, -4])
    assert ((a % b).dtype, (a % b).numpy().tolist()) == (tf.int32, [1, 1])
    assert (tf.constant([7.5, -7.5]) // 2.0).numpy().tolist() == [3.0, -4.0]
    assert (tf.constant([1.0]) / tf.constant([0.0])).numpy().tolist() == [np.inf]


def test_small_integers_wrap_around() -> None:
    x = tf.constant([100, -100], tf.int8)
    assert (x + x).dtype == tf.int8
    assert (x + x).numpy().tolist() == [-56, 56]
    assert tf.reduce_sum(tf.constant([100, 100], tf.int8)).dtype == tf.int8
    assert (tf.constant([3], tf.uint8) - tf.constant([5], tf.uint8)).numpy().tolist() == [254]


def test_arithmetic_of_bools_and_strings_is_refused() -> None:
    for sign, f in ARITHMETIC.items():
        error = TypeError if sign == "/" else tf.errors.InvalidArgumentError
        with pytest.raises(error, match="bool"):
            f(tf.constant(True), tf.constant(True))
        with pytest.raises(error, match="string"):
            f(tf.constant("a"), tf.constant("b"))


def test_truth_values_count_as_numbers() -> None:
    x = tf.constant([2.0, 3.0])
    for mask in (np.array([True, False]), [True, False]):
        for got in (x * mask, tf.multiply(x, mask), x - (1.0 - x * mask / x) * x):
            assert (got.dtype, got.numpy().tolist()) == (tf.float32, [2.0, 0.0])
    assert (np.array([True, False]) * x).numpy().tolist() == [2.0, 0.0]
    assert (tf.constant([2]) + True).numpy().tolist() == [3]


def test_numbers_that_the_dtype_cannot_hold_are_refused() -> None:
    with pytest.raises(TypeError, match=r"0\.5.*int32"):
        tf.constant([2]) * 0.5
    with pytest.raises(TypeError, match=r"0\.5.*int32"):
        0.5 * tf.constant([2])
    with pytest.raises(TypeError, match=r"1j.*float32"):
        tf.constant([2.0]) * 1j
    with pytest.raises(ValueError, match=r"300.*uint8"):
        tf.constant([2], tf.uint8) + 300
    with pytest.raises(TypeError, match=r"'a'.*float32"):
        tf.constant([2.0]) + "a"
    with pytest.raises(ValueError, match="None"):
        tf.constant([2.0]) + None
    for other in (np.array([0.5]), np.float64(0.5), [0.5], (0.5,)):
        for f in (operator.add, operator.truediv, operator.pow):
            with pytest.raises(TypeError, match=r"0\.5.*int32"):
                f(tf.constant([2]), other)
        with pytest.raises(TypeError, match="float32"):
            tf.constant([[2.0]]) @ np.array([[1j]])
    for text in ("a", b"a"):  # which Python would repeat by `text * 2`
        with pytest.raises(TypeError, match="float32"):
            tf.constant(2.0) * text


def test_shapes_broadcast_or_are_named() -> None:
    a, b = tf.ones([2, 1, 3]), tf.ones([4, 1])
    assert (a + b).shape == [2, 4, 3]
    assert (tf.ones([0, 3]) * tf.ones([1, 3])).shape == [0, 3]
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"incompatible shapes: \(2, 3\) vs\. \(2, 4\)"):
        tf.ones([2, 3]) + tf.ones([2, 4])


def test_objects_with_operators_of_their_own_are_asked() -> None:
    class Unit:
        def __rmul__(self, other: Any) -> str:
            return f"{float(other)} units"

        def __rtruediv__(self, other: Any) -> str:
            return f"{float(other)} per unit"

        def __rmatmul__(self, other: Any) -> Any:
            return NotImplemented

    for x in (tf.constant(2.0), tf.Variable(2.0)):
        assert x * Unit() == "2.0 units"
        assert x / Unit() == "2.0 per unit"
        for f in (operator.add, operator.matmul):
            with pytest.raises(ValueError, match="unsupported type"):
                f(x, Unit())


def test_equal_numbers_are_not_mixed_up_among_dtypes_and_signs() -> None:
    x = tf.constant([1.0, -1.0])
    assert np.signbit((x * 0.0).numpy()).tolist() == [False, True]
    assert np.signbit((x * -0.0).numpy()).tolist() == [True, False]
    assert (tf.constant([1]) * 2).dtype == tf.int32
    assert (tf.constant([1.0]) * 2).dtype == tf.float32
    assert (tf.constant([1.0], tf.float64) * 2).dtype == tf.float64
    assert (tf.constant([1], tf.int64) * 2).dtype == tf.int64


@pytest.mark.parametrize("name", ["+", "-", "*", "/", "//", "%", "**"])
def test_numbers_that_a_dtype_does_not_hold_are_refused_in_both_kinds(name: str) -> None:
    for error in (TypeError, tf.errors.InvalidArgumentError):
        with pytest.raises(error, match=r"2\.5.*int32"):
            ARITHMETIC[name](tf.constant([1]), 2.5)
        with pytest.raises(error, match="int32"):
            tf.constant([1]) | 2.5
        with pytest.raises(error, match="bool or integer"):
            tf.constant([1.0]) & True
