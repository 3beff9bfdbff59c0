"""Random words and moments of gamma distributions as CUDA kernels. Floor: kernels."""

from __future__ import annotations

from gradtape.ir.dtypes import DType, float64, int32, uint32, uint64
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
