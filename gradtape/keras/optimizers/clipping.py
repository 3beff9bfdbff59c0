"""Clipping of gradients before an update. Floor: keras."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gradtape.api.elementwise import clip_by_value, maximum, minimum, sqrt, square
from gradtape.api.reductions import reduce_sum
from gradtape.runtime.tensor import Tensor

Clip = Callable[[Sequence[Tensor]], list[Tensor]]


def clipping(clipnorm: float | None, clipvalue: float | None, global_clipnorm: float | None) -> Clip | None:
    """The function of all gradients for at most one of the three limits.

    Raises:
      ValueError: more than one limit, or one that is not positive.
    """
    kinds: dict[str, tuple[float | None, Callable[[Sequence[Tensor], float], list[Tensor]]]] = {
        "clipnorm": (clipnorm, _each_norm),
        "clipvalue": (clipvalue, _each_value),
        "global_clipnorm": (global_clipnorm, _global_norm),
    }
    given = {k: v for k, (v, _) in kinds.items() if v is not None}
    if len(given) > 1:
        raise ValueError(f"Only one of `clipnorm`, `clipvalue` and `global_clipnorm` can be set, got {given}.")
    for name, limit in given.items():
        if isinstance(limit, str | bytes) or not limit > 0:
            raise ValueError(f"`{name}` should be a positive number, got {limit}.")
        value, clip = limit, kinds[name][1]
        return lambda gradients: clip(gradients, value)
    return None


def _each_norm(gradients: Sequence[Tensor], limit: float) -> list[Tensor]:
    """Each gradient scaled down to a norm of at most `limit`."""
    return [g * limit / maximum(sqrt(reduce_sum(square(g))), limit) for g in gradients]


def _each_value(gradients: Sequence[Tensor], limit: float) -> list[Tensor]:
    """Each element moved into [-limit, limit]."""
    return [clip_by_value(g, -limit, limit) for g in gradients]


def _global_norm(gradients: Sequence[Tensor], limit: float) -> list[Tensor]:
    """All gradients scaled by one factor, so that the norm of all of them together is at most `limit`."""
    total = reduce_sum(square(gradients[0]))
    for g in gradients[1:]:
        total = total + reduce_sum(square(g))
    norm = sqrt(total)
    # norm - norm is 0, or NaN where the norm is not finite: then nothing that is left has a meaning.
    factor = limit * minimum(1.0 / norm, 1.0 / limit) + (norm - norm)
    return [g * factor for g in gradients]
