"""`tf.errors`. Floor: api."""

from gradtape.ir.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    OperatorNotAllowedInGraphError,
    OpError,
    OutOfRangeError,
    ResourceExhaustedError,
    UnimplementedError,
)

__all__ = [
    "FailedPreconditionError",
    "InvalidArgumentError",
    "NotFoundError",
    "OpError",
    "OperatorNotAllowedInGraphError",
    "OutOfRangeError",
    "ResourceExhaustedError",
    "UnimplementedError",
]
