"""Compilers of kernels for tests: they compile at once, into a folder of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradtape.backends import clusters
from gradtape.kernels import compiled as compiling
from gradtape.kernels.compiled import Compiler


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Compiler:
    """Kernels are compiled at once, and check every place that they read and write."""
    monkeypatch.setenv("GRADTAPE_CACHE", str(folder))
    monkeypatch.setattr(clusters.POLICY, "compile", "now")
    monkeypatch.setattr(compiling, "OPTIONS", compiling.OPTIONS | {"boundscheck": True})
    compiler = Compiler()
    monkeypatch.setattr(clusters, "COMPILER", compiler)
    return compiler


@pytest.fixture
def fast(strict: Compiler, monkeypatch: pytest.MonkeyPatch) -> Compiler:
    """As users have them."""
    monkeypatch.setitem(compiling.OPTIONS, "boundscheck", False)
    return strict
