"""Fires taken one after the other: what a row that cannot be taken does to the others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from support.each import with_each

from lastlight_state.errors import BackendBusy, CorruptData, LostRace, MisuseError, StateError
from lastlight_state.schedules.checks import claim_rows

DAMAGED = CorruptData("cron_schedules", "d", "payload")


class Takes:
    """Takes each row, or raises what is said for it; None is nobody's failure."""

    def __init__(self, **outcomes: Exception | None) -> None:
        self.asked = ""
        self._outcomes = outcomes

    def __call__(self, row: Any) -> Any:
        self.asked += row.name
        outcome = self._outcomes.get(row.name, row.name)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def taken(names: str, take: Takes, limit: int = 10) -> str:
    """The names of what was claimed."""
    return "".join(map(str, claim_rows(rows(names), take, limit)))


def rows(names: str) -> list[Any]:
    return [DAMAGED if name == "d" else SimpleNamespace(name=name) for name in names]


@pytest.mark.logs("could not be taken")
def test_a_row_that_fails_is_passed_over_and_named(caplog: pytest.LogCaptureFixture) -> None:
    """schedules C-21, F-7: it counts towards no limit."""
    take = Takes(b=LostRace("lost"), c=None)
    assert taken("abcdef", take, 3) == "aef"
    assert take.asked == "abcef"
    assert [record.args and record.args[0] for record in caplog.records] == ["b", "d"]  # type: ignore[index]


@pytest.mark.logs("taking fires ended early")
def test_after_a_failure_of_the_database_nothing_more_is_tried() -> None:
    """schedules C-21: what was claimed before it reaches the caller."""
    take = Takes(b=BackendBusy("gone"))
    assert taken("abc", take) == "a"
    assert take.asked == "ab"


FAILURES = [
    (Takes(a=LostRace("first"), b=LostRace("second")), "ab", "first"),
    (Takes(a=LostRace("first"), b=BackendBusy("second")), "abc", "second"),
    (Takes(a=None, b=BackendBusy("gone")), "abc", "gone"),
    (Takes(b=LostRace("second")), "db", str(DAMAGED)),
]


@with_each(("take", "names", "told"), FAILURES, ids=[failure[2] for failure in FAILURES])
def test_where_nothing_was_claimed_a_failure_is_raised(take: Takes, names: str, told: str) -> None:
    """schedules C-21: the first, or that of the database."""
    with pytest.raises(StateError) as raised:
        taken(names, take)
    assert str(raised.value) == told


@with_each("error", [MisuseError("no extra"), TypeError("a bug")], ids=["misuse", "bug"])
def test_a_mistake_is_raised_at_once(error: Exception) -> None:
    """schedules X-1: whatever was claimed before it, and no other row is tried."""
    take = Takes(b=error)
    with pytest.raises(type(error)):
        taken("abc", take)
    assert take.asked == "ab"


def test_no_more_are_taken_than_were_asked_for() -> None:
    """schedules C-20."""
    take = Takes(a=None)
    assert taken("abcef", take, 2) == "bc"
    assert take.asked == "abc"
    assert taken("", take) == ""
