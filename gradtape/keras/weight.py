"""`Weight`: a variable with a path, as layers and optimizers make them. Floor: keras."""

from __future__ import annotations

from typing import Any

from gradtape.api.elementwise import cast
from gradtape.ir.dtypes import as_dtype
from gradtape.ir.shapes import shape_text
from gradtape.keras.scope import SCOPE
from gradtape.runtime.tensor import Tensor
from gradtape.runtime.variable import Variable


class Weight(Variable):
    """A `tf.Variable` named as Keras names them: `name` is "kernel", `path` is "dense/kernel"."""

    def __init__(self, value: Any, path: str, dtype: Any, trainable: bool = True, constraint: Any = None) -> None:
        super().__init__(
            value, trainable=trainable, name=path.rpartition("/")[2], dtype=as_dtype(dtype), constraint=constraint
        )
        self.path = path

    def _operand(self, value: Any) -> Tensor:
        """What is assigned; in calls of layers that compute in another dtype it may have that."""
        if SCOPE.compute is None or not self._aval.dtype.is_floating:
            return super()._operand(value)
        return cast(value.read() if isinstance(value, Variable) else value, self._aval.dtype)

    @property
    def name(self) -> str:
        return self._name

    def __repr__(self) -> str:
        return (
            f"<Variable path={self.path}, shape={shape_text(self._aval.shape)}, dtype={self.dtype.name}, "
            f"value={self.numpy()}>"
        )

    def __deepcopy__(self, memo: Any) -> Weight:
        return type(self)(self.numpy(), self.path, self.dtype, self._trainable, self.constraint)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.numpy(), self.path, self.dtype.name, self._trainable, self.constraint)


class CastWeight(Weight):
    """A weight of a layer that computes in another dtype: in its calls, and those of layers inside, ops see it in that
    dtype."""

    def value(self) -> Tensor:
        found, wanted = self.read(), SCOPE.compute
        return found if wanted is None else cast(found, wanted)
