"""What works where the extra ``cron`` is not installed: all that needs no arithmetic."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

import pytest
from support.schedules.steps import HOURLY, at, claimed, put

from lastlight_state import InvalidValue, MisuseError, StateStore
from lastlight_state.testing import FrozenClock

EXTRA = r"lastlight-state\[cron\]"


@pytest.fixture
def bare(state_store: StateStore, monkeypatch: pytest.MonkeyPatch) -> StateStore:
    """A store of a program that lacks the library."""
    monkeypatch.setitem(sys.modules, "cronsim", None)
    return state_store


def test_what_needs_arithmetic_names_the_extra_before_the_database(bare: StateStore) -> None:
    """schedules X-1, C-12."""
    bare.close()
    for call in (lambda: put(bare), lambda: bare.schedules.crons.sync({"tidy": HOURLY})):
        with pytest.raises(MisuseError, match=EXTRA):
            call()


def test_a_cron_whose_next_time_is_given_needs_no_parser(bare: StateStore, frozen_clock: FrozenClock) -> None:
    """schedules X-1, C-12, C-17: its pattern is measured, not read."""
    cron = put(bare, pattern=" every full moon ", next_run_at="2026-02-03T13:00Z")
    assert cron.pattern == "every full moon"
    with pytest.raises(InvalidValue, match="pattern"):
        put(bare, "b", pattern="x" * 256, next_run_at="2026-02-03T13:00Z")
    moved = bare.schedules.crons.update_run(
        "tidy",
        expected_next_run_at=cron.next_run_at,
        last_run_at=frozen_clock.now(),
        next_run_at=at("2026-03-03T13:00Z"),
    )
    assert bare.schedules.crons.next_due_at() == moved.next_run_at
    assert [one.name for one in bare.schedules.crons.list()] == ["tidy"]
    assert bare.schedules.crons.retire("tidy").retired_at == frozen_clock.now()


def test_polling_works_until_something_is_due(bare: StateStore, frozen_clock: FrozenClock) -> None:
    """schedules X-1: then the plan cannot move on, and nothing is claimed."""
    put(bare, next_run_at="2026-02-03T13:00Z")
    assert claimed(bare) == []
    frozen_clock.advance(timedelta(hours=1))
    with pytest.raises(MisuseError, match=EXTRA):
        claimed(bare)
    assert bare.schedules.crons.get("tidy").next_run_at == at("2026-02-03T13:00Z")


def test_overrides_work_and_leave_plans_to_others(
    state_store: StateStore, frozen_clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """schedules X-1, O-6, O-7, C-24: whoever has the extra makes no use of a plan that does not fit."""
    put(state_store)
    overrides: Any = state_store.schedules.overrides
    with monkeypatch.context() as bare:
        bare.setitem(sys.modules, "cronsim", None)
        overrides.put("tidy", schedule="30 * * * *")
        assert overrides.resolve({"tidy": HOURLY})["tidy"].pattern == "30 * * * *"
        assert state_store.schedules.crons.get("tidy").next_run_at is None
        for said in ({"schedule": "x" * 256}, {"timezone": "x" * 65}):
            with pytest.raises(InvalidValue):
                overrides.put("tidy", **said)
    frozen_clock.set(at("2026-02-03T13:00Z"))
    assert claimed(state_store) == []
    assert state_store.schedules.crons.get("tidy").next_run_at == at("2026-02-03T13:30Z")
    monkeypatch.setitem(sys.modules, "cronsim", None)
    overrides.put("tidy", enabled=False)
    assert state_store.schedules.crons.get("tidy").next_run_at is None
    assert overrides.clear("tidy")
