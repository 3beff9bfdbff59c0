"""Running means that fade. Floor: keras."""

from __future__ import annotations

import numpy as np

from gradtape.api.elementwise import abs as magnitude
from gradtape.api.elementwise import where
from gradtape.runtime.tensor import Tensor

KEPT = 2  # bytes of a number up to which the small ones count


def faded(mean: Tensor) -> Tensor:
    """A running mean, with zeros for numbers so small that they have fewer digits than others. Where gradients stay 0,
    means fade into such subnormal numbers (10⁻³⁸ in float32), with which processors compute many times slower.
    Half types keep them."""
    dtype = mean._aval.dtype
    if dtype.size <= KEPT or not dtype.is_floating:
        return mean
    return where(magnitude(mean) < float(np.finfo(dtype.numpy_dtype).smallest_normal), 0.0, mean)
