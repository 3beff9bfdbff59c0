"""The report: which lines it has, in which order. Floor: top."""

from __future__ import annotations

from gradtape import backends
from gradtape.doctor import machine, packages
from gradtape.doctor.asking import Question, Unanswered
from gradtape.doctor.cures import told
from gradtape.doctor.finding import Finding
from gradtape.doctor.gpu import Cuda
from gradtape.version import __version__


def examine(quick: bool = False, require_gpu: bool = False) -> list[Finding]:
    """What was found on this machine.

    Args:
      quick: only what takes no time: versions, and the backend.
      require_gpu: a GPU that cannot be used is a fault.
    """
    first = [Finding("gradtape", __version__), backend(), machine.python()]
    if quick:
        return [*first, *(_gpu(Cuda(libraries=False)) if require_gpu else [])]
    cuda, trial = Cuda(), Question(["gradtape.doctor.trial"])  # both run while the rest is looked at
    rest = [Finding("cpus", str(machine.cpu_count())), *packages.required(), machine.cache()]
    found = _gpu(cuda) if require_gpu else cuda.findings()
    return [*first, *rest, *found, tried(trial)]


def backend() -> Finding:
    """The backend that tensors live on in this process, with its reason."""
    try:
        choice = backends.choice()
    except (RuntimeError, ValueError) as e:  # what was asked for is not there
        return Finding("backend", told(str(e)), fault=True)
    return Finding("backend", f"{choice.name} ({choice.reason})")


def _gpu(cuda: Cuda) -> list[Finding]:
    """The lines about CUDA, and that a GPU is there, as it must."""
    found = cuda.findings()
    if cuda.is_usable(found):
        return [*found, Finding("gpu", "there is one, as is required")]
    why = "the lines above say why" if any(f.fault for f in found) else "see the lines above"
    return [*found, Finding("gpu", f"one is required, and none can be used: {why}", fault=True)]


def tried(trial: Question) -> Finding:
    """Whether gradtape computes what it should."""
    try:
        found = trial.answer()
    except Unanswered as e:
        return Finding("trial", f"it failed: {told(str(e))}", fault=True)
    if found["faults"]:
        return Finding("trial", f"on {found['device']}: {'; '.join(found['faults'])}. Please report this", fault=True)
    text = f"a gradient, a Jacobian and a traced step are right on {found['device']} ({found['seconds']:.1f} s)"
    return Finding("trial", text)
