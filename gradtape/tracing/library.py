"""The library that rewrites functions, loaded on first use, with our statements in place of its own. Floor: tape."""

from __future__ import annotations

import ast
import functools
import importlib.util  # the library expects it to be loaded
import os
from types import ModuleType
from typing import Any

from gradtape.runtime.places import TRANSLATIONS, skip

assert importlib.util is not None


class Library:
    """What we use of it."""

    def __init__(self, overrides: dict[str, Any]) -> None:
        import malt
        from malt.core import converter
        from malt.impl import api, conversion
        from malt.operators import function_wrappers, py_builtins, variables
        from malt.pyct import inspect_utils

        skip(os.path.dirname(malt.__file__))
        self.is_allowed, self.is_unsupported = conversion.is_allowlisted, conversion.is_unsupported
        self.is_builtin = inspect_utils.isbuiltin
        self.builtins, self.variables = py_builtins, variables
        self.program, self.options = converter.ProgramContext, converter.ConversionOptions
        names = overrides | {"FunctionScope": _scope(function_wrappers, variables)}

        class Transpiler(api.PyToPy):
            """The library's, which puts our names into what it generates. It rewrites assertions whose messages are
            constants, and only if it is asked to; ours rewrites all."""

            def transform_ast(self, node: Any, ctx: Any) -> Any:
                return super().transform_ast(_Assertions().visit(node), ctx)

            def get_extra_locals(self) -> dict[str, ModuleType]:
                if self._extra_locals is None:
                    vars(super().get_extra_locals()["ag__"]).update(names)
                found: dict[str, ModuleType] = self._extra_locals
                return found

        self.transpiler = Transpiler()

    @functools.cached_property
    def wanted(self) -> Any:
        """How a function is converted that somebody asked for by name."""
        return self.options(recursive=True, user_requested=True, optional_features=())

    @functools.cached_property
    def called(self) -> Any:
        """How functions are converted that it calls."""
        return self.wanted.call_options()

    def converted(self, f: Any) -> Any:
        """A function with its statements rewritten.

        Raises:
          Exception: whatever the library cannot read or does not support.
        """
        made, module, lines = self.transpiler.transform(f, self.program(options=self.called))
        made.ag_module, made.ag_source_map = module, lines
        if module.__file__ not in TRANSLATIONS:
            TRANSLATIONS[module.__file__] = _translation(module.__file__, lines)
        return made

    def is_undefined(self, x: Any) -> bool:
        """Whether a name has no value yet."""
        return isinstance(x, self.variables.Undefined | self.variables.UndefinedReturnValue)

    def is_unreturned(self, x: Any) -> bool:
        """Whether nothing was returned yet."""
        return isinstance(x, self.variables.UndefinedReturnValue)


class _Assertions(ast.NodeTransformer):
    """`assert` as a call of `statements.assert_stmt`, the message as a function."""

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        self.generic_visit(node)
        message = [] if node.msg is None else [ast.Lambda(_none(), node.msg)]
        function = ast.Attribute(ast.Name("ag__", ast.Load()), "assert_stmt", ast.Load())
        return ast.copy_location(ast.Expr(ast.Call(function, [node.test, *message], [])), node)


def _none() -> ast.arguments:
    """No parameters."""
    return ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])


def _translation(file: str, lines: Any) -> Any:
    """From a line of generated code to the user's."""
    known = {place.lineno: (o.loc.filename, o.loc.lineno) for place, o in lines.items() if o.loc.filename}
    numbers = sorted(known)

    def translate(line: int) -> tuple[str, int]:
        before = [n for n in numbers if n <= line]
        return known[before[-1] if before else numbers[0]] if numbers else (file, line)

    return translate


def _scope(wrappers: Any, variables: Any) -> Any:
    class FunctionScope(wrappers.FunctionScope):
        """The body of a converted function."""

        def ret(self, value: Any, did_return: Any) -> Any:
            """What the function returns at its end."""
            if isinstance(value, variables.UndefinedReturnValue):
                return None
            if did_return is not True and did_return is not False:
                raise ValueError(
                    f"Whether `{self.function_name}` returns a value depends on a tensor. Return one in every case: "
                    "add a `return` at its end, or an `else`."
                )
            return value

        def __init__(self, function_name: str, scope_name: str, options: Any) -> None:
            super().__init__(function_name, scope_name, options)
            self.function_name = function_name

    return FunctionScope
