"""Random words, numbers drawn by rejection and moments of gamma distributions as CUDA kernels. Floor: kernels."""

from __future__ import annotations

from collections.abc import Sequence

from gradtape.ir.dtypes import DType, float64, int32, int64, uint32, uint64
from gradtape.kernels.cuda_entry import ROOMY, Given, blocks_for, entry, integers, program, reach, read, written
from gradtape.kernels.cuda_launch import CudaProgram, Number

WORDS = 4  # of a block of the generator


def bits(size: int) -> CudaProgram:
    """Random words from a key and a counter, the operand."""
    blocks = blocks_for(-(-size // WORDS))
    given = [
        written("out", "uint32"),
        read("state", "uint64", 0),
        *integers(reach(size, blocks, WORDS), size=size),
    ]
    comment = ["// The words of blocks 0, 1, 2, ... under the key state[0] and the counter state[1]"]
    moved = size * uint32.size + 2 * uint64.size
    lines = ["fill_with_bits(out, state, size);"]
    return program([entry("random_bits", ("drawing.cuh",), given, lines, blocks, moved, comment, ROOMY)])


def advanced(rows: int, by: int) -> CudaProgram:
    """The states of generators `by` draws later, modulo 2¹²⁸, and the sources of the draws at them."""
    blocks = blocks_for(rows)
    given = [
        written("after", "int64", 0),
        written("sources", "uint64", 1),
        read("states", "int64", 0),
        *integers(uint64, by_low=by & (1 << 64) - 1, by_high=by >> 64),
        *integers(reach(3 * rows, blocks, 3), size=rows),
    ]
    comment = ["// States that go on, and the keys and counters of what is drawn at them"]
    lines = ["advance(after, sources, states, by_low, by_high, size);"]
    moved = rows * (6 * int64.size + 2 * uint64.size)
    return program([entry("random_next", ("drawing.cuh",), given, lines, blocks, moved, comment)])


def sources_of(rows: int, purpose: int, more: int) -> CudaProgram:
    """Sources for seeds; operands: the seeds, and `more` further numbers for each, one after the other for all."""
    blocks = blocks_for(rows)
    size = rows * max(2, more)
    given = [
        written("sources", "uint64", 0),
        read("seeds", "int64", 0),
        read("data", "int64", 1),
        *integers(uint64, purpose=purpose),
        *integers(int32, count=more),
        *integers(reach(size, blocks, max(2, more)), size=rows),
    ]
    comment = ["// Keys made of seeds, a purpose and further numbers"]
    lines = ["mix_seeds(sources, seeds, data, purpose, count, size);"]
    moved = rows * ((2 + more) * int64.size + 2 * uint64.size)
    return program([entry("random_source", ("drawing.cuh",), given, lines, blocks, moved, comment)])


def integers_between(dtype: DType, size: int, low: int, span: int, limit: int) -> CudaProgram:
    """Integers from `low` on, `span` of them, by words below `limit`; all three modulo 2⁶⁴."""
    numbers = integers(uint64, low=low, span=span, limit=limit)
    lines = ["fill_with_integers(out, state, low, span, limit, size);"]
    return _drawn("random_integers", dtype, size, numbers, lines, 0)


def truncated_normals(dtype: DType, size: int) -> CudaProgram:
    """Standard normal numbers of at most two deviations."""
    return _drawn("random_truncated_normal", dtype, size, [], ["fill_with_truncated_normals(out, state, size);"], 0)


def gamma_numbers(dtype: DType, size: int) -> CudaProgram:
    """Gamma-distributed numbers; operands: the state, and α for each."""
    lines = ["fill_with_gamma_numbers(out, state, alpha, size);"]
    return _drawn("random_gamma", dtype, size, [read("alpha", dtype.name, 1)], lines, size * dtype.size)


def counts(dtype: DType, size: int, rate: DType) -> CudaProgram:
    """Poisson-distributed counts; operands: the state, and λ for each."""
    lines = ["fill_with_counts(out, state, rates, size);"]
    return _drawn("random_poisson", dtype, size, [read("rates", rate.name, 1)], lines, size * rate.size)


def _drawn(name: str, dtype: DType, size: int, given: Sequence[Given], lines: Sequence[str], moved: int) -> CudaProgram:
    """A draw, whose first operand is a key and a counter; `moved`: bytes of the others."""
    blocks = blocks_for(size)
    every = [
        written("out", dtype.name),
        read("state", "uint64", 0),
        *given,
        *integers(reach(size, blocks), size=size),
    ]
    comment = ["// Each element by words of its own, under keys made of state[0] and state[1]"]
    moved += size * dtype.size + 2 * uint64.size
    return program([entry(name, ("drawing.cuh",), every, lines, blocks, moved, comment, ROOMY)])


def moments(dtype: DType, size: int, order: int, nodes: int, end: float) -> CudaProgram:
    """The moments of the op `gamma_moment`; operands: a, x, and the nodes and weights of a rule."""
    blocks = blocks_for(size)
    given = [
        written("out", dtype.name),
        read("a", dtype.name, 0),
        read("x", dtype.name, 1),
        read("rule", "float64", 2),
        *integers(reach(size, blocks), size=size),
        *integers(int32, nodes=nodes, order=order),
        Given("end", "const float64", Number(end, float64)),
    ]
    comment = ["// The integral of u^order exp(a s u - x (exp(s u) - 1)) over u >= 0, s = 1 where x > a and else -1"]
    moved = 3 * size * dtype.size + 2 * nodes * float64.size
    lines = ["moments(out, a, x, rule, size, nodes, order, end);"]
    return program([entry("gamma_moment", ("drawing.cuh",), given, lines, blocks, moved, comment, ROOMY)])
