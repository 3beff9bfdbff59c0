"""Users' own kernels as ops. Floor: api."""

from gradtape.kernel_ops import functions
from gradtape.kernel_ops.making import kernel_op

__all__ = ["functions", "kernel_op"]
