"""Whether results must be the same, bit for bit, in every run of a program. Floor: ir."""

from __future__ import annotations


class Determinism:
    """Whoever could choose by chance, or by what is ready first, asks this. `required`: whether there may be no such
    choice."""

    def __init__(self) -> None:
        self.required = False

    def refuse(self, what: str, way_out: str) -> None:
        """Raises:
        RuntimeError: there may be no chance, and this is chance.
        """
        if self.required:
            raise RuntimeError(f"{what} when determinism is enabled. {way_out}")


DETERMINISM = Determinism()
