"""Wrong arguments of public functions: TensorFlow's kind of error, with what was given, what was wanted, what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import gradtape as tf

X = tf.ones([2, 3])
ZERO = tf.constant([0], tf.uint8)
WIDE = tf.ones([2, 3], tf.float64)
INVALID = tf.errors.InvalidArgumentError

# What is called, the error, and words of its message.
WRONG: dict[str, tuple[Callable[[], Any], Any, str]] = {
    # making
    "zeros of a negative size": (lambda: tf.zeros([-1]), INVALID, r"`shape`.*\[-1\]"),
    "fill of a negative size": (lambda: tf.fill([2, -1], 1.0), INVALID, r"`dims`.*-1"),
    "zeros of a text": (lambda: tf.zeros("a"), TypeError, r"`shape`.*'a'.*str"),
    "zeros of a fraction": (lambda: tf.zeros([2.5]), TypeError, r"`shape`.*2\.5"),
    "eye of a negative size": (lambda: tf.eye(-1), INVALID, "`num_rows`.*-1"),
    "range without a step": (lambda: tf.range(0, 3, 0), INVALID, "`delta`"),
    "range away from its limit": (lambda: tf.range(5, 3), INVALID, "start <= limit"),
    "range down from below": (lambda: tf.range(3, 5, -1), INVALID, "start >= limit"),
    "linspace of less than nothing": (lambda: tf.linspace(0.0, 1.0, -1), INVALID, "`num`.*-1"),
    "fill with a vector": (lambda: tf.fill([2], [1, 2]), INVALID, r"scalar.*\(2,\)"),
    "zeros in a layout": (lambda: tf.zeros([2], layout="rows"), tf.errors.UnimplementedError, "`layout`"),
    "one_hot of fractions": (lambda: tf.one_hot([1.5], 3), INVALID, "`one_hot`.*float"),
    "one_hot of a negative depth": (lambda: tf.one_hot(1, -3), INVALID, "`depth`.*-3"),
    # integers divided by zero
    "// by zero": (lambda: tf.constant([5, 6]) // tf.constant([1, 0]), INVALID, r"Integer division by zero.*tf\.where"),
    "% by zero": (lambda: tf.constant(5) % 0, INVALID, "`floormod`.*Integer division by zero"),
    "floordiv of bytes by zero": (lambda: tf.math.floordiv(ZERO, ZERO), INVALID, "`floordiv`.*division by zero"),
    "floormod by zero": (lambda: tf.math.floormod([5], [0]), INVALID, "Integer division by zero"),
    "truncatediv by zero": (lambda: tf.truncatediv([5], [0]), INVALID, "`truncatediv`.*Integer division by zero"),
    "truncatemod by zero": (lambda: tf.truncatemod([5], [0]), INVALID, "`truncatemod`.*Integer division by zero"),
    "// by zero in a function": (lambda: tf.function(lambda y: 5 // y)(tf.constant(0)), INVALID, "division by zero"),
    # rearranging
    "reshape to another size": (lambda: tf.reshape(X, [4, 2]), INVALID, r"\(2, 3\) \(6 elements\).*\(4, 2\)"),
    "reshape with two unknowns": (lambda: tf.reshape(X, [-1, -1]), INVALID, r"one -1.*\[-1, -1\]"),
    "reshape with an unknown that does not divide": (lambda: tf.reshape(X, [4, -1]), INVALID, r"\(2, 3\).*4"),
    "transpose by no permutation": (lambda: tf.transpose(X, [0, 0]), INVALID, r"`perm` \[0, 0\].*\(2, 3\)"),
    "squeeze of a larger axis": (lambda: tf.squeeze(X, [0]), INVALID, r"Can not squeeze dim\[0\].*2"),
    "expand_dims too far": (lambda: tf.expand_dims(X, 5), INVALID, r"`axis` 5.*\[-3, 3\)"),
    "broadcast_to what does not fit": (lambda: tf.broadcast_to(X, [3, 3]), INVALID, r"\(2, 3\).*\(3, 3\)"),
    "tile of another rank": (lambda: tf.tile(X, [2]), INVALID, r"`multiples`.*\(2, 3\).*1"),
    "tile less than never": (lambda: tf.tile(X, [-1, 1]), INVALID, r"`multiples`.*-1"),
    "repeat of another count": (lambda: tf.repeat(X, [1, 2, 3], axis=0), ValueError, "`repeats`.*2.*3"),
    "repeat less than never": (lambda: tf.repeat(X, -1, axis=0), INVALID, "`repeats`.*-1"),
    "reverse of an axis that is not there": (lambda: tf.reverse(X, [4]), INVALID, "`axis` 4"),
    "roll of an axis that is not there": (lambda: tf.roll(X, 1, 5), INVALID, "`axis` 5"),
    "pad of another rank": (lambda: tf.pad(X, [[1, 1]]), INVALID, r"`paddings`.*\(2, 2\).*\(1, 2\)"),
    "pad by a negative number": (lambda: tf.pad(X, [[-1, 0], [0, 0]]), INVALID, "`paddings`.*-1"),
    "pad in an unknown mode": (lambda: tf.pad(X, [[1, 1]] * 2, "EDGE"), ValueError, "`mode`.*REFLECT.*'EDGE'"),
    "pad with more than there is": (lambda: tf.pad(X, [[2, 2], [0, 0]], "REFLECT"), INVALID, "exceed 1"),
    "ensure_shape of another": (lambda: tf.ensure_shape(X, [3, 3]), INVALID, r"\(2, 3\).*\(3, 3\)"),
    # joining and cutting
    "concat along an axis that is not there": (lambda: tf.concat([X, X], 2), INVALID, r"`axis` 2.*\[-2, 2\)"),
    "concat of other shapes": (lambda: tf.concat([X, tf.ones([3, 2])], 0), INVALID, r"\(2, 3\).*\(3, 2\)"),
    "concat of other dtypes": (lambda: tf.concat([X, WIDE], 0), INVALID, r"float.*double.*tf\.cast"),
    "concat of scalars": (lambda: tf.concat([1.0, 2.0], 0), INVALID, r"scalar.*tf\.stack"),
    "concat of nothing": (lambda: tf.concat([], 0), INVALID, "at least one"),
    "stack of other shapes": (lambda: tf.stack([X, tf.ones([2])]), INVALID, r"\(2, 3\).*\(2,\)"),
    "stack of nothing": (lambda: tf.stack([]), INVALID, "at least one"),
    "split in unequal parts": (lambda: tf.split(X, 2, 1), INVALID, "axis 1 of size 3 into 2"),
    "split in parts that do not add up": (lambda: tf.split(X, [1, 1], 1), INVALID, r"\[1, 1\].*3"),
    "unstack in another number": (lambda: tf.unstack(X, 3), INVALID, r"`num` is 3.*size 2"),
    "unstack along no axis": (lambda: tf.unstack(X, axis=2), ValueError, r"`axis` = 2 not in range \[-2, 2\)"),
    "stack along no axis": (lambda: tf.stack([X], axis=-4), ValueError, r"`axis` = -4 not in range \[-3, 3\)"),
    "split in another number": (lambda: tf.split(X, [1, 1], num=3), INVALID, "2 sizes.*3"),
    "slice beyond the end": (lambda: tf.slice(X, [0, 0], [3, 1]), INVALID, r"axis 0 from 0 with size 3"),
    "slice of another rank": (lambda: tf.slice(X, [0], [1]), INVALID, "`begin`.*1"),
    "strided_slice of other lengths": (lambda: tf.strided_slice(X, [0], [1, 2]), INVALID, "1, 2 and 1"),
    # picking and placing
    "gather beyond the end": (lambda: tf.gather(X, [0, 5]), INVALID, r"5.*\[0, 2\)"),
    "gather before the start": (lambda: tf.gather(X, -1), INVALID, r"-1.*\[0, 2\)"),
    "gather by fractions": (lambda: tf.gather(X, 1.0), INVALID, "integer indices.*float"),
    "gather of an axis that is not there": (lambda: tf.gather(X, 0, axis=4), INVALID, "`axis` 4"),
    "gather_nd beyond the end": (lambda: tf.gather_nd(X, [[5, 0]]), INVALID, r"\[5, 0\].*\(2, 3\)"),
    "gather_nd too deep": (lambda: tf.gather_nd(X, [[0, 0, 0]]), INVALID, r"3 positions.*\(2, 3\)"),
    "embedding_lookup beyond the end": (lambda: tf.nn.embedding_lookup(X, [7]), INVALID, r"7.*\[0, 2\)"),
    "scatter_nd beyond the end": (lambda: tf.scatter_nd([[5]], [1.0], [3]), INVALID, r"\[5\].*\(3,\)"),
    "scatter_nd of other updates": (lambda: tf.scatter_nd([[1]], [1.0, 2.0], [3]), INVALID, r"\(1,\).*\(2,\)"),
    "boolean_mask of another shape": (lambda: tf.boolean_mask(X, [True]), ValueError, r"\(2,\).*\(1,\)"),
    "boolean_mask by numbers": (lambda: tf.boolean_mask(X, [1, 0]), TypeError, "bool mask.*int32"),
    "where with one choice": (lambda: tf.where(X > 0, X), ValueError, "both `x` and `y`"),
    "where by numbers": (lambda: tf.where(X, X, X), INVALID, "bool condition.*float32"),
    "where of other dtypes": (lambda: tf.where(X > 0, X, WIDE), INVALID, "float.*double"),
    # reductions and rows
    "reduce over an axis that is not there": (lambda: tf.reduce_sum(X, axis=2), INVALID, r"`axis` 2.*\[-2, 2\)"),
    "reduce over an axis twice": (lambda: tf.reduce_sum(X, axis=[0, -2]), INVALID, "twice"),
    "reduce over a name": (lambda: tf.reduce_sum(X, axis="a"), TypeError, "`axis`.*'a'"),
    "reduce_all of numbers": (lambda: tf.reduce_all(X), INVALID, r"`reduce_all`.*float.*bool"),
    "argmax along an axis that is not there": (lambda: tf.argmax(X, axis=3), INVALID, "`axis` 3"),
    "argmax of nothing": (lambda: tf.argmax(tf.zeros([0, 3])), INVALID, r"`argmax`.*\(0, 3\)"),
    "cumsum along an axis that is not there": (lambda: tf.cumsum(X, axis=3), INVALID, "`axis` 3"),
    "norm of an unknown order": (lambda: tf.norm(X, ord="nuc"), ValueError, "`ord`.*'nuc'"),
    "softmax of integers": (lambda: tf.nn.softmax([1, 2]), INVALID, r"`softmax`.*int32.*tf\.cast"),
    "softmax of a scalar": (lambda: tf.nn.softmax(1.0), INVALID, "`axis` -1"),
    "cross-entropy of other shapes": (
        lambda: tf.nn.softmax_cross_entropy_with_logits(labels=tf.ones([2, 2]), logits=X),
        INVALID,
        r"\(2, 2\).*\(2, 3\)",
    ),
    "sparse cross-entropy of a label too large": (
        lambda: tf.nn.sparse_softmax_cross_entropy_with_logits(labels=[0, 5], logits=X),
        INVALID,
        r"5.*\[0, 3\)",
    ),
    "sparse cross-entropy of fractions": (
        lambda: tf.nn.sparse_softmax_cross_entropy_with_logits(labels=[0.0, 1.0], logits=X),
        INVALID,
        "integer labels.*float32",
    ),
    "sigmoid cross-entropy of other shapes": (
        lambda: tf.nn.sigmoid_cross_entropy_with_logits(labels=tf.ones([2]), logits=X),
        ValueError,
        r"\(2, 3\).*\(2,\)",
    ),
    "bias_add of another size": (lambda: tf.nn.bias_add(X, tf.ones([2])), INVALID, r"size 3.*\(2,\)"),
    "bias_add to a vector": (lambda: tf.nn.bias_add([1.0], [1.0]), INVALID, r"two or more.*\(1,\)"),
    # elementwise
    "shapes that do not broadcast": (lambda: tf.add(X, tf.ones([4])), INVALID, r"\(2, 3\) vs\. \(4,\)"),
    "other dtypes": (lambda: tf.multiply(X, WIDE), INVALID, r"float.*double.*tf\.cast"),
    "a root of integers": (lambda: tf.sqrt([1, 2]), INVALID, r"`sqrt`.*int32.*tf\.cast"),
    "a logarithm of text": (lambda: tf.math.log("a"), INVALID, "`log`.*string"),
    "logic of numbers": (lambda: tf.logical_and(1, 2), INVALID, "`logical_and`.*int32.*bool"),
    "nothing": (lambda: tf.exp(None), ValueError, "None"),
    "a negative power of integers": (lambda: tf.pow(tf.constant(2), tf.constant(-1)), INVALID, "`pow`.*negative"),
    "a cast of text": (lambda: tf.cast("a", tf.float32), INVALID, "string.*float"),
    "a cast to what there is not": (lambda: tf.cast(X, "nope"), TypeError, "'nope'.*float32"),
    "clipping by other shapes": (lambda: tf.clip_by_value(X, tf.ones([4]), 2.0), INVALID, r"\(2, 3\) vs\. \(4,\)"),
    "complex of halves": (lambda: tf.complex(tf.ones([1], tf.float16), tf.ones([1], tf.float16)), TypeError, "float16"),
    "complex of two dtypes": (lambda: tf.complex(1.0, tf.ones([], tf.float64)), TypeError, "float32 float64"),
    "complex of integers": (lambda: tf.complex(1, 2), TypeError, "int32"),
    "add_n of nothing": (lambda: tf.add_n([]), ValueError, "non-empty list"),
    "add_n of other shapes": (lambda: tf.add_n([X, tf.ones([2])]), INVALID, r"\(2, 3\).*\(2,\)"),
    # products
    "matmul of sizes that do not meet": (lambda: tf.matmul(X, X), INVALID, r"\(2, 3\) vs\. \(2, 3\).*inner"),
    "matmul of a vector": (lambda: tf.matmul(tf.ones([3]), X), INVALID, r"`a` with shape \(3,\).*matvec"),
    "matmul of other dtypes": (lambda: tf.matmul(X, tf.transpose(WIDE)), INVALID, "float.*double"),
    "matmul of batches that do not broadcast": (
        lambda: tf.matmul(tf.ones([2, 2, 3]), tf.ones([3, 3, 2])),
        INVALID,
        r"\(2, 2, 3\) vs\. \(3, 3, 2\)",
    ),
    "matmul transposed and adjoint": (lambda: tf.matmul(X, X, True, adjoint_a=True), ValueError, "not both"),
    "einsum of another number": (lambda: tf.einsum("ij,jk->ik", X), ValueError, "1 operands.*names 2"),
    "einsum of another rank": (lambda: tf.einsum("ijk->i", X), INVALID, r"`ijk->i`.*\(2, 3\)"),
    "einsum of other sizes": (lambda: tf.einsum("ij,ij->", X, tf.ones([3, 2])), INVALID, r"\(2, 3\), \(3, 2\).*`i`"),
    "einsum with an unknown result": (lambda: tf.einsum("ij->ik", X), ValueError, "`ik`"),
    "einsum with signs": (lambda: tf.einsum("i$->i", X), ValueError, r"\['\$'\]"),
    "einsum with two ellipses": (lambda: tf.einsum("...i...->i", X), ValueError, "einsum"),
    "tensordot of sizes that do not meet": (lambda: tf.tensordot(X, X, 1), INVALID, r"\(2, 3\) vs\. \(2, 3\)"),
    "tensordot over too many axes": (lambda: tf.tensordot(X, X, 3), ValueError, "3 axes.*2 and 2"),
    "tensordot over other numbers of axes": (lambda: tf.tensordot(X, X, [[0], [0, 1]]), ValueError, r"\[0\].*\[0, 1\]"),
}


LOOKED_AT = "sparse cross-entropy of a label too large"
HOST = pytest.mark.host("nobody waits for a device to find out what its labels are")


@pytest.mark.parametrize("what", [pytest.param(w, marks=HOST) if w == LOOKED_AT else w for w in WRONG])
def test_wrong_arguments(what: str) -> None:
    f, kind, words = WRONG[what]
    with pytest.raises(kind, match=words) as caught:
        f()
    assert "Traceback" not in str(caught.value)
    if kind is INVALID:
        assert caught.value.message == str(caught.value)
    # and a tape on which it happens is none the worse
    x = tf.Variable(2.0)
    with tf.GradientTape() as tape:
        y = x * x
        with pytest.raises(kind):
            f()
    assert float(tape.gradient(y, x)) == 4.0


def test_errors_are_of_one_family() -> None:
    for name in ("InvalidArgumentError", "UnimplementedError", "ResourceExhaustedError", "NotFoundError"):
        assert issubclass(getattr(tf.errors, name), tf.errors.OpError)
    assert issubclass(tf.errors.OpError, Exception)
