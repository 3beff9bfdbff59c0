"""Every pointwise op has a form for compiled loops, is a formula of such, or says why it has none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest
from numba.core import types

from gradtape.ir.expr import walk
from gradtape.kernels import vector_math
from gradtape.ops.op import all_ops, lookup
from gradtape.ops.pointwise import Pointwise
from tests.kernels import compiled

ROOT = Path(__file__).parents[2]
OPS = [op for op in all_ops() if isinstance(op, Pointwise)]


@pytest.mark.parametrize("op", OPS, ids=[op.name for op in OPS])
def test_every_op_is_known(op: Pointwise) -> None:
    has_form, has_reason = op.name in vector_math.FORMS, op.name in vector_math.WITHOUT
    assert not (has_form and has_reason)
    if op.formula is None:
        assert has_form or has_reason, f"give `{op.name}` a form, or a reason in WITHOUT"
    else:
        parts = {e.op for e in walk(op.formula)} - {"symbol", "number"}
        assert not parts & set(vector_math.WITHOUT)


def test_names_are_those_of_ops() -> None:
    names = {op.name for op in OPS}
    assert set(vector_math.FORMS) | set(vector_math.WITHOUT) <= names
    assert set(vector_math.ANYWHERE) == {n for n, f in vector_math.FORMS.items() if f.limit < np.inf}


@pytest.mark.parametrize("name", sorted(vector_math.FORMS))
def test_forms_agree_with_the_op(name: str) -> None:
    op, form = lookup(name), vector_math.FORMS[name]
    assert isinstance(op, Pointwise)
    assert form.operands == len(op.operands) and form.condition == op.condition
    assert form.result == op.result and set(form.kinds) <= set(op.accepts)
    assert form.function.__doc__ or len(form.function.__code__.co_names) <= 3


def test_operands_of_other_types_are_errors() -> None:
    names = vector_math.functions()
    add, select = names["add"], names["select"]
    for given in ([types.float32, types.float64], [types.int8, types.int8], [types.complex64, types.complex64]):
        with pytest.raises(numba.TypingError):
            numba.njit(types.void(*given))(lambda x, y: add(x, y))
    with pytest.raises(numba.TypingError):
        numba.njit(types.void(types.float32, types.float32))(lambda c, x: select(c, x, x))


def test_names_can_be_imported() -> None:
    from gradtape.kernels.vector_math import exp, is_beyond

    assert exp is vector_math.functions()["exp"] and is_beyond is vector_math.functions()["is_beyond"]
    with pytest.raises(AttributeError, match="no attribute 'exponential'"):
        vector_math.exponential  # noqa: B018


def test_numba_is_imported_on_first_use() -> None:
    text = "import sys; import gradtape.kernels.vector_math as m; m.version(); print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_compiled_loops_are_kept_on_disk(tmp_path: Path) -> None:
    """A file that imports the functions by name is compiled once; the next process loads what is kept."""
    source = tmp_path / "kernel.py"
    source.write_text(
        "import numba\n"
        "from gradtape.kernels.vector_math import multiply, tanh\n\n"
        "@numba.njit('void(float32[::1], float32[::1])', cache=True, error_model='numpy', fastmath={'contract'})\n"
        "def loop(x, out):\n"
        "    for i in range(out.size):\n"
        "        out[i] = multiply(x[i], tanh(x[i]))\n",
        encoding="utf-8",
    )
    text = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "import numpy as np, kernel\n"
        "x = np.ones(40, 'float32'); out = np.zeros_like(x); kernel.loop(x, out)\n"
        "print(out[0], sum(kernel.loop.stats.cache_hits.values()))\n"
    )
    lines = []
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, check=True)
        lines.append(done.stdout.split())
    assert lines[0][0] == lines[1][0] and float(lines[0][0]) == pytest.approx(np.tanh(1.0), rel=1e-6)
    assert [hits for _, hits in lines] == ["0", "1"]


def test_versions_change_with_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    before = vector_math.version.__wrapped__()
    assert before == vector_math.version() and len(before) == 16
    read = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda self: read(self) + b"#" * (self.name == "vector_errors.py"))
    assert vector_math.version.__wrapped__() != before


def test_integers_keep_their_width() -> None:
    x = np.array([2**31 - 1], "int32")
    assert compiled.run("add", x, x).tolist() == [-2]
    assert compiled.run("multiply", x, x).tolist() == [1]
