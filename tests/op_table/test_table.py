"""The table itself: every op has samples, a kernel, a description and a reference, and none is left out quietly."""

from __future__ import annotations

from collections import Counter

import pytest

from gradtape.backends.cpu import lower
from gradtape.ir.dtypes import complex128, float16, float32, float64
from gradtape.ops.op import Op, all_ops, lookup
from gradtape.ops.samples import Sample, Spec
from tests.op_table.cases import CASES, WITHOUT_SAMPLES, Case, each_op
from tests.op_table.draw_reference import philox
from tests.op_table.tally import Checks, table


def test_every_op_has_samples() -> None:
    bare = {op.name for op in all_ops() if not op.samples}
    assert bare == set(WITHOUT_SAMPLES), f"without samples: {bare - set(WITHOUT_SAMPLES)}"
    assert all(len(reason.split()) > 5 for reason in WITHOUT_SAMPLES.values())
    assert set(CASES) | set(WITHOUT_SAMPLES) == {op.name for op in all_ops()}


@each_op()
def test_declaration(op: Op, checks: Checks) -> None:
    """What an op must say, and that each of its samples is taken in some dtype, a double one where any is free."""
    assert op.doc.endswith("."), f"`{op.name}` has no sentence that describes it"
    assert lookup(op.name) is op
    for case in CASES[op.name]:
        assert callable(lower(case.step))
        taken = case.dtypes()
        assert taken, f"{case} is taken in no dtype"
        if case.takes(float32):
            assert float64 in taken or complex128 in taken, case
        checks()


@each_op(lambda op: any(s.dtype == "float" for s in op.samples[0].specs))
def test_samples_reach_the_corners(op: Op, checks: Checks) -> None:
    """Besides an ordinary sample there is one with an axis of no elements, or of one, or without axes."""
    shapes = [s.shape for case in CASES[op.name] for s in case.sample.specs]
    assert any(0 in shape or 1 in shape or shape == () for shape in shapes), op
    assert any(n > 1 for shape in shapes for n in shape), op
    checks()


def test_drawn_operands_are_equal_in_every_run() -> None:
    case = CASES["add"][0]
    first, second, other = case.draw(float64), case.draw(float64), case.draw(float64, seed=1)
    assert all((a == b).all() for a, b in zip(first, second, strict=True))
    assert any((a != b).any() for a, b in zip(first, other, strict=True))
    assert case.draw(float16)[0].dtype == float16.numpy_dtype


def test_samples_keep_away_from_kinks() -> None:
    op = lookup("abs")
    case = Case(op, Sample((Spec((4000,), (-1.0, 1.0), avoid=(0.0,)),)), "kink")
    assert abs(case.draw(float64)[0]).min() > 0.049


@pytest.mark.parametrize(
    "counter, key, words",
    [
        ([0] * 4, [0] * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_reference_of_random_bits(counter: list[int], key: list[int], words: str) -> None:
    """The reference gives the published answers (Random123's `kat_vectors`, philox4x32 with 10 rounds)."""
    assert [f"{w:08x}" for w in philox(counter, key)] == words.split()


def test_counts_are_printed_in_columns() -> None:
    assert table(Counter(add=3, multiply=12, tanh=1), 30) == ["add 3        tanh 1", "multiply 12"]
