"""The configured set of crons, brought into the database as a whole."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest
from support.schedules.steps import HOURLY, at, claimed, put
from support.sent import recorded
from support.workflows.crew import Crew
from support.workflows.steps import Raw, together, undone

from lastlight_state import Conflict, InvalidValue, StateStore
from lastlight_state.schedules import CronSpec, SyncReport
from lastlight_state.testing import Database, FrozenClock

DAILY = CronSpec("@daily", "report", payload={"n": 1.0, "on": True})
SPECS = {"b": HOURLY, "a": DAILY}


def report(**given: tuple[str, ...]) -> SyncReport:
    return SyncReport(**{name: given.get(name, ()) for name in SyncReport.model_fields})


def test_a_configuration_is_taken_over_as_a_whole(store: StateStore, frozen_clock: FrozenClock) -> None:
    """schedules C-15: added, changed, retired, unchanged."""
    sync, get = store.schedules.crons.sync, store.schedules.crons.get
    assert sync(SPECS) == report(added=("a", "b"))
    created = get("a")
    assert (created.origin, created.next_run_at) == ("config", at("2026-02-04T00:00Z"))
    assert sync({"a": replace(DAILY, target="other"), "c": HOURLY}) == report(
        added=("c",), changed=("a",), retired=("b",)
    )
    changed = get("a")
    assert (changed.target, changed.next_run_at, changed.created_at) == (
        "other",
        created.next_run_at,
        created.created_at,
    )
    assert get("b").retired_at == frozen_clock.now()
    assert sync({"c": HOURLY}) == report(retired=("a",), unchanged=("c",))


def test_a_configuration_that_is_there_writes_nothing(database: Database) -> None:
    """schedules C-15: one statement that reads, equal by value."""
    with recorded(database) as (store, sent):
        store.schedules.crons.sync(SPECS)
        sent.clear()
        same = replace(DAILY, pattern=" @daily ", payload={"on": True, "n": 1})
        assert store.schedules.crons.sync({"a": same, "b": HOURLY}) == report(unchanged=("a", "b"))
    assert [text.split()[0] for text in sent] == ["SELECT"]


@pytest.mark.logs("configuration is empty")
def test_a_configuration_without_crons_is_told_where_it_retires_any(
    store: StateStore, caplog: pytest.LogCaptureFixture
) -> None:
    """schedules C-15: only then may it be a mistake."""
    sync = store.schedules.crons.sync
    assert (sync({}), caplog.messages) == (report(), [])
    sync(SPECS)
    sync({"a": DAILY})
    assert (sync({}), sync({})) == (report(retired=("a",)), report())
    assert caplog.messages == ["the configuration is empty: 1 crons are retired"]


@pytest.mark.parametrize(
    "changed",
    [
        {"payload": {"n": 1.0, "on": 1}},
        {"payload": None},
        {"enabled": False},
        {"grace_seconds": 61},
        {"timezone": "Europe/Berlin"},
    ],
)
def test_every_field_of_a_configuration_counts(state_store: StateStore, changed: dict[str, Any]) -> None:
    """schedules C-15."""
    state_store.schedules.crons.sync(SPECS)
    assert state_store.schedules.crons.sync({**SPECS, "a": replace(DAILY, **changed)}).changed == ("a",)
    assert state_store.schedules.crons.sync({**SPECS, "a": replace(DAILY, **changed)}).changed == ()


def test_a_cron_that_leaves_the_configuration_comes_back_with_its_history(
    store: StateStore, raw: Raw, frozen_clock: FrozenClock
) -> None:
    """schedules C-5, C-15."""
    sync, get = store.schedules.crons.sync, store.schedules.crons.get
    sync(SPECS)
    frozen_clock.set(at("2026-02-03T13:00Z"))
    [claim] = claimed(store)
    assert sync({"a": DAILY}).retired == ("b",)
    frozen_clock.set(at("2026-02-03T18:10Z"))
    assert claimed(store) == []
    assert sync(SPECS) == report(revived=("b",), unchanged=("a",))
    cron = get("b")
    assert (cron.retired_at, cron.next_run_at) == (None, at("2026-02-03T19:00Z"))
    assert (cron.last_run_at, cron.last_fire_id) == (at("2026-02-03T13:00Z"), claim.fire_id)
    assert raw("SELECT id FROM cron_fires") == [(claim.fire_id,)]


def test_the_configured_switch_always_holds(store: StateStore) -> None:
    """schedules C-15: an operator's word is an override."""
    sync = store.schedules.crons.sync
    sync({"a": replace(DAILY, enabled=False)})
    assert store.schedules.crons.get("a").next_run_at is None
    assert sync({"a": DAILY}).changed == ("a",)
    store.schedules.overrides.put("a", enabled=False)
    assert sync({"a": DAILY}) == report(unchanged=("a",))
    cron = store.schedules.crons.get("a")
    assert (cron.enabled, cron.effective_enabled, cron.next_run_at) == (True, False, None)


def test_one_bad_cron_keeps_all_from_being_taken_over(store: StateStore) -> None:
    """schedules C-15: all bad ones are named, nothing is changed."""
    store.schedules.crons.sync(SPECS)
    bad = {
        "e": HOURLY,
        "d": replace(HOURLY, pattern="61 * * * *"),
        " ": HOURLY,
        "f": replace(HOURLY, timezone="Nope"),
    }
    with pytest.raises(InvalidValue, match=r"d: pattern: '61 \* \* \* \*': bad minute; f: timezone") as caught:
        store.schedules.crons.sync(bad)
    assert caught.value.crons == (" ", "d", "f")  # type: ignore[attr-defined]
    assert [cron.name for cron in store.schedules.crons.list(retired=None)] == ["b", "a"]
    for wrong in (["a"], {"a": "@daily"}, None):
        with pytest.raises(InvalidValue, match="specs"):
            store.schedules.crons.sync(wrong)  # type: ignore[arg-type]


def test_a_cron_made_at_run_time_is_not_taken_over(store: StateStore) -> None:
    """schedules C-14: all that clash are named, nothing is written."""
    for name in ("z", "y"):
        put(store, name)
    with pytest.raises(Conflict, match="y, z") as caught:
        store.schedules.crons.sync({**SPECS, "y": HOURLY, "z": HOURLY})
    assert (caught.value.code, caught.value.crons) == ("cron_origin", ("y", "z"))  # type: ignore[attr-defined]
    assert store.schedules.crons.list(origin="config").items == ()


def test_an_empty_configuration_retires_what_was_configured(
    store: StateStore, caplog: pytest.LogCaptureFixture
) -> None:
    """schedules C-15: and says so."""
    put(store, "kept")
    assert store.schedules.crons.sync({}) == report()
    assert caplog.text == ""
    store.schedules.crons.sync(SPECS)
    with caplog.at_level(logging.WARNING, "lastlight_state.schedules"):
        assert store.schedules.crons.sync({}) == report(retired=("a", "b"))
    assert "2 crons are retired" in caplog.text
    assert [cron.name for cron in store.schedules.crons.list()] == ["kept"]


def test_a_configuration_may_be_large(state_store: StateStore) -> None:
    """schedules C-15: more names than one statement compares with."""
    put(state_store, "x0999")
    many = {f"x{number:04}": HOURLY for number in range(501)}
    assert len(state_store.schedules.crons.sync(many).added) == 501
    assert len(state_store.schedules.crons.sync(many).unchanged) == 501


def test_a_transaction_that_is_undone_configures_nothing(every_backend: StateStore) -> None:
    """schedules C-15."""
    with undone(every_backend) as tx:
        assert tx.schedules.crons.sync(SPECS).added == ("a", "b")
    assert every_backend.schedules.crons.list().items == ()


def test_replicas_that_start_together_agree(every_backend: StateStore) -> None:
    """schedules C-15: one of them adds, the others find it done."""
    outcomes = together([lambda: every_backend.schedules.crons.sync(SPECS)] * 6)
    assert sorted(outcome.added for outcome in outcomes) == [*[()] * 5, ("a", "b")]  # type: ignore[union-attr]


SYNC = """
from lastlight_state import StateStore
from lastlight_state.schedules import CronSpec

[url] = arguments
specs = {f"c{number}": CronSpec("@daily", "x", payload=[number]) for number in range(20)}
with StateStore.open(url, migrate=False) as store:
    ready()
    first = store.schedules.crons.sync(specs)
    again = store.schedules.crons.sync(specs)
result = [len(first.added), len(first.changed), len(again.unchanged)]
"""


def test_processes_that_start_together_write_a_configuration_once(
    fresh_database: Database, crew: Crew, raw: Raw
) -> None:
    """schedules C-15."""
    told = crew.race(SYNC, *[[fresh_database.url]] * 4)
    assert sorted(told) == [*[[0, 0, 20]] * 3, [20, 0, 20]]
    with fresh_database.open() as store:
        assert {cron.created_at == cron.updated_at for cron in store.schedules.crons.list()} == {True}
