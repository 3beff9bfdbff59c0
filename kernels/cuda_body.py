"""What all CUDA kernels have in common: parameters, formulas, scalar operations, packs of elements. Floor: kernels."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from typing import Any

from gradtape.ir.cluster import LEAVES, Access, Cluster, Operation, Write
from gradtape.ir.dtypes import DType, bool_, int32, int64
from gradtape.kernels.addresses import Addresses
from gradtape.kernels.cuda_jobs import Job
from gradtape.kernels.cuda_launch import LONG, Buffer, Number
from gradtape.kernels.cuda_spelling import MONOIDS, literal_cuda, spelled_cuda
from gradtape.kernels.kernel import described

TEMPLATES = ("functions.cuh", "teams.cuh")
OF_COMPLEX = ("complex.cuh", "teams.cuh")
NAMED = 4  # operations that a kernel's name has
NOTHING: Mapping[int, str] = {}
UNNAMED = LEAVES | frozenset({"cast", "round", "identity", "stop_gradient"})


class Body:
    """The text of one kernel while it is written."""

    def __init__(self, job: Job, vector: int | None, index: DType) -> None:
        self.job, self.cluster, self.vector, self.index = job, job.cluster, vector, index
        self.addresses = Addresses(job.cluster, None)
        self.names: dict[int, str] = {}  # of operations whose result is at hand
        self.raw: dict[int, str] = {}  # where elements that are read are at hand
        self.numbers: dict[tuple[str, DType], Any] = {}
        self.given: frozenset[str] | None = None  # the arrays that the kernel has, if not all of the job
        self.staged: dict[int, str] = {}  # where elements that are read lie in the block's memory
        self.in_team = False  # whether what is the same for a round is read by one thread, which tells its team
        self.lines: list[str] = []
        self.depth = 1

    # ------------------------------------------------------------------ the whole

    def finished(
        self,
        bounds: str,
        buffers: Sequence[tuple[str, Buffer]],
        more: Sequence[tuple[str, Number]],
        reads: Sequence[tuple[str, Buffer]] | None = None,
    ) -> Any:
        """The text, the kernel's name and its arguments, given the bounds of its launches, what it writes, what else it
        is told, and what it reads if that is not the job's reads."""
        pointers = [(f"{b.dtype.name}* {name}", b) for name, b in buffers]
        given = [(f"r{k}", b) for k, b in enumerate(self.job.reads)] if reads is None else reads
        changed = {b for _, b in buffers}  # what is added to is read, too
        pointers += [(f"const {b.dtype.name}*{'' if b in changed else ' __restrict__'} {name}", b) for name, b in given]
        values = [(f"c{k}", Number(v, dtype)) for k, ((_, dtype), v) in enumerate(self.numbers.items())]
        values += [(name, Number(n, self.index)) for name, n in self.addresses.integers.items()]
        values += more
        parameters = [*(p for p, _ in pointers), *(f"const {n.dtype.name} {name}" for name, n in values)]
        formula = [f"// {line}" for line in described(self.cluster)]
        text = assembled(named(self.cluster.code), formula, bounds, parameters, self.lines, templates(self.cluster))
        return text, (
            *(b for _, b in pointers),
            *(n for _, n in values),
        )

    # ------------------------------------------------------------------ lines

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def open(self, text: str) -> None:
        self.line(text)
        self.depth += 1

    def close(self, text: str = "}") -> None:
        self.depth -= 1
        self.line(text)

    # ------------------------------------------------------------------ places

    def decompose(self, name: str, loops: Sequence[int]) -> None:
        """The values of loops, outermost first, of which `name` counts the rounds."""
        for j, k in enumerate(loops):
            inner = loops[j + 1 :]
            text = name if not inner else f"{name} / {_product(inner)}"
            if j:
                text += f" % n{k}"
            self.line(f"const {self.index.name} i{k} = {text};")

    def place(self, access: Access) -> str:
        """Where an element lies, for given values of all loops."""
        return self.addresses.base(access)

    def beside(self, access: Access) -> str:
        """Where the element j places further along the vector loop lies."""
        assert self.vector is not None
        step = self.addresses.stride(access.strides[self.vector])
        base = self.place(access)
        return f"{base} + j" if step == "1" else f"{base} + j * {step}"

    def is_along(self, access: Access) -> bool:
        """Whether elements lie side by side along the vector loop."""
        return self.vector is not None and access.strides[self.vector] == 1

    def moves(self, k: int) -> bool:
        """Whether the result of an operation depends on the vector loop."""
        return self.vector is not None and self.vector in self.cluster.dependences[k]

    def is_fixed(self, k: int) -> bool:
        """Whether the result of an operation is the same for a whole pack."""
        return self.vector is not None and not self.moves(k)

    # ------------------------------------------------------------------ scalar operations

    def operation(self, k: int, raw_too: bool = False) -> None:
        """One operation; `raw_too`: what is read stays at hand as it lies in memory."""
        e = self.cluster.code[k]
        if e.op == "number":
            self.names[k] = literal_cuda(e) or self._argument(e)
            return
        name = f"t{k}_{e.op}"
        if e.op == "read":
            access = self.cluster.reads[e.leaf].access
            element = self.raw.get(k) or self._element(e.leaf, access)
            if access.dtype.is_half and raw_too:
                self.line(f"const {access.dtype.name} t{k}_raw = {element};")
                element = f"t{k}_raw"
            text = f"widen({element})" if access.dtype.is_half else element
        elif k in self.raw:
            text = self.raw[k]
        elif e.op == "position":
            access = Access(e.dtype, e.leaf)
            text = f"cast<{e.dtype.name}>({self.beside(access) if self.moves(k) else self.place(access)})"
        else:
            text = spelled_cuda(e, [self.names[a] for a in e.args])
        self.line(f"const {e.dtype.name} {name} = {text};")
        self.names[k] = name

    def _element(self, read: int, access: Access) -> str:
        told = self.in_team and not access.loops & self.cluster.reduced
        return f"team.told(r{read}, {self.place(access)})" if told else f"r{read}[{self.place(access)}]"

    def constants(self, needed: Set[int]) -> None:
        """What depends on no loop, where there are any, and on nothing that the kernel writes: done once, before all
        rounds."""
        self.numbers_of(range(len(self.cluster.code)))
        for k in sorted(needed - self.names.keys() if self.cluster.loops else ()):
            e = self.cluster.code[k]
            is_ready = all(a in self.names for a in e.args) if e.op != "read" else not self._is_written(e.leaf)
            if is_ready and not self.cluster.dependences[k] and not self.cluster.stages[k]:
                self.operation(k)

    def _is_written(self, read: int) -> bool:
        return self.job.reads[read] in self.job.writes

    def numbers_of(self, order: Iterable[int]) -> None:
        """Names for the numbers of a formula."""
        for k in order:
            if self.cluster.code[k].op == "number":
                self.operation(k)

    def _argument(self, e: Operation) -> str:
        key = (repr(e.leaf), e.dtype)
        self.numbers.setdefault(key, e.leaf)
        return f"c{list(self.numbers).index(key)}"

    # ------------------------------------------------------------------ packs of elements

    def load(self, order: Iterable[int], found: Mapping[int, str] = NOTHING) -> None:
        """What a pack of elements begins with: elements that lie side by side are read at once. `found` says where
        those lie that were kept."""
        for k in order:
            e = self.cluster.code[k]
            if k in found:
                pack = f"k{k}_"
                self.line(f"const auto {pack} = load<V>(k{k}, {found[k]});")
                self.raw[k] = f"{pack}[0]" if self.is_fixed(k) else f"{pack}[j]"
            elif k in self.staged and self.moves(k):
                self.line(f"const auto k{k}_ = load<V>(k{k}, {self.staged[k]});")
                self.raw[k] = f"k{k}_[j]"
            elif k in self.staged:
                self.raw[k] = f"k{k}[{self.staged[k]}]"
            elif e.op == "read":
                access = self.cluster.reads[e.leaf].access
                if self.is_along(access):
                    self.line(f"const auto r{e.leaf}_ = load<V>(r{e.leaf}, {self.place(access)});")
                    self.raw[k] = f"r{e.leaf}_[j]"
                elif self.moves(k):
                    self.raw[k] = f"r{e.leaf}[{self.beside(access)}]"

    def fixed(self, order: Iterable[int], kept: Collection[int] = ()) -> None:
        """Operations that are the same for a whole pack."""
        for k in order:
            if k in self.names or self.moves(k):
                continue
            ready = all(a in self.names for a in self.cluster.code[k].args)
            if self.is_fixed(k) if k in self.raw else ready:
                self.operation(k, k in kept)

    def begin(self, writes: dict[str, Write]) -> None:
        """Packs for what is written side by side."""
        for name, w in writes.items():
            if self.is_along(w.access):
                self.line(f"Pack<{w.access.dtype.name}, V> {name}_;")

    def each(self) -> None:
        """The loop over the elements of a pack."""
        self.line("#pragma unroll")
        self.open("for (int j = 0; j < V; ++j) {")

    def set(self, name: str, w: Write) -> None:
        """One element of a pack is written."""
        value = stored(w, self.names[w.source])
        if self.is_along(w.access):
            self.line(f"{name}_[j] = {value};")
        elif self.vector is not None and w.access.strides[self.vector]:
            self.line(f"{self.guard(w)}{name}[{self.beside(w.access)}] = {value};")
        else:
            self.once(name, w)

    def once(self, name: str, w: Write, condition: str = "") -> None:
        """An element that is written in one round of the loops it does not go over."""
        self.line(f"{self.guard(w, condition)}{name}[{self.place(w.access)}] = {stored(w, self.names[w.source])};")

    def without_unused(self, start: int, loops: Iterable[int]) -> None:
        """The values of loops that no line since `start` asks for are not computed."""
        for k in loops:
            mine = [n for n in range(start, len(self.lines)) if re.search(rf"\bi{k}\b", self.lines[n])]
            if len(mine) == 1 and re.search(rf"const \w+ i{k} = [^,]*;$", self.lines[mine[0]]):
                del self.lines[mine[0]]

    def end(self, writes: dict[str, Write]) -> None:
        """Packs are written at once."""
        for name, w in writes.items():
            if self.is_along(w.access):
                self.line(f"{self.guard(w)}store({name}, {self.place(w.access)}, {name}_);")

    def guard(self, w: Write, condition: str = "") -> str:
        """In which rounds a write happens, as the head of a statement."""
        rounds = self.cluster.reduced if condition else ()  # of the others, if a condition says who writes
        idle = [f"i{k} == 0" for k, over in enumerate(w.over) if not over and k not in rounds]
        conditions = " && ".join([*([condition] if condition else []), *idle])
        return f"if ({conditions}) " if conditions else ""


def _product(loops: Sequence[int]) -> str:
    text = " * ".join(f"n{k}" for k in loops)
    return text if len(loops) == 1 else f"({text})"


def position(name: str, sizes: Sequence[str], j: int) -> str:
    """The value of loop j of several with these sizes, outermost first, in the round that `name` counts."""
    inner = sizes[j + 1 :]
    text = name if not inner else f"{name} / {inner[0]}" if len(inner) == 1 else f"{name} / ({' * '.join(inner)})"
    return f"{text} % {sizes[j]}" if j else text


def stored(w: Write, value: str) -> str:
    """A value as its array holds it."""
    return f"narrow<{w.access.dtype.name}>({value})" if w.access.dtype.is_half else value


def templates(cluster: Cluster) -> tuple[str, ...]:
    """The files that the text of a cluster includes."""
    return OF_COMPLEX if any(e.dtype.is_complex for e in cluster.code) else TEMPLATES


def structure(monoid: str) -> str:
    """The monoid's name in a text."""
    return MONOIDS[monoid][0]


def named(code: Sequence[Operation]) -> str:
    """A name made of operations."""
    words = [f"reduce_{e.leaf}" if e.op == "reduce" else e.op for e in code if e.op not in UNNAMED]
    return "_".join(list(dict.fromkeys(words))[:NAMED]) or "copy"


def assembled(
    name: str,
    comment: Sequence[str],
    bounds: str,
    parameters: Sequence[str],
    lines: Sequence[str],
    templates: Sequence[str] = TEMPLATES,
) -> tuple[str, str]:
    """The text of a kernel, and its name, which ends in a hash of the text."""
    heads = [f'#include "{file}"' for file in templates]
    signature = f"{name}@(\n    {(',' + chr(10) + '    ').join(parameters)})"
    text = "\n".join(
        [
            *heads,
            "",
            "namespace gradtape {",
            "",
            *comment,
            f'extern "C" __global__ void __launch_bounds__({bounds})',
            signature,
            "{",
            *lines,
            "}",
            "",
            "}  // namespace gradtape",
            f"using gradtape::{name}@;",
            "",
        ]
    )
    full = f"{name}_{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    return text.replace(f"{name}@", full), full


def flag(value: bool) -> Number:
    """A truth value as an argument."""
    return Number(value, bool_)


def index_type(reach: int) -> DType:
    """The type of places of which the largest is below this number."""
    return int64 if reach >= LONG else int32
