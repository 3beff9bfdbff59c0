"""The text of kernels: what is found in it without a compiler, and how many texts become one for g++."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from functools import cached_property

from tests.cuda_emulator.faults import KernelCompileError

__all__ = ["KernelText", "Parameter", "Source"]

# Headers that the emulator brings itself. NVRTC finds no other of the system's either.
KNOWN_HEADERS = {"cuda_fp16.h", "cuda_bf16.h", "cuda_runtime.h", "vector_types.h"}
# Options that say nothing to g++ here: the standard is fixed, products and sums are never contracted.
IGNORED_OPTIONS = re.compile(
    r"(-std=c\+\+17|--std=c\+\+17|-std=c\+\+14|--?fmad=\w+|-arch=\w+|--gpu-architecture=\S+|-lineinfo|-I.*)"
)

COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\\n])*")', re.DOTALL)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"]+)"|<([^>]+)>)[^\n]*$', re.MULTILINE)
DEFINED = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.MULTILINE)
BOUNDS = r"(?:__launch_bounds__\s*\((?P<{}>[^()]*(?:\([^()]*\)[^()]*)*)\)\s*)?"
KERNEL = re.compile(
    r'extern\s+"C"\s+__global__\s+'
    + BOUNDS.format("early")
    + r"void\s+"
    + BOUNDS.format("late")
    + r"(?P<name>\w+)\s*\("
)
DYNAMIC_SHARED = re.compile(
    r"\bextern\s+__shared__\s+(?P<type>[^;\[\]=]+?)\s*\b(?P<name>\w+)\s*\[\s*\]\s*;",
)
# g++ has `__shared__` as a storage class, which knows no second one, and no standard attribute behind it.
STATIC_SHARED = re.compile(r"\bstatic\s+(?=__shared__\b)")
ALIGNED_SHARED = re.compile(r"(\b__shared__\s+)alignas\b")
ALIGNED = re.compile(r"\b(?:__align__|alignas)\s*\(\s*\w+\s*\)\s*")


@dataclass(frozen=True)
class Parameter:
    """A parameter as it is written; its size and kind come from the compiler."""

    name: str
    text: str

    @property
    def is_restricted(self) -> bool:
        return "__restrict__" in self.text


@dataclass(frozen=True)
class KernelText:
    """A kernel's name, parameters, and the text of its `__launch_bounds__`."""

    name: str
    parameters: tuple[Parameter, ...]
    most_threads: str


def without_comments(text: str) -> str:
    """Comments become blanks, and lines stay where they are."""

    def blank(match: re.Match[str]) -> str:
        return match[1] or re.sub(r"[^\n]", " ", match[0])

    return COMMENT.sub(blank, text)


def split_at_commas(text: str) -> list[str]:
    """Parts between commas that stand in no brackets."""
    parts, depth, start = [], 0, 0
    for place, letter in enumerate(text):
        depth += (letter in "([{<") - (letter in ")]}>")
        if letter == "," and depth == 0:
            parts.append(text[start:place])
            start = place + 1
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip()]


def closing(text: str, start: int) -> int:
    """Where the bracket closes that was opened just before `start`."""
    depth = 1
    for place in range(start, len(text)):
        depth += (text[place] == "(") - (text[place] == ")")
        if depth == 0:
            return place
    raise KernelCompileError("a kernel's list of parameters does not end")


def dynamic_shared(match: re.Match[str]) -> str:
    """`extern __shared__ T name[];` as a pointer to where the block's dynamic shared memory lies."""
    kind = ALIGNED.sub("", match["type"]).strip()
    lines = "\n" * match[0].count("\n")
    return f"{kind}* const {match['name']} = ({kind}*)emulator_dynamic_shared();{lines}"


@dataclass(frozen=True)
class Source:
    """One module's text, with its macros (as `-D` gives them) and the headers that it may include by name."""

    text: str
    options: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    name: str = "kernels.cu"
    arch: str = "sm_80"
    macros: tuple[tuple[str, str], ...] = field(init=False)

    def __post_init__(self) -> None:
        macros = []
        for option in self.options:
            if option.startswith("-D"):
                macro, _, value = option[2:].strip().partition("=")
                macros.append((macro, value or "1"))
            elif not IGNORED_OPTIONS.fullmatch(option):
                raise KernelCompileError(
                    f"the emulator knows no option {option!r}: leave it out, or say here what it means"
                )
        object.__setattr__(self, "macros", tuple(macros))

    @cached_property
    def key(self) -> str:
        """A name that no other module has, from all that makes it what it is."""
        whole = repr((self.text, self.options, self.headers, self.name, self.arch))
        return "m_" + hashlib.sha256(whole.encode()).hexdigest()[:16]

    @cached_property
    def expanded(self) -> str:
        """The text with its own headers in it; those that the emulator brings are left out."""
        return self._expand(self.text, self.name, set())

    def _expand(self, text: str, name: str, included: set[str]) -> str:
        known = dict(self.headers)

        def replace(match: re.Match[str]) -> str:
            header = match[1] or match[2]
            line = text.count("\n", 0, match.start()) + 2
            if header in KNOWN_HEADERS:
                return ""
            if header not in known:
                raise KernelCompileError(
                    f"{name}, line {line - 1}: no header {header!r} is known; `headers` gives {sorted(known)}"
                )
            if header in included and "#pragma once" in known[header]:
                return ""
            included.add(header)
            body = self._expand(known[header].replace("#pragma once", ""), header, included)
            return f'#line 1 "{header}"\n{body}\n#line {line} "{name}"'

        return INCLUDE.sub(replace, without_comments(text))

    @cached_property
    def kernels(self) -> dict[str, KernelText]:
        """All that is written `extern "C" __global__ void name(...)`."""
        found = {}
        for match in KERNEL.finditer(self.expanded):
            inside = self.expanded[match.end() : closing(self.expanded, match.end())]
            parameters = []
            for text in split_at_commas(" ".join(inside.split())):
                named = re.search(r"(\w+)\s*(?:\[\s*\])?$", text)
                parameters.append(Parameter(named[1] if named else text, text))
            bounds = split_at_commas(match["early"] or match["late"] or "0")
            found[match["name"]] = KernelText(match["name"], tuple(parameters), bounds[0])
        return found

    def kernel_symbol(self, name: str) -> str:
        """The symbol of what the launcher must know of a kernel."""
        return f"emulator_kernel_{self.key}_{name}"

    def for_gxx(self) -> str:
        """This module in a namespace of its own, and nothing of it left behind for the text that comes after."""
        renamed = {name: f"{name}_{self.key}" for name in self.kernels}
        version = self.arch.removeprefix("sm_") + "0"
        macros = {"__CUDA_ARCH__": version, **dict(self.macros), **renamed}
        lines = [f"#define {name} {value}" for name, value in macros.items()]
        lines += [f"namespace {self.key} {{", f'#line 1 "{self.name}"']
        text = DYNAMIC_SHARED.sub(dynamic_shared, self.expanded)
        text = ALIGNED_SHARED.sub(r"\1__align__", STATIC_SHARED.sub("", text))
        lines += [text, '#line 1 "the end of the module"']
        lines += [
            f"EMULATOR_KERNEL({self.kernel_symbol(name)}, {renamed[name]}, ({kernel.most_threads}))"
            for name, kernel in self.kernels.items()
        ]
        lines += ["}"]
        lines += [f"#undef {name}" for name in sorted({*macros, *DEFINED.findall(self.expanded)})]
        return "\n".join(lines) + "\n"
