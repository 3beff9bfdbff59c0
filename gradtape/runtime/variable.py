"""`Variable`: a tensor that can be assigned to. What is recorded is its value when it was read. Floor: runtime."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from gradtape.ir.aval import Aval, aval
from gradtape.ir.dtypes import DType, as_dtype
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.shapes import TensorShape, shape_text
from gradtape.kernels.memory import UNSHARED
from gradtape.ops.arithmetic import ADD, SUBTRACT
from gradtape.ops.op import Step
from gradtape.runtime import convert as conversion
from gradtape.runtime import hosted, row_updates
from gradtape.runtime.assigning_rows import RowAssigning
from gradtape.runtime.convert import convert
from gradtape.runtime.devices import is_on_device, on_host, own_copy
from gradtape.runtime.dispatch import binary, run_alone
from gradtape.runtime.record import MADE
from gradtape.runtime.state import STATE, new_id, quietly
from gradtape.runtime.taking import awaited, taken
from gradtape.runtime.tensor import Operators, Reference, SymbolicTensor, Tensor, array_text, wrap
from gradtape.runtime.trace import FunctionTracer, creating, evaluated, function_tracer, of_all_slices, outside

_names = itertools.count()


MOST_SHAPES = 64  # of one variable that tapes are asked for

_UPDATING = threading.RLock()  # held while a value is read and written back: no update of two threads is lost


class Variable(RowAssigning, Operators):
    """A tensor whose value can be changed.

    Args:
      initial_value: what becomes a tensor, or a callable that gives it.
      trainable: whether tapes watch it by themselves.
      name: for people; the default is `Variable`.
      dtype: of the value; by default that of `initial_value`.
      shape: must be compatible with the value's shape; values of any shape that is compatible with it may be assigned,
        where dimensions are None or it is `tf.TensorShape(None)`. Functions are traced anew for another shape.

    >>> import gradtape as tf
    >>> v = tf.Variable([1.0, 2.0], name="v")
    >>> _ = v.assign_add([1.0, 1.0])
    >>> v.numpy().tolist(), v.shape, v.trainable
    ([2.0, 3.0], TensorShape([2]), True)
    """

    __array_priority__ = 100
    _declared: TensorShape | None = None  # what values may have, if that is more than one shape
    former: tuple[int, ...] = ()  # what its id was while values had other shapes, the last ones

    def __new__(cls, *args: Any, **kwargs: Any) -> Variable:
        return super().__new__(ResourceVariable if cls is Variable else cls)

    def __init__(
        self,
        initial_value: Any = None,
        trainable: bool = True,
        validate_shape: bool = True,
        caching_device: Any = None,
        name: str | None = None,
        variable_def: Any = None,
        dtype: Any = None,
        import_scope: Any = None,
        constraint: Callable[[Tensor], Tensor] | None = None,
        synchronization: Any = None,
        aggregation: Any = None,
        shape: Any = None,
    ) -> None:
        if initial_value is None:
            raise ValueError("A Variable needs an `initial_value`: a tensor, an array, a number or a callable.")
        created = creating() if STATE.tracers else None
        value = _initial(initial_value)
        tensor = conversion.requested(value, conversion.as_optional_dtype(dtype))
        if shape is not None:
            declared = TensorShape(shape)
            if not declared.is_compatible_with(tensor.shape):
                raise ValueError(f"The initial value's shape {tensor.shape} is not compatible with shape {declared}.")
            if not declared.is_fully_defined():
                self._declared = declared
        if isinstance(tensor, SymbolicTensor):
            tensor = evaluated(tensor)
        if created is not None:
            created.append(self)
        self._id = new_id()
        self._aval: Aval = tensor._aval
        self._trainable = bool(trainable)
        self._name = STATE.names + (name or "Variable")
        self.constraint = constraint
        self._snapshot = _copied(tensor)
        for recorder in STATE.recorders:
            if recorder.is_watching(tensor):
                recorder.assigns(self, tensor, MADE)

    @classmethod
    def of_array(cls, array: Any, of: Aval, trainable: bool, name: str) -> Variable:
        """A variable with the array itself, which nobody changes, as its first value."""
        made = cls(np.empty(0), trainable)
        made._aval, made._snapshot, made._name = of, wrap(array, of), name
        return made

    # ------------------------------------------------------------------ reading

    def read(self) -> Tensor:
        """The present value. Tapes that watch variables begin to watch this one.

        A tensor that was read under other tapes, in another thread or outside of them is no read of these: it
        stays a constant, so that here a new name stands for the value."""
        state = STATE
        if state.tracers:
            return self._read_traced(function_tracer())
        snapshot = self._snapshot
        if state.recorders:
            known = state.reads.get(self._id)
            if known is None or known._array is not snapshot._array:
                known = state.reads[self._id] = wrap(snapshot._array, self._aval)
            snapshot = known
        for watcher in state.watchers:
            watcher(self)
        for recorder in state.recorders:
            recorder.read(self, snapshot)
        return snapshot

    def _read_traced(self, tracer: FunctionTracer | None) -> Tensor:
        """While a function is traced: its own view of the variable. Other traces see the present value."""
        snapshot = self._snapshot if tracer is None else tracer.read(self)
        if tracer is not None and isinstance(snapshot, SymbolicTensor) and STATE.recorders:
            known = STATE.reads.get(self._id)
            if not isinstance(known, SymbolicTensor) or known._value is not snapshot._value:
                known = STATE.reads[self._id] = tracer.symbol(snapshot._value)
            snapshot = known
        for watcher in STATE.watchers:
            watcher(self)
        for recorder in STATE.recorders:
            recorder.read(self, snapshot)
        return snapshot

    value = read  # what ops see when they are given the variable; some variables show them another dtype

    def read_value(self) -> Tensor:
        return self.read()

    def numpy(self) -> Any:
        """A copy of the present value as a NumPy array."""
        self._looked_at("`.numpy()`")
        return self._now().numpy()

    def _looked_at(self, how: str) -> None:
        """Tell the tapes that the value was asked for."""
        for recorder in STATE.recorders:
            recorder.looked_at(self, how)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        self._looked_at("a NumPy function, or `np.asarray`,")
        return self._now().__array__(dtype, copy)

    def _now(self) -> Tensor:
        """The present value, as Python asks for it: while a function is traced it has none."""
        tracer = function_tracer() if STATE.tracers else None
        return self._snapshot if tracer is None else tracer.read(self)

    @property
    def shape(self) -> TensorShape:
        return TensorShape(self._aval.shape) if self._declared is None else self._declared

    @property
    def is_of_one_shape(self) -> bool:
        """Whether all of its values have one shape."""
        return self._declared is None

    def aval_now(self) -> Aval:
        """That of the present value."""
        return self._aval if self._declared is None or not STATE.tracers else self._now()._aval

    @property
    def dtype(self) -> DType:
        return self._aval.dtype

    @property
    def ndim(self) -> int:
        return len(self._aval.dims)

    @property
    def name(self) -> str:
        return f"{self._name}:0"

    @property
    def trainable(self) -> bool:
        return self._trainable

    @property
    def device(self) -> str:
        return self._snapshot.device

    @property
    def handle(self) -> Variable:
        return self

    def get_shape(self) -> TensorShape:
        return self.shape

    def ref(self) -> Reference:
        """A hashable stand-in for this variable, for sets and dicts."""
        return Reference(self)

    def experimental_ref(self) -> Reference:
        return Reference(self)

    # ------------------------------------------------------------------ assigning

    def assign(self, value: Any, use_locking: bool = False, name: str | None = None, read_value: bool = True) -> Any:
        """Replace the value. No gradient flows through an assignment.

        Returns:
          The variable; with `read_value=False` None, outside of traced functions.

        Raises:
          ValueError: when the shape differs.
        """
        tensor = self._operand(value)
        if tensor._aval is not self._aval and not self._may_have(tensor):
            raise ValueError(f"Shape mismatch: {self._misfit(tensor)}")
        tracer = function_tracer() if STATE.tracers else None
        if tracer is not None:
            tracer.assign(self, tensor)
            return self
        self._tell(tensor, "assign")
        copied = _copied(tensor)
        with _UPDATING:
            self._snapshot = copied
            self._take_shape(tensor._aval)
        return self if read_value else None

    def assign_add(
        self, delta: Any, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Add to the value, in place where nothing else needs the old one. What it returns: see `assign`.

        Raises:
          InvalidArgumentError: when the shape differs.
        """
        made = self._update(np.add, delta)
        return made if read_value or STATE.tracers else None

    def assign_sub(
        self, delta: Any, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Subtract from the value, in place where nothing else needs the old one. What it returns: see `assign`.

        Raises:
          InvalidArgumentError: when the shape differs.
        """
        made = self._update(np.subtract, delta)
        return made if read_value or STATE.tracers else None

    def _update(self, ufunc: np.ufunc, delta: Any) -> Variable:
        tensor = self._operand(delta)
        if tensor._aval is not self.aval_now():
            raise InvalidArgumentError(f"An update wants the variable's shape: {self._misfit(tensor)}")
        if STATE.tracers and function_tracer() is not None:
            self.assign(binary(self._step(ufunc), self.read(), tensor))
            return self
        self._tell(tensor, "assign_add" if ufunc is np.add else "assign_sub")
        with _UPDATING:
            if is_on_device(self._snapshot._array):
                new = run_alone(self._step(ufunc), self._snapshot._array, tensor._array)
                self._snapshot = wrap(new, self._aval)
                return self
            delta = on_host(tensor._array)
            with taken([self]) as own:
                if own is not None:
                    quietly(ufunc, own[0]._array, delta, own[0]._array)
                    return self
            self._snapshot = wrap(quietly(ufunc, self._snapshot._array, delta), self._aval)
        return self

    def _step(self, ufunc: np.ufunc) -> Step:
        return (ADD if ufunc is np.add else SUBTRACT).bind()

    # ------------------------------------------------------------------ assigning rows

    def _scatter(self, how: str, delta: Any) -> Self:
        if STATE.tracers and function_tracer() is not None:
            self.assign(hosted.scattered(how, self.read(), delta))
            return self
        self._tell(getattr(delta, "values", None), f"scatter_{how}")
        with _UPDATING:
            if is_on_device(self._snapshot._array):
                self._snapshot = wrap(row_updates.scattered(self._snapshot._array, how, delta), self._aval)
                return self
            with taken([self]) as own:
                if own is not None:
                    row_updates.scatter_into(own[0]._array, how, delta)
                    return self
            array = np.array(self._snapshot._array, order="C")
            row_updates.scatter_into(array, how, delta)
            self._snapshot = wrap(array, self._aval)
        return self

    def _updated(self, update: Callable[[Tensor], Any]) -> Self:
        if STATE.tracers and function_tracer() is not None:
            self.assign(update(self.read()))
            return self
        with _UPDATING:
            self.assign(update(self.read()))
        return self

    def overwrite(self, array: Any) -> None:
        """Make a fresh array of this variable's shape and dtype, which nobody else holds, its value."""
        if self._declared is not None:
            self._take_shape(aval(array.shape, self._aval.dtype))
        self._snapshot = wrap(array, self._aval)

    @property
    def array(self) -> Any:
        """The present value's array, which tapes are not told of."""
        return self._snapshot._array

    def is_alone(self, others: int = 0) -> bool:
        """Whether nothing but this variable, and so many others that are known, holds its array."""
        snapshot = self._snapshot
        array = snapshot._array
        # the snapshot: this variable and a local name; the array: the snapshot and a local name
        return sys.getrefcount(snapshot) <= UNSHARED and sys.getrefcount(array) <= UNSHARED + others

    def _tell(self, value: Tensor | None, how: str) -> None:
        """Tell the tapes that the variable is overwritten."""
        for recorder in STATE.recorders:
            recorder.assigns(self, value, how)

    def _operand(self, value: Any) -> Tensor:
        if isinstance(value, Variable):
            value = value.read()
        tensor = convert(value, self._aval.dtype)
        if isinstance(tensor, SymbolicTensor) and tensor._tracer.is_map:
            raise of_all_slices(self._name)
        return tensor

    def _take_shape(self, new: Aval) -> None:
        """For tapes a variable of another shape is another source: gradients have the shape of what was read."""
        if new is not self._aval:
            self.former = (*self.former[1 - MOST_SHAPES :], self._id)
            self._aval, self._id = new, new_id()

    def _may_have(self, tensor: Tensor) -> bool:
        return self._declared is not None and self._declared.is_compatible_with(tensor.shape)

    def _misfit(self, tensor: Tensor) -> str:
        return (
            f"the variable `{self._name}` has shape {shape_text(self._aval.shape)}, the value "
            f"{shape_text(tensor._aval.shape)}. Make a new `tf.Variable` for a value of another shape."
        )

    # ------------------------------------------------------------------ Python

    def __getattr__(self, name: str) -> Any:
        """What no attribute of that name is there for; the value is not while it is written over."""
        if name == "_snapshot":
            return awaited(self)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def __hash__(self) -> int:
        raise TypeError("Variable is unhashable. Instead, use variable.ref() as the key.")

    def __bool__(self) -> bool:
        return bool(self._now())

    def __float__(self) -> float:
        self._looked_at("`float()`")
        return float(self._now())

    def __int__(self) -> int:
        self._looked_at("`int()`")
        return int(self._now())

    def __index__(self) -> int:
        return self._now().__index__()

    def __len__(self) -> int:
        return len(self._snapshot)

    def __iter__(self) -> Any:
        return iter(self.read())

    def __format__(self, spec: str) -> str:
        return format(self._now(), spec) if spec else str(self)

    def _not_in_place(self, other: Any) -> Any:
        """`variable += value` would bind the name to a tensor, and what was meant is an assignment.

        Raises:
          RuntimeError: always, as in TensorFlow.
        """
        raise RuntimeError(
            "`variable += value` with `tf.Variable`s is not supported. Use `variable.assign_add(value)` to modify the "
            "variable (`assign_sub`, or `assign` for other operators), or `out = variable + value` for a new tensor."
        )

    __iadd__ = __isub__ = __imul__ = __itruediv__ = __ipow__ = _not_in_place

    def __repr__(self) -> str:
        text = f"<tf.Variable '{self.name}' shape={self.shape} dtype={self.dtype.name}"
        now = self._now()
        return f"{text}>" if isinstance(now, SymbolicTensor) else f"{text}, numpy={array_text(now)}>"

    def __deepcopy__(self, memo: Any) -> Variable:
        restored, parts = self.__reduce__()
        made: Variable = restored(*parts)
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.numpy(), self._trainable, self._name, self.dtype.name, self._declared)


class ResourceVariable(Variable):
    """What `tf.Variable` makes; the name that TensorFlow's variables have."""


def _initial(value: Any) -> Any:
    """What a variable begins with; a function that gives it runs at once, though another one is being traced."""
    if not callable(value):
        return value
    if not STATE.tracers:
        return value()
    with outside():
        return value()


def _restored(value: Any, trainable: bool, name: str, dtype: str, shape: TensorShape | None = None) -> Variable:
    made = Variable(value, trainable=trainable, dtype=as_dtype(dtype), shape=shape)
    made._name = name  # whatever scope of names this happens in
    return made


def _copied(tensor: Tensor) -> Tensor:
    """A tensor with an array of its own, contiguous, so that updates may write over it."""
    array = own_copy(tensor._array)
    return wrap(array, aval(tensor._aval.shape, tensor._aval.dtype))


conversion.converters.append((Variable, lambda v: v.value()))
