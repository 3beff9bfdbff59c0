"""Which peers are installed. None of them is a dependency: a missing one is named in the table."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from collections.abc import Sequence
from types import ModuleType
from typing import Any

NAMES = ("torch", "tensorflow", "jax", "autograd")


def version(name: str) -> str | None:
    """The version of an installed peer, found without importing it; None where it is missing."""
    try:
        if importlib.util.find_spec(name) is None:
            return None
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"  # there, but not by an installer
    except ValueError:
        return None  # a half-removed module without a spec


def missing(names: Sequence[str]) -> list[str]:
    return [name for name in names if version(name) is None]


def load(name: str, threads: int) -> ModuleType:
    """Import a peer and tell it how many threads it may use. Raises ImportError where that does not work."""
    module = importlib.import_module(name)
    limit = LIMITS.get(name)
    if limit is not None:
        limit(module, threads)
    return module


def _limit_torch(torch: Any, threads: int) -> None:
    torch.set_num_threads(threads)


def _limit_tensorflow(tensorflow: Any, threads: int) -> None:
    """Only possible before TensorFlow's first operation; a second call with the same number changes nothing."""
    threading = tensorflow.config.threading
    if threading.get_intra_op_parallelism_threads() != threads:
        threading.set_intra_op_parallelism_threads(threads)
        threading.set_inter_op_parallelism_threads(threads)


LIMITS = {"torch": _limit_torch, "tensorflow": _limit_tensorflow}
