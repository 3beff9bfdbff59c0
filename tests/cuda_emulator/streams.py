"""Streams: each does its work in the order in which it was queued, and only events put two of them in an order."""

from __future__ import annotations

import functools
import random
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from tests.cuda_emulator.faults import CaptureRefused, DeviceFault

__all__ = ["Event", "Graph", "Schedule", "Stream"]


@dataclass
class Mark:
    """One recording of an event."""

    reached: bool = False


class Event:
    """A place in a stream that others may wait for. Until it is recorded nobody has to."""

    def __init__(self) -> None:
        self.mark = Mark(reached=True)

    @property
    def is_reached(self) -> bool:
        return self.mark.reached


@dataclass
class Step:
    """One piece of work, or a wait (`run` is None) for a mark."""

    run: Callable[[], None] | None
    waits_for: Mark

    @property
    def is_ready(self) -> bool:
        return self.waits_for.reached


class Stream:
    """Work that waits for its turn."""

    def __init__(self, schedule: Schedule, name: str) -> None:
        self.schedule = schedule
        self.name = name
        self.steps: deque[Step] = deque()
        self.recording: list[Callable[[], None]] | None = None
        self.is_spoilt = False  # what is recorded is good for nothing

    def enqueue(self, run: Callable[[], None]) -> None:
        """Work for later, or, while a graph is recorded, for each launch of the graph."""
        if self.recording is not None:
            self.recording.append(run)
        else:
            self.enqueue_past_graphs(run)

    def enqueue_past_graphs(self, run: Callable[[], None]) -> None:
        """What is no work of the device, such as freeing memory, and so is in no graph."""
        self._add(Step(run, Mark(reached=True)))

    def _add(self, step: Step) -> None:
        with self.schedule.lock:
            self.steps.append(step)
            self.schedule.notice(self)

    def begin_capture(self) -> None:
        """From now on record what is queued here, and run none of it."""
        if self.recording is not None:
            raise CaptureRefused(f"{self.name} records a graph already")
        self.recording, self.is_spoilt = [], False

    def end_capture(self) -> Graph:
        """What was recorded, as a graph."""
        if self.recording is None:
            raise CaptureRefused(f"{self.name} records no graph")
        graph, self.recording = Graph(self.recording), None
        if self.is_spoilt:
            raise CaptureRefused("cudaErrorStreamCaptureInvalidated: something in between could not be recorded")
        return graph

    def refuse(self, words: str) -> CaptureRefused:
        """What the driver answers, which gives up on the whole graph."""
        self.is_spoilt = True
        return CaptureRefused(f"cudaErrorStreamCaptureUnsupported: {words}")

    def record(self, event: Event) -> None:
        """Let the event stand for all that is queued here until now."""
        mark = event.mark = Mark()

        def reach() -> None:
            mark.reached = True

        self.enqueue(reach)

    def wait_event(self, event: Event) -> None:
        """What is queued from here on waits for what the event stands for now."""
        if self.recording is not None:
            raise CaptureRefused(
                "the emulator's graphs are of one stream: it cannot wait for an event while it records"
            )
        self._add(Step(None, event.mark))


@dataclass(frozen=True)
class Graph:
    """Recorded work, with the addresses that it was given then: whoever launches it keeps these alive."""

    runs: list[Callable[[], None]]

    def launch(self, stream: Stream) -> None:
        for run in self.runs:
            stream.enqueue(run)


class Schedule:
    """Runs the streams' work when somebody waits for it; which stream goes first is left to the seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.busy: list[Stream] = []
        self.lock = threading.RLock()  # one thread at a time is the device

    def notice(self, stream: Stream) -> None:
        if stream not in self.busy:
            self.busy.append(stream)

    def after_all(self, run: Callable[[], None]) -> None:
        """What happens when all that is queued anywhere is done, without anybody waiting for it."""
        with self.lock:
            last = Stream(self, "what waits for all streams")
            for stream in list(self.busy):
                mark = Mark()
                stream.enqueue_past_graphs(functools.partial(setattr, mark, "reached", True))
                last._add(Step(None, mark))
            last.enqueue_past_graphs(run)

    def run(self, is_enough: Callable[[], bool]) -> None:
        """Work until it is enough, or nothing is left. A fault drops all that was queued."""
        with self.lock:
            try:
                while not is_enough() and self.busy:
                    self._step()
            except BaseException:
                self.drop()
                raise

    def drop(self) -> None:
        """Forget all that is queued."""
        with self.lock:
            dropped = [stream.steps for stream in self.busy]
            self.busy.clear()
            for steps in dropped:
                steps.clear()

    def _step(self) -> None:
        ready = [stream for stream in self.busy if stream.steps[0].is_ready]
        if not ready:
            names = ", ".join(stream.name for stream in self.busy)
            raise DeviceFault("deadlock", f"{names}: waits for an event that a fault has dropped", "(no kernel)")
        stream = ready[0] if len(ready) == 1 else self.random.choice(ready)
        step = stream.steps.popleft()
        if not stream.steps:
            self.busy.remove(stream)
        if step.run is not None:
            step.run()
