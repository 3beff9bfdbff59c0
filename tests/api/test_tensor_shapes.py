"""What is known of shapes, and what follows of two."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradtape as tf

S = tf.TensorShape


@pytest.mark.parametrize(
    "a, b, most, is_subtype",
    [
        ([2, 3], [2, 3], [2, 3], True),
        ([2, 3], [4, 3], [None, 3], False),
        ([2, 3], [2, None], [2, None], True),
        ([2, None], [2, 3], [2, None], False),
        ([2, 3], [3], None, False),
        ([2, 3], None, None, True),
        (None, [2], None, False),
        (None, None, None, True),
        ([], [], [], True),
    ],
)
def test_what_two_shapes_have_in_common(
    a: list[int] | None, b: list[int] | None, most: list[int] | None, is_subtype: bool
) -> None:
    assert repr(S(a).most_specific_compatible_shape(S(b))) == repr(S(most))
    assert repr(S(a).most_specific_common_supertype([S(b)])) == repr(S(most))
    assert S(a).most_specific_common_supertype(["no shape"]) is None
    assert S(a).is_subtype_of(b) == is_subtype


def test_ranks_that_are_known() -> None:
    s, unknown = S([2, None]), S(None)
    for rank in (1, 2, 3):
        unknown.assert_has_rank(rank)
        assert repr(unknown.with_rank(rank)) == repr(S([None] * rank))
        assert unknown.with_rank_at_least(rank) is unknown and unknown.with_rank_at_most(rank) is unknown
    assert s.with_rank_at_least(2) is s and s.with_rank_at_most(2) is s and repr(s.with_rank(2)) == repr(s)
    with pytest.raises(ValueError, match=r"\(2, None\) must have rank 3"):
        s.with_rank(3)
    with pytest.raises(ValueError, match=r"\(2, None\) must have rank 1"):
        s.assert_has_rank(1)
    with pytest.raises(ValueError, match="must have rank at least 3"):
        s.with_rank_at_least(3)
    with pytest.raises(ValueError, match="must have rank at most 1"):
        s.with_rank_at_most(1)
    assert s.with_rank(None) is s and repr(s.with_rank(np.int64(2))) == repr(s)


@pytest.mark.parametrize("name", ["with_rank", "with_rank_at_least", "with_rank_at_most", "assert_has_rank"])
@pytest.mark.parametrize("rank", ["a", 1.5, [2]])
def test_ranks_that_are_no_numbers(name: str, rank: Any) -> None:
    with pytest.raises(TypeError, match=f"A rank must be an integer, got .* of type {type(rank).__name__}"):
        getattr(S([2, None]), name)(rank)


def test_shapes_that_no_tensor_has_both() -> None:
    S([2, None]).assert_is_compatible_with([2, 3])
    S([2, None]).assert_same_rank([4, 3])
    S([2, None]).assert_same_rank(None)
    with pytest.raises(ValueError, match=r"\(2, None\) and \(3, 3\) are incompatible"):
        S([2, None]).assert_is_compatible_with([3, 3])
    with pytest.raises(ValueError, match=r"\(2, None\) and \(3,\) must have the same rank"):
        S([2, None]).assert_same_rank([3])
