"""How tensors and variables print: TensorFlow's words."""

from typing import Any

import numpy as np
import pytest

import gradtape as tf

# A tensor, its repr and its str.
PRINTED: list[tuple[Any, str, str]] = [
    (3.0, "<tf.Tensor: shape=(), dtype=float32, numpy=3.0>", "tf.Tensor(3.0, shape=(), dtype=float32)"),
    (3, "<tf.Tensor: shape=(), dtype=int32, numpy=3>", "tf.Tensor(3, shape=(), dtype=int32)"),
    (True, "<tf.Tensor: shape=(), dtype=bool, numpy=True>", "tf.Tensor(True, shape=(), dtype=bool)"),
    ("ab", "<tf.Tensor: shape=(), dtype=string, numpy=b'ab'>", "tf.Tensor(b'ab', shape=(), dtype=string)"),
    (
        1 + 2j,
        "<tf.Tensor: shape=(), dtype=complex128, numpy=(1+2j)>",
        "tf.Tensor((1+2j), shape=(), dtype=complex128)",
    ),
    (
        [1, 2],
        "<tf.Tensor: shape=(2,), dtype=int32, numpy=array([1, 2], dtype=int32)>",
        "tf.Tensor([1 2], shape=(2,), dtype=int32)",
    ),
    (
        [],
        "<tf.Tensor: shape=(0,), dtype=float32, numpy=array([], dtype=float32)>",
        "tf.Tensor([], shape=(0,), dtype=float32)",
    ),
    (
        [True, False],
        "<tf.Tensor: shape=(2,), dtype=bool, numpy=array([ True, False])>",
        "tf.Tensor([ True False], shape=(2,), dtype=bool)",
    ),
    (
        ["a", "b"],
        "<tf.Tensor: shape=(2,), dtype=string, numpy=array([b'a', b'b'], dtype=object)>",
        "tf.Tensor([b'a' b'b'], shape=(2,), dtype=string)",
    ),
    (
        [[1.0, 2.0], [3.0, 4.0]],
        "<tf.Tensor: shape=(2, 2), dtype=float32, numpy=\narray([[1., 2.],\n       [3., 4.]], dtype=float32)>",
        "tf.Tensor(\n[[1. 2.]\n [3. 4.]], shape=(2, 2), dtype=float32)",
    ),
    (
        [[1.0, 2.0]],
        "<tf.Tensor: shape=(1, 2), dtype=float32, numpy=array([[1., 2.]], dtype=float32)>",
        "tf.Tensor([[1. 2.]], shape=(1, 2), dtype=float32)",
    ),
    (
        list(range(20)),
        "<tf.Tensor: shape=(20,), dtype=int32, numpy=\n"
        "array([ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15, 16,\n"
        "       17, 18, 19], dtype=int32)>",
        "tf.Tensor([ 0  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15 16 17 18 19], shape=(20,), dtype=int32)",
    ),
    (
        np.zeros((2, 0)),
        "<tf.Tensor: shape=(2, 0), dtype=float64, numpy=array([], shape=(2, 0), dtype=float64)>",
        "tf.Tensor([], shape=(2, 0), dtype=float64)",
    ),
]


@pytest.mark.parametrize(("value", "shown", "printed"), PRINTED, ids=[repr(v) for v, _, _ in PRINTED])
def test_repr_and_str(value: Any, shown: str, printed: str) -> None:
    x = tf.constant(value)
    assert repr(x) == shown
    assert str(x) == printed


def test_half_types_print_as_numbers() -> None:
    x = tf.constant([1.5, 2.0], tf.bfloat16)
    assert repr(x) == "<tf.Tensor: shape=(2,), dtype=bfloat16, numpy=array([1.5, 2], dtype=bfloat16)>"
    assert str(x) == "tf.Tensor([1.5 2], shape=(2,), dtype=bfloat16)"
    assert repr(tf.constant(1.5, tf.float16)) == "<tf.Tensor: shape=(), dtype=float16, numpy=1.5>"


def test_format() -> None:
    assert f"{tf.constant(2.5)}" == "2.5"
    assert f"{tf.constant(2.5):.3f}" == "2.500"
    assert f"{tf.constant(7):04d}" == "0007"
    assert f"{tf.constant([1, 2])}" == "[1 2]"
    assert f"{tf.Variable(2.5):6.2f}" == "  2.50"
    with pytest.raises(TypeError):
        f"{tf.constant([1.0]):.3f}"


def test_variables() -> None:
    v = tf.Variable([1.0, 2.0], name="w")
    assert repr(v) == "<tf.Variable 'w:0' shape=(2,) dtype=float32, numpy=array([1., 2.], dtype=float32)>"
    assert repr(tf.Variable(3.0, name="s")) == "<tf.Variable 's:0' shape=() dtype=float32, numpy=3.0>"
    assert repr(tf.Variable([[1]], name="m")) == (
        "<tf.Variable 'm:0' shape=(1, 1) dtype=int32, numpy=array([[1]], dtype=int32)>"
    )


def test_dtypes_and_shapes() -> None:
    x = tf.constant([[1.0, 2.0]])
    assert (repr(x.dtype), str(x.dtype)) == ("tf.float32", "<dtype: 'float32'>")
    assert (repr(x.shape), str(x.shape)) == ("TensorShape([1, 2])", "(1, 2)")
    assert f"{tf.constant(1.0).shape} {tf.constant([1.0]).shape}" == "() (1,)"


def test_a_variable_in_a_text() -> None:
    v = tf.Variable(1.25)
    assert f"{v}" == str(v) == "<tf.Variable 'Variable:0' shape=() dtype=float32, numpy=1.25>"
    assert f"{v:.1f}" == "1.2"
