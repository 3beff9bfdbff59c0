"""TensorFlow's exception kinds, as `tf.errors` names them. Floor: ir."""

from __future__ import annotations


class OpError(Exception):
    """Base of the errors that an operation raises; `message` holds the text."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class InvalidArgumentError(OpError):
    """An operation was given tensors whose shapes, dtypes or values it cannot take."""


class UnimplementedError(OpError):
    """The operation exists but not for these arguments."""


class NotVectorizable(UnimplementedError):
    """An op that cannot run for all rows at once, or all slices of a map; `op` is its name."""

    def __init__(self, op: str, why: str) -> None:
        super().__init__(
            f"`{op}` cannot run for all rows at once: {why} Let them run one after the other: `tf.map_fn` in place of "
            "`tf.vectorized_map`, `experimental_use_pfor=False` for Jacobians."
        )
        self.op = op


class ResourceExhaustedError(OpError):
    """Memory ran out; the message says how much was asked for and how much was there."""


class DataLossError(OpError):
    """A file is damaged or cut off: what was written cannot be read back."""


class FailedPreconditionError(OpError):
    """The system is not in the state that the operation needs."""


class NotFoundError(OpError):
    """Something that was asked for by name does not exist."""


class OutOfRangeError(OpError):
    """An index or an iteration went past the end."""


class AbortedError(OpError):
    """The operation was given up, as one of two that stood in each other's way."""


class AlreadyExistsError(OpError):
    """Something that was to be made exists."""


class InternalError(OpError):
    """Something that should always hold does not."""


class PermissionDeniedError(OpError):
    """The caller may not do this."""


class UnknownError(OpError):
    """An error of another system, of which no more is known."""


class UnknownShapeError(ValueError):
    """A shape must be known, and is not."""


class OperatorNotAllowedInGraphError(TypeError):
    """Python asked for the truth of a tensor, or for its elements, while the function it belongs to is traced."""
