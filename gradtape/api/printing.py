"""`tf.print`: in a traced function in each of its calls. Floor: api."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradtape.recording import leaves_of
from gradtape.runtime.convert import convert
from gradtape.runtime.hosted import effect, is_at_call
from gradtape.runtime.tensor import SymbolicTensor, Tensor, wrap
from gradtape.runtime.variable import Variable

_STREAMS: dict[Any, Callable[[str], Any]] = {
    "tf.logging.info": lambda text: logging.getLogger("gradtape").info(text.rstrip("\n")),
    "tf.logging.warning": lambda text: logging.getLogger("gradtape").warning(text.rstrip("\n")),
    "tf.logging.error": lambda text: logging.getLogger("gradtape").error(text.rstrip("\n")),
}


def print(*inputs: Any, **options: Any) -> None:
    """Prints tensors and what else it is given; while a function is traced, whenever that is called.

    Args:
      *inputs: tensors, strings, numbers, and structures of them.
      output_stream: `sys.stderr` by default, `sys.stdout`, any other object with `write`, "file://" and a path, or
        "tf.logging.info" (warning, error).
      summarize: how many elements at the beginning and the end of an axis are shown, 3 by default; -1 for all.
      sep, end: as Python's `print` takes them.
      name: accepted for compatibility.

    Raises:
      ValueError: another option, or a stream that is none of these.

    >>> import sys
    >>> import gradtape as tf
    >>> tf.print("x =", tf.range(10), output_stream=sys.stdout)
    x = [0 1 2 ... 7 8 9]

    Source: `tf.print` of TensorFlow 2.
    """
    stream = options.pop("output_stream", None)
    summarize, sep, end = options.pop("summarize", 3), options.pop("sep", " "), options.pop("end", "\n")
    options.pop("name", None)
    if options:
        raise ValueError(f"Unrecognized keyword arguments for tf.print: {sorted(options)}.")
    write = _writer(stream)

    def show(parts: Sequence[Any]) -> None:
        write(sep.join(text(p, summarize) for p in parts) + end)

    if is_at_call():
        _at_call(inputs, show)
    else:
        show(inputs)


def _writer(stream: Any) -> Callable[[str], Any]:
    if isinstance(stream, str) and stream in _STREAMS:
        return _STREAMS[stream]
    if isinstance(stream, str) and stream.startswith("file://"):
        return lambda line: _append(stream[len("file://") :], line)
    if stream is None:
        return lambda line: sys.stderr.write(line)
    if stream is sys.stdout:
        return lambda line: sys.stdout.write(line)  # whatever it is by then
    if hasattr(stream, "write"):
        return lambda line: stream.write(line)
    raise ValueError(
        f"Unknown output stream {stream!r}: give `sys.stderr`, `sys.stdout`, an object with `write`, 'file://path' or "
        "'tf.logging.info'."
    )


def _append(path: str, line: str) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write(line)


def _at_call(inputs: Sequence[Any], show: Callable[[Sequence[Any]], None]) -> None:
    """Tensors become operands of the step that prints; all else is printed as it is now."""
    found = [x for x in leaves_of(list(inputs)) if isinstance(x, Tensor | Variable)]
    tensors = [convert(x) for x in found]
    places = {id(x): k for k, x in enumerate(found)}
    avals = [t._aval for t in tensors]

    def run(*arrays: Any) -> Any:
        held = [wrap(a, v) for a, v in zip(arrays, avals, strict=True)]
        show([_with(x, places, held) for x in inputs])
        return ()

    effect(run, tensors)


def _with(x: Any, places: dict[int, int], held: Sequence[Tensor]) -> Any:
    """A structure with values in the place of tensors."""
    if id(x) in places:
        return held[places[id(x)]]
    if isinstance(x, dict):
        return {k: _with(v, places, held) for k, v in x.items()}
    if isinstance(x, list | tuple):
        parts = [_with(v, places, held) for v in x]
        return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)
    return x


# ------------------------------------------------------------------ text


def text(x: Any, summarize: int = 3, nested: bool = False) -> str:
    """What is printed of a value."""
    if isinstance(x, Tensor | Variable | np.ndarray):
        if isinstance(x, SymbolicTensor):
            return str(x)
        return _array_text(np.asarray(x), summarize)
    if isinstance(x, dict):
        return "{" + ", ".join(f"{k!r}: {text(v, summarize, True)}" for k, v in x.items()) + "}"
    if isinstance(x, list | tuple):
        inner = ", ".join(text(v, summarize, True) for v in x)
        return f"[{inner}]" if isinstance(x, list) else f"({inner},)" if len(x) == 1 else f"({inner})"
    return repr(x) if nested else str(x)


def _array_text(a: Any, summarize: int) -> str:
    if a.ndim == 0:
        return _number(a[()])
    keep = len(a) if summarize < 0 or len(a) <= 2 * summarize else summarize
    shown = [_array_text(row, summarize) for row in a[:keep]]
    if keep < len(a):
        shown += ["...", *(_array_text(row, summarize) for row in a[len(a) - keep :])]
    if a.ndim == 1:
        return "[" + " ".join(shown) + "]"
    first, *rest = ("\n" * (a.ndim - 1)).join(shown).split("\n")
    return "[" + "\n".join([first, *(f" {line}" if line else line for line in rest)]) + "]"


def _number(v: Any) -> str:
    """A number in as few digits as give it back; a string in quotes."""
    if isinstance(v, bytes):
        return f'"{v.decode(errors="replace")}"'
    if isinstance(v, bool | np.bool_):
        return str(int(v))
    if isinstance(v, np.complexfloating):
        return f"({_number(v.real)}+{_number(v.imag)}j)"
    if isinstance(v, np.floating) or v.dtype.kind == "V":
        wide = v.dtype == np.float64
        few = format(float(v), ".15g" if wide else ".6g")
        return (
            few
            if v.dtype.type(float(few)) == v or not np.isfinite(float(v))
            else format(float(v), ".17g" if wide else ".9g")
        )
    return str(v)


__all__ = ["print"]
