"""Rows, slices and concatenations in programs of small arrays: lines that say where a part of an array lies, and
clusters that copy it. Floor: backends.

A part that lies together is read where it is. Positions that do not exist end the program: the graph runs op by op
then, and says what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from gradtape.ir.aval import Aval
from gradtape.ir.cluster import Access, Cluster, Loop, Operation, Read, Write, collapsed
from gradtape.ir.dtypes import DType, int32, int64
from gradtape.ir.graph import Node, Value
from gradtape.kernels.programs import Place, Program
from gradtape.ops.layout import CONCAT, PAD, SLICE, UNSLICE
from gradtape.ops.row_updates import SET_ROW, is_of_rows, is_row_alone


class Block(Protocol):
    """What is asked of a graph in the making of its lines. `over`: ids of nodes that write to their first operand;
    `changing`: of values in whose memory that happens; `places`: by id, where values lie."""

    program: Program
    over: set[int]
    changing: set[int]
    places: dict[int, Place]

    def at(self, v: Value) -> Place: ...

    def made(self, v: Value) -> Place: ...

    def bring(self, v: Value, target: Place) -> None: ...

    def register(self) -> int: ...


def is_moved(node: Node) -> bool:
    """Whether this is one of those nodes, with positions that programs read."""
    op, p = node.step.op, node.step.params
    if op in (SLICE, UNSLICE) and min(p["strides"], default=1) < 1:
        return False
    if not all(v.aval.is_known and v.aval.size for v in (*node.inputs, *node.outputs)):
        return False
    if is_of_rows(node) or is_row_alone(node) or op in (SLICE, UNSLICE):
        return node.inputs[-1].aval.dtype in (int32, int64)
    return op is CONCAT or (op is PAD and min(*p["low"], *p["high"]) >= 0)


def lines_of(block: Block, node: Node) -> None:
    """The lines of such a node."""
    if node.step.op is SET_ROW:
        _set_row(block, node)
    elif is_of_rows(node):
        x, position = node.inputs
        n, size = x.aval.dims[0], x.aval.size // x.aval.dims[0]
        _taken(
            block, node, _stepped(block, block.at(x), position, 0, (0, n), size), (1,) * len(node.outputs[0].aval.dims)
        )
    else:
        _RULES[node.step.op.name](block, node)


def copying(aval: Aval) -> Cluster:
    """A cluster that writes what it reads."""
    return _copying((aval.size,), aval.dtype, (1,), (1,))


def _copying(dims: Sequence[int], dtype: DType, read: Sequence[int], write: Sequence[int]) -> Cluster:
    """The same for arrays that are walked through in steps."""
    loops = tuple(Loop(n, False) for n in dims)
    writes = (Write(0, Access(dtype, tuple(write)), (True,) * len(loops)),)
    return collapsed(Cluster(loops, (Read(0, Access(dtype, tuple(read))),), (Operation("read", (), dtype, 0),), writes))


def _zeroing(aval: Aval) -> Cluster:
    write = Write(0, Access(aval.dtype, (1,)), (True,))
    number = Operation("number", (), aval.dtype, 0)
    return collapsed(Cluster((Loop(aval.size, False),), (), (number,), (write,)))


def _steps(dims: Sequence[int]) -> list[int]:
    """How far it is from one element to the next along each axis."""
    found, step = [], 1
    for n in reversed(dims):
        found.append(step)
        step *= n
    return found[::-1]


def _stepped(block: Block, base: Place, positions: Value, which: int, bounds: tuple[int, int], step: int) -> Place:
    """A place that many steps behind another one as a number among positions says, which must be within bounds."""
    row = block.register()
    word = "step32" if positions.aval.dtype is int32 else "step64"
    block.program.jump(word, row, base[1], block.at(positions)[1], which, *bounds, step)
    return base[0], row


def _shifted(block: Block, base: Place, by: int) -> Place:
    if not by:
        return base
    row = block.register()
    block.program.jump("shift", row, base[1], by)
    return base[0], row


def _taken(block: Block, node: Node, source: Place, strides: Sequence[int]) -> None:
    """The result of a node is what lies from there on, in such steps along its axes."""
    x, (out,) = node.inputs[0], node.outputs
    own = _steps(x.aval.dims)[len(x.aval.dims) - len(out.aval.dims) :]
    read = [a * b for a, b in zip(own, strides, strict=True)]
    write = _steps(out.aval.dims)
    together = all(r == w or n == 1 for r, w, n in zip(read, write, out.aval.dims, strict=True))
    if together and id(x) not in block.changing and id(out) not in block.places:
        block.places[id(out)] = source
    else:
        block.program.add(_copying(out.aval.dims, out.aval.dtype, read, write), [block.made(out)], [source])


def _put(block: Block, part: Value, target: Place, whole: Sequence[int], strides: Sequence[int]) -> None:
    """Write a value from there on into an array with these axes."""
    write = [a * b for a, b in zip(_steps(whole), strides, strict=True)]
    dims = part.aval.dims
    block.program.add(_copying(dims, part.aval.dtype, _steps(dims), write), [target], [block.at(part)])


def _set_row(block: Block, node: Node) -> None:
    (x, row, position), (out,) = node.inputs, node.outputs
    if id(node) in block.over:
        block.places[id(out)] = block.at(x)
    else:
        block.bring(x, block.made(out))
    n, size = x.aval.dims[0], row.aval.size
    target = _stepped(block, block.at(out), position, 0, (0, n), size)
    block.program.add(copying(row.aval), [target], [block.at(row)])


def _row_alone(block: Block, node: Node) -> None:
    (row, position), (out,) = node.inputs, node.outputs
    block.program.add(_zeroing(out.aval), [block.made(out)], [])
    target = _stepped(block, block.at(out), position, 0, (0, out.aval.dims[0]), row.aval.size)
    block.program.add(copying(row.aval), [target], [block.at(row)])


def _cut(block: Block, node: Node, place: Place, whole: Sequence[int], part: Sequence[int]) -> tuple[Place, list[int]]:
    """Where a slice begins in an array with these axes, and its strides along all of them."""
    p, steps, strides = node.step.params, _steps(whole), [1] * len(whole)
    for which, (axis, stride) in enumerate(zip(p["axes"], p["strides"], strict=True)):
        bounds = 0, whole[axis] - (part[axis] - 1) * stride
        place = _stepped(block, place, node.inputs[1], which, bounds, steps[axis])
        strides[axis] = stride
    return place, strides


def _slice(block: Block, node: Node) -> None:
    x, (out,) = node.inputs[0], node.outputs
    _taken(block, node, *_cut(block, node, block.at(x), x.aval.dims, out.aval.dims))


def _unslice(block: Block, node: Node) -> None:
    part, (out,) = node.inputs[0], node.outputs
    block.program.add(_zeroing(out.aval), [block.made(out)], [])
    target, strides = _cut(block, node, block.at(out), out.aval.dims, part.aval.dims)
    _put(block, part, target, out.aval.dims, strides)


def _pad(block: Block, node: Node) -> None:
    (x,), (out,) = node.inputs, node.outputs
    block.program.add(_zeroing(out.aval), [block.made(out)], [])
    by = sum(a * b for a, b in zip(node.step.params["low"], _steps(out.aval.dims), strict=True))
    _put(block, x, _shifted(block, block.at(out), by), out.aval.dims, [1] * len(x.aval.dims))


def _concat(block: Block, node: Node) -> None:
    (out,), axis = node.outputs, node.step.params["axis"]
    whole, by = block.made(out), 0
    for part in node.inputs:
        _put(block, part, _shifted(block, whole, by), out.aval.dims, [1] * len(part.aval.dims))
        by += part.aval.dims[axis] * _steps(out.aval.dims)[axis]


_RULES: dict[str, Callable[[Block, Node], None]] = {
    "slice": _slice,
    "unslice": _unslice,
    "pad": _pad,
    "concat": _concat,
    "scatter_add": _row_alone,
    "scatter_rows": _row_alone,
}
