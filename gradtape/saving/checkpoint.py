"""`tf.train.Checkpoint`: the variables of objects in a file, and back into them. Floor: saving."""

from __future__ import annotations

import os
from typing import Any

from gradtape.ir.dtypes import DType, as_dtype, int64
from gradtape.ir.errors import NotFoundError
from gradtape.runtime.attaching import Attaching
from gradtape.runtime.state import STATE
from gradtape.runtime.trace import outside
from gradtape.runtime.variable import Variable
from gradtape.saving import tracking
from gradtape.saving.damage import reading
from gradtape.saving.files import whole
from gradtape.saving.object_graph import VALUE, Node, Written, read_objects
from gradtape.saving.restoring import Restoration
from gradtape.saving.states import record
from gradtape.saving.weights import map_arrays, write_arrays

SUFFIX = ".safetensors"


class Checkpoint(Attaching):
    """Objects whose variables are saved together: modules, layers, optimizers, generators, variables, and lists, tuples
    and dictionaries of them.

    Args:
      root: an object whose variables are named as they are in it; without one, the checkpoint itself.
      **kwargs: objects by name; they are attributes of the checkpoint.

    Raises:
      ValueError: what has no variables to save.

    >>> import gradtape as tf, tempfile
    >>> step = tf.Variable(3)
    >>> checkpoint = tf.train.Checkpoint(step=step)
    >>> path = checkpoint.save(tempfile.mkdtemp() + "/model")
    >>> _ = step.assign(0)
    >>> _ = checkpoint.restore(path).assert_consumed()
    >>> path.rpartition("/")[2], int(step)
    ('model-1', 3)

    Source: `tf.train.Checkpoint` of TensorFlow 2.
    """

    def __init__(self, root: Any = None, **kwargs: Any) -> None:
        self._root = root
        self._save_counter: Variable | None = None
        for name, value in ([("root", root)] if root is not None else []) + sorted(kwargs.items()):
            if not (tracking.has_state(value) or isinstance(value, Variable | list | tuple | dict)):
                raise ValueError(
                    f"`Checkpoint` was expecting {name} to be a trackable object (an object derived from `Trackable`, "
                    f"such as `tf.Module`, `tf.Variable` or a list of them), got {value!r}."
                )
        for name, value in kwargs.items():
            setattr(self, name, value)

    @property
    def save_counter(self) -> Variable:
        """How often `save` was called: a variable of int64 that is saved too."""
        if self._save_counter is None:
            with outside():
                self._save_counter = Variable(0, trainable=False, name="save_counter", dtype=int64)
        return self._save_counter

    def tracked(self) -> dict[str, Any]:
        """What is saved, by name."""
        own = {k: v for k, v in vars(self).items() if k not in ("_root", "_save_counter")}
        if self._save_counter is not None:
            own["save_counter"] = self._save_counter
        if self._root is None:
            return own
        if isinstance(self._root, list | tuple | dict):
            return {str(k): v for k, v in tracking.parts(self._root)} | own
        return tracking.own(self._root) | own

    # ------------------------------------------------------------------ to a file

    def write(self, file_prefix: Any, options: Any = None) -> str:
        """Write the present values to a file, at once or not at all.

        Args:
          file_prefix: the path, without an ending.
          options: accepted for compatibility.

        Returns:
          The path, for `read` and `restore`.
        """
        if STATE.tracers:
            raise RuntimeError("A checkpoint cannot be written while a function is traced. Write it outside.")
        prefix = os.fspath(file_prefix)
        os.makedirs(os.path.dirname(prefix) or ".", exist_ok=True)
        with outside():
            written = Written(self)
        with whole(prefix + SUFFIX) as file:
            write_arrays(file, written.arrays, written.about())
        return prefix

    def save(self, file_prefix: Any, options: Any = None) -> str:
        """`write` to the prefix and a number that goes up, and note it as the latest checkpoint of its folder.

        Returns:
          The path with its number.
        """
        with outside():
            number = int(self.save_counter.assign_add(1))
        path = self.write(f"{os.fspath(file_prefix)}-{number}", options)
        record(path, [path])
        return path

    # ------------------------------------------------------------------ from a file

    def read(self, save_path: Any, options: Any = None) -> LoadStatus:
        """Give variables the values of a file; those made later get theirs when they become an attribute.

        Args:
          save_path: what `write` or `save` returned.
          options: accepted for compatibility.

        Returns:
          What can be asked of it: `assert_consumed`, `assert_existing_objects_matched`, `expect_partial`, ...

        Raises:
          NotFoundError: there is no such file.
          DataLossError: it is damaged.
          ValueError, InvalidArgumentError: a variable has another shape or dtype; then none has changed.
        """
        return LoadStatus(self, self._restoration(nodes_of(save_path)))

    def restore(self, save_path: Any, options: Any = None) -> LoadStatus | NothingRestored:
        """`read`, also of how often was saved; None restores nothing."""
        if save_path is None:
            return NothingRestored()
        nodes = nodes_of(save_path)
        if "save_counter" in nodes[0].children:
            _ = self.save_counter
        return LoadStatus(self, self._restoration(nodes))

    def _restoration(self, nodes: list[Node]) -> Restoration:
        """Values that begin to be given; what is attached to the root later is attached to the checkpoint."""
        found = Restoration(self, nodes)
        if tracking.has_state(self._root):
            found.match(self._root, nodes[0])
        return found


tracking.OBJECTS.append(Checkpoint)


def verify_checkpoint(save_path: Any) -> None:
    """Read all of a checkpoint, and compare it with the digests that were written with it.

    `restore` does that for files of up to 16 MB. Larger ones are mapped into memory and not read.

    Args:
      save_path: what `write` or `save` returned.

    Raises:
      NotFoundError: there is no such file.
      DataLossError: something in it was changed.
      ValueError: an earlier version wrote it, without digests.

    >>> import gradtape as tf, tempfile
    >>> path = tf.train.Checkpoint(v=tf.Variable([1.0, 2.0])).write(tempfile.mkdtemp() + "/c")
    >>> tf.train.verify_checkpoint(path)
    """
    nodes_of(save_path, checked=True)


def nodes_of(save_path: Any, checked: bool = False) -> list[Node]:
    """The objects of a file, the root first; `checked`: it is compared with its digests, however large it is.

    Raises:
      NotFoundError: there is no such file.
      DataLossError: it is damaged.
    """
    path = os.fspath(save_path)
    if not os.path.isfile(path + SUFFIX):
        raise NotFoundError(
            f"Error when restoring from checkpoint at {path}: Failed to find any matching files for {path}{SUFFIX}. "
            "Please double-check that the path is correct. You may be missing the checkpoint suffix (e.g. the '-1' in "
            "'path/to/ckpt-1')."
        )
    with reading(path + SUFFIX, "checkpoint"):
        return read_objects(*map_arrays(path + SUFFIX, checked))


def list_variables(ckpt_dir_or_file: Any) -> list[tuple[str, list[int]]]:
    """The names and shapes of the arrays in a checkpoint.

    >>> import gradtape as tf, tempfile
    >>> path = tf.train.Checkpoint(v=tf.Variable([1.0, 2.0])).write(tempfile.mkdtemp() + "/c")
    >>> tf.train.list_variables(path)
    [('v/.ATTRIBUTES/VARIABLE_VALUE', [2])]
    """
    return [(name, list(array.shape)) for name, array in sorted(_arrays(ckpt_dir_or_file).items())]


def load_variable(ckpt_dir_or_file: Any, name: str) -> Any:
    """One array of a checkpoint.

    Raises:
      NotFoundError: it has none of that name.

    >>> import gradtape as tf, tempfile
    >>> path = tf.train.Checkpoint(v=tf.Variable([1.0, 2.0])).write(tempfile.mkdtemp() + "/c")
    >>> print(tf.train.load_variable(path, "v"))
    [1. 2.]
    """
    arrays = _arrays(ckpt_dir_or_file)
    found = arrays.get(name, arrays.get(name + VALUE))
    if found is None:
        raise NotFoundError(f"Key {name} not found in checkpoint. It has: {', '.join(sorted(arrays))}.")
    return found.copy()


class CheckpointReader:
    """The arrays in a checkpoint, by name; `load_checkpoint` makes one."""

    def __init__(self, path: Any) -> None:
        self._path, self._arrays = path, _arrays(path)

    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        """The shapes by name."""
        return {name: list(array.shape) for name, array in sorted(self._arrays.items())}

    def get_variable_to_dtype_map(self) -> dict[str, DType]:
        """The dtypes by name."""
        return {name: as_dtype(array.dtype) for name, array in sorted(self._arrays.items())}

    def has_tensor(self, name: str) -> bool:
        """Whether there is an array of a name."""
        return name in self._arrays

    def get_tensor(self, name: str) -> Any:
        """One array.

        Raises:
          NotFoundError: there is none of that name.
        """
        return load_variable(self._path, name)


def load_checkpoint(ckpt_dir_or_file: Any) -> CheckpointReader:
    """What is in a checkpoint, by name.

    Raises:
      NotFoundError: there is no checkpoint.

    >>> import gradtape as tf, tempfile
    >>> path = tf.train.Checkpoint(v=tf.Variable([1.0, 2.0])).write(tempfile.mkdtemp() + "/c")
    >>> reader = tf.train.load_checkpoint(path)
    >>> print(reader.get_variable_to_shape_map(), reader.get_tensor("v/.ATTRIBUTES/VARIABLE_VALUE"))
    {'v/.ATTRIBUTES/VARIABLE_VALUE': [2]} [1. 2.]

    Source: `tf.train.load_checkpoint` of TensorFlow 2.
    """
    return CheckpointReader(ckpt_dir_or_file)


def _arrays(path: Any) -> dict[str, Any]:
    nodes_of(path)
    with reading(os.fspath(path) + SUFFIX, "checkpoint"):
        return map_arrays(os.fspath(path) + SUFFIX)[0]


# ------------------------------------------------------------------ what can be asked afterwards


class LoadStatus:
    """A checkpoint that was restored."""

    def __init__(self, checkpoint: Checkpoint, restoration: Restoration) -> None:
        self._checkpoint, self._restoration = checkpoint, restoration

    def _again(self) -> Restoration:
        """What was made since then, in lists for instance, is matched first."""
        self._restoration.match(self._checkpoint, self._restoration.nodes[0])
        return self._restoration

    def assert_consumed(self) -> LoadStatus:
        """Check that every value of the file belongs to a variable, and every variable has one.

        Raises:
          AssertionError: naming what does not.
        """
        left = self._again().unused()
        if left:
            raise AssertionError(
                f"Unresolved object in checkpoint {left[0].path}: {len(left)} of its values found no variable "
                f"({', '.join(n.path for n in left[:5])}). `expect_partial()` says that this is meant."
            )
        return self.assert_existing_objects_matched()

    def assert_existing_objects_matched(self) -> LoadStatus:
        """Check that every variable that there is has a value of the file.

        Raises:
          AssertionError: naming those that have none.
        """
        unset = self._again().unset(self._checkpoint)
        if unset:
            shown = ", ".join(f"{path} {v!r}" for path, v in unset[:5])
            raise AssertionError(
                f"Found {len(unset)} Python objects that were not bound to checkpointed values, likely due to changes "
                f"in the Python program. Showing {min(len(unset), 5)} of {len(unset)} unmatched objects: {shown}"
            )
        return self

    def assert_nontrivial_match(self) -> LoadStatus:
        """Check that at least one variable has a value of the file.

        Raises:
          AssertionError: none has.
        """
        if not self._again().assigned:
            raise AssertionError("Nothing to load: no variable of the checkpoint's objects has a value in the file.")
        return self

    def expect_partial(self) -> LoadStatus:
        """Say that not all of the file is wanted: no warning follows."""
        self._restoration.partial = True
        return self

    def initialize_or_restore(self, session: Any = None) -> None:
        """All is restored already; accepted for compatibility."""

    def run_restore_ops(self, session: Any = None) -> None:
        """All is restored already; accepted for compatibility."""


class NothingRestored:
    """`restore(None)`: variables keep their values."""

    def assert_consumed(self) -> NothingRestored:
        """Raise, since nothing was restored."""
        raise AssertionError("No checkpoint specified (save_path=None); nothing is being restored.")

    assert_existing_objects_matched = assert_nontrivial_match = assert_consumed

    def expect_partial(self) -> NothingRestored:
        """Nothing to expect."""
        return self

    def initialize_or_restore(self, session: Any = None) -> None:
        """Nothing to do."""

    def run_restore_ops(self, session: Any = None) -> None:
        """Raise, since nothing is restored."""
        self.assert_consumed()
