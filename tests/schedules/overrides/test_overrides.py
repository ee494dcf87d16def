"""Overrides: what operators changed about crons."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from support.schedules.steps import HOURLY, at, claimed, override, put
from support.sent import recorded
from support.workflows.steps import Raw, all_pages, together, undone

from lastlight_state import InvalidValue, NotFound, StateStore
from lastlight_state.schedules import CronSpec
from lastlight_state.testing import Database, FrozenClock


def test_an_override_changes_what_it_says_and_nothing_else(store: StateStore, frozen_clock: FrozenClock) -> None:
    """schedules O-1, O-3: None goes back to the default of a field, not given keeps it."""
    overrides = store.schedules.overrides
    first = overrides.put("tidy", enabled=False, schedule=" 30  * * * *", timezone="Europe/Berlin", by="ana")
    assert (first.name, first.enabled, first.schedule, first.timezone) == ("tidy", False, "30 * * * *", "Europe/Berlin")
    assert (first.updated_by, first.updated_at) == ("ana", frozen_clock.now())
    assert overrides.get("tidy") == overrides.find("tidy") == first
    frozen_clock.advance(seconds=1)
    second = overrides.put("tidy", schedule=None)
    assert (second.enabled, second.schedule, second.timezone) == (False, None, "Europe/Berlin")
    assert (second.updated_by, second.updated_at) == (None, frozen_clock.now())
    third = overrides.put("tidy", enabled=None, timezone=None, schedule="@daily", by="bob")
    assert (third.enabled, third.inherits_enabled, third.schedule, third.timezone) == (None, True, "@daily", None)


def test_saying_nothing_needs_an_override_to_keep(store: StateStore, frozen_clock: FrozenClock) -> None:
    """schedules O-1, O-3."""
    overrides = store.schedules.overrides
    with pytest.raises(InvalidValue, match="no field is given"):
        overrides.put("tidy", by="ana")
    assert overrides.find("tidy") is None
    first = overrides.put("tidy", schedule="@daily", by="ana")
    other = overrides.put("other", schedule="@daily", by="ana")
    now = frozen_clock.advance(seconds=1)
    again = overrides.put("tidy", by="bob")
    assert again.model_dump() == first.model_dump() | {"updated_by": "bob", "updated_at": now}
    assert overrides.get("other") == other


def test_two_operators_who_change_different_fields_lose_nothing(every_backend: StateStore) -> None:
    """schedules O-2."""
    put_override = every_backend.schedules.overrides.put
    for n in range(15):
        name = f"c{n}"
        together(
            [
                lambda name=name: put_override(name, enabled=False),  # type: ignore[misc]
                lambda name=name: put_override(name, schedule="@daily"),  # type: ignore[misc]
            ]
        )
        stored = every_backend.schedules.overrides.get(name)
        assert (stored.enabled, stored.schedule) == (False, "@daily")


def test_clearing_goes_back_to_the_default(store: StateStore) -> None:
    """schedules O-3: an unknown name is no error."""
    overrides = store.schedules.overrides
    overrides.put("tidy", enabled=False)
    assert [overrides.clear("tidy"), overrides.clear("tidy"), overrides.clear("nothing")] == [True, False, False]
    with pytest.raises(NotFound):
        overrides.get("tidy")


def test_an_override_and_the_plan_that_follows_from_it_are_one(every_backend: StateStore) -> None:
    """schedules O-7."""
    put(every_backend)
    crons = every_backend.schedules.crons
    with undone(every_backend) as tx:
        tx.schedules.overrides.put("tidy", schedule="30 * * * *")
        assert tx.schedules.crons.get("tidy").next_run_at == at("2026-02-03T13:30Z")
    assert crons.get("tidy").next_run_at == at("2026-02-03T13:00Z")


def test_changing_an_override_plans_the_cron_anew_from_now(store: StateStore, frozen_clock: FrozenClock) -> None:
    """schedules O-7, C-13."""
    put(store, catch_up="all")
    crons, overrides = store.schedules.crons, store.schedules.overrides
    overrides.put("tidy", schedule="45 * * * *")
    cron = crons.get("tidy")
    assert (cron.next_run_at, cron.effective_pattern, cron.pattern) == (
        at("2026-02-03T12:45Z"),
        "45 * * * *",
        "0 * * * *",
    )
    assert overrides.clear("tidy")
    assert crons.get("tidy").next_run_at == at("2026-02-03T13:00Z")
    overrides.put("tidy", enabled=False)
    assert crons.get("tidy").next_run_at is None
    frozen_clock.set(at("2026-02-03T18:30Z"))
    overrides.put("tidy", enabled=True)
    assert crons.get("tidy").next_run_at == at("2026-02-03T19:00Z")
    assert claimed(store) == []


def test_an_override_that_changes_nothing_about_the_plan_skips_no_due_instant(
    store: StateStore, frozen_clock: FrozenClock
) -> None:
    """schedules O-7, C-11."""
    put(store)
    frozen_clock.set(at("2026-02-03T13:00Z"))
    store.schedules.overrides.put("tidy", enabled=True)
    assert len(claimed(store)) == 1


def test_a_next_time_that_a_caller_said_gives_way_to_an_override(store: StateStore) -> None:
    """schedules O-7, C-12."""
    put(store, next_run_at="2026-07-01T00:01Z")
    store.schedules.overrides.put("tidy", schedule="45 * * * *")
    assert store.schedules.crons.get("tidy").next_run_at == at("2026-02-03T12:45Z")


def test_an_override_of_the_schedule_alone_switches_nothing_on(store: StateStore, raw: Raw) -> None:
    """schedules O-4, case 17: although old readers find the row they always found."""
    put(store, enabled=False)
    stored = store.schedules.overrides.put("tidy", schedule="30 * * * *")
    assert (stored.enabled, stored.inherits_enabled) == (None, True)
    assert store.schedules.crons.get("tidy").next_run_at is None
    assert [bool(row[0]) for row in raw("SELECT enabled FROM cron_overrides")] == [True]
    store.schedules.overrides.put("tidy", enabled=True)
    assert store.schedules.crons.get("tidy").next_run_at == at("2026-02-03T13:30Z")
    store.schedules.overrides.put("tidy", enabled=None)
    assert store.schedules.crons.get("tidy").next_run_at is None


def test_the_row_of_another_program_means_what_it_says(store: StateStore, raw: Raw) -> None:
    """schedules O-4, case 17: on is on, off is off; also off in a row that we had made."""
    put(store, "off", enabled=False)
    override(raw, "off")
    put(store, "ours")
    store.schedules.overrides.put("ours", schedule="30 * * * *")
    raw("UPDATE cron_overrides SET enabled = ? WHERE name = 'ours'", False)
    found = {cron.name: cron.effective_enabled for cron in store.schedules.crons.list()}
    assert found == {"off": True, "ours": False}
    assert store.schedules.overrides.get("ours").enabled is False
    assert [cron.name for cron in store.schedules.crons.list(enabled=True)] == ["off"]


def test_a_pattern_without_a_zone_is_read_in_the_zone_of_the_cron(store: StateStore) -> None:
    """schedules O-5, O-6: and a zone alone moves the cron's own pattern."""
    put(store, timezone="Europe/Berlin", pattern="0 3 * * *")
    store.schedules.overrides.put("tidy", schedule="30 4 * * *")
    assert store.schedules.crons.get("tidy").next_run_at == at("2026-02-04T03:30Z")
    store.schedules.overrides.put("tidy", schedule=None, timezone="Asia/Tokyo")
    cron = store.schedules.crons.get("tidy")
    assert (cron.effective_timezone, cron.next_run_at) == ("Asia/Tokyo", at("2026-02-03T18:00Z"))


def test_defaults_are_resolved_field_by_field(store: StateStore, frozen_clock: FrozenClock) -> None:
    """schedules C-4, O-5, O-8: without any schedule in the database."""
    store.schedules.overrides.put("a", schedule="30 * * * *", by="ana")
    store.schedules.overrides.put("b", enabled=False, timezone="Asia/Tokyo")
    store.schedules.overrides.put("unknown", enabled=False)
    off = CronSpec("@daily", "x", timezone="Europe/Berlin", enabled=False)
    found = store.schedules.overrides.resolve({"a": off, "b": HOURLY, "c": HOURLY})
    assert list(found) == ["a", "b", "c"]
    a, b, c = found["a"], found["b"], found["c"]
    assert (a.pattern, a.timezone, a.enabled, a.default) == ("30 * * * *", "Europe/Berlin", False, off)
    assert (a.pattern_overridden, a.timezone_overridden, a.enabled_overridden) == (True, False, False)
    assert (a.overridden_by, a.overridden_at) == ("ana", frozen_clock.now())
    assert (b.pattern, b.timezone, b.enabled) == ("0 * * * *", "Asia/Tokyo", False)
    assert (b.pattern_overridden, b.timezone_overridden, b.enabled_overridden) == (False, True, True)
    assert (c.pattern, c.timezone, c.enabled, c.overridden_by, c.overridden_at) == (
        "0 * * * *",
        "UTC",
        True,
        None,
        None,
    )


@pytest.mark.parametrize("names", [0, 1, 60, 501])
def test_any_number_of_defaults_is_one_query(database: Database, names: int) -> None:
    """schedules O-8, P-3."""
    with recorded(database) as (store, sent):
        store.schedules.overrides.put("c0", enabled=False)
        sent.clear()
        found = store.schedules.overrides.resolve({f"c{number}": HOURLY for number in range(names)})
    assert len(sent) == min(names, 1)
    assert [name for name, cron in found.items() if not cron.enabled] == ["c0"][:names]


def test_an_override_is_one_statement_and_the_plan(database: Database) -> None:
    """schedules O-2, P-3: the fields merge where no change can be missed."""
    with recorded(database) as (store, sent):
        put(store)
        sent.clear()
        store.schedules.overrides.put("tidy", schedule="30 * * * *")
        store.schedules.overrides.clear("tidy")
        store.schedules.overrides.clear("tidy")
    begun = [text.split()[0] for text in sent if not text.startswith(("BEGIN", "COMMIT"))]
    look = ["SELECT", "SELECT"]
    assert begun == [*look, "INSERT", "UPDATE", *look, "DELETE", "UPDATE", *look, "DELETE"]


def test_overrides_are_listed_newest_change_first(store: StateStore, frozen_clock: FrozenClock) -> None:
    """schedules O-9."""
    overrides = store.schedules.overrides
    for name in ("a", "b", "c"):
        overrides.put(name, enabled=False)
    frozen_clock.advance(timedelta(seconds=1))
    overrides.put("a", enabled=True)
    assert [one.name for one in all_pages(overrides.list, limit=1)] == ["a", "c", "b"]


def test_an_override_is_said_in_sound_words(state_store: StateStore) -> None:
    """schedules C-34, O-6: the old override stays."""
    overrides, put_override = state_store.schedules.overrides, state_store.schedules.overrides.put
    kept = put_override("x" * 200, schedule="@daily", by="y" * 256)
    bad: list[tuple[str, dict[str, Any]]] = [
        ("schedule", {"schedule": "61 * * * *"}),
        ("schedule", {"schedule": ""}),
        ("schedule", {"schedule": "0 0 31 2 *"}),
        ("timezone", {"timezone": "+02:00"}),
        ("timezone", {"timezone": ""}),
        ("enabled", {"enabled": 1}),
        ("by", {"enabled": True, "by": "y" * 257}),
        ("by", {"enabled": True, "by": ""}),
    ]
    for named, said in bad:
        with pytest.raises(InvalidValue, match=f"^{named}: "):
            put_override("x" * 200, **said)
    for name in ("", " ", "x" * 201, "a\n", None):
        with pytest.raises(InvalidValue, match=r"^name: "):
            put_override(name, enabled=True)  # type: ignore[arg-type]
    for limit in (0, 501):
        with pytest.raises(InvalidValue, match=r"^limit: "):
            overrides.list(limit=limit)
    wrong: list[Any] = [["a"], {"a": "@daily"}, {"": HOURLY}]
    fields: list[dict[str, Any]] = [{"pattern": 5}, {"timezone": 5}, {"enabled": 5}]
    wrong += [{"a": replace(HOURLY, **field)} for field in fields]
    for defaults in wrong:
        with pytest.raises(InvalidValue):
            overrides.resolve(defaults)
    assert overrides.list().items == (kept,)


def test_a_schedule_of_another_program_that_cannot_be_read_is_told_by_the_cron(store: StateStore, raw: Raw) -> None:
    """schedules C-28, O-7."""
    override(raw, "tidy", schedule="now and then")
    cron = put(store)
    assert (cron.effective_pattern, cron.next_run_at) == ("now and then", None)
    assert "now and then" in cron.error["message"]
    store.schedules.overrides.clear("tidy")
    mended = store.schedules.crons.get("tidy")
    assert (mended.next_run_at, mended.error) == (at("2026-02-03T13:00Z"), None)
