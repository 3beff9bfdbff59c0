"""Declaration: a tensor that is handed on if all of its elements are finite. Floor: ops."""

from __future__ import annotations

from typing import Any

from gradtape.ir.aval import Aval
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.graph import Node, Value
from gradtape.ops.op import emit
from gradtape.ops.opaque import Opaque
from gradtape.ops.samples import BadSample, Sample, Spec

IN_GRADIENT = "Not a number (NaN) or infinity (Inf) values detected in gradient."


def checked(xp: Any, x: Any, message: str) -> Any:
    """The array itself.

    Raises:
      InvalidArgumentError: NaN or infinity among its elements."""
    finite = xp.isfinite(x)
    if not bool(finite.all()):
        raise InvalidArgumentError(f"{message} : Tensor had {found(xp, x)} values: {first(xp, x, finite)}.")
    return x


def found(xp: Any, x: Any) -> str:
    """What is not finite in an array, in TensorFlow's words."""
    return " and ".join(n for n, bad in (("Inf", xp.isinf(x)), ("NaN", xp.isnan(x))) if bool(bad.any()))


def first(xp: Any, x: Any, finite: Any) -> str:
    """The first element that is not finite, and how many are not."""
    bad = xp.argwhere(~finite)
    at = tuple(int(k) for k in bad[0])
    return f"{len(bad)} of {x.size}, first {complex(x[at]) if x.dtype.kind == 'c' else float(x[at])} at {list(at)}"


def _infer(x: Aval, message: str) -> list[Aval]:
    if not x.dtype.is_differentiable:
        raise ValueError(f"wants floating or complex numbers, got {x.dtype.cname}: all others are finite.")
    return [x]


def _vjp(node: Node, g: Value) -> list[Value | None]:
    message = node.step.params["message"]
    said = message if message.startswith(IN_GRADIENT) else f"{IN_GRADIENT} {message}"
    return [emit("check_numerics", g, message=said)]


CHECK_NUMERICS = Opaque(
    "check_numerics",
    checked,
    infer=_infer,
    vjp=_vjp,
    signature="()->()",
    shift=lambda params, count: params,
    whole=True,
    samples=[
        Sample((Spec((2, 3)),), {"message": "x"}),
        Sample((Spec(()),), {"message": "x"}),
        Sample((Spec((0, 3)),), {"message": "x"}),
    ],
    errors=[BadSample((((2,), "int32"),), InvalidArgumentError, "floating or complex", {"message": "x"})],
    doc="The tensor itself, if all of its elements are finite; else an error.",
    notes="Its cotangent is checked too.",
)
