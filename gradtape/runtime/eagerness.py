"""Whether functions are traced at all. Floor: runtime."""

from __future__ import annotations


class Eagerness:
    """The choice, of all threads."""

    def __init__(self) -> None:
        self.of_functions = False


EAGERNESS = Eagerness()
