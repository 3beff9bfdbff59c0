"""Scalar formulas as NumPy functions, evaluated in cache-sized blocks when arrays are large. Floor: backends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradtape.ir.expr import Expr, walk
from gradtape.ops.op import lookup
from gradtape.ops.pointwise import Pointwise

BLOCK = 16384  # elements: temporaries of a block stay in the second-level cache
HALF = frozenset(np.dtype(t) for t in ("float16", "bfloat16"))

Lower = Callable[[Any], Callable[..., Any]]


def compile_formula(name: str, operands: Sequence[str], formula: Expr, lower: Lower) -> Callable[..., Any]:
    """A NumPy function of arrays for a formula. `lower` gives the function of a step."""
    whole = _straight_line(name, operands, formula, lower)
    # One step has no temporaries that blocks would keep in the cache.
    single = sum(e.op not in ("symbol", "number") for e in set(walk(formula))) == 1

    def run(*arrays: Any) -> Any:
        first = arrays[-1]
        if first.dtype in HALF:
            wide = run(*[a.astype(np.float32) if a.dtype in HALF else a for a in arrays])
            return wide.astype(first.dtype) if wide.dtype == np.float32 else wide
        if not single and first.size > BLOCK and all(a.size == 1 or _flat(a, first) for a in arrays):
            return _in_blocks(whole, arrays, first)
        return whole(*arrays)

    return run


def _flat(a: Any, first: Any) -> bool:
    return bool(a.shape == first.shape and a.flags.c_contiguous)


def _in_blocks(whole: Callable[..., Any], arrays: Sequence[Any], first: Any) -> Any:
    flat = [a if a.size == 1 else a.reshape(-1) for a in arrays]
    out = None
    # Of wide elements half as many: arrays from 128 KiB on get fresh pages from the system each time.
    length = BLOCK if first.dtype.itemsize <= 4 else BLOCK // 2
    for start in range(0, first.size, length):
        stop = min(start + length, first.size)
        part = whole(*[a if a.size == 1 else a[start:stop] for a in flat])
        if out is None:
            out = np.empty(first.size, part.dtype)
        out[start:stop] = part
    if out is None:
        raise AssertionError("an array longer than a block has a first block")
    shape = np.broadcast_shapes(first.shape, *[a.shape for a in arrays])
    return out.reshape(shape)


def _straight_line(name: str, operands: Sequence[str], formula: Expr, lower: Lower) -> Callable[..., Any]:
    """One assignment per op, each distinct subexpression once."""
    env: dict[str, Any] = {}
    names: dict[Expr, str] = {}
    lines: list[str] = []
    for e in walk(formula):
        if e in names:
            continue
        if e.op == "symbol":
            names[e] = e.leaf
        elif e.op == "number":
            names[e] = f"float({str(e.leaf)!r})" if isinstance(e.leaf, float) else repr(e.leaf)
        else:
            op = lookup(e.op)
            if not isinstance(op, Pointwise):
                raise TypeError(f"The formula of `{name}` uses `{e.op}`, which is not pointwise.")
            env[f"_{e.op}"] = lower(op.bind())
            names[e] = f"t{len(lines)}"
            lines.append(f"    {names[e]} = _{e.op}({', '.join(names[a] for a in e.args)})")
    source = "\n".join([f"def {name}({', '.join(operands)}):", *lines, f"    return {names[formula]}"])
    exec(compile(source, f"<gradtape formula {name}>", "exec"), env)
    function: Callable[..., Any] = env[name]
    return function
