"""The second stage of sums: numbers of many teams are put together in a fixed order, for all results of a kernel at
once. Floor: kernels."""

from __future__ import annotations

from collections.abc import Sequence

from gradtape.ir.cluster import Cluster
from gradtape.kernels.addresses import Addresses
from gradtape.kernels.cuda_body import assembled, index_type, stored, structure
from gradtape.kernels.cuda_jobs import Job, Parts, bytes_once, size_of
from gradtape.kernels.cuda_launch import Buffer, Launch, Number
from gradtape.kernels.cuda_teams import THREADS, WARP

FEW = 16  # results up to which a whole block puts one together


def combine(job: Job, waiting: Sequence[Parts]) -> tuple[str, Launch]:
    """The text of the kernel that puts parts together, and how it is launched."""
    cluster = job.cluster
    sizes = [size_of(cluster, p.loops) for p in waiting]
    blocks = [n if n <= FEW else -(-n // WARP) for n in sizes]
    index = index_type(max(p.count * p.distance for p in waiting) + THREADS * sum(blocks))
    lines: list[str] = []
    parameters: list[str] = []
    arguments: list[Buffer | Number] = []

    def given(declaration: str, argument: Buffer | Number) -> None:
        parameters.append(declaration)
        arguments.append(argument)

    comment = []
    first = 0
    for j, p in enumerate(waiting):
        assert p.write.monoid or cluster.code[p.write.source].op == "reduce"
        monoid = structure(p.write.monoid or cluster.code[p.write.source].leaf)
        comment.append(f"// w{j}: the {monoid.lower()} of parts p{j}")
        given(f"{p.result.dtype.name}* w{j}", p.result)
        given(f"const {p.partial.dtype.name}* __restrict__ p{j}", p.partial)
        for name, value in (("first", first), ("count", p.count), ("distance", p.distance)):
            given(f"const {index.name} {name}{j}", Number(value, index))
        addresses = Addresses(cluster, None)
        at = addresses.base(p.write.access)
        needed = {f"n{k}" for k in p.loops} | {n for n in addresses.integers if n[0] == "d"}
        needed |= {word for word in at.replace("*", " ").replace("+", " ").split() if word[0] == "n"}
        for name in sorted(needed):
            given(f"const {index.name} {name}_{j}", Number(addresses.integers[name], index))
        lines += _section(cluster, p, j, monoid, sizes[j], index.name, _renamed(at, needed, j))
        first += blocks[j]
    text, name = assembled("combine", comment, str(THREADS), parameters, lines)
    moved = sum(p.bytes for p in waiting) + bytes_once(cluster, ((p.result, p.write.access) for p in waiting))
    return text, Launch(name, first, THREADS, 0, moved, tuple(arguments))


def _renamed(text: str, names: set[str], j: int) -> str:
    """An address with the integers of one section."""
    return " ".join(f"{word}_{j}" if word in names else word for word in text.split(" "))


def _section(cluster: Cluster, p: Parts, j: int, monoid: str, size: int, index: str, at: str) -> list[str]:
    """The blocks of one result."""
    team, count = (f"Along<{THREADS}, {THREADS}>", 1) if size <= FEW else (f"Across<{WARP}, {THREADS}>", WARP)
    extents = [f"n{k}_{j}" for k in p.loops]
    places = []
    for m, k in enumerate(p.loops):
        inner = " * ".join(extents[m + 1 :])
        quotient = f"u / ({inner})" if inner else "u"
        places.append(f"        const {index} i{k} = {quotient}{f' % {extents[m]}' if m else ''};")
    return [
        f"    if ({index}(blockIdx.x) >= first{j} && {index}(blockIdx.x) < first{j} + {_blocks(extents, count)}) {{",
        f"        const {team} team;",
        f"        const {index} size = {' * '.join(extents) or '1'};",
        f"        const {index} mine = ({index}(blockIdx.x) - first{j}) * {count} + team.number;",
        f"        const {index} u = mine < size ? mine : 0;",
        f"        const auto x = combined<{monoid}>(team, p{j} + u, distance{j}, int(count{j}));",
        *places,
        "        if (mine < size && team.lane == 0)",
        f"            w{j}[{at}] = {stored(p.write, 'x')};",
        "    }",
    ]


def _blocks(extents: Sequence[str], count: int) -> str:
    size = " * ".join(extents) or "1"
    return size if count == 1 else f"({size} + {count - 1}) / {count}"
