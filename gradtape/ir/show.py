"""What the environment variable `GRADTAPE_SHOW` wants printed on the way from a graph to what runs. Floor: ir.

It is a list of words with commas between them: "graph" (each graph before it is simplified), "passes" (what every pass
makes of it), "plan" (what runs, as Python text, with its counts), "kernels" (the text of each kernel that is compiled).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

VARIABLE = "GRADTAPE_SHOW"
WORDS = ("graph", "passes", "plan", "kernels")


def words_of(text: str) -> frozenset[str]:
    """The words in a value of the variable.

    Raises:
      ValueError: another word than those there are.
    """
    found = frozenset(word.strip() for word in text.split(",")) - {""}
    strangers = sorted(found - set(WORDS))
    if strangers:
        raise ValueError(f"{VARIABLE} should list some of {', '.join(WORDS)}, got {', '.join(strangers)}.")
    return found


class Shown:
    """What is shown in this process; it begins as the environment says."""

    def __init__(self) -> None:
        self.words = words_of(os.environ.get(VARIABLE, ""))


SHOWN = Shown()


def show(word: str, title: str, text: Callable[[], Any]) -> None:
    """Print a text to stderr if the word is wanted; it is only made then."""
    if word in SHOWN.words:
        print(f"---- {word}: {title}\n{text()}", file=sys.stderr, flush=True)
