"""`GRADTAPE_SHOW`: what is printed on the way from a graph to what runs, and that nothing is without it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gradtape.ir.show import VARIABLE, WORDS, words_of

ROOT = Path(__file__).parents[2]
PROGRAM = """
import gradtape as tf
w = tf.ones((4, 2))
@tf.function
def f(x):
    return tf.reduce_sum(tf.sin(tf.matmul(x, w)) * 1.0 + 0.5, axis=1)
f(tf.ones((3, 4)))
"""


def shown(words: str, tmp_path: Path, program: str = PROGRAM) -> list[str]:
    """The parts that a process prints: each title with the text below it."""
    values = {VARIABLE: words, "GRADTAPE_KERNELS": "now", "GRADTAPE_CACHE": str(tmp_path), "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | values, capture_output=True, text=True, check=True
    )
    assert run.stdout == ""
    return run.stderr.split("---- ")[1:] if run.stderr else []


def test_nothing_is_shown_unless_it_is_asked_for(tmp_path: Path) -> None:
    assert shown("", tmp_path) == []


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The parts that a process prints that is asked for all, by their words."""
    parts = shown(",".join(WORDS), tmp_path_factory.mktemp("cache"))
    found = {word: [p for p in parts if p.startswith(f"{word}: ")] for word in WORDS}
    assert sum(map(len, found.values())) == len(parts)
    return found


def test_graphs_as_they_were_made(everything: dict[str, list[str]]) -> None:
    (graph,) = everything["graph"]
    assert graph.startswith("graph: ")
    assert "x0 = input float32(3, 4)" in graph
    assert "contract(" in graph
    assert "float32(3, 2)" in graph


def test_passes_by_name_and_what_they_changed(everything: dict[str, list[str]]) -> None:
    parts = everything["passes"]
    titles = [p.splitlines()[0].removeprefix("passes: ") for p in parts]
    assert titles[0] == "drop reductions of one element"
    assert titles[-1] == "fuse"
    assert parts[0].splitlines()[1] == "nothing changed"
    assert " became " in parts[-1].splitlines()[1]
    assert "sin, add, sum>" in parts[-1]


def test_plans_as_the_function_that_runs(everything: dict[str, list[str]]) -> None:
    (plan,) = everything["plan"]
    lines = plan.splitlines()
    assert lines[1].startswith(f"# {3 * 4 * 2} multiply-adds in products")
    assert lines[2].startswith("def program(")
    compile("\n".join(lines[1:]), "plan", "exec")


def test_kernels_as_their_text(everything: dict[str, list[str]]) -> None:
    (kernel,) = everything["kernels"]
    assert "def kernel_" in kernel
    assert "sin(" in kernel


def test_kernels_of_a_device_as_their_text(tmp_path: Path) -> None:
    """Each when it is compiled; calls that need no new one show nothing."""
    program = PROGRAM.replace("import gradtape as tf", "import tests.on_emulated as tf") + "f(tf.ones((3, 4)))\n"
    program += """
text = (
    "__global__ void thrice(const float* x, float* y, int size)"
    " { if (threadIdx.x < size) y[threadIdx.x] = 3 * x[threadIdx.x]; }"
)
op = tf.kernel_op(text, signature="()->()")
assert op(tf.ones([5])).numpy().tolist() == op(tf.ones([5])).numpy().tolist() == [3.0] * 5
"""
    kernels = shown("kernels", tmp_path, program)
    titles = [k.splitlines()[0].removeprefix("kernels: ") for k in kernels]
    assert len(set(titles)) == len(titles) >= 2 and all(t.endswith(", on GPU:0") for t in titles), titles
    (text,) = (k for k in kernels if "sin_add_reduce_sum" in k.splitlines()[0])
    assert "// t1 = sin(r0)" in text
    assert 'extern "C" __global__ void __launch_bounds__(' in text and "const float32* __restrict__ r0" in text
    assert titles[-1] == "thrice, on GPU:0" and "y[threadIdx.x] = 3 * x[threadIdx.x]" in kernels[-1]


@pytest.mark.parametrize("words", [" graph, kernels", "plan,passes"])
def test_words_that_are_asked_for_and_no_others(words: str, tmp_path: Path) -> None:
    kinds = {part.split(":")[0] for part in shown(words, tmp_path)}
    assert kinds == set(words_of(words))


def test_words_that_there_are() -> None:
    assert words_of("") == frozenset()
    assert words_of(",".join(WORDS)) == set(WORDS)
    with pytest.raises(ValueError, match="should list some of graph, passes, plan, kernels, got plans"):
        words_of("graph,plans")
