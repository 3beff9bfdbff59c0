"""Products of matrices and tensors; segments; order and counting."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.api.calls import Call, call, draw, positive, unit


def matrices(f: Any = np.matmul, **options: Any) -> Any:
    """matmul by loops over the batch, with its flags."""

    def run(a: Any, b: Any) -> Any:
        a = np.swapaxes(a, -1, -2) if options.get("transpose_a") or options.get("adjoint_a") else a
        b = np.swapaxes(b, -1, -2) if options.get("transpose_b") or options.get("adjoint_b") else b
        return f(a, b)

    return run


FLAGS: tuple[dict[str, bool], ...] = (
    {},
    {"transpose_a": True},
    {"transpose_b": True},
    {"adjoint_a": True, "adjoint_b": True},
)


def _products() -> list[Call]:
    found = []
    for flags in FLAGS:
        a = (3, 2) if flags.get("transpose_a") or flags.get("adjoint_a") else (2, 3)
        b = (4, 3) if flags.get("transpose_b") or flags.get("adjoint_b") else (3, 4)
        found.append(call("matmul", matrices(**flags), draw(*a), positive(*b), **flags))
        found.append(call("linalg.matmul", matrices(**flags), draw(2, *a), positive(2, *b), **flags))
    for x, y in (
        ((5, 1, 2, 3), (4, 3, 2)),
        ((2, 3), (4, 3, 1)),
        ((0, 2, 3), (3, 2)),
        ((2, 0), (0, 3)),
        ((1, 2, 3), (1, 3, 2)),
    ):
        found.append(call("matmul", np.matmul, draw(*x), positive(*y)))
    return found


SUBSCRIPTS = ("ij,jk->ik", "bij,jik->bk", "bij,jik->bijk", "i,i->", "ij,ij->j", "ij,kj->ki")


def _einsums() -> list[Call]:
    size = {"b": 2, "i": 3, "j": 4, "k": 2}
    found = []
    for s in SUBSCRIPTS:
        operands = [draw(*(size[c] for c in part)) * (k + 0.5) for k, part in enumerate(s.split("->")[0].split(","))]
        found.append(Call("einsum", lambda eq, *xs: np.einsum(eq, *xs), (s, *operands)))
    more: list[tuple[str, list[Any]]] = [
        ("...ij,jk->...ik", [draw(2, 2, 3), draw(3, 2)]),
        ("ii->", [draw(3, 3)]),
        ("bxby->bxy", [draw(2, 3, 2, 2)]),
        ("ij", [draw(2, 3)]),
        ("ji", [draw(2, 3)]),
        ("ij,jk,kl->il", [draw(2, 3), unit(3, 2), positive(2, 2)]),
        ("...->...", [draw(2, 3)]),
        ("i...->...", [draw(2, 3)]),
        ("ab,ab,ab->a", [draw(2, 3), unit(2, 3), positive(2, 3)]),
        ("ij,->ij", [draw(2, 3), draw()]),
    ]
    return found + [Call("einsum", lambda eq, *xs: np.einsum(eq, *xs), (s, *xs)) for s, xs in more]


OTHERS: tuple[Call, ...] = (
    call("linalg.matvec", lambda a, b: a @ b, draw(2, 3), positive(3)),
    call(
        "linalg.matvec",
        lambda a, b: (np.swapaxes(a, 1, 2) @ b[..., None])[..., 0],
        draw(2, 3, 4),
        positive(2, 3),
        transpose_a=True,
    ),
    call("tensordot", lambda a, b: np.tensordot(a, b, 1), draw(2, 3), positive(3, 4), axes=1),
    call("tensordot", lambda a, b: np.tensordot(a, b, 0), draw(2), positive(3), axes=0),
    call(
        "tensordot",
        lambda a, b: np.tensordot(a, b, ((1, 2), (1, 0))),
        draw(2, 3, 4),
        positive(4, 3, 5),
        axes=[[1, 2], [1, 0]],
    ),
    call("linalg.tensordot", lambda a, b: np.tensordot(a, b, (0, 1)), draw(3, 2), positive(4, 3), axes=[0, 1]),
    call("linalg.einsum", lambda eq, x: np.einsum(eq, x), "ij->ji", draw(2, 3)),
    call("linalg.eye", lambda n: np.eye(2, dtype="float32"), 2),
    call("linalg.trace", lambda a: np.trace(a, axis1=-2, axis2=-1), draw(2, 3, 3)),
    call("linalg.diag_part", lambda a: np.diagonal(a, axis1=-2, axis2=-1), draw(2, 3, 3)),
    call("linalg.norm", lambda a: np.sqrt((a * a).sum()), draw(2, 3)),
)

# ------------------------------------------------------------------ segments

IDS, PLACES = np.array([0, 0, 2, 2, 2]), np.array([2, 0, -1, 0, 2])
TOTALS: dict[str, tuple[Any, float]] = {
    "sum": (np.sum, 0.0),
    "mean": (np.mean, 0.0),
    "prod": (np.prod, 1.0),
    "max": (np.max, 0.0),
    "min": (np.min, 0.0),
    "sqrt_n": (lambda rows, axis: np.sum(rows, axis) / np.sqrt(len(rows)), 0.0),
}


def segments(name: str, ids: Any, count: int, empty: float) -> Any:
    total = TOTALS[name][0]
    return lambda x, *_: np.stack(
        [total(x[ids == k], 0) if (ids == k).any() else np.full(x.shape[1:], empty) for k in range(count)]
    )


def _segments() -> list[Call]:
    found = []
    for name, (_, empty) in TOTALS.items():
        if name != "sqrt_n":
            found.append(call(f"math.segment_{name}", segments(name, IDS, 3, empty), positive(5, 2), IDS))
        far = {"max": np.finfo(np.float64).min, "min": np.finfo(np.float64).max}.get(name, empty)
        want = segments(name, PLACES, 4, far)
        found.append(call(f"math.unsorted_segment_{name}", want, positive(5, 2), PLACES, num_segments=4))
    return found


# ------------------------------------------------------------------ order, sets, counts

X = draw(2, 5)
ORDER: tuple[Call, ...] = (
    call("sort", lambda x: np.sort(x, -1), X),
    call("sort", lambda x: -np.sort(-x, 0), X, axis=0, direction="DESCENDING"),
    call("argsort", lambda x: np.argsort(x, -1).astype("int32"), X, slopes=False),
    call("argsort", lambda x: np.argsort(-x, 0).astype("int32"), X, axis=0, direction="DESCENDING", slopes=False),
    call("math.top_k", lambda x: [-np.sort(-x, -1)[:, :2], np.argsort(-x, -1)[:, :2].astype("int32")], X, k=2),
    call("nn.top_k", lambda x: [-np.sort(-x, -1)[:, :1], np.argsort(-x, -1)[:, :1].astype("int32")], X),
    call(
        "math.in_top_k",
        lambda t, p: np.array([True, False]),
        np.array([1, 0]),
        np.array([[1.0, 3, 2], [0, 5, 4]]),
        k=2,
        slopes=False,
    ),
    call(
        "nn.in_top_k",
        lambda t, p: np.array([True, False]),
        np.array([2, 0]),
        np.array([[1.0, 3, 2], [0, 5, 4]]),
        k=2,
        slopes=False,
    ),
    call(
        "searchsorted",
        lambda s, v: np.searchsorted(s, v).astype("int32"),
        np.array([1.0, 3.0, 3.0, 5.0]),
        np.array([0.0, 3.0, 9.0]),
        slopes=False,
    ),
    call(
        "searchsorted",
        lambda s, v: np.searchsorted(s, v, "right").astype("int32"),
        np.array([1.0, 3.0, 3.0]),
        np.array([3.0]),
        side="right",
        slopes=False,
    ),
    call(
        "unique",
        lambda x: [np.array([3.0, 1.0, 2.0]), np.array([0, 1, 0, 2], "int32")],
        np.array([3.0, 1.0, 3.0, 2.0]),
        slopes=False,
    ),
    call(
        "unique_with_counts",
        lambda x: [np.array([3, 1]), np.array([0, 1, 0], "int32"), np.array([2, 1], "int32")],
        np.array([3, 1, 3]),
    ),
    call("math.invert_permutation", lambda x: np.argsort(x).astype("int32"), np.array([2, 0, 1], "int32")),
    call("math.bincount", lambda x: np.bincount(x).astype("int32"), np.array([1, 3, 1])),
    call("math.bincount", lambda x, w: np.bincount(x, w), np.array([1, 3, 1]), positive(3)),
    call(
        "math.confusion_matrix",
        lambda a, b: np.array([[1, 0], [1, 1]], "int32"),
        np.array([0, 1, 1]),
        np.array([0, 0, 1]),
    ),
    call(
        "histogram_fixed_width",
        lambda x, r: np.histogram(x, 4, r)[0].astype("int32"),
        positive(20),
        [0.0, 3.0],
        nbins=4,
        slopes=False,
    ),
    call(
        "histogram_fixed_width_bins",
        lambda x, r: np.floor(x / 3.0 * 4).astype("int32"),
        positive(20),
        [0.0, 3.0],
        nbins=4,
        slopes=False,
    ),
    call(
        "dynamic_partition",
        lambda x, p: [x[p == 0], x[p == 1], x[p == 2]],
        draw(4, 2),
        np.array([1, 0, 1, 1]),
        num_partitions=3,
    ),
    call("dynamic_stitch", lambda at, xs: np.array([5, 6, 7], "float32"), [[2, 0], [1]], [[7.0, 5.0], [6.0]]),
    call(
        "broadcast_dynamic_shape",
        lambda a, b: np.array([2, 3], "int32"),
        np.array([2, 1], "int32"),
        np.array([3], "int32"),
    ),
)
CALLS = (*_products(), *_einsums(), *OTHERS, *_segments(), *ORDER)
