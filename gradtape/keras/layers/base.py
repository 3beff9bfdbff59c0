"""`Layer`: weights that are made on the first call, and a function of tensors that uses them. Floor: keras."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np

from gradtape.api.arguments import integers
from gradtape.api.creation import convert_to_tensor, zeros
from gradtape.api.elementwise import cast
from gradtape.ir.dtypes import DType, as_dtype
from gradtape.keras import initializers
from gradtape.keras.layers.inputs import InputSpec, dims_of, dtypes_of, shapes_of
from gradtape.keras.names import unique_name
from gradtape.keras.policies import DTypePolicy, policy_of
from gradtape.keras.scope import SCOPE, named, unrecorded
from gradtape.keras.weight import CastWeight, Weight
from gradtape.runtime.attaching import Attaching
from gradtape.runtime.tensor import Tensor
from gradtape.runtime.trace import outside
from gradtape.runtime.variable import Variable
from gradtape.tracing.conversion import callback


class Layer(Attaching):
    """The base of all layers.

    A layer makes its weights in `build(input_shape)`, which the first call runs, with `add_weight`, and computes
    in `call(inputs)`, or `call(inputs, training=None)` where it does something else in training. Variables and
    layers that are attributes, or in lists and dicts that are, count as its own.

    Args:
      name: the default is the class' name in lower case, with a number from the second on.
      trainable: whether `trainable_variables` lists any.
      dtype: of the weights and of what is computed, floating inputs are cast to it; or a policy
        (`tf.keras.mixed_precision`), by name too, with one dtype for each. The default is the global policy.
      input_shape: of one example, so that a `Sequential` can build at once.

    >>> import gradtape as tf
    >>> class Scale(tf.keras.layers.Layer):
    ...     def build(self, input_shape):
    ...         self.factor = self.add_weight(shape=(input_shape[-1],), initializer="ones", name="factor")
    ...     def call(self, inputs):
    ...         return inputs * self.factor
    >>> layer = Scale()
    >>> print(layer([[1.0, 2.0]]).numpy(), len(layer.trainable_variables))
    [[1. 2.]] 1
    """

    built = False
    input_spec: InputSpec | None = None
    _name: str | None = None
    _trainable = True
    _policy: DTypePolicy
    _dtype: DType  # of the weights
    _compute: DType
    _casts_inputs = True  # floating inputs are cast to `_compute`
    _example: tuple[int | None, ...] | None = None
    _input_shape: Any = None
    _input_dtypes: Any = None  # of the first inputs, in their structure
    _training_at: int | None = None
    _weights: list[Weight]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        layer = super().__new__(cls)
        layer._weights = []  # here, so that a subclass need not call `super().__init__()` first
        layer._use(policy_of(None))
        return layer

    def __init__(
        self, *, name: str | None = None, trainable: bool = True, dtype: Any = None, input_shape: Any = None
    ) -> None:
        self._name = name or unique_name(type(self))
        self._trainable = bool(trainable)
        if dtype is not None:
            self._use(policy_of(dtype))
        if input_shape is not None:
            self._example = tuple(input_shape)

    def _use(self, policy: DTypePolicy) -> None:
        self._policy, self._dtype, self._compute = policy, policy.variable, policy.compute

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "build" in cls.__dict__:
            cls.build = _marking(cls.__dict__["build"])  # type: ignore[method-assign]
        if "call" in cls.__dict__:
            names = list(inspect.signature(cls.call).parameters)
            cls._training_at = names.index("training") - 1 if "training" in names else None

    # ------------------------------------------------------------------ for subclasses

    def build(self, input_shape: Any) -> None:
        """Make the weights for inputs of this shape."""
        self.built = True
        self._input_shape = input_shape

    def call(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """What the layer computes."""
        raise NotImplementedError(f"Layer {type(self).__name__} does not have a `call()` method implemented.")

    def add_weight(
        self,
        shape: Any = (),
        initializer: Any = None,
        dtype: Any = None,
        trainable: bool = True,
        constraint: Callable[[Any], Any] | None = None,
        name: str | None = None,
        autocast: bool = True,
    ) -> Weight:
        """A new variable of this layer.

        Args:
          shape: of the variable, all sizes known.
          initializer: by name or as a callable; the default is "glorot_uniform", for integers "zeros".
          dtype: the layer's by default.
          trainable: whether gradients are wanted for it.
          constraint: a function that the optimizer applies to the value after each update.
          name: "kernel", "bias", ...
          autocast: whether calls read it in the dtype that they compute in, where that is another than its own.

        Raises:
          ValueError: a constraint that is no function.
        """
        if constraint is not None and not callable(constraint):
            raise ValueError(f"A constraint should be a function of the value, got {constraint!r}.")
        kind = self._dtype if dtype is None else as_dtype(dtype)
        begin = initializers.get(initializer or ("glorot_uniform" if kind.is_floating else "zeros"))
        path = SCOPE.path if SCOPE.path and SCOPE.path[-1] == self.name else (*SCOPE.path, self.name)
        with outside():
            value = begin(integers(shape, "shape"), dtype=kind)
        casts = autocast and kind.is_floating and self._compute is not self._dtype
        make = CastWeight if casts else Weight
        weight = make(value, "/".join((*path, name or "variable")), kind, trainable, constraint)
        self._weights.append(weight)
        return weight

    # ------------------------------------------------------------------ calling

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Build if need be, then compute.

        `training` reaches every layer inside that takes it, and is passed on only to those.
        """
        prepared = self._prepared(inputs)
        outer = SCOPE.training, SCOPE.path, SCOPE.compute
        training = self._resolved(args, kwargs)
        SCOPE.training, SCOPE.path = training, (*outer[1], self.name)
        try:
            if self.input_spec is not None:
                self._check(prepared)
            if not self.built:
                self.build(shapes_of(prepared))
            if self._input_dtypes is None:
                self._input_dtypes = dtypes_of(prepared)
            SCOPE.compute = None if self._compute is self._dtype else self._compute
            return callback(self.call)(prepared, *args, **kwargs)
        finally:
            SCOPE.training, SCOPE.path, SCOPE.compute = outer

    def _resolved(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool | None:
        """Whether this call trains: as it says itself, else as the call around it; put where `call` takes it."""
        at = self._training_at
        if at is None:
            given = kwargs.pop("training", None)
            return SCOPE.training if given is None else given
        if len(args) > at - 1 >= 0:
            given = args[at - 1]
            return SCOPE.training if given is None else given
        given = kwargs.get("training")
        training = SCOPE.training if given is None else given
        if training is not None:
            kwargs["training"] = training
        return training

    def _prepared(self, inputs: Any) -> Any:
        """The inputs as tensors, floating ones in the layer's compute dtype; structures of tensors stay structures."""
        if isinstance(inputs, dict):
            return {k: self._prepared(v) for k, v in inputs.items()}
        if isinstance(inputs, list | tuple) and any(isinstance(v, Tensor | Variable | np.ndarray) for v in inputs):
            return type(inputs)([self._prepared(v) for v in inputs])
        tensor = convert_to_tensor(inputs)
        dtype = tensor._aval.dtype
        casts = self._casts_inputs and dtype.is_floating and dtype is not self._compute
        return cast(tensor, self._compute) if casts else tensor

    def _check(self, prepared: Any) -> None:
        if self.input_spec is None:
            return
        if not isinstance(prepared, Tensor):
            raise ValueError(f"Layer '{self.name}' expects one tensor, got a {type(prepared).__name__} of them.")
        self.input_spec.check(prepared, self.name)

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        """The shape of what the layer makes of such an input; None for the size of the batch.

        >>> import gradtape as tf
        >>> tf.keras.layers.Dense(3).compute_output_shape((None, 5))
        (None, 3)
        """
        dims = dims_of(input_shape)
        with unrecorded():
            made = self(zeros([1 if d is None else d for d in dims], self._compute), training=False)
        shape: tuple[int | None, ...] = made._aval.dims
        return (None, *shape[1:]) if dims[:1] == (None,) else shape

    # ------------------------------------------------------------------ variables

    @property
    def name(self) -> str:
        if self._name is None:
            self._name = unique_name(type(self))
        return self._name

    @property
    def dtype(self) -> str:
        """The dtype of the weights."""
        return self._dtype.name

    @property
    def dtype_policy(self) -> DTypePolicy:
        """In which dtypes the layer keeps its weights and computes."""
        return self._policy

    @property
    def compute_dtype(self) -> str:
        return self._compute.name

    @property
    def variable_dtype(self) -> str:
        return self._dtype.name

    @property
    def input_dtypes(self) -> Any:
        """The dtypes of its inputs: those of its first call, or what it takes by its kind."""
        return self.compute_dtype if self._input_dtypes is None else self._input_dtypes

    @property
    def trainable(self) -> bool:
        """Whether the layer's variables are listed as trainable; setting it sets the layers inside too."""
        return self._trainable

    @trainable.setter
    def trainable(self, value: bool) -> None:
        for layer in self._flattened():
            layer._trainable = bool(value)

    def _flattened(self) -> list[Layer]:
        """This layer and those inside, each once, outer before inner."""
        found: dict[int, Layer] = {}
        waiting: list[Layer] = [self]
        while waiting:
            layer = waiting.pop()
            if id(layer) not in found:
                found[id(layer)] = layer
                waiting += reversed(inside(layer, Layer))
        return list(found.values())

    def _own(self) -> list[Variable]:
        """The variables of this layer itself, trainable ones first."""
        return sorted(inside(self, Variable), key=lambda v: not v.trainable)

    @property
    def variables(self) -> list[Variable]:
        """All variables, those of inner layers after its own; empty before the layer is built."""
        return list({v._id: v for layer in self._flattened() for v in layer._own()}.values())

    @property
    def trainable_variables(self) -> list[Variable]:
        """The variables that training should change."""
        if not self._trainable:
            return []
        found: dict[int, Variable] = {}
        seen: set[int] = set()
        waiting: list[Layer] = [self]
        while waiting:  # once over each layer's attributes: a training step asks for this
            layer = waiting.pop()
            if id(layer) in seen:
                continue
            seen.add(id(layer))
            parts = inside(layer, (Layer, Variable))
            if layer._trainable:
                found.update((v._id, v) for v in parts if isinstance(v, Variable) and v.trainable)
            waiting += [p for p in reversed(parts) if isinstance(p, Layer)]
        return list(found.values())

    @property
    def non_trainable_variables(self) -> list[Variable]:
        """The variables that training leaves alone."""
        trained = {v._id for v in self.trainable_variables}
        return [v for v in self.variables if v._id not in trained]

    weights = variables
    trainable_weights = trainable_variables
    non_trainable_weights = non_trainable_variables

    def count_params(self) -> int:
        """How many numbers the variables hold."""
        return sum(v._aval.size for v in self.variables)

    def get_weights(self) -> list[Any]:
        """Copies of all variables as NumPy arrays, in the order of `variables`."""
        return [v.numpy() for v in self.variables]

    def set_weights(self, weights: Any) -> None:
        """Assign a list of arrays, in the order of `variables`. Nothing is assigned if one does not fit.

        Raises:
          ValueError: another number of arrays, or an array of another shape.

        >>> import gradtape as tf
        >>> layer = tf.keras.layers.Dense(1)
        >>> layer.build((None, 2))
        >>> layer.set_weights([[[1.0], [2.0]], [0.5]])
        >>> print(layer([[1.0, 1.0]]).numpy())
        [[3.5]]
        """
        variables, arrays = self.variables, [np.asarray(w) for w in weights]
        if len(variables) != len(arrays):
            hint = "" if self.built else " It is not built yet: call it on inputs or `build` it first."
            raise ValueError(
                f"You called `set_weights(weights)` on layer '{self.name}' with a weight list of length "
                f"{len(arrays)}, but the layer was expecting {len(variables)} weights.{hint}"
            )
        for v, array in zip(variables, arrays, strict=True):
            if v._aval.dims != array.shape:
                raise ValueError(
                    f"Layer '{self.name}' weight '{v.name}' of shape {v._aval.dims} is not compatible with the "
                    f"provided weight of shape {array.shape}. `get_weights()` shows the order."
                )
        for v, array in zip(variables, arrays, strict=True):
            v.assign(array)

    def __getattr__(self, name: str) -> Any:
        is_early = not self.built and name in _made_by_build(type(self))
        hint = " The layer is not built yet: call it on inputs or `build` it first." if is_early else ""
        raise AttributeError(f"Layer '{type(self).__name__}' has no attribute '{name}'.{hint}")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} name={self.name}, built={self.built}>"


def _made_by_build(layer: type) -> set[str]:
    """The names that the `build` methods of a class and its bases use, among them those of the weights they make."""
    builds = [inspect.unwrap(c.__dict__["build"]) for c in layer.__mro__ if "build" in c.__dict__]
    return {n for build in builds for n in getattr(getattr(build, "__code__", None), "co_names", ())}


def _marking(build: Callable[..., None]) -> Callable[..., None]:
    """`build` that takes any spelling of a shape, does its work once, and marks the layer as built."""

    @functools.wraps(build)
    def marked(self: Layer, input_shape: Any = None) -> None:
        if self.built:
            return
        shape = dims_of(input_shape)
        if SCOPE.path[-1:] == (self.name,):
            build(self, shape)
        else:
            with named(self.name):
                build(self, shape)
        self.built = True
        self._input_shape = shape

    return marked


# With nothing inside.
_LEAVES = frozenset([str, int, float, bool, type(None), FunctionType, DType, DTypePolicy, InputSpec])


def inside(layer: Layer, kind: type | tuple[type, ...]) -> list[Any]:
    """The instances of classes among a layer's attributes, and in lists, tuples and dicts that are attributes."""
    found: list[Any] = []
    waiting = [v for v in layer.__dict__.values() if type(v) not in _LEAVES][::-1]
    while waiting:
        value = waiting.pop()
        if isinstance(value, kind):
            found.append(value)
        elif isinstance(value, list | tuple):
            waiting += value[::-1]
        elif isinstance(value, dict):
            waiting += list(value.values())[::-1]
    return found
