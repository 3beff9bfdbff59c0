"""What this process has built and keeps: plans, traces, kernels, memory. Floor: tape."""

from __future__ import annotations

from typing import NamedTuple

from gradtape.kernels.background import BACKGROUND
from gradtape.kernels.compiled import COMPILER
from gradtape.kernels.disk import cache_folder
from gradtape.kernels.memory import POOL
from gradtape.runtime.backward import COUNTS, PROGRAMS
from gradtape.runtime.trie import TRIE
from gradtape.tracing import concrete


class PlanInfo(NamedTuple):
    """Plans of derivatives: how many are `held`, how often one was `built` and how often `found`; and how many
    `structures` of recorded programs are remembered, one for each operation at its place."""

    held: int
    built: int
    found: int
    structures: int


class TraceInfo(NamedTuple):
    """Graphs of `tf.function`s: how many are `held`, and how many were `made`."""

    held: int
    made: int


class KernelInfo(NamedTuple):
    """Kernels that were `compiled` in this process and those that were `loaded` from disk; those that are still
    `waiting` for the compiler, and those that `failed`. They are kept in `folder`."""

    compiled: int
    loaded: int
    waiting: int
    failed: int
    folder: str


class PoolInfo(NamedTuple):
    """Memory of large arrays that is kept for the next ones: how many `blocks` of how many `bytes` are free, how many
    bytes there may be (`limit`), and how often one was used again (`hits`)."""

    blocks: int
    bytes: int
    limit: int
    hits: int


class CacheInfo(NamedTuple):
    """What `cache_info` found; as text, a line for each of its parts."""

    plans: PlanInfo
    traces: TraceInfo
    kernels: KernelInfo
    pool: PoolInfo

    def __str__(self) -> str:
        lines = []
        for name, part in self._asdict().items():
            fields = (f"{k} {v:,}" if isinstance(v, int) else f"{k} {v}" for k, v in part._asdict().items())
            lines.append(f"{name}: {', '.join(fields)}")
        return "\n".join(lines)


def cache_info() -> CacheInfo:
    """What this process has built so far and what it keeps of that.

    Kernels are compiled in the background: while `kernels.waiting` is not 0, some steps still run as NumPy operations,
    and become faster later.

    Returns:
      A `CacheInfo` with the parts `plans`, `traces`, `kernels` and `pool`. Counts are those of this moment; other
      threads may change them meanwhile.

    >>> import gradtape as tf
    >>> x = tf.constant([1.0, 2.0])
    >>> def slope():
    ...     with tf.GradientTape() as tape:
    ...         tape.watch(x)
    ...         y = tf.reduce_sum(x * tf.sin(x))
    ...     return tape.gradient(y, x)
    >>> _ = slope()
    >>> before = tf.cache_info().plans
    >>> _ = slope()
    >>> after = tf.cache_info().plans
    >>> after.built - before.built, after.found - before.found
    (0, 1)
    """
    with COMPILER.lock:
        tickets = list(COMPILER.tickets.values())
    waiting = COMPILER.pending + BACKGROUND.running
    failed = sum(t.error is not None for t in tickets)
    return CacheInfo(
        PlanInfo(len(PROGRAMS.recent), COUNTS["built"], COUNTS["found"], TRIE.size),
        TraceInfo(len(concrete.TRACES), concrete.COUNTS["made"]),
        KernelInfo(COMPILER.compiled, COMPILER.loaded, waiting, failed, str(cache_folder())),
        PoolInfo(len(POOL.free), POOL.bytes, POOL.limit, POOL.hits),
    )
