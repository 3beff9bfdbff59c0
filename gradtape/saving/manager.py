"""`tf.train.CheckpointManager`: the latest checkpoints of a folder are kept, older ones deleted. Floor: saving."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from gradtape.runtime.trace import outside
from gradtape.saving.checkpoint import SUFFIX, Checkpoint
from gradtape.saving.files import remove
from gradtape.saving.states import record, state_of


class CheckpointManager:
    """Numbered checkpoints in a folder.

    Args:
      checkpoint: a `tf.train.Checkpoint`.
      directory: the folder.
      max_to_keep: how many are kept; None keeps all.
      keep_checkpoint_every_n_hours: besides, one is kept for ever each time that so many hours have passed.
      checkpoint_name: how their names begin.
      step_counter: a variable that counts steps, for `checkpoint_interval`.
      checkpoint_interval: `save` does nothing until the counter has gone up by so much.
      init_fn: what `restore_or_initialize` calls where there is no checkpoint.
      last_checkpoint_step: where the counter is taken to have been at the last one.

    Raises:
      ValueError: a `max_to_keep` that is no positive number, or an interval without a counter.

    >>> import gradtape as tf, tempfile
    >>> v = tf.Variable(1.0)
    >>> manager = tf.train.CheckpointManager(tf.train.Checkpoint(v=v), tempfile.mkdtemp(), max_to_keep=2)
    >>> [manager.save().rpartition("/")[2] for _ in range(3)]
    ['ckpt-1', 'ckpt-2', 'ckpt-3']
    >>> [path.rpartition("/")[2] for path in manager.checkpoints]
    ['ckpt-2', 'ckpt-3']

    Source: `tf.train.CheckpointManager` of TensorFlow 2.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        directory: Any,
        max_to_keep: int | None,
        keep_checkpoint_every_n_hours: float | None = None,
        checkpoint_name: str = "ckpt",
        step_counter: Any = None,
        checkpoint_interval: int | None = None,
        init_fn: Callable[[], Any] | None = None,
        last_checkpoint_step: int | None = None,
    ) -> None:
        if max_to_keep is not None and max_to_keep <= 0:
            raise ValueError(f"Expected a positive integer or `None` for `max_to_keep`, got {max_to_keep}.")
        if checkpoint_interval is not None and step_counter is None:
            raise ValueError("`step_counter` should be passed if `checkpoint_interval` is not None.")
        self._checkpoint, self._directory, self._name = checkpoint, os.fspath(directory), checkpoint_name
        self._max_to_keep, self._hours = max_to_keep, keep_checkpoint_every_n_hours
        self._step_counter, self._interval = step_counter, checkpoint_interval
        self._init_fn, self._last_step = init_fn, last_checkpoint_step
        now = time.time()
        state = state_of(self._directory)
        self._preserved = state.preserved if state is not None and state.times else now
        self._kept: dict[str, float] = {}  # by path: when it was made
        if state is not None:
            times = state.times if len(state.times) == len(state.paths) else [now] * len(state.paths)
            self._kept = {p: t for p, t in zip(state.paths, times, strict=True) if os.path.isfile(p + SUFFIX)}
        self._latest = state.latest if state is not None and os.path.isfile(state.latest + SUFFIX) else None

    @property
    def directory(self) -> str:
        return self._directory

    @property
    def checkpoint(self) -> Checkpoint:
        return self._checkpoint

    @property
    def checkpoint_interval(self) -> int | None:
        return self._interval

    @property
    def latest_checkpoint(self) -> str | None:
        """The path of the latest checkpoint, or None."""
        return self._latest

    @property
    def checkpoints(self) -> list[str]:
        """The paths of the checkpoints that may be deleted later, oldest first."""
        return list(self._kept)

    def save(
        self, checkpoint_number: int | None = None, check_interval: bool = True, options: Any = None
    ) -> str | None:
        """Write a checkpoint, note it as the latest one, and delete those that are too many.

        Args:
          checkpoint_number: at the end of its name; by default, how often was saved.
          check_interval: whether to wait for `checkpoint_interval` steps.
          options: accepted for compatibility.

        Returns:
          Its path; None where the interval is not over.
        """
        step = None if self._step_counter is None else int(self._step_counter)
        if check_interval and self._interval is not None and not self._is_due(step):
            return None
        with outside():
            counted = int(self._checkpoint.save_counter.assign_add(1))
        number = counted if checkpoint_number is None else int(checkpoint_number)
        path = self._checkpoint.write(os.path.join(self._directory, f"{self._name}-{number}"))
        self._kept.pop(path, None)
        self._kept[path] = time.time()
        self._latest, self._last_step = path, step
        gone = self._too_many()
        record(path, list(self._kept), list(self._kept.values()), self._preserved)
        for old in gone:
            remove(old + SUFFIX)
        return path

    def _is_due(self, step: int | None) -> bool:
        """Whether so many steps were made since the last checkpoint as are between two."""
        return self._last_step is None or step is None or step - self._last_step >= (self._interval or 0)

    def _too_many(self) -> list[str]:
        """The paths that are no longer kept, without those that are kept for ever."""
        gone = []
        while self._max_to_keep is not None and len(self._kept) > self._max_to_keep:
            path = next(iter(self._kept))
            made = self._kept.pop(path)
            if self._hours is not None and made - self._hours * 3600.0 >= self._preserved:
                self._preserved = made
            else:
                gone.append(path)
        return gone

    def restore_or_initialize(self) -> str | None:
        """Restore the latest checkpoint; where there is none, call `init_fn`.

        Returns:
          Its path, or None.
        """
        if self._latest is not None:
            self._checkpoint.restore(self._latest)
            if self._step_counter is not None:
                self._last_step = int(self._step_counter)
            return self._latest
        if self._init_fn is not None:
            self._init_fn()
        return None

    def sync(self) -> None:
        """Nothing is left to be written; accepted for compatibility."""


def latest_checkpoint(checkpoint_dir: Any, latest_filename: str | None = None) -> str | None:
    """The path of the latest checkpoint that was saved in a folder, or None.

    Raises:
      DataLossError: the folder's list of checkpoints is damaged.

    >>> import gradtape as tf, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> tf.train.latest_checkpoint(folder) is None
    True
    >>> path = tf.train.Checkpoint(v=tf.Variable(1.0)).save(folder + "/c")
    >>> tf.train.latest_checkpoint(folder) == path
    True
    """
    state = state_of(os.fspath(checkpoint_dir), latest_filename)
    return state.latest if state is not None and os.path.isfile(state.latest + SUFFIX) else None
