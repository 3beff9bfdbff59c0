"""`Sequential`: layers one after the other; `Model`: a layer of layers. Floor: keras."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradtape.keras.layers.base import Layer, inside
from gradtape.keras.layers.core import InputLayer
from gradtape.runtime.tensor import Tensor

COLUMNS = (33, 25, 12)  # of a summary


class Model(Layer):
    """A layer that consists of layers. Subclasses make them in `__init__` and use them in `call`.

    >>> import gradtape as tf
    >>> class Net(tf.keras.Model):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.inner, self.outer = tf.keras.layers.Dense(4, "relu"), tf.keras.layers.Dense(1)
    ...     def call(self, inputs):
    ...         return self.outer(self.inner(inputs))
    >>> net = Net()
    >>> net(tf.ones([2, 3])).shape, len(net.trainable_variables)
    (TensorShape([2, 1]), 4)
    """

    @property
    def layers(self) -> list[Layer]:
        """The layers directly inside."""
        return list({id(v): v for v in inside(self, Layer)}.values())

    def summary(self, print_fn: Callable[[str], Any] = print) -> None:
        """Print a table of the layers: their kinds, what they make and how many parameters they have."""
        print_fn(f'Model: "{self.name}"')
        rows = [("Layer (type)", "Output Shape", "Param #"), *self._rows()]
        rule = "─" * sum(COLUMNS)
        for k, row in enumerate(rows):
            print_fn("".join(cell.ljust(width - 1) + " " for cell, width in zip(row, COLUMNS, strict=True)).rstrip())
            if k == 0:
                print_fn(rule)
        print_fn(rule)
        trained = sum(v._aval.size for v in self.trainable_variables)
        total = self.count_params()
        print_fn(f"Total params: {total:,}")
        print_fn(f"Trainable params: {trained:,}")
        print_fn(f"Non-trainable params: {total - trained:,}")

    def _rows(self) -> list[tuple[str, str, str]]:
        return [(f"{v.name} ({type(v).__name__})", "?", _parameters(v)) for v in self.layers]


def _parameters(layer: Layer) -> str:
    return f"{layer.count_params():,}" if layer.built else "0 (unbuilt)"


class Sequential(Model):
    """Layers one after the other.

    Args:
      layers: a list of layers; `tf.keras.Input` or a first layer with `input_shape` builds it at once.
      name: the default is `sequential`.

    Raises:
      ValueError: an entry that is no layer, or a second layer of the same name.

    >>> import gradtape as tf
    >>> model = tf.keras.Sequential([tf.keras.layers.Dense(4, activation="relu"), tf.keras.layers.Dense(2)])
    >>> model(tf.ones([5, 3])).shape, [v.name for v in model.variables]
    (TensorShape([5, 2]), ['kernel', 'bias', 'kernel', 'bias'])
    """

    def __init__(self, layers: Sequence[Layer] | None = None, name: str | None = None, **options: Any) -> None:
        super().__init__(name=name, **options)
        self._layers: list[Layer] = []
        self._entry: tuple[int | None, ...] | None = None
        for layer in layers or ():
            self.add(layer)

    @property
    def layers(self) -> list[Layer]:
        return list(self._layers)

    def add(self, layer: Layer) -> None:
        """Put a layer at the end."""
        if not isinstance(layer, Layer):
            way_out = " Wrap a function in `tf.keras.layers.Activation`." if callable(layer) else ""
            raise ValueError(
                f"Only layers can be added to a Sequential, got {layer!r} of type {type(layer).__name__}.{way_out}"
            )
        if isinstance(layer, InputLayer):
            if self._layers or self._entry:
                raise ValueError(f"Sequential '{self.name}' already has its input or layers: `Input` goes first.")
            self._entry = layer.batch_shape
            return
        if any(other.name == layer.name for other in self._layers):
            raise ValueError(
                f"Sequential '{self.name}' already has a layer named '{layer.name}': give it another name."
            )
        if not self._layers and self._entry is None and layer._example is not None:
            self._entry = (None, *layer._example)
        self._layers.append(layer)
        self.built = False
        if self._entry is not None:
            self.build(self._entry)

    def pop(self) -> Layer:
        """Take the last layer off, and return it."""
        if not self._layers:
            raise ValueError(f"Sequential '{self.name}' has no layer to take off.")
        return self._layers.pop()

    def build(self, input_shape: Any = None) -> None:
        """Make the weights of all layers for inputs of this shape.

        Raises:
          ValueError: no shape, where none was given before.
        """
        shape = self._entry if input_shape is None else input_shape
        if shape is None:
            raise ValueError(f"Sequential '{self.name}' does not know its input's shape: `build((None, 784))`.")
        for layer in self._layers:
            if not layer.built:
                layer.build(shape)
            shape = layer.compute_output_shape(shape)

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        for layer in self._layers:
            inputs = layer(inputs, training=training)
        return inputs

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        for layer in self._layers:
            input_shape = layer.compute_output_shape(input_shape)
        return tuple(input_shape)

    def _rows(self) -> list[tuple[str, str, str]]:
        shape = self._input_shape
        rows = []
        for layer in self._layers:
            if shape is not None:
                shape = layer.compute_output_shape((None, *shape[1:]))
            rows.append((f"{layer.name} ({type(layer).__name__})", str(shape or "?"), _parameters(layer)))
        return rows
