"""Backends know arrays and kernels, nothing of tapes. Floor: backends."""

from gradtape.backends.choice import Choice, choice

__all__ = ["Choice", "choice"]
