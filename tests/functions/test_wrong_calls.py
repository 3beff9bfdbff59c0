"""Wrong calls of control flow, host functions and checkpoints say what was wanted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import gradtape as tf

CALLS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "a fraction as index": (lambda: tf.switch_case(1.5, [lambda: 1]), TypeError, "tf.cast"),
    "several indices": (lambda: tf.switch_case([0, 1], [lambda: 1]), TypeError, "scalar integer"),
    "no branches": (lambda: tf.switch_case(0, []), ValueError, "at least one"),
    "no pair": (lambda: tf.case([lambda: 1]), TypeError, "`case` wants pairs"),
    "a pair without a function": (lambda: tf.case([(True, 1)]), TypeError, "`case` wants pairs"),
    "a signature that is no list": (
        lambda: tf.function(lambda x: x, input_signature=tf.TensorSpec([None])),
        TypeError,
        "should be a list with",
    ),
    "a number in a signature": (
        lambda: tf.function(lambda x, k: x, input_signature=[tf.TensorSpec([None]), 3]),
        TypeError,
        "should hold `tf.TensorSpec`s, got 3",
    ),
    "a condition that is none": (lambda: tf.while_loop(3, lambda i: i, [1]), TypeError, "`cond`, got 3"),
    "a body that is none": (lambda: tf.while_loop(lambda i: i < 3, 4, [1]), TypeError, "`body`, got 4"),
    "no Python function": (lambda: tf.py_function(3, [1.0], tf.float32), TypeError, "`func`, got 3"),
    "no function of arrays": (lambda: tf.numpy_function(3, [1.0], tf.float32), TypeError, "`func`, got 3"),
    "nothing to keep": (lambda: tf.checkpoint(3), TypeError, r"checkpoint\(f\)\(x\)"),
    "a budget of another kind": (
        lambda: tf.checkpoint(lambda x: x, budget="lots")(tf.ones([2])),
        ValueError,
        "`budget` should be a size",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_message_names_the_argument_and_the_way_out(name: str) -> None:
    call, kind, text = CALLS[name]
    with pytest.raises(kind, match=text):
        call()


@pytest.mark.parametrize("error", [TypeError, ValueError])
def test_what_no_tensor_can_be_is_no_result(error: type[Exception]) -> None:
    with pytest.raises(error, match=r"must return zero or more Tensors .* unsupported type"):
        tf.function(lambda x: (x, object()))(tf.constant(1.0))
