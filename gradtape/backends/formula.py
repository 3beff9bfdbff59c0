"""Scalar formulas as NumPy functions, evaluated in cache-sized blocks when arrays are large. Floor: backends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradtape.backends.blocks import BLOCK, Functions, compile_blocks, kind_of
from gradtape.ir.expr import Expr, walk
from gradtape.ops.op import lookup
from gradtape.ops.pointwise import Pointwise

HALF = frozenset(np.dtype(t) for t in ("float16", "bfloat16"))

Lower = Callable[[Any], Callable[..., Any]]


def compile_formula(name: str, operands: Sequence[str], formula: Expr, lower: Lower) -> Callable[..., Any]:
    """A NumPy function of arrays for a formula. `lower` gives the function of a step."""
    whole = _straight_line(name, operands, formula, lower)
    # One step has no temporaries that blocks would keep in the cache.
    order = list(walk(formula))
    single = sum(e.op not in ("symbol", "number") for e in set(order)) == 1
    blocks: dict[Any, Callable[..., Any]] = {}

    def in_blocks(arrays: Sequence[Any], first: Any) -> Any:
        n = first.size
        kinds = tuple([kind_of(a, n) for a in arrays])
        function = blocks.get(kinds)
        if function is None:
            function = blocks[kinds] = compile_blocks(name, operands, order, _functions(name, order, lower), kinds)
        flat = function(n, *[a.reshape(-1) if a.size == n else a.reshape(())[()] for a in arrays])
        return flat.reshape(np.broadcast_shapes(first.shape, *[a.shape for a in arrays]))

    def run(*arrays: Any) -> Any:
        first = arrays[-1]
        if first.dtype in HALF:
            wide = run(*[a.astype(np.float32) if a.dtype in HALF else a for a in arrays])
            return wide.astype(first.dtype) if wide.dtype == np.float32 else wide
        if not single and first.size > BLOCK and all(a.size == 1 or _flat(a, first) for a in arrays):
            return in_blocks(arrays, first)
        return whole(*arrays)

    return run


def _flat(a: Any, first: Any) -> bool:
    return bool(a.shape == first.shape and a.flags.c_contiguous)


def _functions(name: str, order: Sequence[Expr], lower: Lower) -> Functions:
    """The functions of a formula's ops."""
    found: Functions = {}
    for e in order:
        if e.op not in ("symbol", "number"):
            function = lower(_pointwise(name, e).bind())
            ufunc = getattr(np, _pointwise(name, e).ufunc or "", None)
            found[e.op] = (ufunc, True) if isinstance(ufunc, np.ufunc) else (function, False)
    return found


def _pointwise(name: str, e: Expr) -> Pointwise:
    op = lookup(e.op)
    if not isinstance(op, Pointwise):
        raise TypeError(f"The formula of `{name}` uses `{e.op}`, which is not pointwise.")
    return op


def _straight_line(name: str, operands: Sequence[str], formula: Expr, lower: Lower) -> Callable[..., Any]:
    """One assignment per op, each distinct subexpression once. What is no ufunc gets numbers of the operands' dtype."""
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
            op = _pointwise(name, e)
            env[f"_{e.op}"] = lower(op.bind())
            names[e] = f"t{len(lines)}"
            typed = f"{operands[-1]}.dtype.type" if op.ufunc is None else ""
            given = (f"{typed}({names[a]})" if a.op == "number" else names[a] for a in e.args)
            lines.append(f"    {names[e]} = _{e.op}({', '.join(given)})")
    source = "\n".join([f"def formula({', '.join(operands)}):", *lines, f"    return {names[formula]}"])
    exec(compile(source, f"<gradtape formula {name}>", "exec"), env)
    function: Callable[..., Any] = env["formula"]
    return function
