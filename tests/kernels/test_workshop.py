"""The process that compiles: what it answers, how it ends, and what happens without it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gradtape.kernels import workshop as module
from gradtape.kernels.objects import ObjectCode
from gradtape.kernels.workshop import Workshop

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Asked:
    """A request that says which process answers, or does something else first."""

    name: str
    does: str = ""

    def object_code(self) -> ObjectCode:
        exec(self.does)
        return ObjectCode(str(os.getpid()).encode(), (self.name,))


@pytest.fixture
def workshop() -> Iterator[Workshop]:
    made = Workshop()
    yield made
    made.close()


def process_of(answer: ObjectCode) -> int:
    return int(answer.code)


def test_one_process_answers_all(workshop: Workshop) -> None:
    first, second = (workshop.object_code(Asked(n)) for n in "ab")
    assert process_of(first) == process_of(second) != os.getpid()
    assert (first.calls, second.calls) == (("a",), ("b",))


def test_errors_come_back_and_the_process_goes_on(workshop: Workshop) -> None:
    before = process_of(workshop.object_code(Asked("a")))
    with pytest.raises(RuntimeError, match="ZeroDivisionError: division by zero"):
        workshop.object_code(Asked("b", "1 / 0"))
    assert process_of(workshop.object_code(Asked("c"))) == before


def test_what_is_printed_is_no_answer(workshop: Workshop) -> None:
    assert workshop.object_code(Asked("a", "print('x' * 100); import os; os.write(1, b'y')")).calls == ("a",)


def test_a_process_that_ends_is_begun_again(workshop: Workshop) -> None:
    before = process_of(workshop.object_code(Asked("a")))
    os.kill(before, signal.SIGKILL)
    assert process_of(workshop.object_code(Asked("b"))) not in (before, os.getpid())


def test_what_ends_it_twice_is_an_error(workshop: Workshop) -> None:
    with pytest.raises(RuntimeError, match="ended twice over `bad`"):
        workshop.object_code(Asked("bad", "import os; os._exit(3)"))
    assert workshop.object_code(Asked("good")).calls == ("good",)


def test_where_no_process_can_be_begun_it_is_done_here(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.sys, "executable", "/nowhere/python")
    with pytest.warns(RuntimeWarning, match="compiled in this process.*nowhere"):
        assert process_of(workshop.object_code(Asked("a"))) == os.getpid()
    assert process_of(workshop.object_code(Asked("b"))) == os.getpid()


def test_nothing_is_begun_while_this_process_ends(workshop: Workshop) -> None:
    workshop.close()
    with pytest.raises(RuntimeError, match="ends"):
        workshop.object_code(Asked("a"))


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{process}/stat")
    return not state.exists() or state.read_text().rsplit(")", 1)[1].split()[0] != "Z"


def ends(process: int) -> bool:
    deadline = time.monotonic() + 30
    while alive(process) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not alive(process)


@pytest.mark.parametrize("how", ["", "import os; os.kill(os.getpid(), 9)"])
def test_it_ends_with_the_process_that_began_it(how: str, tmp_path: Path) -> None:
    program = f"""
        from tests.kernels.test_workshop import Asked
        from gradtape.kernels.workshop import WORKSHOP
        print(int(WORKSHOP.object_code(Asked("a")).code), flush=True)
        {how}
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ends(int(run.stdout)), run.stderr


def test_a_fork_has_a_process_of_its_own(workshop: Workshop) -> None:
    before = process_of(workshop.object_code(Asked("a")))
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, str(process_of(workshop.object_code(Asked("b")))).encode())
            workshop.close()
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    assert int(os.read(reading, 20)) not in (before, os.getpid(), child)
    os.close(reading)
    assert process_of(workshop.object_code(Asked("c"))) == before


def test_a_program_with_kernels_loads_no_compiler(tmp_path: Path) -> None:
    program = """
        import sys
        import numpy as np
        import gradtape as tf
        f = tf.function(lambda x: tf.tanh(x) * tf.exp(-tf.square(x)))
        f(tf.constant(np.linspace(0.0, 1.0, 1000)))
        print(tf.cache_info().kernels.compiled > 0, "numba" in sys.modules, "llvmlite" in sys.modules)
    """
    environment = {"PYTHONPATH": str(ROOT), "GRADTAPE_KERNELS": "now", "GRADTAPE_CACHE": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=tmp_path,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.split() == ["True", "False", "False"]
