"""Signatures of generalized functions, as NumPy has them: which axes are the core, before which all others are loops.
Floor: ops.

`"(n,m),(m)->(n)"`: names stand for sizes, equal ones for equal sizes; a number is a size."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from gradtape.ir.shapes import shape_text

Dims = tuple[int, ...]
Core = tuple[str | int, ...]
SIDE = re.compile(r"\s*(\([^()]*\)\s*(?:,\s*\([^()]*\)\s*)*)?$")


@dataclass(frozen=True)
class Signature:
    """The core axes of operands and results."""

    operands: tuple[Core, ...]
    results: tuple[Core, ...]

    @property
    def text(self) -> str:
        return "->".join(",".join(f"({','.join(map(str, c))})" for c in s) for s in (self.operands, self.results))

    @property
    def names(self) -> list[str]:
        """The names of its sizes, in the order in which they come."""
        every = [n for core in (*self.operands, *self.results) for n in core if isinstance(n, str)]
        return list(dict.fromkeys(every))

    @property
    def is_elementwise(self) -> bool:
        return not any((*self.operands, *self.results))

    def loops(self, shapes: Sequence[Dims]) -> tuple[Dims, dict[str, int]]:
        """The loop axes that all operands have together, and the sizes of their core axes.

        Raises:
          ValueError: shapes that do not fit, with the reason.
        """
        sizes: dict[str, int] = {}
        outer: list[Dims] = []
        for k, (shape, core) in enumerate(zip(shapes, self.operands, strict=True)):
            if len(shape) < len(core):
                raise ValueError(f"wants {len(core)} axes or more of operand {k}, got shape {shape_text(shape)}")
            outer.append(shape[: len(shape) - len(core)])
            for name, n in zip(core, shape[len(shape) - len(core) :], strict=True):
                want = sizes.setdefault(name, n) if isinstance(name, str) else name
                if want != n:
                    raise ValueError(
                        f"wants size {want} on axis `{name}` of operand {k}, got shape {shape_text(shape)}"
                    )
        return broadcast_loops(outer), sizes


def broadcast_loops(shapes: Sequence[Dims]) -> Dims:
    """The shape to which loop axes broadcast.

    Raises:
      ValueError: they do not.
    """
    rank = max(map(len, shapes), default=0)
    columns = zip(*((1,) * (rank - len(s)) + s for s in shapes), strict=True)
    found = []
    for column in columns:
        longer = {n for n in column if n != 1}
        if len(longer) > 1:
            raise ValueError(f"wants loop axes that broadcast, got {', '.join(map(shape_text, shapes))}")
        found.append(longer.pop() if longer else 1)
    return tuple(found)


def repeated(have: Dims, want: Dims, core: int) -> tuple[int, ...]:
    """The axes of a value along which an operand was repeated, by broadcasting its loop axes."""
    lead = len(have) - len(want)
    return tuple(i for i in range(len(have) - core) if i < lead or (want[i - lead] == 1 and have[i] != 1))


def signature_of(text: str) -> Signature:
    """A signature from its text.

    Raises:
      ValueError: it is none.
    """
    sides = text.split("->") if isinstance(text, str) else []
    if len(sides) != 2 or not all(SIDE.match(s) for s in sides):
        raise ValueError(f"`signature` should look like '(n,m),(m)->(n)', got {text!r}.")
    operands, results = (tuple(_core(c, text) for c in re.findall(r"\(([^()]*)\)", side)) for side in sides)
    if not operands or not results:
        raise ValueError(f"`signature` should have operands and results, got {text!r}.")
    return Signature(operands, results)


def _core(text: str, whole: str) -> Core:
    found: list[str | int] = []
    for part in (p.strip() for p in text.split(",") if p.strip()):
        if not part.isdigit() and not part.isidentifier():
            raise ValueError(f"An axis in `signature` should be a name or a number, got {part!r} in {whole!r}.")
        found.append(int(part) if part.isdigit() else part)
    return tuple(found)
