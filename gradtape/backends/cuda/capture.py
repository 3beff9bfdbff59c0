"""Work of a device that is recorded once and then done by one launch: a CUDA graph. Floor: backends.

A graph has the addresses and numbers of the launches that it was recorded from. So what differs from one launch to the
next is in memory that stays where it is, and all memory that the work touches lives as long as the graph."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from gradtape.backends.cuda.blas import GraphProducts


class Uncapturable(RuntimeError):
    """No graph can hold this work; the message says why, as the end of a sentence."""


class Noting:
    """What a thread notes while it runs work that becomes a graph.

    Attributes:
      kept: arrays that are no results of the work, such as numbers of the host that were copied for it.
      bounds: ids of arrays of positions that the host would have checked, and how many positions there are."""

    def __init__(self, xp: Any) -> None:
        self.kept: list[Any] = []
        self.bounds: list[tuple[int, int]] = []
        self.allocator, self.stream = xp.cuda.get_allocator(), xp.cuda.get_current_stream()
        self.using_allocator = xp.cuda.using_allocator

    def apart(self, make: Callable[[], Any]) -> Any:
        """What is made for good, and is no part of the work: at once, on the stream on which the graph will run."""
        with self.using_allocator(self.allocator), self.stream:
            made = make()
        self.kept.append(made)
        return made


class Captured:
    """Work as one launch.

    Args:
      cuda: the device.
      rehearsal: what runs once before: the work without what it writes to memory that stays. Then kernels are compiled,
        constants on the device, and the library has what it needs.
      work: what each launch does, to its results, in memory that stays where it is.

    Raises:
      Uncapturable: the work needs the host.
    """

    def __init__(self, cuda: Any, rehearsal: Callable[[], Any], work: Callable[[], Any]) -> None:
        xp = cuda.xp
        noting = Noting(xp)
        products = GraphProducts(cuda.blas)
        pool, stream = xp.cuda.MemoryPool(), xp.cuda.Stream(non_blocking=True)

        def prepare() -> None:
            products.prepare()
            cuda.cudnn.prepare()

        with cuda.noting(noting), cuda.blas.through(products):
            rehearsal()
            try:
                with xp.cuda.using_allocator(pool.malloc), stream, _recording(stream, prepare) as graphs:
                    self.results = work()
            finally:
                prepare()  # no handle must stay on a stream that goes
        (self.graph,) = graphs
        self.graph.upload()
        self.noting = noting
        self.held = products, pool

    def launch(self) -> None:
        """Do the work, on the current stream."""
        self.graph.launch()


@contextlib.contextmanager
def _recording(stream: Any, prepare: Callable[[], None]) -> Iterator[list[Any]]:
    """A block that is recorded; its graph is in the list at the end. `prepare`: libraries go over to the stream."""
    prepare()
    graphs: list[Any] = []
    stream.begin_capture()
    try:
        yield graphs
    except BaseException:
        with contextlib.suppress(RuntimeError):  # the driver may have given up on it before us
            stream.end_capture()
        raise
    graphs.append(stream.end_capture())
