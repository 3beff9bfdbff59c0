"""Write docs/vectorizer_table.md: what each op does to the structure of rows, measured on its samples.

python tools/vectorizer_table.py           write the page
python tools/vectorizer_table.py --check   fail if the committed page is another one

One axis at a time is seeded: rows over that axis share its letter, all other axes vary freely. What comes out is

  kept      every term still has the letter on a row axis and on an axis of its own
  core      no entry is zero: the op mixes along the axis, sums it away, or the operand does not have it
  expanded  entries that are zero by structure are stored
  looped    the op runs once per row
  refused   the op cannot run for all rows at once
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from gradtape.ir.dtypes import DType, complex128, float64  # noqa: E402
from gradtape.ir.errors import NotVectorizable  # noqa: E402
from gradtape.ir.graph import Graph, Node, Value, order  # noqa: E402
from gradtape.ops.op import Op  # noqa: E402
from gradtape.ops.opaque import Opaque  # noqa: E402
from gradtape.transforms.differentiate import leaves, pull_back  # noqa: E402
from gradtape.transforms.rows.builder import Builder  # noqa: E402
from gradtape.transforms.rows.entering import lifted  # noqa: E402
from gradtape.transforms.rows.leaving import dense  # noqa: E402
from gradtape.transforms.rows.letters import whole  # noqa: E402
from gradtape.transforms.rows.loops import core_positions  # noqa: E402
from gradtape.transforms.rows.products import nonzeros  # noqa: E402
from gradtape.transforms.rows.terms import Factor, Rows, Term, normal, rows_of  # noqa: E402
from gradtape.transforms.vectorize import vectorize  # noqa: E402
from tests.op_table.cases import CASES, OPS, Case  # noqa: E402
from tests.op_table.running import compiled  # noqa: E402
from tests.op_table.test_derivatives import flows  # noqa: E402

PAGE = ROOT / "docs" / "vectorizer_table.md"
DRAWS = 30  # of operands
WORST = ("refused", "looped", "expanded", "core", "kept")

# Why an op stores zeros along an axis that is no core, by op and mode.
BORDER = "at the border a window sees a part of the kernel only"
LOOKS = "it looks at every element"
REASONS = {(op, mode): BORDER for op in ("convolve", "convolve_kernel") for mode in ("reverse", "forward")}
REASONS |= {("check_numerics", mode): LOOKS for mode in ("reverse", "forward")}


# ------------------------------------------------------------------ measuring


def seeded(b: Builder, v: Value, axis: int, values: Value) -> Rows:
    """Rows over one axis that share its letter; `values` varies along all axes."""
    axes = tuple(whole(n) for n in v.aval.dims)
    letters = tuple(p.letter for a in axes for p in a)
    flat = b.reshape(values, [c.size for c in letters])
    term = Term((Factor(flat, letters),), (axes[axis],), axes)
    return rows_of([normal(b, term, v.aval.dtype)], (v.aval.dims[axis],), v.aval.dims, v.aval.dtype)


def verdict(graph: Graph, varying: Value, axis: int, drawn: tuple[Case, DType], is_core: bool) -> str:
    """What becomes of the letter of one axis of `varying` in the output of a graph. Entries are zero by structure
    where they are for many operands: masks and positions move with these."""
    values = Value(varying.aval)
    b = Builder()
    at = next(k for k, v in enumerate(graph.inputs) if v is varying)
    try:
        made = _rows(graph, at, seeded(b, varying, axis, values))
    except NotVectorizable:
        return "refused"
    builder, rows = made
    letters = [{p.letter for p in t.rows[0]} for t in rows.terms]
    if all(any(p.letter in shared for a in t.own for p in a) for t, shared in zip(rows.terms, letters, strict=True)):
        return "kept"
    others = [v for v in graph.inputs if v is not varying]
    if all(n == 1 for n in rows.shape):
        return "core"
    run = compiled(Graph([*others, values], [dense(builder, rows)]))
    noise = np.random.default_rng(1).uniform(0.5, 1.5, varying.aval.dims).astype(varying.aval.dtype.numpy_dtype)
    case, dtype = drawn
    ever = np.zeros(rows.rows + rows.shape, bool)
    for draw in range(DRAWS):
        (found,) = run(*case.draw(dtype, draw), noise)
        ever |= np.asarray(found) != 0
    if is_core or not is_tied(ever):
        return "core"
    return "kept" if nonzeros(rows) <= np.count_nonzero(ever) else "expanded"


def is_tied(ever: np.ndarray) -> bool:
    """Whether rows have their positions along some axis at other places (rows of zeros say nothing)."""
    own = range(1, ever.ndim)
    some = ever[ever.any(axis=tuple(own))]
    places = [some.any(axis=tuple(j for j in own if j != k)) for k in own]
    return any((p != p[:1]).any() for p in places)


def _rows(graph: Graph, at: int, seeds: Rows) -> tuple[Builder, Rows]:
    builder, (result,) = vectorize(graph, {at: seeds})
    return builder, lifted(builder, result, seeds.rows)


def longer(v: Value) -> list[int]:
    """The axes that can have structure."""
    return [k for k, n in enumerate(v.aval.dims) if n > 1] if v.aval.size else []


def cores(node: Node, i: int, y: Value) -> tuple[list[int], list[int]]:
    """The axes of operand i and of a result that an opaque op works on as a whole."""
    op = node.step.op
    if not isinstance(op, Opaque) or op.moves is not None:
        return [], []
    try:
        core, made = core_positions(node, i)
    except ValueError:
        return list(range(len(node.inputs[i].aval.dims))), list(range(len(y.aval.dims)))
    if "axis" in node.step.params:
        return core, made
    return core, list(range(len(node.outputs[0].aval.dims) - len(made), len(y.aval.dims)))


def measured(case: Case, dtype: DType) -> Iterator[tuple[int, str, int, str]]:
    """(operand, mode, axis, verdict) for every axis of every operand and result of one sample."""
    forward = case.graph(dtype)
    for y in forward.outputs:
        if not y.aval.dtype.is_differentiable:
            continue
        cotangent = Value(y.aval)
        pulled = pull_back(forward.nodes, [y], [cotangent], forward.inputs)
        for i, p in enumerate(pulled):
            if p is None:
                continue
            core_in, core_out = cores(forward.nodes[0], i, y)
            backward = Graph([*forward.inputs, cotangent], [p])
            for axis in longer(y):
                yield i, "reverse", axis, verdict(backward, cotangent, axis, (case, dtype), axis in core_out)
            tangent = Value(forward.inputs[i].aval)
            given = [*forward.inputs, cotangent]
            (pushed,) = pull_back(order([p], given), [p], [tangent], [cotangent])
            if pushed is None or leaves([pushed], [cotangent]):
                continue
            for axis in longer(tangent):
                ahead = Graph([*forward.inputs, tangent], [pushed])
                yield i, "forward", axis, verdict(ahead, tangent, axis, (case, dtype), axis in core_in)


def samples(op: Op) -> list[tuple[Case, DType]]:
    """The samples through which a gradient flows, in real numbers or else in complex ones."""
    for dtype in (float64, complex128):
        found = [(c, dtype) for c in CASES[op.name] if c.is_free and c.takes(dtype) and flows(c, dtype)]
        if found:
            return found
    return []


Found = dict[tuple[int, str], set[str]]


def survey(op: Op) -> Found:
    """All verdicts of an op, by operand and mode."""
    found: Found = {}
    for case, dtype in samples(op):
        for i, mode, _, what in measured(case, dtype):
            found.setdefault((i, mode), set()).add(what)
    return found


# ------------------------------------------------------------------ the page


def page(ops: Iterable[Op] = tuple(OPS)) -> str:
    """The whole page."""
    lines = [
        "# The vectorizer's table",
        "",
        "What each op of the table does to the structure of rows, measured by `tools/vectorizer_table.py` on the op's",
        "samples: one axis at a time, rows share their letter with that axis. *kept*: they still share it in the",
        "result. *core*: no entry is zero, because the op mixes along the axis, sums it away, or the operand does not",
        "have it. *expanded*: zeros are stored; the reason stands behind. *looped*: one run per row. *refused*: no",
        "rows at all.",
        "Reverse mode seeds the axes of the result, forward mode those of the operand.",
        "",
        "| op | kind | operand | reverse | forward |",
        "|---|---|---|---|---|",
    ]
    silent = []
    for op in ops:
        found = survey(op)
        if not found:
            silent.append(op.name)
        groups: dict[tuple[str, str], list[int]] = {}
        for i in sorted({i for i, _ in found}):
            cells = tuple(_cell(op, found.get((i, mode), set()), mode) for mode in ("reverse", "forward"))
            groups.setdefault((cells[0], cells[1]), []).append(i)
        for cells, operands in groups.items():
            lines.append(f"| `{op.name}` | {op.kind} | {_spans(operands)} | {cells[0]} | {cells[1]} |")
    lines += ["", "Ops that no gradient flows through: " + ", ".join(f"`{n}`" for n in silent) + "."]
    return "\n".join(lines) + "\n"


def _cell(op: Op, verdicts: set[str], mode: str) -> str:
    words = [w for w in WORST if w in verdicts]
    if "expanded" in words:
        reason = REASONS.get((op.name, mode))
        if reason is None:
            raise ValueError(f"`{op.name}` expands a loop axis in {mode} mode: keep it, or write down why.")
        words[words.index("expanded")] = f"expanded ({reason})"
    return ", ".join(words) or "-"


def _spans(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers)) if len(numbers) < 4 else f"{numbers[0]} to {numbers[-1]}"


def main(arguments: list[str] | None = None) -> int:
    """Write the page, or check it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="fail if the page on disk is another one")
    check = parser.parse_args(arguments).check
    text = page()
    if not check:
        PAGE.write_text(text)
        return 0
    if not PAGE.exists() or PAGE.read_text() != text:
        print(f"{PAGE.name} is out of date: run `python tools/vectorizer_table.py`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
