"""TensorFlow's exception kinds, as `tf.errors` names them. Floor: ir."""

from __future__ import annotations

from typing import Any


class OpError(Exception):
    """Base of the errors that an operation raises; `message` holds the text, `error_code` TensorFlow's number of the
    kind. What is raised here has a message alone, and None for `op` and `node_def`. A program may raise one with all
    that TensorFlow asks for: a node, an operation, a message and, for this class itself, a number.

    >>> import gradtape as tf
    >>> tf.errors.OutOfRangeError(None, None, "The data is at its end.").message
    'The data is at its end.'
    """

    error_code = 2

    def __init__(
        self, node_def: Any = None, op: Any = None, message: Any = None, error_code: int | None = None
    ) -> None:
        if message is None:  # it is all that was given
            node_def, message = None, node_def
        if message is None:
            raise TypeError(
                f"`{type(self).__name__}` wants a message, got none. Give it alone, or a node, an operation and the "
                "message, of which the first two may be None."
            )
        super().__init__(message)
        self.message, self.op, self.node_def = message, op, node_def
        if error_code is not None:
            self.error_code = error_code


class InvalidArgumentError(OpError):
    """An operation was given tensors whose shapes, dtypes or values it cannot take."""

    error_code = 3


class InvalidWhileTracedError(InvalidArgumentError, ValueError, TypeError):
    """The same, seen while a function is traced: there TensorFlow raises ValueError for shapes, TypeError for
    dtypes."""


class InvalidOperandError(InvalidArgumentError, TypeError):
    """An operand of an operator has a dtype that it does not take: InvalidArgumentError where TensorFlow asks the
    operation, TypeError where it does not come so far."""


class UnimplementedError(OpError):
    """The operation exists but not for these arguments."""

    error_code = 12


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

    error_code = 8


class DataLossError(OpError):
    """A file is damaged or cut off: what was written cannot be read back."""

    error_code = 15


class FailedPreconditionError(OpError):
    """The system is not in the state that the operation needs."""

    error_code = 9


class NotFoundError(OpError):
    """Something that was asked for by name does not exist."""

    error_code = 5


class OutOfRangeError(OpError):
    """An index or an iteration went past the end."""

    error_code = 11


class AbortedError(OpError):
    """The operation was given up, as one of two that stood in each other's way."""

    error_code = 10


class AlreadyExistsError(OpError):
    """Something that was to be made exists."""

    error_code = 6


class InternalError(OpError):
    """Something that should always hold does not."""

    error_code = 13


class PermissionDeniedError(OpError):
    """The caller may not do this."""

    error_code = 7


class UnknownError(OpError):
    """An error of another system, of which no more is known."""


class UnknownShapeError(ValueError):
    """A shape must be known, and is not."""


class OperatorNotAllowedInGraphError(TypeError):
    """Python asked for the truth of a tensor, or for its elements, while the function it belongs to is traced."""
