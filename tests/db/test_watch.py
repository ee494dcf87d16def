"""One thread that looks for all who wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection

import pytest

from lastlight_state.db.watch import Watch
from lastlight_state.errors import BackendBusy, CorruptData


@pytest.mark.parametrize(
    "failure", [BackendBusy("busy"), CorruptData("a row", "k", "c"), ValueError("the caller's clock")]
)
def test_a_look_that_fails_is_made_again(failure: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """workflows W-129: whatever the reason, those who wait are not left alone."""
    failures = [failure]

    def read(keys: Collection[str]) -> dict[str, int]:
        if failures:
            raise failures.pop()
        return dict.fromkeys(keys, 1)

    watch = Watch(read)
    with watch.waiting_for(["run"], 0.001):
        assert watch.grown({"run": 0}, 30) == {"run": 1}
    assert "a look for what was committed failed" in caplog.text


def test_looks_that_fail_are_made_with_a_rest_between_them() -> None:
    """workflows W-129: two a second, however often somebody wants to look."""
    looks = []
    looked = threading.Event()

    def read(keys: Collection[str]) -> dict[str, int]:
        looks.append(keys)
        looked.set()
        raise BackendBusy("busy")

    watch = Watch(read)
    begun = time.monotonic()
    with watch.waiting_for(["run"], 0):
        assert looked.wait(30)
        assert watch.grown({"run": 0}, 0.3) == {}
    assert len(looks) <= 2 * (time.monotonic() - begun) + 1
