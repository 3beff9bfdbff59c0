"""Signatures of saved models: functions of tensors by name, which give tensors by name. Floor: saving."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import optree

from gradtape.functions import Function
from gradtape.runtime.tensor import Tensor
from gradtape.saving import tracking
from gradtape.saving.damage import Damaged, fields, listed, numbered
from gradtape.saving.objects import Objects
from gradtape.saving.structures import read_structure
from gradtape.tracing.concrete import ConcreteFunction
from gradtape.tracing.signatures import TensorSpec

DEFAULT = "serving_default"
OUTPUT = "output_"


def written(root: Any, signatures: Any, objects: Objects, call: ConcreteFunction | None) -> list[Any]:
    """The signatures of a model as JSON: those that were asked for, or what its call computes, or the one function of
    the root that can be one.

    Raises:
      ValueError: what is no function of one signature, or has results that no signature has.
    """
    if signatures is None:
        candidates = _candidates(root) if call is None else [call]
        found = [_written(DEFAULT, c, objects) for c in candidates if _outputs(c, objects) is not None]
        return found if len(found) == 1 else []
    named = signatures if isinstance(signatures, Mapping) else {DEFAULT: signatures}
    return [_written(str(name), _concrete(f), objects) for name, f in named.items()]


def _candidates(root: Any) -> list[ConcreteFunction]:
    """The functions of the root that are of one signature."""
    functions = [f for _, f in tracking.attributes(root) if tracking.is_function(f)]
    return [_concrete(f) for f in functions if isinstance(f, ConcreteFunction) or f.options.signature is not None]


def _concrete(f: Any) -> ConcreteFunction:
    """A function of one signature."""
    if isinstance(f, ConcreteFunction):
        return f
    if isinstance(f, Function) and f.options.signature is not None:
        return f.get_concrete_function()
    raise ValueError(
        f"Expected a TensorFlow function for which to generate a signature, but got {f!r}. Only `tf.functions` with an "
        "input signature or concrete functions can be used as a signature: "
        "`f.get_concrete_function(tf.TensorSpec(...))`."
    )


def _written(name: str, c: ConcreteFunction, objects: Objects) -> dict[str, Any]:
    outputs = _outputs(c, objects)
    if outputs is None:
        raise ValueError(
            f"`{c.name}` cannot be the signature '{name}': its results should be a single tensor, a sequence of "
            "tensors, or a dictionary from string to tensor."
        )
    function, variant = objects.variant(c)
    return {"name": name, "function": function, "variant": variant, "inputs": _inputs(c), "outputs": outputs}


def _inputs(c: ConcreteFunction) -> list[str]:
    """A name for each tensor among the arguments: that of its spec, or of its parameter."""
    paths = optree.treespec_paths(c.spec)
    found: list[str] = []
    for place in c.places:
        kind, first = paths[place][:2]
        parameter = str(first) if kind == 1 else c.names[first] if first < len(c.names) else f"args_{first}"
        name = c.leaves[place].name or parameter
        same = sum(n == name or n.rpartition("_")[0] == name for n in found)
        found.append(f"{name}_{same}" if same else name)
    return found


def _outputs(c: ConcreteFunction, objects: Objects) -> list[str] | None:
    """A name for each result, in the order of the tensors; None where they are no results of a signature."""
    function, variant = objects.variant(c)
    body = objects.functions[function]["variants"][variant]["bodies"][0]["body"]
    results = read_structure(body["results"], lambda k: k)
    if isinstance(results, dict) and all(isinstance(k, str) and isinstance(v, int) for k, v in results.items()):
        return [k for _, k in sorted((v, k) for k, v in results.items())]
    if isinstance(results, int):
        return [f"{OUTPUT}0"]
    if isinstance(results, list | tuple) and results and all(isinstance(v, int) for v in results):
        return [f"{OUTPUT}{i}" for i in range(len(results))]
    return None


# ------------------------------------------------------------------ from JSON


class Signature:
    """A signature of a loaded model: tensors by name to tensors by name.

    Attributes:
      function: the concrete function that runs.
      inputs, outputs: the names.
    """

    def __init__(self, function: ConcreteFunction, inputs: list[str], outputs: list[str]) -> None:
        self.function, self.inputs, self.outputs = function, inputs, outputs

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Tensor]:
        """The results by name.

        Raises:
          TypeError: tensors that the signature does not name, or others than it wants.
        """
        if args and (len(args) > 1 or kwargs or len(self.inputs) != 1):
            raise TypeError(
                f"A signature takes keyword arguments only, unless it has one: {self.inputs}. Got {len(args)} "
                f"positional arguments and {sorted(kwargs)}."
            )
        given = dict(zip(self.inputs, args, strict=True)) if args else kwargs
        if set(given) != set(self.inputs):
            raise TypeError(f"This signature wants {self.inputs}, got {sorted(given)}.")
        tensors = [self.function._fitting(given[name], k) for k, name in enumerate(self.inputs)]
        leaves: list[Tensor] = optree.tree_leaves(self.function.trace.run(tensors))
        return dict(zip(self.outputs, leaves, strict=True))

    @property
    def structured_input_signature(self) -> tuple[tuple[()], dict[str, TensorSpec]]:
        """What the tensors must be, by name."""
        specs = self.function.tensor_specs
        return (), {n: TensorSpec(s.shape, s.dtype, n) for n, s in zip(self.inputs, specs, strict=True)}

    @property
    def structured_outputs(self) -> dict[str, TensorSpec]:
        """What the results are, by name."""
        specs = self.function.trace.result_specs()
        return {n: TensorSpec(s.shape, s.dtype, n) for n, s in zip(self.outputs, specs, strict=True)}

    @property
    def variables(self) -> Any:
        return self.function.variables

    @property
    def trainable_variables(self) -> Any:
        return self.function.trainable_variables

    def __repr__(self) -> str:
        return f"<signature {', '.join(self.inputs)} -> {', '.join(self.outputs)}>"


def read_signature(text: Any, functions: Sequence[Any]) -> tuple[str, Signature]:
    """A signature and its name.

    Raises:
      Damaged: it is none of these functions.
    """
    name, number, variant, inputs, outputs = fields(text, "name", "function", "variant", "inputs", "outputs")
    f = numbered(number, functions, "function")
    c = numbered(variant, [f] if isinstance(f, ConcreteFunction) else f.concrete_functions(), "signature")
    names = [*listed(inputs), *listed(outputs)]
    if not isinstance(name, str) or not all(isinstance(n, str) for n in names):
        raise Damaged(f"{str(text)[:80]} is no signature")
    if len(inputs) != len(c.places) or len(outputs) != len(c.trace.result_specs()):
        raise Damaged(f"the signature {name[:80]!r} has other tensors than its function")
    return name, Signature(c, inputs, outputs)
