"""Loops over one op of `gradtape.kernels.vector_math`, compiled as kernels are: what tests run, and read."""

from __future__ import annotations

import functools
import re
from typing import Any

import numba
import numpy as np
from numba.core import types

from gradtape.kernels import vector_arithmetic, vector_math

NAMES = {"f": ("float32", "float64"), "i": ("int32", "int64"), "b": ("bool",)}
CONTRACT = frozenset({"contract"})


def form_of(name: str) -> vector_math.Form:
    """The form of an op, or of a function beside them."""
    return (vector_math.FORMS | vector_math.BESIDE)[name]


def cases(kinds: str = "f") -> list[tuple[str, str]]:
    """Every op with every dtype that it has a form for, of some kinds."""
    forms = vector_math.FORMS.items()
    return [(name, dtype) for name, form in forms for k in kinds if k in form.kinds for dtype in NAMES[k]]


@functools.cache
def loop(name: str, dtype: str, flags: frozenset[str]) -> Any:
    """A compiled function of operands (flat arrays) and an array for the result."""
    form = form_of(name)
    element = numba.from_dtype(np.dtype(dtype))
    arrays = [types.Array(element, 1, "C", readonly=True)] * form.operands
    if form.condition:
        arrays[0] = types.Array(types.boolean, 1, "C", readonly=True)
    result = types.Array(types.boolean if form.result == "bool" else element, 1, "C")
    operands = [f"x{k}" for k in range(form.operands)]
    text = f"def loop({', '.join(operands)}, out):\n    for i in range(out.size):\n"
    text += f"        out[i] = {name}({', '.join(f'{x}[i]' for x in operands)})\n"
    names = dict(vector_math.functions())
    exec(compile(text, f"<loop over {name}>", "exec"), names)
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": set(flags)}
    return numba.njit(types.void(*arrays, result), **options)(names["loop"])


def run(name: str, *operands: Any, flags: frozenset[str] = CONTRACT) -> Any:
    """The op of arrays of one size and dtype."""
    dtype = operands[-1].dtype
    out = np.empty(operands[0].shape, "bool" if form_of(name).result == "bool" else dtype)
    loop(name, dtype.name, flags)(*map(np.ascontiguousarray, operands), out)
    return out


def inner_loops(text: str) -> list[str]:
    """The bodies of the loops of an assembler text that have no other loop inside: from a label to the jump back."""
    lines = text.splitlines()
    places = {line.split(":")[0]: k for k, line in enumerate(lines) if re.match(r"^\.?\w+:", line)}
    found = []
    for k, line in enumerate(lines):
        jump = re.match(r"\s+j\w+\s+(\.?\w+)\s*$", line)
        start = places.get(jump.group(1)) if jump else None
        if start is not None and start <= k:
            found.append((start, k))
    inner = [(a, b) for a, b in found if not any((a, b) != (c, d) and a <= c and d <= b for c, d in found)]
    return ["\n".join(lines[a : b + 1]) for a, b in inner]


def assembler(name: str, dtype: str) -> str:
    """The text of the compiled function itself, without those that Python calls it by."""
    (text,) = loop(name, dtype, CONTRACT).inspect_asm().values()
    return str(text).split(".Lfunc_end0")[0]


# An instruction on registers of 256 or 512 bits that does more than move them, or moves some of their elements.
PACKED = re.compile(r"^\s+v(?:(?!mov|broadcast|extract|insert)\w+\s.*%[yz]mm|mov.*%[yz]mm.*\{%k)", re.MULTILINE)
CALL = re.compile(r"^\s+callq?\b", re.MULTILINE)


def is_vector_code(text: str) -> bool:
    """Whether the text has an inner loop of packed instructions, and none of its inner loops calls anything."""
    loops = inner_loops(text)
    return any(PACKED.search(body) for body in loops) and not any(CALL.search(body) for body in loops)


def called(text: str) -> set[str]:
    """The names of functions that the code knows, but for those of Numba that count references to arrays."""
    return {name for name in re.findall(r"\$([A-Za-z_]\w+)", text) if not name.startswith("NRT_")}


# Ops whose code is more than one instruction or two; copies are no loops.
VECTOR = sorted(
    n
    for n, f in vector_math.FORMS.items()
    if f.kinds == "f" and f.vector and f.result == "same" and f.function is not vector_arithmetic.latter
)


def joint(dtype: str) -> str:
    """The assembler text of one function with a loop for each op of `VECTOR`."""
    element = numba.from_dtype(np.dtype(dtype))
    read, written = types.Array(element, 1, "C", readonly=True), types.Array(element, 1, "C")
    text = "def loops(x, y, out):\n"
    for name in VECTOR:
        call = f"{name}({', '.join(['x[i]', 'y[i]'][: form_of(name).operands])})"
        text += f"    for i in range(out.size):\n        out[i] = {call}\n"
    names = dict(vector_math.functions())
    exec(compile(text, "<loops>", "exec"), names)
    made = numba.njit(types.void(read, read, written), error_model="numpy", fastmath={"contract"})(names["loops"])
    (found,) = made.inspect_asm().values()
    return str(found).split(".Lfunc_end0")[0]
