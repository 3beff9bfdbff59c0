"""Policies: in which dtype a layer keeps its weights, and in which one it computes. Floor: keras."""

from __future__ import annotations

import difflib
from typing import Any

from gradtape.ir.dtypes import DType, as_dtype, bfloat16, float16, float32

_MIXED = {"mixed_float16": float16, "mixed_bfloat16": bfloat16}


class DTypePolicy:
    """In which dtype a layer keeps its weights, and in which one it computes.

    Args:
      name: a dtype, for both; or "mixed_float16" or "mixed_bfloat16": computing in the half type, with weights in
        float32. The default is the global policy's name.

    Raises:
      TypeError: a name that is no text.
      ValueError: an unknown one.

    >>> import gradtape as tf
    >>> policy = tf.keras.mixed_precision.Policy("mixed_bfloat16")
    >>> policy.compute_dtype, policy.variable_dtype
    ('bfloat16', 'float32')
    """

    def __init__(self, name: str | None = None) -> None:
        chosen: Any = dtype_policy().name if name is None else name
        if not isinstance(chosen, str):
            raise TypeError(f"`name` should be a text such as 'mixed_float16', got {name!r} of {type(name).__name__}.")
        self.name: str = chosen
        self.compute, self.variable = _dtypes(chosen)

    @property
    def compute_dtype(self) -> str:
        """The dtype that layers compute in."""
        return self.compute.name

    @property
    def variable_dtype(self) -> str:
        """The dtype of layers' weights."""
        return self.variable.name

    def get_config(self) -> dict[str, Any]:
        """The constructor's argument."""
        return {"name": self.name}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DTypePolicy) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f'<DTypePolicy "{self.name}">'


def _dtypes(name: str) -> tuple[DType, DType]:
    mixed = _MIXED.get(name)
    if mixed is not None:
        return mixed, float32
    try:
        dtype = as_dtype(name)
    except (TypeError, ValueError):
        near = difflib.get_close_matches(name, [*_MIXED, "float16", "bfloat16", "float32", "float64"], 1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(
            f"There is no policy {name!r}.{hint} A policy is 'mixed_float16', 'mixed_bfloat16' or the name of a "
            "dtype such as 'float32'."
        ) from None
    return dtype, dtype


class _Global:
    """The policy of layers that are made without a dtype, in all threads."""

    policy = DTypePolicy("float32")


def dtype_policy() -> DTypePolicy:
    """The policy of layers that are made without a dtype.

    >>> import gradtape as tf
    >>> tf.keras.mixed_precision.global_policy()
    <DTypePolicy "float32">
    """
    return _Global.policy


def set_dtype_policy(policy: Any) -> None:
    """Choose the policy of all layers that are made from now on without a dtype, in all threads.

    Args:
      policy: a policy or its name.

    Raises:
      ValueError: anything else.

    >>> import gradtape as tf
    >>> tf.keras.mixed_precision.set_global_policy("mixed_float16")
    >>> layer = tf.keras.layers.Dense(2)
    >>> layer(tf.ones([1, 3])).dtype, layer.kernel.dtype
    (tf.float16, tf.float32)
    >>> tf.keras.mixed_precision.set_global_policy("float32")
    """
    _Global.policy = policy_of(policy)


def policy_of(value: Any) -> DTypePolicy:
    """What a layer's `dtype` means: a policy, its name, or a dtype; None is the global policy.

    Raises:
      ValueError: anything else.
    """
    if value is None:
        return _Global.policy
    if isinstance(value, DTypePolicy):
        return value
    if isinstance(value, str):
        return DTypePolicy(value)
    try:
        return DTypePolicy(as_dtype(value).name)
    except TypeError:
        raise ValueError(
            f"A policy should be a `DTypePolicy`, the name of one such as 'mixed_float16', or a dtype; got {value!r} "
            f"of type {type(value).__name__}."
        ) from None
