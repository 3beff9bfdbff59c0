"""Write docs/ops.md: every op of the table with its kind, operands, partials, dtypes and notes.

python tools/ops_table.py           write the page
python tools/ops_table.py --check   fail if the committed page is another one
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

import gradtape.ops  # noqa: F401  (declares the built-in ops)
from gradtape.ops.op import Op, all_ops
from gradtape.ops.opaque import Opaque
from gradtape.ops.pointwise import Pointwise
from gradtape.ops.reduction import Reduction
from gradtape.ops.structural import Structural

PAGE = Path(__file__).parents[1] / "docs" / "ops.md"
KINDS = {
    "pointwise": "A scalar function of broadcast operands. VJP: cotangent × partial, summed over what was broadcast.",
    "reduction": "A monoid over axes. VJP: the cotangent, broadcast, × the partial.",
    "contraction": "einsum of two operands. VJPs are contractions again.",
    "structural": "Moves elements and computes nothing. VJP: the transpose, an op of this kind again.",
    "opaque": "A value per backend, a rule, and a signature that says which axes are loops.",
    "composite": "A graph of other ops under one name, with a rule of its own where the composed one loses accuracy.",
    "assemble": "A sum of products of factors, written to where letters stand on the axes.",
    "constant": "Known while a graph is made.",
    "call": "A graph as an op, differentiated and vectorized through its own nodes.",
    "tiles": "A graph that runs piece by piece along an axis; programs that are about to run are put together with it.",
    "fused": "Pointwise ops and reductions as one kernel; programs that are about to run are put together with it.",
    "together": "Kernels of one formula as one; programs that are about to run on a device are put together with it.",
    "custom": "A function with a Python rule.",
    "host": "Python between the steps of a program: the rule of a custom call, or a function of arrays.",
    "cond": "One of two graphs. VJP: a `cond` of what pulls either back.",
    "while": "A graph repeated while another one says so. VJP: a `scan` in the other direction.",
    "scan": "A graph repeated for each element of stacks. VJP: a `scan` in the other direction.",
    "checkpoint": "A graph that keeps few of its values; its VJP computes the others again.",
    "stack": "Stacks: what the iterations of a loop kept, one array for each.",
    "unknown": "A rule that a saved model names and this process does not have: whoever asks for the gradient is told.",
    "ruled": "A function whose rule was traced: its results, with a graph for their gradient.",
}
DTYPES = {"f": "floating", "c": "complex", "i": "integer", "u": "unsigned", "b": "bool", "s": "string"}


def page() -> str:
    """The whole page."""
    ops = all_ops()
    lines = [
        "# The op table",
        "",
        f"All {len(ops)} ops, generated from their declarations by `tools/ops_table.py`. Public functions are",
        "spelled with these; many are compositions of several. A partial is the derivative by that operand, in",
        "the operands and `out`; `-` means that no gradient flows.",
        "",
    ]
    for kind, says in KINDS.items():
        members = [op for op in ops if op.kind == kind]
        if members:
            lines += [f"## {kind.capitalize()} ({len(members)})", "", says, "", *_table(kind, members), ""]
    rest = [op.name for op in ops if op.kind not in KINDS]
    if rest:
        raise ValueError(f"The kinds of {rest} are not described in this tool.")
    return "\n".join(lines).rstrip() + "\n"


def _table(kind: str, ops: Iterable[Op]) -> list[str]:
    columns = {"pointwise": "partials", "reduction": "partial", "opaque": "signature"}.get(kind, "gradient")
    rows = [f"| op | what it computes | {columns} | dtypes | notes |", "|---|---|---|---|---|"]
    for op in ops:
        cells = [f"`{op.name}`", op.doc, _derivative(op), _dtypes(op), op.notes]
        rows.append("| " + " | ".join(c.replace("|", "\\|").replace("\n", " ") for c in cells) + " |")
    return rows


def _derivative(op: Op) -> str:
    if isinstance(op, Pointwise):
        if op.rule is not None:
            return "a rule"
        pairs = zip(op.operands, op.partials, strict=True)
        return "; ".join(f"{n}: {'-' if p is None else f'`{p}`'}" for n, p in pairs)
    if isinstance(op, Reduction):
        return "a rule" if op.rule else "-" if op.partial is None else f"`{op.partial}`"
    if isinstance(op, Opaque):
        return f"`{op.signature}`" + ("" if op.rule else ", no gradient")
    return "its transpose" if isinstance(op, Structural) else "a rule"


def _dtypes(op: Op) -> str:
    accepts = getattr(op, "accepts", "")
    return ", ".join(DTYPES[k] for k in accepts) if accepts else "as its operands"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write docs/ops.md from the op table.")
    parser.add_argument("--check", action="store_true", help="fail if the committed page differs")
    if parser.parse_args(arguments).check:
        if PAGE.read_text() == page():
            return 0
        print("docs/ops.md is not what the op table says. Run `python tools/ops_table.py`.", file=sys.stderr)
        return 1
    PAGE.write_text(page())
    print(f"wrote {PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
