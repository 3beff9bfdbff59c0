"""Jacobians in chunks of rows as a loop of the graph that is being traced. Floor: runtime."""

from __future__ import annotations

from typing import Any

from gradtape.ir.dtypes import int64
from gradtape.ops.arithmetic import ADD, CAST, MULTIPLY
from gradtape.ops.comparison import LESS
from gradtape.ops.layout import BROADCAST_TO, RESHAPE
from gradtape.ops.row_updates import SET_ROW
from gradtape.runtime.chunks import Chunking, ChunkProgram, chunk_program, chunks_of
from gradtape.runtime.control import while_loop
from gradtape.runtime.convert import convert
from gradtape.runtime.dispatch import binary, execute, unary
from gradtape.runtime.record import Recorder
from gradtape.runtime.subscript import positions
from gradtape.runtime.tensor import NoPartsError, Tensor


def chunks_in_loop(recorder: Recorder, target: Any, source: Any, mode: str, how: Chunking) -> Tensor | None:
    """A dense Jacobian by a loop over chunks of rows, each of which is written to its place; None where the target does
    not depend on the source.

    Raises:
      NoPartsError: chunks that do not lie one behind the other in the result, or that have less structure than the
        whole, so that what cannot be reached must be told from what is not finite."""
    program = chunk_program(recorder, target, source, mode)
    if program.backward.pulled[0] is None:
        return None
    extent = target._aval.dims[program.axis] if target._aval.dims else 1
    count, _ = chunks_of(program, target, source, how)
    if count == extent:
        return _chunk(program, recorder, count, positions((0,)))
    count = max((c for c in range(-(-count // 2), count + 1) if extent % c == 0), default=0)
    if program.axis or not count or not program.keeps_structure(count):
        raise NoPartsError(
            "`memory` in a function that is traced is for Jacobians whose rows go along the first axis of the target, "
            f"in equal parts; here they go along axis {program.axis}, which has {extent} elements. Leave it out, or "
            "ask outside of functions that are traced."
        )
    return _placed(program, recorder, target, source, count)


def _chunk(program: ChunkProgram, recorder: Recorder, count: int, begin: Tensor) -> Tensor:
    reads, compiled, _ = program.plan(count)
    (block,) = compiled([*reads.tensors(recorder.saved), begin])
    return block


def _placed(program: ChunkProgram, recorder: Recorder, target: Any, source: Any, count: int) -> Tensor:
    """The chunks of so many positions. The array begins as one zero, repeated, which the loop writes out: there is
    never a second one."""
    (extent, *rest), of, dtype = target._aval.dims, source._aval.dims, source._aval.dtype
    rounds = extent // count

    def test(now: list[Tensor]) -> list[Tensor]:
        return [binary(LESS.bind(), now[0], convert(rounds))]

    def body(now: list[Tensor]) -> list[Tensor]:
        k, found = now
        begin = binary(MULTIPLY.bind(), unary(CAST.bind(dtype=int64), k), convert(count, int64))
        block = _chunk(program, recorder, count, unary(RESHAPE.bind(shape=(1,)), begin))
        new: Tensor = execute(SET_ROW.bind(over=False), (found, block, k))
        return [binary(ADD.bind(), k, convert(1)), new]

    start = unary(BROADCAST_TO.bind(shape=(rounds, count, *rest, *of)), convert(0, dtype))
    found = while_loop(test, body, [convert(0), start])[1]
    return unary(RESHAPE.bind(shape=(extent, *rest, *of)), found)
