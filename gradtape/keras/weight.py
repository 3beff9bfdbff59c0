"""`Weight`: a variable with a path, as layers and optimizers make them. Floor: keras."""

from __future__ import annotations

from typing import Any

from gradtape.ir.dtypes import as_dtype
from gradtape.ir.shapes import shape_text
from gradtape.runtime.variable import Variable


class Weight(Variable):
    """A `tf.Variable` named as Keras names them: `name` is "kernel", `path` is "dense/kernel"."""

    def __init__(self, value: Any, path: str, dtype: Any, trainable: bool = True, constraint: Any = None) -> None:
        super().__init__(
            value, trainable=trainable, name=path.rpartition("/")[2], dtype=as_dtype(dtype), constraint=constraint
        )
        self.path = path

    @property
    def name(self) -> str:
        return self._name

    def __repr__(self) -> str:
        return (
            f"<Variable path={self.path}, shape={shape_text(self._aval.shape)}, dtype={self.dtype.name}, "
            f"value={self.numpy()}>"
        )

    def __deepcopy__(self, memo: Any) -> Weight:
        return Weight(self.numpy(), self.path, self.dtype, self._trainable, self.constraint)

    def __reduce__(self) -> tuple[Any, ...]:
        return Weight, (self.numpy(), self.path, self.dtype.name, self._trainable, self.constraint)
