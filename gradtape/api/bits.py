"""Integers bit by bit. Floor: api."""

from __future__ import annotations

from gradtape.api.declared import doctests, of_one, of_two
from gradtape.ops import bits as b

bitwise_and = of_two("bitwise_and", b.BITWISE_AND, "tf.bitwise.bitwise_and([12, 10], 6)", "[4 2]")
bitwise_or = of_two("bitwise_or", b.BITWISE_OR, "tf.bitwise.bitwise_or([12, 10], 6)", "[14 14]")
bitwise_xor = of_two("bitwise_xor", b.BITWISE_XOR, "tf.bitwise.bitwise_xor([12, 10], 6)", "[10 12]")
invert = of_one("invert", b.INVERT, "tf.bitwise.invert([0, 5])", "[-1 -6]")
left_shift = of_two("left_shift", b.LEFT_SHIFT, "tf.bitwise.left_shift([1, 5], 2)", "[ 4 20]")
right_shift = of_two("right_shift", b.RIGHT_SHIFT, "tf.bitwise.right_shift([8, -8], 2)", "[ 2 -2]")

__all__ = ["bitwise_and", "bitwise_or", "bitwise_xor", "invert", "left_shift", "right_shift"]

__test__ = doctests(globals())
