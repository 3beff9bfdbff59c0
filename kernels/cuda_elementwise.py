"""Jobs without reductions: each thread takes packs of neighbouring elements. Floor: kernels."""

from __future__ import annotations

from gradtape.kernels.cuda_body import Body, assembled, flag, index_type
from gradtape.kernels.cuda_jobs import Job, size_of
from gradtape.kernels.cuda_launch import Launch
from gradtape.kernels.cuda_teams import THREADS, width_of
from gradtape.kernels.schedule import schedule

MOST_BLOCKS = 1 << 20  # beyond, each thread takes several packs


def elementwise(job: Job) -> tuple[str, Launch]:
    """The text of a job's kernel, and how it is launched."""
    cluster = job.cluster
    vector = schedule(cluster).vector
    width = width_of(cluster, vector)
    loops = tuple(range(len(cluster.loops)))
    size = size_of(cluster, loops)
    packs = -(-size // width)
    grid = max(1, min(-(-packs // THREADS), MOST_BLOCKS))
    body = Body(job, vector, index_type(size + grid * THREADS * width))
    if len(loops) == 1 and width > 1:
        _line(body, width)
        more = []
    else:
        _grid(body, width)
        more = [("packs", flag(are_packs(job, vector, width)))] if width > 1 else []
    buffers = [(f"w{k}", b) for k, b in enumerate(job.writes)]
    (text, name), arguments = body.finished(THREADS, buffers, more)
    return text, Launch(name, grid, THREADS, 0, arguments)


def are_packs(job: Job, vector: int | None, width: int) -> bool:
    """Whether rows along the vector loop are whole packs, and begin where packs do."""
    cluster = job.cluster
    accesses = [*(r.access for r in cluster.reads), *(w.access for w in cluster.writes if not w.monoid)]
    along = [a for a in accesses if vector is not None and a.strides[vector] == 1]
    steps = [s for a in along for k, s in enumerate(a.strides) if k != vector]
    return vector is not None and all(n % width == 0 for n in (cluster.loops[vector].extent, *steps))


def pointers(body: Body) -> list[str]:
    """The arrays that are read and written in packs."""
    cluster = body.cluster
    written = [f"w{k}" for k, w in enumerate(cluster.writes) if not w.monoid and body.is_along(w.access)]
    return [*written, *(f"r{k}" for k, r in enumerate(cluster.reads) if body.is_along(r.access))]


def _line(body: Body, width: int) -> None:
    """One loop: packs as far as they go, single elements for the rest."""
    index = body.index.name
    body.line(f"// {width} elements at once, the last ones (or all, of arrays that are not aligned) one by one")
    body.line(f"const {index} whole = is_aligned<{width}>({', '.join(pointers(body))}) ? n0 / {width} * {width} : 0;")
    body.open(f"const auto run = [&](auto width, const {index} first, const {index} last) {{")
    body.line("constexpr int V = decltype(width)::value;")
    body.open(f"for ({index} i0 = first + thread<{index}>() * V; i0 < last; i0 += threads<{index}>() * V) {{")
    _pack(body)
    body.close()
    body.close("};")
    body.line(f"run(Width<{width}>{{}}, 0, whole);")
    body.line("run(Width<1>{}, whole, n0);")


def _grid(body: Body, width: int) -> None:
    """Several loops, of which the threads take the rounds in turn."""
    index, vector = body.index.name, body.vector
    others = [k for k in range(len(body.cluster.loops)) if k != vector]
    open_lambda(body, width, "packs")
    if vector is not None:
        body.line(f"const {index} packs_of_row = n{vector} / V;")
    total = " * ".join([*(f"n{k}" for k in others), *(["packs_of_row"] if vector is not None else [])]) or "1"
    top = len(body.lines)
    body.open(f"for ({index} u = thread<{index}>(); u < {total}; u += threads<{index}>()) {{")
    if vector is None:
        body.decompose("u", others)
    elif others:
        body.line(f"const {index} i{vector} = u % packs_of_row * V, row = u / packs_of_row;")
        body.decompose("row", others)
    else:
        body.line(f"const {index} i{vector} = u;")
    _pack(body)
    body.close()
    body.without_unused(top, range(len(body.cluster.loops)))
    close_lambda(body, width)


def open_lambda(body: Body, width: int, condition: str) -> None:
    """What follows is written once and made for packs of two sizes."""
    if width > 1:
        arrays = ", ".join(pointers(body))
        body.line(f"const bool wide = {condition} && is_aligned<{width}>({arrays});")
    body.open("const auto run = [&](auto width) {")
    body.line("constexpr int V = decltype(width)::value;")


def close_lambda(body: Body, width: int) -> None:
    """The calls of it."""
    body.close("};")
    if width > 1:
        body.line("if (wide)")
        body.line(f"    run(Width<{width}>{{}});")
        body.line("else")
        body.line("    run(Width<1>{});")
    else:
        body.line("run(Width<1>{});")


def _pack(body: Body) -> None:
    """One pack: read, computed, written."""
    cluster = body.cluster
    writes = {f"w{k}": w for k, w in enumerate(cluster.writes)}
    order = range(len(cluster.code))
    body.numbers_of(order)
    body.load(order)
    body.fixed(order)
    each = {
        n: w for n, w in writes.items() if body.vector is not None and (w.over[body.vector] or body.moves(w.source))
    }
    for name, w in writes.items():
        if name not in each:
            body.once(name, w)
    if each:
        body.begin(each)
        body.each()
        for k in order:
            if k not in body.names:
                body.operation(k)
        for name, w in each.items():
            body.set(name, w)
        body.close()
        body.end(each)


__all__ = ["are_packs", "assembled", "close_lambda", "elementwise", "open_lambda", "pointers"]
