"""Questions that are asked in a process of their own: a broken driver can hang or end the one that asks. Floor: top."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

# Longer than any healthy start of CUDA, shorter than anyone's patience.
SECONDS = 60.0


class Unanswered(RuntimeError):
    """There is no answer; the message says why."""


class Question:
    """A module that prints JSON, run beside this process from now on.

    Args:
      words: the module and its arguments.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def answer(self) -> Any:
        """What the module printed.

        Raises:
          Unanswered: it took too long, failed, or printed something else; the message holds its last words.
        """
        try:
            said, complained = self.process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise Unanswered(f"it did not answer within {SECONDS:.0f} s. Does `nvidia-smi` answer?") from None
        if self.process.returncode:
            raise Unanswered(complained.strip() or f"it ended with exit status {self.process.returncode}")
        try:
            return json.loads(said.strip().splitlines()[-1])
        except (ValueError, IndexError):
            raise Unanswered(f"it answered {said.strip()[-80:]!r}") from None
