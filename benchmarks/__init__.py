"""Benchmarks: gradtape against the peers that are installed. `python -m benchmarks.run --list` says what there is.

Nothing here is part of the package, and no peer is a dependency of it.
"""
