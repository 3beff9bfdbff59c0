"""`tf.nest`: leaves in order, structures put together again, what is not alike."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from typing import Any

import numpy as np
import pytest

import gradtape as tf

Point = namedtuple("Point", "x y")
STRUCTURES = [
    5,
    None,
    [],
    (),
    {},
    [1, [2, (3, None)]],
    {"b": 1, "a": (2, [3])},
    Point(1, [2, 3]),
    [Point(1, {"k": 2})],
]


@pytest.mark.parametrize("structure", STRUCTURES, ids=repr)
def test_flatten_and_pack(structure: Any) -> None:
    flat = tf.nest.flatten(structure)
    assert all(not tf.nest.is_nested(leaf) for leaf in flat)
    packed = tf.nest.pack_sequence_as(structure, flat)
    assert packed == structure and type(packed) is type(structure)
    tf.nest.assert_same_structure(structure, packed)
    assert tf.nest.map_structure(lambda leaf: leaf, structure) == structure


def test_order_and_leaves() -> None:
    assert tf.nest.flatten({"b": 1, "a": 2}) == [2, 1]
    for leaf in (tf.constant([1, 2]), tf.Variable([1.0]), np.arange(3), "text", b"bytes", None, tf.TensorShape([1])):
        (only,) = tf.nest.flatten(leaf)
        assert only is leaf


def test_map_over_several() -> None:
    a, b = {"k": [1, 2]}, {"k": [10, 20]}
    assert tf.nest.map_structure(lambda *xs: sum(xs), a, b, a) == {"k": [12, 24]}
    assert tf.nest.map_structure(max, [1, 5], (4, 2), check_types=False) == [4, 5]
    tf.nest.assert_same_structure({"k": 1}, OrderedDict(k=2))


@pytest.mark.parametrize(
    ("a", "b", "error"),
    [
        ([1], [1, 2], ValueError),
        ([1], 1, ValueError),
        ({"a": 1}, {"b": 1}, ValueError),
        ([1], (1,), TypeError),
        ([[1]], [(1,)], TypeError),
        (Point(1, 2), (1, 2), TypeError),
    ],
)
def test_not_alike(a: Any, b: Any, error: type[Exception]) -> None:
    for x, y in ((a, b), (b, a)):
        with pytest.raises(error, match="don't have the same"):
            tf.nest.assert_same_structure(x, y)
        with pytest.raises(error, match="don't have the same"):
            tf.nest.map_structure(lambda *leaves: None, x, y)
    if error is TypeError:
        tf.nest.assert_same_structure(a, b, check_types=False)


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="2 leaves, but flat_sequence has 1"):
        tf.nest.pack_sequence_as([1, 2], [1])
    with pytest.raises(TypeError, match="Attempted to pack"):
        tf.nest.pack_sequence_as([1], 3)
    with pytest.raises(TypeError, match="callable"):
        tf.nest.map_structure(3, [1])
    with pytest.raises(ValueError, match="at least one"):
        tf.nest.map_structure(max)
