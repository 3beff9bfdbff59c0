"""Many small kernels as one function: a table says which runs next and where its operands lie, so that what is compiled
is as long as there are different kernels, however often they run. Floor: kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gradtape.ir.cluster import Cluster
from gradtape.ir.dtypes import DType
from gradtape.kernels.arguments import Array, Parameter
from gradtape.kernels.kernel import Kernel
from gradtape.kernels.render import render

Place = tuple[DType, int]  # where a value lies: the dtype of its workspace, and the first element there


@dataclass
class Layout:
    """How a kernel's arguments are read from its line of the table."""

    name: str
    kernel: Kernel
    reads: tuple[DType, ...]

    def call(self) -> str:
        """The call as text; `t` is the line."""
        words = [f"t[{j}]" for j in range(1, self.length)]
        at = iter(words)
        kernel = self.kernel
        arguments = [
            *(f"{_space(w.access.dtype)}[{next(at)} :]" for w in kernel.writes),
            *(f"{_space(self.reads[k])}[{next(at)} :]" for k in kernel.arrays),
            *(f"{_space(self.reads[k])}[{next(at)}]" for k in kernel.scalars),
            *(f"{d.name}(numbers[{next(at)}])" for _, d in kernel.numbers),
            *at,
        ]
        call = f"{self.name}@({', '.join(arguments)})"
        return f"far |= {call}" if kernel.limited else call

    @property
    def length(self) -> int:
        """Words of a line: the kernel's number, and its arguments."""
        k = self.kernel
        return 3 + len(k.writes) + len(k.arrays) + len(k.scalars) + len(k.numbers) + len(k.integers)


def _space(dtype: DType) -> str:
    return f"s_{dtype.name}"


@dataclass
class Program:
    """Kernels in the making of one function. `add` them in order; `source` compiles to a function of the workspaces
    (in the order of `spaces`), the table and the numbers, which answers whether an operand was beyond a limit."""

    anywhere: bool = False
    layouts: dict[tuple[str, tuple[DType, ...]], Layout] = field(default_factory=dict)
    lines: list[list[int]] = field(default_factory=list)
    numbers: list[float] = field(default_factory=list)
    spaces: dict[DType, None] = field(default_factory=dict)

    def add(self, cluster: Cluster, writes: Sequence[Place], reads: Sequence[Place]) -> None:
        """Run a cluster whose results and reads lie at these places."""
        kernel = render(cluster, self.anywhere)
        dtypes = tuple(r.access.dtype for r in cluster.reads)
        words = (*dtypes, *(w.access.dtype for w in kernel.writes), *(d for _, d in kernel.numbers))
        key = (kernel.text, words)
        if key not in self.layouts:
            self.layouts[key] = Layout(f"k{len(self.layouts)}", kernel, dtypes)
        self.spaces.update(dict.fromkeys(d for d, _ in (*writes, *reads)))
        extent = 1 if kernel.split is None else cluster.loops[kernel.split].extent
        self.lines.append(
            [
                list(self.layouts).index(key),
                *(at for _, at in writes),
                *(reads[k][1] for k in (*kernel.arrays, *kernel.scalars)),
                *(self._number(value) for value, _ in kernel.numbers),
                *kernel.integers,
                0,
                extent,
            ]
        )

    def _number(self, value: Any) -> int:
        self.numbers.append(float(value))
        return len(self.numbers) - 1

    def table(self) -> Any:
        width = max(map(len, self.lines))
        table = np.zeros((len(self.lines), width), np.int64)
        for row, line in zip(table, self.lines, strict=True):
            row[: len(line)] = line
        return table

    def source(self) -> ProgramSource:
        texts = []
        branches = []
        for k, layout in enumerate(self.layouts.values()):
            texts.append("@inner\n" + layout.kernel.text.replace("def kernel@(", f"def {layout.name}@(", 1))
            branches += [f"        {'elif' if k else 'if'} t[0] == {k}:", f"            {layout.call()}"]
        head = f"def kernel@({', '.join([*map(_space, self.spaces), 'table', 'numbers'])}):"
        body = ["    far = False", "    for p in range(table.shape[0]):", "        t = table[p]", *branches]
        return ProgramSource("\n\n\n".join([*texts, "\n".join([head, *body, "    return far"])]), tuple(self.spaces))


@dataclass(frozen=True)
class ProgramSource:
    """The text of a program, and the dtypes of its workspaces."""

    text: str
    spaces: tuple[DType, ...]
    vectors = 0

    @property
    def answer(self) -> np.dtype[Any]:
        return np.dtype(bool)

    @property
    def parameters(self) -> Sequence[Parameter]:
        spaces = (Array(d.numpy_dtype, written=True) for d in self.spaces)
        return *spaces, Array(np.dtype(np.int64), 2), Array(np.dtype(np.float64))
