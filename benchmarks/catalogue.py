"""All workloads by name, in the order of the table."""

from __future__ import annotations

from benchmarks import caches, eager, imports, jacobian, memory, opaque, plans, saving, training
from benchmarks.workload import Race, Workload

MODULES = (eager, training, opaque, plans, jacobian, imports, memory, caches, saving)
ALL: dict[str, Workload] = {w.name: w for module in MODULES for w in module.WORKLOADS}
GPU = [name for name, w in ALL.items() if isinstance(w, Race) and w.gpu]  # those with sizes for GPUs
