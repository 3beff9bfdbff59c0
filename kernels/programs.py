"""Many small kernels as one function: a table says which runs next and where its operands lie, so that what is compiled
is as long as there are different kernels, however often they run. Floor: kernels.

Values lie in workspaces, one for each dtype. Where a value lies is said by a *register*, an integer that lines of the
table name: most never change, those of what a loop walks through advance, those of what it carries change places. Lines
that are no kernels (`kernels.jumps`) jump and change registers; so branches and loops stay in the function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gradtape.ir.cluster import Cluster
from gradtape.ir.dtypes import DType
from gradtape.kernels.arguments import Array, Parameter
from gradtape.kernels.jumps import DONE, FAR, JUMPS, LEAD, spaces_of
from gradtape.kernels.kernel import Kernel
from gradtape.kernels.render import render

Place = tuple[DType, int]  # where a value lies: the dtype of its workspace, and the register of its first element


@dataclass
class Layout:
    """How a kernel's arguments are read from its line of the table."""

    name: str
    kernel: Kernel
    reads: tuple[DType, ...]

    def call(self, place: str) -> list[str]:
        """The call as text; `t` is the line, `place` how one of its words says where a value lies."""
        words = [f"t[{j}]" for j in range(1, self.length)]
        at = iter(words)
        kernel = self.kernel
        arguments = [
            *(f"{_space(w.access.dtype)}[{place.format(next(at))} :]" for w in kernel.writes),
            *(f"{_space(self.reads[k])}[{place.format(next(at))} :]" for k in kernel.arrays),
            *(f"{_space(self.reads[k])}[{place.format(next(at))}]" for k in kernel.scalars),
            *(f"{d.name}(numbers[{next(at)}])" for _, d in kernel.numbers),
            *at,
        ]
        call = f"{self.name}@({', '.join(arguments)})"
        return [f"if {call}:", f"    return {FAR}"] if kernel.limited else [call]

    @property
    def places(self) -> int:
        """How many of the words after the first are places."""
        k = self.kernel
        return len(k.writes) + len(k.arrays) + len(k.scalars)

    @property
    def length(self) -> int:
        """Words of a line: the kernel's number, and its arguments."""
        return 3 + self.places + len(self.kernel.numbers) + len(self.kernel.integers)


def _space(dtype: DType) -> str:
    return f"s_{dtype.name}"


@dataclass
class Program:
    """Lines in the making of one function: `add` kernels and `jump` between them, in order. `source` compiles to a
    function of the workspaces (in the order of `spaces`), the table, the numbers and the registers. It answers why it
    ended; the first register says with which line it goes on."""

    anywhere: bool = False
    layouts: dict[tuple[str, tuple[DType, ...]], Layout] = field(default_factory=dict)
    lines: list[list[int]] = field(default_factory=list)
    numbers: list[float] = field(default_factory=list)
    spaces: dict[DType, None] = field(default_factory=dict)
    jumps: set[str] = field(default_factory=set)
    rendered: dict[int, tuple[Cluster, Kernel, int]] = field(default_factory=dict)  # by id; with the layout's number

    def add(self, cluster: Cluster, writes: Sequence[Place], reads: Sequence[Place]) -> None:
        """Run a cluster whose results and reads lie at these places."""
        if id(cluster) not in self.rendered:
            self.rendered[id(cluster)] = cluster, *self._rendered(cluster)
        _, kernel, number = self.rendered[id(cluster)]
        self.spaces.update(dict.fromkeys(d for d, _ in (*writes, *reads)))
        extent = 1 if kernel.split is None else cluster.loops[kernel.split].extent
        self.lines.append(
            [
                number,
                *(at for _, at in writes),
                *(reads[k][1] for k in (*kernel.arrays, *kernel.scalars)),
                *(self._number(value) for value, _ in kernel.numbers),
                *kernel.integers,
                0,
                extent,
            ]
        )

    def _rendered(self, cluster: Cluster) -> tuple[Kernel, int]:
        """The kernel of a cluster, and which of the functions it is."""
        kernel = render(cluster, self.anywhere)
        dtypes = tuple(r.access.dtype for r in cluster.reads)
        words = (*dtypes, *(w.access.dtype for w in kernel.writes), *(d for _, d in kernel.numbers))
        key = (kernel.text, words)
        if key not in self.layouts:
            self.layouts[key] = Layout(f"k{len(self.layouts)}", kernel, dtypes)
        return kernel, list(self.layouts).index(key)

    def jump(self, name: str, *words: int) -> int:
        """A line that is no kernel. Which one it is: `aim` says later where it jumps to."""
        assert len(words) == JUMPS[name].words
        self.jumps.add(name)
        self.spaces.update(dict.fromkeys(spaces_of(name)))
        self.lines.append([-1 - list(JUMPS).index(name), *words])
        return len(self.lines) - 1

    def aim(self, line: int) -> None:
        """A line jumps to the next one that is added."""
        self.lines[line][-1] = len(self.lines)

    def _number(self, value: Any) -> int:
        self.numbers.append(float(value))
        return len(self.numbers) - 1

    def table(self, registers: Sequence[int]) -> Any:
        """The lines. In a straight program they have the places themselves, which the registers say."""
        width = max(map(len, self.lines))
        table = np.zeros((len(self.lines), width), np.int64)
        layouts = list(self.layouts.values())
        for row, line in zip(table, self.lines, strict=True):
            row[: len(line)] = line
            if not self.jumps:
                last = 1 + layouts[line[0]].places
                row[1:last] = [registers[r] for r in line[1:last]]
        return table

    def source(self) -> ProgramSource:
        texts = []
        cases: list[tuple[int, list[str]]] = []
        place = "at[{}]" if self.jumps else "{}"
        for k, layout in enumerate(self.layouts.values()):
            texts.append("@inner\n" + layout.kernel.text.replace("def kernel@(", f"def {layout.name}@(", 1))
            cases.append((k, layout.call(place)))
        cases += [(-1 - k, list(JUMPS[n].lines)) for k, n in enumerate(JUMPS) if n in self.jumps]
        branches = []
        for k, (number, lines) in enumerate(cases):
            branches += [f"        {'elif' if k else 'if'} t[0] == {number}:", *(f"            {x}" for x in lines)]
        head = f"def kernel@({', '.join([*map(_space, self.spaces), 'table', 'numbers', 'at'])}):"
        body = [*LEAD, "    while p < table.shape[0]:", "        t = table[p]", "        p += 1", *branches]
        text = "\n".join([head, *body, f"    return {DONE}"])
        return ProgramSource("\n\n\n".join([*texts, text]), tuple(self.spaces))


@dataclass(frozen=True)
class ProgramSource:
    """The text of a program, and the dtypes of its workspaces."""

    text: str
    spaces: tuple[DType, ...]
    vectors = 0
    streamed = False

    @property
    def answer(self) -> np.dtype[Any]:
        return np.dtype(np.int64)

    @property
    def parameters(self) -> Sequence[Parameter]:
        spaces = (Array(d.numpy_dtype, written=True) for d in self.spaces)
        integers = np.dtype(np.int64)
        return *spaces, Array(integers, 2), Array(np.dtype(np.float64)), Array(integers, written=True)
