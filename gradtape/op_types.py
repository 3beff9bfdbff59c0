"""Ops by TensorFlow's types of operations, for rules that take the place of gradients. Floor: tape."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Callable, Mapping
from typing import Any

from gradtape.ir.graph import Graph, Node, Value
from gradtape.ops.op import Op, all_ops
from gradtape.ops.pointwise import Pointwise
from gradtape.runtime.numerics import interpreted
from gradtape.runtime.tensor import Tensor
from gradtape.transforms.differentiate import pull_back

# TensorFlow's types of operations whose names are not simply ours in another spelling.
TYPES = {
    "Add": "add",
    "AddV2": "add",
    "Sub": "subtract",
    "Mul": "multiply",
    "Div": "divide",
    "RealDiv": "divide",
    "DivNoNan": "divide_no_nan",
    "MulNoNan": "multiply_no_nan",
    "FloorDiv": "floordiv",
    "FloorMod": "floormod",
    "Neg": "negative",
    "Inv": "reciprocal",
    "Round": "rint",
    "Select": "select",
    "SelectV2": "select",
    "Sum": "reduce_sum",
    "Mean": "reduce_mean",
    "Max": "reduce_max",
    "Min": "reduce_min",
    "Prod": "reduce_prod",
    "ConcatV2": "concat",
    "GatherV2": "gather_rows",
    "StridedSlice": "slice",
    "MatrixInverse": "inverse",
    "MatrixDeterminant": "det",
    "MatrixSolve": "solve",
    "MatrixTriangularSolve": "triangular_solve",
    "MatrixDiagPart": "diagonal",
    "SelfAdjointEigV2": "eigh",
    "ReverseV2": "reverse",
    "ScatterNd": "scatter_add",
    "UnsortedSegmentSum": "scatter_add",
}
# Operations of TensorFlow's that have several ops here, or one with other operands: what to override in their place.
DIFFERENT = {
    "MatMul": "`contract`, which `tf.einsum` uses too",
    "BatchMatMul": "`contract`, which `tf.einsum` uses too",
    "BatchMatMulV2": "`contract`, which `tf.einsum` uses too",
    "Conv2D": "`convolve`, whose operands have an axis of groups",
    "BiasAdd": "`add`",
    "SoftmaxCrossEntropyWithLogits": "`softmax_cross_entropy`",
    "SparseSoftmaxCrossEntropyWithLogits": "`sparse_softmax_cross_entropy`",
    "DepthwiseConv2dNative": "`convolve`, whose operands have an axis of groups",
    "Tile": "`broadcast_to`, between two `reshape`",
    "Fill": "`broadcast_to`",
    "ExpandDims": "`reshape`",
    "Squeeze": "`reshape`",
    "Split": "`slice`, which makes each part",
    "SplitV": "`slice`, which makes each part",
    "Unpack": "`slice`, which makes each part",
    "Pack": "`concat`, behind a `reshape` of each part",
    "PadV2": "`pad`, behind which `select` puts in other constants than 0",
    "MirrorPad": "`concat`, of parts that `reverse` turns",
    "L2Loss": "`square`, `reduce_sum` or `divide`, which it is made of",
    "ClipByValue": "`minimum` or `maximum`, which it is made of",
    "IdentityN": "`identity`, once for each tensor",
    "AddN": "`add`",
    "GatherNd": "`gather`, behind a `reshape`",
    "TopKV2": "`gather`, which picks the values",
    "Einsum": "`contract`",
    "Roll": "`concat`, of two parts that `slice` makes",
    "FusedBatchNormV3": "`multiply`, `subtract` or `add`, which it is made of",
}
KINDS = frozenset({"pointwise", "reduction", "contraction", "structural", "opaque", "composite"})
ALIKE = 0.78  # how much a name must be like another one to be suggested


def op_named(name: str) -> Op:
    """The op of a name.

    Raises:
      ValueError: there is none, with the nearest name.
    """
    found = types().get(name)
    if found is not None:
        return found
    if name in DIFFERENT:
        raise ValueError(f"'{name}' is no op of that name here. Override {DIFFERENT[name]}.")
    raise ValueError(f"No op is called '{name}'{nearest(name, types())} docs/ops.md lists them all.")


def types() -> dict[str, Op]:
    """The ops whose gradients can be overridden, by their names and by TensorFlow's types."""
    return _types_of(tuple(all_ops()))


@functools.lru_cache(1)
def _types_of(ops: tuple[Op, ...]) -> dict[str, Op]:
    own = {op.name: op for op in ops if op.kind in KINDS}
    spelled = {re.sub(r"(?:^|_)([a-z])", lambda m: m[1].upper(), name): op for name, op in own.items()}
    others = {theirs: own[ours] for theirs, ours in TYPES.items()}
    return {name: op for name, op in (spelled | others | own).items() if name not in DIFFERENT}


def nearest(name: str, known: Mapping[str, Any]) -> str:
    """The end of a sentence: a name that is much like one that is not known."""
    lower = {k.lower().replace("_", ""): k for k in known}
    near = difflib.get_close_matches(name, known, 1, ALIKE) or [
        lower[k] for k in difflib.get_close_matches(name.lower().replace("_", ""), lower, 1, ALIKE)
    ]
    return f". Did you mean '{near[0]}'?" if near else "."


# ------------------------------------------------------------------ gradients of ops as rules


@functools.cache
def own_gradient(op: Op, of: Op, name: str) -> Callable[..., Any]:
    """The rule that pulls back as an op does, for another one with as many operands; it reads operands and results of
    that one, as rules do.

    Raises:
      LookupError: it has parameters, or another number of operands.
    """
    if op is not of and not (_is_plain(op) and _is_plain(of) and _operands(op) == _operands(of)):
        raise LookupError(
            f"The gradient of '{name}' cannot stand for that of '{of.name}': both must be elementwise, without "
            "parameters, and of as many operands. Register a rule with `@tf.RegisterGradient`."
        )

    def rule(operation: Any, *ups: Tensor) -> list[Tensor | None]:
        step = op.bind(**(operation.attributes if op is of else {}))
        inputs, outputs = operation.inputs, operation.outputs
        node = Node(step, tuple(Value(t._aval) for t in inputs), tuple(t._aval for t in outputs))
        given = [Value(t._aval) for t in ups]
        pulled = pull_back([node], node.outputs, given, node.inputs)
        graph = Graph([*node.inputs, *node.outputs, *given], [v for v in pulled if v is not None])
        made = iter(interpreted(graph, [*inputs, *outputs, *ups]))
        return [None if v is None else next(made) for v in pulled]

    rule.__name__ = f"gradient of {name}"
    return rule


def _is_plain(op: Op) -> bool:
    return isinstance(op, Pointwise) and not any(s.params for s in op.samples)


def _operands(op: Op) -> int:
    return len(op.operands) if isinstance(op, Pointwise) else 0
