"""Clusters over float16 and bfloat16 in float32: elements are widened where they are read and rounded where they are
written, and in between where a program asks for it. Floor: kernels."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from gradtape.ir.cluster import Cluster, Operation
from gradtape.ir.dtypes import DType, float32

ASKS = frozenset({"is_finite", "is_inf"})  # what the size of a half is asked for: too large for one is infinite


def computed(dtype: DType) -> DType:
    """The dtype in which a kernel computes."""
    return float32 if dtype.is_half else dtype


def stored(dtype: DType) -> np.dtype[Any]:
    """The dtype of the arrays that a kernel reads and writes: the bits of halves."""
    return np.dtype(np.uint16) if dtype.is_half else dtype.numpy_dtype


def in_float32(cluster: Cluster) -> Cluster:
    """The cluster with no operation in a half type. A `round` operation gives what a value is in the type `leaf`."""
    if not any(e.dtype.is_half for e in cluster.code):
        return cluster
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
            at.append(put("number", (), float32, float(e.dtype.numpy_dtype.type(e.leaf))))
        elif e.op == "cast" and e.dtype.is_half:
            wide = args[0] if code[args[0]].dtype is float32 else put("cast", args, float32)
            at.append(rounded(wide, e.dtype))
        else:
            at.append(put(e.op, args, computed(e.dtype), e.leaf))
    writes = tuple(dataclasses.replace(w, source=at[w.source]) for w in cluster.writes)
    return Cluster(cluster.loops, cluster.reads, tuple(code), writes)
