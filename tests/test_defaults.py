"""What a caller gets who gives nothing does not change by accident."""

from __future__ import annotations

from support import defaults


def test_defaults_and_limits_are_those_that_were_written_down() -> None:
    """house H-26: private ones, too. Those of new calls are written down when the page is made again."""
    now = defaults.found()
    kept = {name: value for name, value in defaults.recorded().items() if name in now}
    assert len(kept) > 800
    changed = {name: (value, now[name]) for name, value in kept.items() if now[name] != value}
    assert not changed, f"the promise that a parameter keeps its default is broken by: {changed}"
