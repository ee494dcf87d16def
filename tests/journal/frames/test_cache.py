"""Texts of frames that a store keeps."""

from __future__ import annotations

import pytest

from lastlight_state.journal import frames as module
from lastlight_state.journal.frames import FrameCache, Key


def key(number: int) -> Key:
    return "run", number, "digest"


def kept(cache: FrameCache, upto: int) -> list[int]:
    return [number for number in range(upto) if cache.get(key(number)) is not None]


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch) -> FrameCache:
    """Of four texts, with ten characters together."""
    monkeypatch.setattr(module, "MOST_ENTRIES", 4)
    monkeypatch.setattr(module, "MOST_BYTES", 10)
    return FrameCache()


def test_a_cache_holds_as_many_texts_as_it_may_and_drops_the_oldest(cache: FrameCache) -> None:
    """journal R-9."""
    for number in range(4):
        cache.put(key(number), "a")
    assert kept(cache, 4) == [0, 1, 2, 3]
    cache.put(key(4), "b")
    assert kept(cache, 5) == [1, 2, 3, 4]
    assert len(cache) == 4


def test_a_text_that_was_read_stays_longer_than_one_that_was_not(cache: FrameCache) -> None:
    """journal R-9."""
    for number in range(4):
        cache.put(key(number), "a")
    assert cache.get(key(0)) == "a"
    cache.put(key(4), "a")
    assert kept(cache, 5) == [0, 2, 3, 4]


def test_texts_are_dropped_that_are_too_large_together(cache: FrameCache) -> None:
    """journal R-9: what was dropped makes room again, and the text that came last is kept, however large."""
    for number in range(8):
        cache.put(key(number), "a" * 5)
        cache.put(key(number), "a" * 5)
        assert kept(cache, 9) == [number - 1, number][number == 0 :]
    cache.put(key(8), "a" * 11)
    assert kept(cache, 9) == [8]
    cache.put(key(0), "a" * 10)
    assert kept(cache, 9) == [0]
