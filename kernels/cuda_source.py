"""Kernels that users write in CUDA C++: what their text says of their parameters. Floor: kernels.

Pointers to constants are operands, other pointers results, each in the order in which they stand; what is passed by
value is a number with a name. Types may be letters, for which a text is made per dtype."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gradtape.ir.dtypes import (
    DType,
    bfloat16,
    bool_,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)

SPELLINGS: dict[DType, tuple[str, ...]] = {  # the first one is written, all are read
    float32: ("float",),
    float64: ("double",),
    float16: ("__half", "half"),
    bfloat16: ("__nv_bfloat16", "nv_bfloat16"),
    bool_: ("bool",),
    int8: ("signed char", "char", "int8_t"),
    int16: ("short", "short int", "int16_t"),
    int32: ("int", "signed", "signed int", "int32_t"),
    int64: ("long long", "long long int", "int64_t", "ptrdiff_t"),
    uint8: ("unsigned char", "uint8_t"),
    uint16: ("unsigned short", "unsigned short int", "uint16_t"),
    uint32: ("unsigned int", "unsigned", "uint32_t"),
    uint64: ("unsigned long long", "unsigned long long int", "uint64_t", "size_t"),
    complex64: ("float2",),
    complex128: ("double2",),
}
TYPES = {text: dtype for dtype, texts in SPELLINGS.items() for text in texts}
HEADERS = {float16: "cuda_fp16.h", bfloat16: "cuda_bf16.h"}
COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\\n])*")', re.DOTALL)
BOUNDS = r"(?:__launch_bounds__\s*\([^()]*(?:\([^()]*\)[^()]*)*\)\s*)?"
KERNEL = re.compile(r"__global__\s+" + BOUNDS + r"void\s+" + BOUNDS + r"(?P<name>\w+)\s*\(")
TEMPLATE = re.compile(r"\btemplate\s*<[^;{}]*>\s*(?:extern\s+\"C\"\s+)?$")
BARE = re.compile(r'(?<!extern "C" )\b__global__')
QUALIFIERS = {"const", "volatile", "__restrict__", "__restrict", "__grid_constant__", "struct"}


@dataclass(frozen=True)
class Parameter:
    """A parameter of a kernel. `kind`: "operand", "result" or "number"; `type`: a dtype, or a letter for one."""

    name: str
    kind: str
    type: DType | str


@dataclass(frozen=True)
class CudaSource:
    """A kernel in a text."""

    text: str
    name: str
    parameters: tuple[Parameter, ...]

    def of_kind(self, kind: str) -> list[Parameter]:
        return [p for p in self.parameters if p.kind == kind]

    def specialised(self, letters: Mapping[str, DType]) -> str:
        """The text for dtypes of its letters; its lines keep their numbers."""
        lines = [f"#include <{HEADERS[d]}>" for d in dict.fromkeys(letters.values()) if d in HEADERS]
        lines += [f"typedef {SPELLINGS[d][0]} {letter};" for letter, d in letters.items()]
        return "\n".join([*lines, f'#line 1 "{self.name}"', BARE.sub('extern "C" __global__', self.text), ""])


def kernels_in(text: str) -> list[str]:
    """The names of the kernels in a text."""
    return [m["name"] for m in KERNEL.finditer(_without_comments(text))]


def cuda_source(text: str, name: str, letters: Sequence[str]) -> CudaSource:
    """The kernel of a name in a text, whose types may be these letters.

    Raises:
      ValueError: a parameter that cannot be passed.
    """
    plain = _without_comments(text)
    found = next(m for m in KERNEL.finditer(plain) if m["name"] == name)
    if TEMPLATE.search(plain[: found.start()].rstrip()):
        raise ValueError(
            f"The kernel `{name}` is a template. Leave `template <...>` out and say which of its types are letters: "
            "`types='T'`."
        )
    inside = plain[found.end() : _closing(plain, found.end())]
    parts = [p for p in _split(" ".join(inside.split())) if p]
    return CudaSource(text, name, tuple(_parameter(p, name, letters) for p in parts))


def _parameter(text: str, kernel: str, letters: Sequence[str]) -> Parameter:
    before, star, behind = text.partition("*")
    if not star and text.endswith("]"):  # an array is a pointer
        before, behind = re.sub(r"(\w+)\s*\[\s*\w*\s*\]$", r"\0\1", text).split("\0")
        star = "*"
    if not star:
        before, _, behind = text.rpartition(" ")
    words = before.split()
    type_ = " ".join(w for w in words if w not in QUALIFIERS)
    names = [w for w in behind.replace("*", " * ").split() if w not in QUALIFIERS]
    known = type_ if type_ in letters else TYPES.get(type_)
    if len(names) != 1 or not names[0].isidentifier() or known is None:
        known_letters = f", here {', '.join(letters)}" if letters else ""
        raise ValueError(
            f"The parameter `{text}` of the kernel `{kernel}` cannot be passed. A parameter is a pointer or a number "
            f"of one of the types {', '.join(s[0] for s in SPELLINGS.values())}, or of a letter of "
            f"`types`{known_letters}."
        )
    kind = "number" if not star else "operand" if "const" in words else "result"
    return Parameter(names[0], kind, known)


def _without_comments(text: str) -> str:
    return COMMENT.sub(lambda m: m[1] or " ", text)


def _split(text: str) -> list[str]:
    """Parts between commas that stand in no brackets."""
    parts, depth = [""], 0
    for c in text:
        depth += (c in "(<[{") - (c in ")>]}")
        if c == "," and not depth:
            parts.append("")
        else:
            parts[-1] += c
    return [p.strip() for p in parts]


def _closing(text: str, start: int) -> int:
    """Where the bracket closes that was opened before `start`."""
    depth = 1
    for place in range(start, len(text)):
        depth += (text[place] == "(") - (text[place] == ")")
        if not depth:
            return place
    raise ValueError("The list of a kernel's parameters does not end.")
