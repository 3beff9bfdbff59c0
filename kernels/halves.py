"""Clusters over float16 and bfloat16 in float32: elements are widened where they are read and rounded where they are
written, and in between where a program asks for it. Floor: kernels."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from gradtape.ir.cluster import Cluster, Operation, live
from gradtape.ir.dtypes import DType, float32, uint16

ASKS = frozenset({"is_finite", "is_inf"})  # what the size of a half is asked for: too large for one is infinite


def computed(dtype: DType) -> DType:
    """The dtype in which a kernel computes."""
    return float32 if dtype.is_half else dtype


def stored(dtype: DType) -> np.dtype[Any]:
    """The dtype of the arrays that a kernel reads and writes: the bits of halves."""
    return np.dtype(np.uint16) if dtype.is_half else dtype.numpy_dtype


def in_float32(cluster: Cluster) -> Cluster:
    """The cluster with no operation in a half type. A `round` operation gives what a value is in the type `leaf`; a
    `cast` with a `leaf` is the operand of one; `nextafter` has the type whose numbers are counted, a `bitcast` those of
    its operand and its result."""
    if not any(e.dtype.is_half for e in cluster.code):
        return cluster
    cluster = _bits_of_arrays(cluster)
    code: list[Operation] = []
    at: list[int] = []

    def put(op: str, args: tuple[int, ...], dtype: DType, leaf: Any = None) -> int:
        code.append(Operation(op, args, dtype, leaf))
        return len(code) - 1

    def rounded(k: int, dtype: DType) -> int:
        return put("round", (k,), float32, dtype)

    for e in cluster.code:
        args = tuple(at[a] for a in e.args)
        source = cluster.code[e.args[0]] if e.args else None
        if source is not None and source.dtype.is_half and (e.op in ASKS or e.op == "cast") and source.op != "read":
            args = (rounded(args[0], source.dtype),)
        if e.op == "number" and e.dtype.is_half:
            at.append(put("number", (), float32, float(e.leaf)))
        elif e.op == "cast" and e.dtype.is_half:
            wide = args[0] if code[args[0]].dtype is float32 else put("cast", args, float32, e.dtype)
            at.append(rounded(wide, e.dtype))
        elif source is not None and _is_of_halves(e, source):
            at.append(put(e.op, args, computed(e.dtype), (source.dtype, e.dtype)))
        elif e.op == "nextafter" and e.dtype.is_half:
            at.append(put(e.op, args, float32, e.dtype))
        else:
            at.append(put(e.op, args, computed(e.dtype), e.leaf))
    writes = tuple(dataclasses.replace(w, source=at[w.source]) for w in cluster.writes)
    return Cluster(cluster.loops, cluster.reads, tuple(code), writes)


# ------------------------------------------------------------------ the bits of halves


def _is_of_halves(e: Operation, source: Operation) -> bool:
    return e.op == "bitcast" and (e.dtype.is_half or source.dtype.is_half)


def _bits_of_arrays(cluster: Cluster) -> Cluster:
    """The bits of an array's elements are read, and written, as elements of another type: float32 would lose those of a
    NaN."""
    code, reads = list(cluster.code), list(cluster.reads)

    def read_as(k: int, dtype: DType) -> Operation:
        read = reads[code[k].leaf]
        reads.append(dataclasses.replace(read, access=dataclasses.replace(read.access, dtype=dtype)))
        return Operation("read", (), dtype, len(reads) - 1)

    for k, e in enumerate(code):
        if e.args and _is_of_halves(e, code[e.args[0]]) and code[e.args[0]].op == "read":
            code[k] = read_as(e.args[0], e.dtype)
    writes = []
    for w in cluster.writes:
        e = code[w.source]
        source, dtype = w.source, e.dtype
        if w.monoid is None and e.op == "bitcast" and dtype.is_half and not code[e.args[0]].dtype.is_half:
            source, dtype = e.args[0], code[e.args[0]].dtype
        elif w.monoid is None and e.op == "read" and cluster.code[w.source].op == "bitcast" and dtype.is_half:
            source, dtype = len(code), uint16
            code.append(read_as(w.source, dtype))
        writes.append(dataclasses.replace(w, source=source, access=dataclasses.replace(w.access, dtype=dtype)))
    if len(reads) == len(cluster.reads) and tuple(writes) == cluster.writes:
        return cluster
    return _with_used_reads(live(Cluster(cluster.loops, tuple(reads), tuple(code), tuple(writes))))


def _with_used_reads(cluster: Cluster) -> Cluster:
    used = sorted({e.leaf for e in cluster.code if e.op == "read"})
    code = tuple(dataclasses.replace(e, leaf=used.index(e.leaf)) if e.op == "read" else e for e in cluster.code)
    return dataclasses.replace(cluster, reads=tuple(cluster.reads[k] for k in used), code=code)
