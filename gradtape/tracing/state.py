"""The names that a statement changes, as tensors and as what Python has of them. Floor: tape."""

from __future__ import annotations

import numbers
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import optree

from gradtape.ir.dtypes import DType
from gradtape.recording import flatten
from gradtape.runtime.control import LoopVariableError, zeros_of
from gradtape.runtime.convert import convert
from gradtape.runtime.places import place_of, user_frame
from gradtape.runtime.tensor import SymbolicTensor, Tensor
from gradtape.runtime.variable import Variable
from gradtape.tracing.assertions import must_hold
from gradtape.tracing.carried import check_size, expanded, widened


def is_number(x: Any) -> bool:
    """Whether something that is no tensor can be one: a number, an array, a variable."""
    return isinstance(x, Tensor | Variable | numbers.Number | np.ndarray | np.generic | bool)


def is_python(x: Any) -> bool:
    """Whether something is a number that takes its dtype from its neighbours."""
    return isinstance(x, numbers.Number) and not isinstance(x, np.generic)


def same(a: Any, b: Any) -> bool:
    """Whether two values are one for Python."""
    if a is b:
        return True
    plain = (bool, int, float, complex, str, bytes, type(None))
    return type(a) is type(b) and isinstance(a, plain) and a == b


# ------------------------------------------------------------------ after a branch


class Joined:
    """A name after a branch: leaves of two structures, of which some are tensors now."""

    def __init__(self, pairs: list[tuple[Any, Any]], spec: Any) -> None:
        self.pairs, self.spec = pairs, spec
        self.staged = [not same(a, b) for a, b in pairs]

    def tensors(self, branch: int) -> list[Tensor]:
        """What one of the branches gives; to be asked inside of it."""
        return [
            _of_dtype(p[branch], p[1 - branch]) for p, staged in zip(self.pairs, self.staged, strict=True) if staged
        ]

    def rebuilt(self, made: Iterator[Tensor]) -> Any:
        """What the name is afterwards."""
        leaves = [next(made) if s else a for (a, _), s in zip(self.pairs, self.staged, strict=True)]
        return leaves[0] if self.spec is None else optree.tree_unflatten(self.spec, leaves)


def _of_dtype(x: Any, other: Any) -> Tensor:
    """A value as a tensor; a Python number takes the dtype of a tensor that stands for the same name."""
    if isinstance(x, _Missing):
        return zeros_of(convert(other))
    dtype = other.dtype if is_python(x) and isinstance(other, Tensor | Variable) else None
    return convert(x, dtype if dtype is not None and _takes(x, dtype) else None)


def _takes(x: Any, dtype: DType) -> bool:
    """Whether a Python number can be of a dtype."""
    if isinstance(x, bool):
        return dtype.is_bool
    if isinstance(x, int):
        return dtype.is_integer or dtype.is_floating or dtype.is_complex
    return dtype.is_complex or (dtype.is_floating and not isinstance(x, complex))


class BranchError(TypeError, ValueError):
    """A name is in one branch what no tensor can be, and in the other something else."""


class NoneBefore(TypeError):
    """A name is None before a loop and tensors after one round. `at`: which one."""

    def __init__(self, text: str, at: int) -> None:
        super().__init__(text)
        self.at = at


class _Missing:
    """Stands for what a branch does not return, when the function has not returned yet: nobody looks at it."""


def pair_up(name: str, values: tuple[Any, Any], names: Names, opposite: Any) -> Joined:
    """A name in both branches.

    Raises:
      ValueError: one of them does not set it.
      BranchError: one of them makes it what no tensor can be.
    """
    a, b = values
    if opposite is not None and a is True and isinstance(b, SymbolicTensor) and b._value is opposite:
        return Joined([(True, True)], None)  # `if not x: x = True`
    if names.library.is_undefined(a) and names.library.is_undefined(b):
        return Joined([(a, a)], None)
    for k, (mine, other) in enumerate(((a, b), (b, a))):
        if names.library.is_undefined(mine):
            if not names.library.is_unreturned(mine):
                where = ("main", "else")[k]
                raise ValueError(f"{place_of(user_frame())}: '{name}' must also be initialized in the {where} branch.")
            leaves, spec = flatten(other)
            return Joined([(_Missing(), x) if not k else (x, _Missing()) for x in leaves], spec)
    leaves, spec = flatten(expanded(a))
    others, other_spec = flatten(expanded(b))
    if spec != other_spec:
        raise TypeError(
            f"{place_of(user_frame())}: '{name}' must have the same nested structure in both branches, got {a!r} and "
            f"{b!r}."
        )
    for x, y in zip(leaves, others, strict=True):
        if not same(x, y) and not (is_number(x) and is_number(y)):
            raise BranchError(
                f"{place_of(user_frame())}: '{name}' is {x!r} in one branch and {y!r} in the other. What depends on a "
                "tensor should be a tensor."
            )
    return Joined(list(zip(leaves, others, strict=True)), spec)


# ------------------------------------------------------------------ around a loop


class Names:
    """The names that a loop changes: which of their leaves are tensors that it carries. `is_sure`: there is a round."""

    def __init__(self, names: Sequence[str], library: Any, values: Sequence[Any] = (), is_sure: bool = True) -> None:
        self.names, self.library, self.is_sure = list(names), library, is_sure
        self.values = list(values)
        # whether it carries that there was a round, without which names would have no value
        self.marks = not is_sure and any(library.is_undefined(v) and not library.is_unreturned(v) for v in values)
        self.parts = [flatten(expanded(v)) for v in values]
        self.dtypes: dict[int, DType] = {}  # of Python numbers, by the number of the leaf
        self.fresh: list[tuple[int, Any]] = []  # names without a value before the loop, with their structures after

    def _leaves(self) -> Iterator[tuple[str, Any]]:
        for name, value, (leaves, _) in zip(self.names, self.values, self.parts, strict=False):
            if not self.library.is_undefined(value):
                yield from ((name, x) for x in leaves)

    def start(self) -> list[Tensor]:
        """The tensors before the loop."""
        carried = [x for _, x in self._leaves() if is_number(x)]
        tensors = [convert(x, self.dtypes.get(k)) for k, x in enumerate(carried)]
        return [*tensors, convert(False)] if self.marks else tensors

    def labels(self) -> list[str]:
        """The names of the tensors."""
        found = [name for name, x in self._leaves() if is_number(x)]
        found += ["whether there was a round"] * self.marks
        return [*found, *("a name that is set in the loop" for _ in range(64))]

    def retyped(self, e: LoopVariableError) -> bool:
        """Whether a Python number takes the dtype that it becomes in the loop."""
        carried = [x for _, x in self._leaves() if is_number(x)]
        if e.at >= len(carried) or not is_python(carried[e.at]) or e.to.shape != () or e.at in self.dtypes:
            return False
        if not _takes(carried[e.at], e.to.dtype):
            return False
        self.dtypes[e.at] = e.to.dtype
        return True

    def widened(self, after: Sequence[Any]) -> Names:
        """The same names with arrays as large as they are after a round."""
        wide = [widened(x, y) for x, y in zip(self.values, after, strict=True)]
        return Names(self.names, self.library, wide, self.is_sure)

    def unset(self, at: int) -> Names:
        """The same names, of which one has no value before the loop."""
        nothing = self.library.variables.Undefined(self.names[at])
        values = [nothing if k == at else v for k, v in enumerate(self.values)]
        return Names(self.names, self.library, values, self.is_sure)

    def inside(self, now: Sequence[Tensor]) -> list[Any]:
        """The names' values at the beginning of a round."""
        given = iter(now)
        return self._rebuilt(given)

    def end(self, made: Sequence[Tensor]) -> list[Any]:
        """The names' values after the loop; those that it set are what the last round made them.

        Raises:
          InvalidArgumentError: there was no round, in each such call."""
        given = iter(made)
        found = self._rebuilt(given)
        if self.marks:
            set_here = ", ".join(f"'{self.names[k]}'" for k, _ in self.fresh)
            says = f"{place_of(user_frame())}: loop must iterate at least once to initialize {set_here}"
            there_was = next(given)
            if self.fresh:
                must_hold(there_was, [], lambda _: says, "while")
        for k, spec in self.fresh:
            count = 1 if spec is None else spec.num_leaves
            leaves = [next(given) for _ in range(count)]
            found[k] = leaves[0] if spec is None else optree.tree_unflatten(spec, leaves)
        return found

    def _rebuilt(self, given: Iterator[Tensor]) -> list[Any]:
        found = []
        for value, (leaves, spec) in zip(self.values, self.parts, strict=True):
            if self.library.is_undefined(value):
                found.append(value)
                continue
            inner = [next(given) if is_number(x) else x for x in leaves]
            found.append(inner[0] if spec is None else optree.tree_unflatten(spec, inner))
        return found

    def after(self, values: Sequence[Any]) -> list[Tensor]:
        """The tensors after a round: those that were carried, then those of names that had no value before.

        Raises:
          TypeError: a name becomes something that no tensor can be.
          NoneBefore: it was None, and becomes tensors.
          ValueError: a name has another structure than before.
          Outgrown: an array is larger than before.
        """
        check_size(tuple(self.values), tuple(values))
        carried: list[Tensor] = []
        fresh: list[Tensor] = []
        self.fresh = []
        count = 0
        for k, (name, old, new) in enumerate(zip(self.names, self.values, values, strict=True)):
            leaves, spec = flatten(expanded(new))
            if self.library.is_undefined(old):
                if not self.library.is_undefined(new) and all(map(is_number, leaves)):
                    fresh += map(convert, leaves)
                    self.fresh.append((k, spec))
                continue
            before, old_spec = self.parts[k]
            if old is None and new is not None and all(map(is_number, leaves)):
                raise NoneBefore(
                    f"{place_of(user_frame())}: '{name}' is None before a loop of tensors and {new!r} after one "
                    "iteration, and the loop reads it. What such a loop changes should be tensors.",
                    k,
                )
            if spec != old_spec:
                raise ValueError(
                    f"{place_of(user_frame())}: '{name}' does not have the same nested structure after one iteration: "
                    f"it was {old!r}, and is {new!r}."
                )
            for x, y in zip(before, leaves, strict=True):
                if is_number(x):
                    carried.append(self._carried(name, x, y, count))
                    count += 1
                elif not same(x, y):
                    raise TypeError(
                        f"{place_of(user_frame())}: '{name}' is {x!r} before a loop of tensors and {y!r} after one "
                        "iteration. What such a loop changes should be tensors."
                    )
        return [*carried, *([convert(True)] if self.marks else []), *fresh]

    def _carried(self, name: str, before: Any, after: Any, count: int) -> Tensor:
        if not is_number(after):
            raise TypeError(
                f"{place_of(user_frame())}: '{name}' is {before!r} before a loop of tensors and {after!r} after one "
                "iteration. What such a loop changes should be tensors."
            )
        if not is_python(after):
            return convert(after)
        dtype = self.dtypes.get(count) or (before.dtype if isinstance(before, Tensor | Variable) else None)
        return convert(after, dtype if dtype is not None and _takes(after, dtype) else None)
