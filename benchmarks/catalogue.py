"""All workloads by name, in the order of the table."""

from __future__ import annotations

from benchmarks import caches, eager, imports, jacobian, memory, opaque, training
from benchmarks.workload import Workload

ALL: dict[str, Workload] = {
    w.name: w for module in (eager, training, opaque, jacobian, imports, memory, caches) for w in module.WORKLOADS
}
