"""A cluster as CUDA C++ and a plan of launches. Floor: kernels.

The texts include the templates of `kernels/cuda/`; a compiler finds them in `TEMPLATES`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gradtape.ir.cluster import Cluster
from gradtape.kernels.cuda_combine import combine
from gradtape.kernels.cuda_elementwise import elementwise
from gradtape.kernels.cuda_jobs import jobs, size_of
from gradtape.kernels.cuda_launch import CudaProgram, Launch, Scratch
from gradtape.kernels.cuda_rows import rows
from gradtape.kernels.cuda_stages import parts_of, stages
from gradtape.kernels.cuda_teams import SHARED, fits

TEMPLATES = Path(__file__).with_name("cuda")


def render_cuda(cluster: Cluster, shared: int = SHARED, over: Mapping[int, int] | None = None) -> CudaProgram:
    """The kernels of a cluster; `shared`: bytes of shared memory that a block may have, for more than `SHARED` of which
    it asks; `over`: by results, operands in whose arrays they are. What has no elements is not launched."""
    scratch: list[Scratch] = []
    texts: dict[str, None] = {}
    launches: list[Launch] = []

    def add(text: str, launch: Launch) -> None:
        texts[text] = None
        launches.append(launch)

    for job in jobs(cluster, scratch, lambda job: fits(job, shared), over):
        if not size_of(job.cluster, job.rounds):
            continue
        if not job.has_teams:
            add(*elementwise(job))
            continue
        parts = parts_of(job, shared)
        if parts > 1:
            for made in stages(job, scratch, parts):
                add(*made)
            continue
        text, launch, waiting = rows(job, scratch, shared)
        add(text, launch)
        if waiting:
            add(*combine(job, waiting))
    return CudaProgram(tuple(texts), tuple(launches), tuple(scratch))
