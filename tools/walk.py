"""Write docs/walk.md: one training step from its records to its kernels, with what the code itself prints on the way.

python tools/walk.py           write the page
python tools/walk.py --check   fail if the committed page is another one
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gradtape.ir.graph import Graph
from gradtape.ir.show import SHOWN
from gradtape.kernels.render import render
from gradtape.runtime import record
from gradtape.runtime.backward import PROGRAMS
from gradtape.transforms.fuse import fused_nodes
from gradtape.transforms.simplify import PASSES

PAGE = Path(__file__).parents[1] / "docs" / "walk.md"

PROGRAM = """\
import numpy as np
import gradtape as tf

rng = np.random.default_rng(0)
x = tf.constant(rng.normal(size=(4, 3)).astype("float32"))
labels = tf.constant([0, 2, 1, 1])
w = tf.Variable(rng.normal(size=(3, 5)).astype("float32"))
b = tf.Variable(tf.zeros([5]))
v = tf.Variable(rng.normal(size=(5, 3)).astype("float32"))

with tf.GradientTape(persistent=True) as tape:
    tape.watch(x)
    hidden = tf.tanh(x @ w + b)
    logits = hidden @ v
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    loss = tf.reduce_mean(losses)
"""
GRADIENT = "slopes = tape.gradient(loss, [w, b, v])"
JACOBIAN = "rows = tape.batch_jacobian(logits, x)"


INTRODUCTION = """\
# One training step, from records to kernels

What [Architecture](architecture.md) tells in general, for one small network: all graphs, plans and kernels below
are printed by the code itself, and a test fails when the page is not what it prints today.
`GRADTAPE_SHOW=graph,passes,plan` prints the same for any program.
"""

RECORD = """\
## Record

Each operation has run when the next one begins. The tape holds which steps there were and which values their
derivatives mention, nothing else. Read as a graph, with variables as `identity` steps:
"""

DIFFERENTIATE = """\
## Differentiate

The recorded graph is gone through backwards once. Inputs are what the tape kept; the cotangent of the loss is the
constant 1. The rule of the cross-entropy gives softmax less the label's position, so that nothing is divided by a
probability; the rule of a contraction gives two contractions; adding a bias to every row pulls back to a sum over
rows.
"""

SIMPLIFY = """\
## Simplify

Passes run in a fixed order, and each is a function from graph to graph. Those that changed something here:
"""

FUSE = """\
## Fuse

Products of matrices stay steps of their own. What lies between them becomes kernels: the softmax with its two
reductions and the label's position is one, and the derivative of the activation takes the sum over rows for the
bias with it. Softmax is written out in atoms for that.
"""

KERNELS = """\
## Kernels

A cluster is rendered to text for a compiler. The comment on top is the formula; extents are arguments (`n0`, `n1`),
so that one kernel serves every batch size. In the first one rows are swept three times, once for each stage: the
largest element, the exponentials and their sum (in runs of 4,096, then in float64), and the rest. The second one
goes through blocks of columns, with a sum for each column. Until a kernel is compiled its step runs op by op; see
[Fused kernels](kernels.md).
"""

PLAN = """\
## Plan

What runs is a straight line of calls; the name of an array is used again when nobody needs what it held. The plan
is kept under the structure of the recorded program, and the next step with other numbers finds it by walking
through the same records: nothing above happens a second time.
"""

RUN = """\
## Run

The three slopes:
"""

VECTORIZE = """\
## Vectorize

A Jacobian runs the backward graph for all rows at once, on values whose structure is known. The batch Jacobian of
the logits by the inputs:
"""

BATCH = """\
There is no row axis in the activation's derivative `t2`, and no example axis in the weights: the rows begin as an
identity that is never stored, the example's axis is shared by target and source, and the weights are multiplied
with each other before any example comes in, since that costs less. The plan:
"""


def page() -> str:
    names: dict[str, Any] = {}
    PROGRAMS.clear()  # what is found again is not made again, and shows nothing
    exec(PROGRAM, names)
    tape = names["tape"]
    recorded = _recorded(tape)
    gradient = _shown(lambda: exec(GRADIENT, names))
    jacobian = _shown(lambda: exec(JACOBIAN, names))
    return "\n".join(_sections(names, recorded, gradient, jacobian)) + "\n"


def _recorded(tape: Any) -> tuple[Graph, list[str]]:
    """What the tape holds: the recorded steps as a graph, and the kept values by what made them."""
    path = record.Path(tape._recorder.node, {})
    values = path.everything()
    inputs = [v for v in values if v.node is None]
    kept = [repr(v) for v in values if id(v) in path.kept]
    return Graph(inputs, [path.nodes[-1].outputs[0]]), kept


def _shown(run: Callable[[], None]) -> dict[str, list[tuple[str, str]]]:
    """What is printed while something runs: titles and texts, by word."""
    before, SHOWN.words = SHOWN.words, frozenset({"graph", "passes", "plan"})
    caught = io.StringIO()
    try:
        with contextlib.redirect_stderr(caught):
            run()
    finally:
        SHOWN.words = before
    found: dict[str, list[tuple[str, str]]] = {}
    for word, title, text in re.findall(r"^---- (\w+): (.*)\n((?:(?!----).*\n)*)", caught.getvalue(), re.MULTILINE):
        found.setdefault(word, []).append((title, text.rstrip()))
    return found


def _sections(
    names: dict[str, Any],
    recorded: tuple[Graph, list[str]],
    gradient: dict[str, list[tuple[str, str]]],
    jacobian: dict[str, list[tuple[str, str]]],
) -> Iterator[str]:
    graph, kept = recorded
    yield INTRODUCTION
    yield _block(PROGRAM, "python")
    yield RECORD
    yield _block(repr(graph))
    yield f"{len(kept)} values of it are kept for gradients: {', '.join(kept)}.\n"
    yield DIFFERENTIATE
    yield _block(GRADIENT, "python")
    yield "The graph as it is made:\n"
    yield _block(gradient["graph"][0][1])
    yield SIMPLIFY
    yield from _passes(gradient["passes"])
    yield FUSE
    fused = next(text for title, text in gradient["passes"] if title == "fuse")
    yield _block(fused)
    yield KERNELS
    for k, node in enumerate(fused_nodes(_runs(names)), 1):
        cluster = node.step.params["cluster"]
        yield f"Kernel {k}, of the cluster `{cluster!r}`:\n"
        yield _block(render(cluster, False).text)
    yield PLAN
    yield _block(gradient["plan"][0][1])
    yield RUN
    yield _block("\n".join(f"{name}: {_numbers(g)}" for name, g in zip("wbv", names["slopes"], strict=True)))
    yield VECTORIZE
    yield _block(JACOBIAN, "python")
    yield "The graph of all rows:\n"
    yield _block(jacobian["graph"][0][1])
    yield BATCH
    yield _block(jacobian["plan"][0][1])
    yield f"`rows` has shape {tuple(names['rows'].shape)}, and its first block is\n"
    yield _block(str(np.round(names["rows"][0].numpy(), 4)))


def _runs(names: dict[str, Any]) -> Graph:
    """The graph of the gradient that ran, with its clusters as nodes."""
    end = names["tape"]._recorder.node
    program = next(p for key, p in end.plans.items() if key[0] != "jacobian" and hasattr(p, "steps"))
    return program.steps[0].compiled.runs


def _passes(passes: list[tuple[str, str]]) -> Iterator[str]:
    """The passes of `simplify` that changed something; what the last of them left is printed whole."""
    simple = {name for name, _ in PASSES}
    changed = [(title, text) for title, text in passes if title in simple and text != "nothing changed"]
    for title, text in changed:
        yield f"- {title}: {text.splitlines()[0]}"
    yield "\nWhat is left:\n"
    yield _block("\n".join(changed[-1][1].splitlines()[1:]))


def _numbers(x: Any) -> str:
    return f"{tuple(x.shape)}, {x.numpy().reshape(-1)[0]:+.4f} in front"


def _block(text: str, language: str = "text") -> str:
    return f"```{language}\n{text.rstrip()}\n```\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fail if the committed page is another one")
    options = parser.parse_args(arguments)
    text = page()
    if options.check:
        if PAGE.read_text(encoding="utf-8") == text:
            return 0
        print("docs/walk.md is not what the code prints. Run `python tools/walk.py`.", file=sys.stderr)
        return 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
