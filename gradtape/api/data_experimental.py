"""`tf.data.experimental`: batches that are on a device before they are needed. Floor: api."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import optree

from gradtape.api.arguments import integer
from gradtape.backends.cuda.feeding import Feed, Sent
from gradtape.runtime.convert import convert
from gradtape.runtime.devices import DEVICES
from gradtape.runtime.placement import device as placed_on
from gradtape.runtime.placement import kind_of
from gradtape.runtime.tensor import Tensor, wrap

__all__ = ["prefetch_to_device"]


def prefetch_to_device(device: Any, buffer_size: Any = None) -> Callable[[Iterable[Any]], Iterable[Any]]:
    """A function that lets batches be copied to a device while it works on those before: through pinned memory, on a
    stream of their own.

    Args:
      device: such as "/GPU:0". Where there is no GPU, or for "/CPU:0", batches are made tensors when it is their turn.
      buffer_size: how many batches are on their way, or wait, while one is used: 1 by default.

    Returns:
      A function of an iterable of batches: arrays or tensors, alone or in tuples, lists and dictionaries. It gives an
      iterable of the same structures of tensors, as often as the batches themselves can be gone through. Arrays go
      to the device; single numbers and strings stay on the host. The host waits where it would get more than
      `buffer_size` copies ahead.

    Raises:
      ValueError: what is no name of a device, or a buffer for no batch.
      TypeError: what is no iterable, where the function is called.

    >>> import gradtape as tf
    >>> batches = [{"x": np.ones([2, 3]), "label": np.array([0, 1])} for _ in range(3)]
    >>> ahead = tf.data.experimental.prefetch_to_device("/GPU:0")
    >>> for batch in ahead(batches):
    ...     print(batch["x"].shape, batch["label"].numpy())
    (2, 3) [0 1]
    (2, 3) [0 1]
    (2, 3) [0 1]

    Source: `tf.data.experimental.prefetch_to_device` of TensorFlow 2.
    """
    ahead = 1 if buffer_size is None else integer(buffer_size, "buffer_size")
    if ahead < 1:
        raise ValueError(f"`buffer_size` should be 1 or more, got {ahead}.")
    kind = kind_of(str(device))
    return lambda batches: Prefetched(batches, ahead if kind == "GPU" else 0)


class Prefetched:
    """Batches as tensors; `ahead` of them on their way to the device, 0: all stay on the host."""

    def __init__(self, batches: Iterable[Any], ahead: int) -> None:
        if not isinstance(batches, Iterable):
            raise TypeError(f"`prefetch_to_device` takes an iterable of batches, got {type(batches).__name__}.")
        self.batches, self.ahead = batches, ahead

    def __iter__(self) -> Iterator[Any]:
        if not self.ahead:
            return (_Batch(b).tensors() for b in self.batches)
        return self._ahead()

    def _ahead(self) -> Iterator[Any]:
        assert DEVICES.device is not None
        waiting: deque[tuple[_Batch, Sent]] = deque()
        with Feed(DEVICES.device.cuda, self.ahead) as feed:
            try:
                for b in self.batches:
                    batch = _Batch(b)
                    waiting.append((batch, feed.send(batch.arrays)))
                    if len(waiting) > self.ahead:
                        yield _received(feed, *waiting.popleft())
                while waiting:
                    yield _received(feed, *waiting.popleft())
            finally:
                for _, sent in waiting:  # their memory goes back when they have arrived, not before
                    feed.receive(sent)


class _Batch:
    """A batch's tensors on the host, and the arrays among them that go to the device."""

    def __init__(self, batch: Any) -> None:
        leaves, self.structure = optree.tree_flatten(batch)
        with placed_on("/CPU:0"):
            self.leaves: list[Tensor] = [convert(leaf) for leaf in leaves]
        self.places = [k for k, t in enumerate(self.leaves) if _travels(t._array)]
        self.arrays = [self.leaves[k]._array for k in self.places]

    def tensors(self) -> Any:
        return optree.tree_unflatten(self.structure, self.leaves)


def _travels(array: Any) -> bool:
    """Whether it is an array of numbers on the host."""
    return isinstance(array, np.ndarray) and array.ndim > 0 and not array.dtype.hasobject


def _received(feed: Feed, batch: _Batch, sent: Sent) -> Any:
    for k, array in zip(batch.places, feed.receive(sent), strict=True):
        batch.leaves[k] = wrap(array, batch.leaves[k]._aval)
    return batch.tensors()
