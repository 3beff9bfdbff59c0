"""Scalar formulas over long arrays, block by block: temporaries stay in the cache, where others were that nothing needs
any more. Floor: backends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from gradtape.backends.memory import empty
from gradtape.ir.expr import Expr

BLOCK = 16384  # elements: the temporaries of a block stay in the second-level cache

Functions = dict[str, tuple[Callable[..., Any], bool]]  # by op: its function, and whether it writes to a given `out`


class _Kind(NamedTuple):
    """What a subexpression is: of which dtype, and whether it differs from element to element."""

    dtype: Any
    varies: bool


def compile_blocks(
    name: str, operands: Sequence[str], order: Sequence[Expr], functions: Functions, kinds: Sequence[_Kind]
) -> Callable[..., Any]:
    """The function of flat arrays and scalars (as `kinds` says) for a formula, of which `order` are the
    subexpressions, operands before what uses them."""
    return _Writer(name, operands, order, functions, kinds).function()


def kind_of(array: Any, length: int) -> _Kind:
    return _Kind(array.dtype, array.size == length)


class _Writer:
    """Writes the source: first what is one number for all elements, then a loop over blocks."""

    def __init__(
        self, name: str, operands: Sequence[str], order: Sequence[Expr], functions: Functions, kinds: Sequence[_Kind]
    ) -> None:
        self.name, self.operands, self.functions = name, operands, functions
        self.order = list(dict.fromkeys(order))
        self.given = dict(zip(operands, kinds, strict=True))
        self.last = {a: k for k, e in enumerate(self.order) for a in e.args}
        self.names: dict[Expr, str] = {}
        self.kinds: dict[Expr, _Kind] = {}
        self.held: dict[Expr, str] = {}  # the buffer in which a temporary is
        self.buffers: dict[str, Any] = {}  # by name: their dtypes
        self.free: list[str] = []
        self.env: dict[str, Any] = {"np": np, "empty": empty, "typed": kinds[-1].dtype.type}
        self.once: list[str] = []
        self.each: list[str] = []

    def function(self) -> Callable[..., Any]:
        for k, e in enumerate(self.order):
            if e.op == "symbol":
                self._symbol(e)
            elif e.op == "number":
                self.names[e] = f"float({str(e.leaf)!r})" if isinstance(e.leaf, float) else repr(e.leaf)
                self.kinds[e] = _Kind(None, False)
            else:
                self._step(k, e)
        exec(compile(self._source(), f"<gradtape blocks of {self.name}>", "exec"), self.env)
        made: Callable[..., Any] = self.env["blocks"]
        return made

    def _symbol(self, e: Expr) -> None:
        self.kinds[e] = self.given[e.leaf]
        self.names[e] = e.leaf
        if self.kinds[e].varies:
            self.names[e] = f"{e.leaf}_"
            self.each.append(f"{e.leaf}_ = {e.leaf}[start:stop]")

    def _step(self, k: int, e: Expr) -> None:
        function, writes = self.functions[e.op]
        self.env[f"f_{e.op}"] = function
        kind = _Kind(self._dtype(e, function), any(self.kinds[a].varies for a in e.args))
        typed = "" if writes else "typed"  # what is no ufunc gets numbers of the operands' dtype
        arguments = ", ".join(f"{typed}({self.names[a]})" if a.op == "number" else self.names[a] for a in e.args)
        self.names[e], self.kinds[e] = f"t{k}", kind
        if not kind.varies:
            self.once.append(f"t{k} = f_{e.op}({arguments})")
            return
        if writes:  # else the result may be the operand's own memory
            self.free += [self.held.pop(a) for a in dict.fromkeys(e.args) if a in self.held and self.last[a] == k]
        if k == len(self.order) - 1:
            self.each.append(
                f"f_{e.op}({arguments}, out=out[start:stop])" if writes else f"out[start:stop] = f_{e.op}({arguments})"
            )
        elif writes:
            self.held[e] = self._buffer(kind.dtype)
            self.each.append(f"t{k} = f_{e.op}({arguments}, out={self.held[e]})")
        else:
            self.each.append(f"t{k} = f_{e.op}({arguments})")

    def _dtype(self, e: Expr, function: Callable[..., Any]) -> Any:
        """The dtype of a step's result, from running it on ones."""
        number = (lambda leaf: leaf) if isinstance(function, np.ufunc) else self.env["typed"]
        ones = [number(a.leaf) if a.op == "number" else np.ones((), self.kinds[a].dtype)[()] for a in e.args]
        with np.errstate(all="ignore"):
            return function(*ones).dtype

    def _buffer(self, dtype: Any) -> str:
        found = next((b for b in self.free if self.buffers[b] == dtype), None)
        if found is None:
            found = f"b{len(self.buffers)}"
            self.buffers[found] = dtype
            self.env[f"{found}_dtype"] = dtype
        else:
            self.free.remove(found)
        return found

    def _source(self) -> str:
        self.env["dtype"] = self.kinds[self.order[-1]].dtype
        cut = [f"        {b} = {b}[: n - start]" for b in self.buffers]
        return "\n".join(
            [
                f"def blocks(n, {', '.join(self.operands)}):",
                "    out = empty((n,), dtype)",
                *(f"    {b} = np.empty(min(n, {BLOCK}), {b}_dtype)" for b in self.buffers),
                *(f"    {line}" for line in self.once),
                f"    for start in range(0, n, {BLOCK}):",
                f"        stop = start + {BLOCK}",
                *(["        if stop > n:", *("    " + line for line in cut)] if cut else []),
                *(f"        {line}" for line in self.each),
                "    return out",
            ]
        )
