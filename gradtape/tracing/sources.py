"""The syntax tree of a function that is there. Floor: tape."""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
import textwrap
import types
from collections.abc import Sequence
from typing import Any


class NoSource(ValueError):
    """The text of a function is not known."""


def syntax_of(f: types.FunctionType) -> ast.FunctionDef | ast.Lambda:
    """The definition of a function, with its lines as they are numbered in its file.

    Raises:
      NoSource: it was typed at a prompt, or made by `exec`.
    """
    code = f.__code__
    if f.__name__ == "<lambda>":
        return _lambda(code)
    try:
        lines, first = inspect.getsourcelines(code)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError) as e:
        raise _unknown(code) from e
    found = tree.body[0]
    if not isinstance(found, ast.FunctionDef):
        raise _unknown(code)
    ast.increment_lineno(found, first - 1)
    return found


def _lambda(code: types.CodeType) -> ast.Lambda:
    """The lambda whose body is where the code says that it stands: of several in a line, that one."""
    try:
        lambdas = _lambdas("".join(linecache.getlines(code.co_filename)))
    except SyntaxError as e:
        raise _unknown(code) from e
    places = [((a, c), (b, d)) for a, b, c, d in code.co_positions() if None not in (a, b, c, d) and d]
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    around = [n for n in lambdas if places and _holds(n, places, names)]
    if not around:
        raise _unknown(code)
    return max(around, key=lambda n: (n.body.lineno, n.body.col_offset))


@functools.lru_cache(16)
def _lambdas(text: str) -> list[ast.Lambda]:
    """All of them in a file, which may have many functions that are asked for."""
    return [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Lambda)]


def _holds(node: ast.Lambda, places: Sequence[Any], names: Sequence[str]) -> bool:
    """Whether all of a code is in the body of a lambda with these parameters."""
    body, given = node.body, node.args
    begin, end = (body.lineno, body.col_offset), (body.end_lineno, body.end_col_offset)
    same = [a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)] == list(names)
    return same and all(begin <= start and stop <= end for start, stop in places)


def _unknown(code: types.CodeType) -> NoSource:
    return NoSource(
        f"The source of `{code.co_name}` is not available (it was typed at a prompt, or made by `exec`). Define the "
        "function in a file or in a cell of a notebook."
    )
