"""The bounded cache: what goes first, and several threads."""

import threading

import pytest

from gradtape.ir.bounded import Bounded


def test_what_was_not_used_for_longest_goes_first() -> None:
    cache: Bounded[str, int] = Bounded(2)
    made: list[str] = []

    def find(key: str) -> int:
        return cache.find(key, lambda: made.append(key) or len(made))

    assert [find("a"), find("b"), find("a"), find("c")] == [1, 2, 1, 3]  # b goes
    assert find("a") == 1
    assert find("b") == 4
    assert made == ["a", "b", "c", "b"]
    assert len(cache) == 2


def test_threads_agree_on_what_was_made() -> None:
    cache: Bounded[int, object] = Bounded(4)
    start, found = threading.Barrier(8), []

    def ask() -> None:
        start.wait()
        found.append([cache.find(k % 3, object) for k in range(300)])

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all(len({id(f[k]) for f in found}) == 1 for k in range(3))
    assert len(cache) == 3


def test_a_value_that_cannot_be_made_leaves_nothing_behind() -> None:
    cache: Bounded[str, float] = Bounded(2)
    with pytest.raises(ZeroDivisionError):
        cache.find("a", lambda: 1 / 0)
    assert len(cache) == 0
    assert cache.find("a", lambda: 2.0) == 2.0
