"""Vectors for numbers. Floor: keras."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradtape.api.elementwise import cast
from gradtape.api.embedding import embedding_lookup
from gradtape.ir.dtypes import int32, int64
from gradtape.keras import initializers
from gradtape.keras.layers.base import Layer
from gradtape.keras.layers.inputs import Dims, positive_integer
from gradtape.runtime.tensor import Tensor


class Embedding(Layer):
    """A trained vector for each of the numbers from 0 to `input_dim` - 1.

    Args:
      input_dim: how many numbers there are.
      output_dim: the size of their vectors.
      embeddings_initializer: by name or as a function.
      embeddings_constraint: a function that the optimizer applies to the table after each update.
      mask_zero: has to be False: layers here pass no masks on. Weigh the loss instead (`sample_weight`).
      weights: the table's first values.
      **options: `name`, `trainable`, `dtype`, `input_shape`, as `Layer` takes them.

    Weights:
      embeddings (input_dim, output_dim). Its gradient is `tf.IndexedSlices`.

    Raises:
      ValueError: sizes that are not positive integers, `mask_zero`, `weights` of another shape.
      InvalidArgumentError: a number in the input that has no vector, negative ones included.

    >>> import gradtape as tf
    >>> layer = tf.keras.layers.Embedding(3, 2, weights=[[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]])
    >>> print(layer([[2, 0]]).numpy())
    [[[4. 5.]
      [0. 1.]]]
    """

    _casts_inputs = False
    _input_dtypes = "int32"

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        embeddings_initializer: Any = "uniform",
        embeddings_constraint: Callable[[Any], Any] | None = None,
        mask_zero: bool = False,
        weights: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        if mask_zero:
            raise ValueError(
                "`mask_zero` should be False: layers pass no masks on. Weigh the loss instead, with `sample_weight`."
            )
        self.input_dim = positive_integer(input_dim, "input_dim")
        self.output_dim = positive_integer(output_dim, "output_dim")
        self.embeddings_initializer = initializers.get(embeddings_initializer)
        self.embeddings_constraint = embeddings_constraint
        if weights is not None:
            self.build(None)
            self.set_weights(weights if isinstance(weights, list) and len(weights) == 1 else [weights])

    def build(self, input_shape: Any = None) -> None:
        self.embeddings = self.add_weight(
            (self.input_dim, self.output_dim),
            self.embeddings_initializer,
            constraint=self.embeddings_constraint,
            name="embeddings",
            autocast=False,
        )

    def call(self, inputs: Tensor) -> Tensor:
        known = inputs._aval.dtype in (int32, int64)
        return cast(embedding_lookup(self.embeddings, inputs if known else cast(inputs, int32)), self._compute)

    def compute_output_shape(self, input_shape: Any) -> Dims:
        return (*tuple(input_shape), self.output_dim)
