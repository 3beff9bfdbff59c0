"""The process in which kernels are compiled: what it costs to do that (Numba in memory, Python's lock, changed warning
filters) stays out of the user's. Floor: kernels.

Requests and answers go through pipes, pickled, with their lengths in front. The process ends with the one that began
it, and when there has been nothing to do for a while."""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import select
import struct
import subprocess
import sys
import threading
import warnings
from typing import Any, BinaryIO

from gradtape.kernels.objects import ObjectCode
from gradtape.kernels.requests import Request

IDLE = 20.0  # seconds without a request after which the process ends
NICE = 5  # how far it steps behind other processes
LENGTH = struct.Struct("<Q")
BEGIN = "import sys; sys.path[:] = {path!r}; from gradtape.kernels.workshop import serve; serve()"


class Workshop:
    """Makes object code in a process of its own, one request after the other."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.process: subprocess.Popen[bytes] | None = None
        self.left: list[Any] = []  # processes that a fork left to its parent
        self.refused = False  # no process can be begun here: all is made in this one
        self.closed = False
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)
        atexit.register(self.close)

    def object_code(self, request: Request) -> ObjectCode:
        """What a request asks for.

        Raises:
          RuntimeError: it cannot be compiled, with the compiler's words; or its process ended twice over it.
        """
        with self.lock:
            for _ in range(2):  # it may have ended meanwhile, since it had nothing to do
                if not self._begun():
                    return request.object_code()
                answer = self._asked(request)
                if answer is not None:
                    break
        if answer is None:
            raise RuntimeError(f"The process that compiles kernels ended twice over `{request.name}`.")
        if isinstance(answer, ObjectCode):
            return answer
        raise RuntimeError(answer)

    def _begun(self) -> bool:
        """Whether there is a process."""
        if self.closed:
            raise RuntimeError("This process ends: nothing is compiled any more.")
        if self.process is None and not self.refused:
            path = [os.path.abspath(p) for p in sys.path]
            command = [sys.executable, "-W", "ignore", "-c", BEGIN.format(path=path)]
            try:
                self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            except OSError as e:
                self.refused = True
                warnings.warn(
                    f"Kernels are compiled in this process, which takes memory and time of it: no other one could be "
                    f"begun ({e}).",
                    RuntimeWarning,
                    stacklevel=2,
                )
        return self.process is not None

    def _asked(self, request: Request) -> Any:
        """The answer to a request; None where the process has ended."""
        process = self.process
        assert process is not None and process.stdin is not None and process.stdout is not None
        try:
            _send(process.stdin, request)
            answer = _received(process.stdout)
        except BrokenPipeError:
            answer = None
        if answer is None:
            self._end(process)
        return answer

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        self.process = None
        process.kill()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(BrokenPipeError):  # what was on its way to a process that has ended
                if pipe is not None:
                    pipe.close()
        process.wait()

    def close(self) -> None:
        """End the process, whatever it is at; no other one is begun."""
        self.closed = True
        process = self.process
        if process is not None:
            process.kill()
            process.wait()

    def _forked(self) -> None:
        """A child begins a process of its own."""
        self.lock = threading.Lock()
        if self.process is not None:
            self.left.append(self.process)
            self.process.returncode = 0  # another process waits for it
            self.process = None


WORKSHOP = Workshop()


def _send(pipe: BinaryIO | Any, message: Any) -> None:
    content = pickle.dumps(message)
    pipe.write(LENGTH.pack(len(content)) + content)
    pipe.flush()


def _received(pipe: BinaryIO | Any) -> Any:
    """The next message; None where there will be none."""
    head = pipe.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack(head)
    content = pipe.read(length)
    return pickle.loads(content) if len(content) == length else None


# ------------------------------------------------------------------ in the process


def serve() -> None:
    """Answer requests until there are none."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what compilers print is no answer
    if hasattr(os, "nice"):
        os.nice(NICE)
    requests = sys.stdin.buffer
    while _is_asked(requests) and (request := _received(requests)) is not None:
        try:
            answer: Any = request.object_code()
        except Exception as e:  # noqa: BLE001, told to whoever asked
            answer = f"{type(e).__name__}: {e}"
        _send(answers, answer)


def _is_asked(requests: BinaryIO) -> bool:
    """Wait for a request, or for the end of them; False where neither comes for a while."""
    return os.name != "posix" or bool(select.select([requests], [], [], IDLE)[0])
