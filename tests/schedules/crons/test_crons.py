"""Crons: defined, changed, retired, listed, planned anew."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import pytest
from support.each import with_each
from support.schedules.steps import HOURLY, at, claimed, override, put
from support.sent import recorded
from support.workflows.steps import Raw, all_pages, together, undone, wait_until_blocked

from lastlight_state import Conflict, InvalidValue, LostRace, NotFound, PayloadTooLarge, ReservedName, StateStore
from lastlight_state.schedules import CronSpec, FireError, FireOutcome
from lastlight_state.schedules.crons import statements as sql
from lastlight_state.testing import Database, FrozenClock


def test_a_new_cron_is_first_due_at_its_first_instant(store: StateStore, frozen_clock: FrozenClock) -> None:
    """schedules C-10."""
    cron = put(store, payload={"deep": [1, None]})
    assert cron.next_run_at == at("2026-02-03T13:00Z")
    assert (cron.created_at, cron.updated_at, cron.last_run_at) == (frozen_clock.now(), frozen_clock.now(), None)
    assert (cron.enabled, cron.origin, cron.payload, cron.overridden) == (True, "database", {"deep": [1, None]}, False)
    assert store.schedules.crons.get("tidy") == cron == store.schedules.crons.find("tidy")
    frozen_clock.set(at("2026-02-03T12:59:59.999Z"))
    assert claimed(store) == []
    frozen_clock.set(at("2026-02-03T13:00Z"))
    assert len(claimed(store)) == 1


@pytest.mark.parametrize("spec", [None, "0 * * * *", {"pattern": "0 * * * *"}])
def test_a_definition_that_is_none_is_refused_by_its_name(state_store: StateStore, spec: Any) -> None:
    """schedules C-10."""
    with pytest.raises(InvalidValue, match="spec: expected a CronSpec"):
        state_store.schedules.crons.put("tidy", spec)
    with pytest.raises(InvalidValue, match="spec: expected a CronSpec"):
        state_store.schedules.crons.sync({"tidy": spec})
    assert state_store.schedules.crons.list().items == ()


def test_a_new_cron_that_is_off_is_never_due(store: StateStore) -> None:
    """schedules C-10: by its definition, by the caller, by an override that was there before."""
    assert put(store, "a", enabled=False).next_run_at is None
    off = store.schedules.crons.put("b", HOURLY, enabled=False)
    assert (off.enabled, off.next_run_at) == (False, None)
    store.schedules.overrides.put("c", enabled=False)
    overridden = put(store, "c")
    assert (overridden.enabled, overridden.effective_enabled, overridden.next_run_at) == (True, False, None)


def test_an_override_that_was_there_before_plans_a_new_cron(store: StateStore) -> None:
    """schedules C-10, O-5: of its own name alone."""
    store.schedules.overrides.put("another", schedule="45 * * * *")
    store.schedules.overrides.put("tidy", schedule="30 * * * *")
    store.schedules.overrides.put("zzz", enabled=False)
    cron = put(store)
    assert (cron.pattern, cron.effective_pattern) == ("0 * * * *", "30 * * * *")
    assert cron.next_run_at == at("2026-02-03T13:30Z")
    assert put(store, "plain").next_run_at == at("2026-02-03T13:00Z")


def test_a_cron_that_was_switched_off_stays_off_when_it_is_put_again(store: StateStore) -> None:
    """schedules C-11: unless the caller says otherwise."""
    put(store)
    store.schedules.crons.put("tidy", HOURLY, enabled=False)
    again = put(store)
    assert (again.enabled, again.next_run_at) == (False, None)
    on = store.schedules.crons.put("tidy", HOURLY, enabled=True)
    assert (on.enabled, on.next_run_at) == (True, at("2026-02-03T13:00Z"))


def test_putting_the_same_pattern_again_skips_no_due_instant(store: StateStore, frozen_clock: FrozenClock) -> None:
    """schedules C-11."""
    put(store)
    frozen_clock.set(at("2026-02-03T13:05Z"))
    again = put(store, target="other", catch_up="all", payload=[1])
    assert (again.next_run_at, again.target, again.catch_up) == (at("2026-02-03T13:00Z"), "other", "all")
    changed = put(store, pattern="30 * * * *")
    assert changed.next_run_at == at("2026-02-03T13:30Z")
    assert put(store, pattern="30 * * * *", timezone="Asia/Kolkata").next_run_at == at("2026-02-03T14:00Z")


def test_putting_keeps_when_a_cron_was_made_and_what_happened_to_it(
    store: StateStore, frozen_clock: FrozenClock
) -> None:
    """schedules C-11."""
    created = put(store)
    frozen_clock.set(at("2026-02-03T13:00Z"))
    store.schedules.crons.update_run(
        "tidy",
        expected_next_run_at=created.next_run_at,
        last_run_at=frozen_clock.now(),
        next_run_at=at("2026-02-03T14:00Z"),
        error="it broke",
    )
    again = put(store, pattern="15 * * * *")
    assert (again.created_at, again.last_run_at) == (created.created_at, at("2026-02-03T13:00Z"))
    assert again.error == {"message": "it broke"}
    assert again.updated_at == frozen_clock.now()


def test_a_next_time_that_is_given_is_taken_as_it_is(store: StateStore) -> None:
    """schedules C-12: past is due now, None is never."""
    assert put(store, "past", next_run_at="2026-01-01T00:00Z").next_run_at == at("2026-01-01T00:00Z")
    never = store.schedules.crons.put("never", HOURLY, next_run_at=None)
    assert (never.next_run_at, never.effective_enabled) == (None, True)
    assert [claim.cron_name for claim in claimed(store)] == ["past"]
    assert put(store, "never").next_run_at == at("2026-02-03T13:00Z")


def test_a_new_pattern_replaces_a_next_time_that_was_given(store: StateStore) -> None:
    """schedules C-11, C-12."""
    put(store, next_run_at="2026-01-01T00:00Z")
    assert put(store).next_run_at == at("2026-01-01T00:00Z")
    assert put(store, pattern="30 * * * *").next_run_at == at("2026-02-03T13:30Z")


def test_instants_of_a_pause_are_not_made_up_for(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """schedules C-13: nor when another program made the pause."""
    put(store, catch_up="all")
    store.schedules.crons.put("tidy", HOURLY, enabled=False)
    frozen_clock.set(at("2026-02-04T09:30Z"))
    assert store.schedules.crons.put("tidy", HOURLY, enabled=True).next_run_at == at("2026-02-04T10:00Z")
    raw("UPDATE cron_schedules SET enabled = ?", False)
    frozen_clock.set(at("2026-02-05T09:30Z"))
    assert store.schedules.crons.put("tidy", HOURLY, enabled=True).next_run_at == at("2026-02-05T10:00Z")


def test_a_configured_cron_is_not_changed_at_run_time(store: StateStore) -> None:
    """schedules C-14."""
    store.schedules.crons.sync({"tidy": HOURLY})
    with pytest.raises(ReservedName, match="override"):
        put(store, pattern="1 1 1 1 1")
    assert store.schedules.crons.get("tidy").pattern == "0 * * * *"


def test_a_retired_cron_is_gone_but_not_lost(store: StateStore, frozen_clock: FrozenClock) -> None:
    """schedules C-5, C-16: and may come back, with its history."""
    created = put(store)
    frozen_clock.set(at("2026-02-03T13:00Z"))
    [claim] = claimed(store)
    retired = store.schedules.crons.retire("tidy")
    assert (retired.retired_at, retired.next_run_at, retired.effective_enabled) == (frozen_clock.now(), None, False)
    frozen_clock.advance(timedelta(hours=3))
    assert store.schedules.crons.retire("tidy") == retired
    assert claimed(store) == []
    assert store.schedules.crons.list().items == ()
    assert store.schedules.crons.find("tidy") == retired
    revived = put(store)
    assert (revived.retired_at, revived.created_at) == (None, created.created_at)
    assert (revived.last_fire_id, revived.next_run_at) == (claim.fire_id, at("2026-02-03T17:00Z"))
    with pytest.raises(NotFound):
        store.schedules.crons.retire("unknown")


def test_a_retired_name_may_come_back_from_elsewhere(store: StateStore) -> None:
    """schedules C-5: crons cannot be deleted, so a name must not be lost for ever."""
    put(store)
    store.schedules.crons.retire("tidy")
    assert store.schedules.crons.sync({"tidy": HOURLY}).revived == ("tidy",)
    assert store.schedules.crons.get("tidy").origin == "config"
    store.schedules.crons.sync({})
    assert put(store).origin == "database"


def test_a_loop_of_ones_own_moves_the_next_time_first(store: StateStore, frozen_clock: FrozenClock) -> None:
    """schedules C-17."""
    cron, crons, other = put(store), store.schedules.crons, put(store, "other")
    said: dict[str, Any] = {"last_run_at": frozen_clock.now(), "next_run_at": at("2026-02-03T14:00Z")}
    with pytest.raises(LostRace) as caught:
        crons.update_run("tidy", expected_next_run_at=at("2026-02-03T12:00Z"), **said)
    assert caught.value.current == cron.next_run_at  # type: ignore[attr-defined]
    with pytest.raises(LostRace):
        crons.update_run("tidy", expected_next_run_at=None, **said)
    assert crons.get("tidy") == cron
    failed = crons.update_run("tidy", expected_next_run_at=cron.next_run_at, **said, error=FireError("no", "Boom"))
    assert (failed.last_run_at, failed.next_run_at) == (said["last_run_at"], said["next_run_at"])
    assert failed.error == {"type": "Boom", "message": "no"}
    well = crons.update_run("tidy", expected_next_run_at=failed.next_run_at, last_run_at=None, next_run_at=None)
    assert (well.error, well.last_run_at, well.next_run_at) == (None, None, None)
    assert crons.get("tidy") == well
    assert crons.get("other") == other
    with pytest.raises(NotFound):
        crons.update_run("unknown", expected_next_run_at=None, **said)
    crons.retire("tidy")
    with pytest.raises(Conflict, match="retired"):
        crons.update_run("tidy", expected_next_run_at=None, **said)


def test_of_two_loops_one_wins_each_instant(every_backend: StateStore, frozen_clock: FrozenClock) -> None:
    """schedules C-17."""
    crons, instant = every_backend.schedules.crons, at("2026-02-03T13:00Z")
    put(every_backend)
    for _ in range(10):
        following = instant + timedelta(hours=1)

        def step(expected: datetime = instant, then: datetime = following) -> Any:
            return crons.update_run("tidy", expected_next_run_at=expected, last_run_at=expected, next_run_at=then)

        outcomes = together([step] * 2)
        assert [isinstance(outcome, LostRace) for outcome in outcomes].count(True) == 1
        instant = following


def test_crons_are_listed_by_what_is_in_effect(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """schedules C-18: newest first, ties by name; all but the retired by default."""
    for name in ("a", "b", "c", "d"):
        put(store, name, enabled=name != "b")
    store.schedules.crons.retire("d")
    override(raw, "a", enabled=False)
    store.schedules.overrides.put("b", enabled=True)
    frozen_clock.advance(seconds=1)
    store.schedules.crons.sync({"e": CronSpec("@daily", "x")})
    lists = store.schedules.crons.list

    def names(**given: Any) -> str:
        return "".join(cron.name for cron in all_pages(lists, limit=2, **given))

    assert names() == "ecba"
    assert (names(enabled=True), names(enabled=False)) == ("ecb", "a")
    assert (names(retired=True), names(retired=None), names(retired=None, enabled=False)) == ("d", "edcba", "da")
    assert (names(origin="config"), names(origin="database")) == ("e", "cba")
    assert names(due_before=at("2026-02-03T13:00:00.001Z")) == "cba"
    assert names(due_before=at("2026-02-03T13:00Z")) == ""


def test_the_filter_by_the_switch_finds_what_is_in_effect_whoever_said_it(store: StateStore, raw: Raw) -> None:
    """schedules C-18, O-4, O-5: cron on or off, beside every override that there can be."""
    for own in (True, False):
        for said in ("nothing", "a schedule", "on", "off", "foreign on", "foreign off", "ours, then off"):
            name = f"{own} and {said}"
            put(store, name, enabled=own)
            if said in ("a schedule", "ours, then off"):
                store.schedules.overrides.put(name, schedule="30 * * * *")
            elif said in ("on", "off"):
                store.schedules.overrides.put(name, enabled=said == "on")
            elif said.startswith("foreign"):
                override(raw, name, enabled=said == "foreign on")
            if said == "ours, then off":
                raw("UPDATE cron_overrides SET enabled = ? WHERE name = ?", False, name)
        put(store, f"{own} and retired", enabled=own)
        store.schedules.crons.retire(f"{own} and retired")
    crons = all_pages(store.schedules.crons.list, retired=None)
    on = {cron.name for cron in crons if cron.effective_enabled}
    assert on == {
        *("True and nothing", "True and a schedule", "True and on", "True and foreign on"),
        *("False and on", "False and foreign on"),
    }
    assert {cron.name for cron in store.schedules.crons.list(enabled=True, retired=None)} == on
    off = {cron.name for cron in store.schedules.crons.list(enabled=False, retired=None)}
    assert off == {cron.name for cron in crons} - on


def test_why_a_cron_cannot_be_planned_is_kept_until_it_can(store: StateStore, raw: Raw) -> None:
    """schedules C-28, C-31: it is told again where something else took its place, and a switch does not hide it."""
    crons = store.schedules.crons
    put(store)
    raw("UPDATE cron_schedules SET pattern = 'nonsense'")
    assert crons.replan("tidy") == 1
    told = crons.get("tidy").error
    assert (told["type"], "nonsense" in told["message"]) == ("not_planned", True)
    raw("UPDATE cron_schedules SET error_json = NULL")
    assert (crons.replan(), crons.replan()) == (1, 0)
    assert crons.get("tidy").error == told
    store.schedules.overrides.put("tidy", enabled=False)
    assert (crons.get("tidy").error, crons.get("tidy").next_run_at) == (told, None)
    assert put(store).error == told
    store.schedules.overrides.clear("tidy")
    assert (crons.get("tidy").error, crons.get("tidy").next_run_at) == (None, at("2026-02-03T13:00Z"))


def test_a_list_of_crons_reads_neither_payload_nor_error(every_backend: StateStore) -> None:
    """schedules P-3."""
    filters: list[dict[str, Any]] = [{}, {"only_enabled": {}}, {"origin": "config"}]
    for chosen in filters:
        text = sql.LIST.statement(chosen, paged=True).on(every_backend.backend).sql
        assert "payload" not in text
        assert "error_json" not in text


def test_a_loop_may_sleep_until_there_is_something_to_do(store: StateStore, frozen_clock: FrozenClock) -> None:
    """schedules C-30: the next instant, or the end of a lease if that is earlier."""
    crons = store.schedules.crons
    assert crons.next_due_at() is None
    put(store, "late", pattern="0 18 * * *")
    put(store)
    assert crons.next_due_at() == at("2026-02-03T13:00Z")
    frozen_clock.set(at("2026-02-03T13:00Z"))
    claimed(store, lease=timedelta(minutes=7))
    assert crons.next_due_at() == at("2026-02-03T13:07Z")
    claimed(store)
    crons.retire("tidy")
    assert crons.next_due_at() == at("2026-02-03T13:07Z")
    frozen_clock.set(at("2026-02-03T13:07:00.001Z"))
    [claim] = store.schedules.fires.take_stale(owner="loop")
    store.schedules.fires.finish(claim, FireOutcome())
    assert crons.next_due_at() == at("2026-02-03T18:00Z")


def test_only_crons_that_are_due_and_fires_that_run_are_waited_for(
    store: StateStore, raw: Raw, frozen_clock: FrozenClock
) -> None:
    """schedules C-30: of the names and targets that are asked for, whatever other programs wrote."""
    crons, fires = store.schedules.crons, store.schedules.fires
    put(store, "a", target="x", next_run_at="2026-02-03T13:10Z")
    put(store, "b", target="y", next_run_at="2026-02-03T13:20Z")
    put(store, "off", target="y", enabled=False)
    ended = fires.create("b", owner="o", lease=timedelta(minutes=1))
    unlimited = fires.create("b", owner="o", lease=timedelta(minutes=2))
    fires.create("c", owner="o", lease=timedelta(minutes=3))
    raw("UPDATE cron_fires SET lease_until = NULL WHERE id = ?", unlimited.fire_id)
    raw("UPDATE cron_fires SET status = 'ok' WHERE id = ?", ended.fire_id)
    now = frozen_clock.now()
    assert crons.next_due_at() == crons.next_due_at(names=["a", "b", "c"]) == now + timedelta(minutes=3)
    assert crons.next_due_at(names=["a", "b"]) == crons.next_due_at(targets=["x", "y"]) == at("2026-02-03T13:10Z")
    assert crons.next_due_at(names=["b", "off"]) == crons.next_due_at(targets=["y"]) == at("2026-02-03T13:20Z")
    assert crons.next_due_at(names=["off"]) is None


def test_plans_that_do_not_fit_any_more_are_made_anew(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """schedules C-31: edits by hand, and instants that new zone data moved; what fits is left alone."""
    for name in ("broken", "due", "fits", "moved", "off", "on", "repatterned", "said"):
        put(store, name)
    raw("UPDATE cron_schedules SET pattern = '5 4 * * *' WHERE name = 'repatterned'")
    raw("UPDATE cron_schedules SET next_run_at = ? WHERE name = 'moved'", at("2026-02-03T13:30Z"))
    raw("UPDATE cron_schedules SET next_run_at = ? WHERE name = 'due'", at("2026-02-03T12:00Z"))
    raw("UPDATE cron_schedules SET enabled = ? WHERE name = 'off'", False)
    raw("UPDATE cron_schedules SET next_run_at = NULL WHERE name = 'on'")
    raw("UPDATE cron_schedules SET pattern = 'nonsense' WHERE name = 'broken'")
    put(store, "said", next_run_at="2026-07-01T00:01Z")
    crons = store.schedules.crons
    assert crons.replan() == 5
    plans = {cron.name: cron.next_run_at for cron in crons.list()}
    assert plans == {
        "broken": None,
        "due": at("2026-02-03T12:00Z"),
        "fits": at("2026-02-03T13:00Z"),
        "moved": at("2026-02-03T13:00Z"),
        "off": None,
        "on": at("2026-02-03T13:00Z"),
        "repatterned": at("2026-02-04T04:05Z"),
        "said": at("2026-07-01T00:01Z"),
    }
    assert "nonsense" in crons.get("broken").error["message"]
    assert crons.replan() == 0
    raw("UPDATE cron_schedules SET pattern = '0 * * * *' WHERE name = 'broken'")
    assert (crons.replan("fits"), crons.replan("broken"), crons.replan("broken")) == (0, 1, 0)
    assert (crons.get("broken").next_run_at, crons.get("broken").error) == (at("2026-02-03T13:00Z"), None)
    with pytest.raises(NotFound):
        crons.replan("unknown")


def test_replan_looks_at_every_cron_that_is_not_retired(store: StateStore, raw: Raw) -> None:
    """schedules C-31: however many there are, and whatever another program left in one that is retired."""
    put(store)
    raw(
        "INSERT INTO cron_schedules (name, pattern, timezone, target, created_at, updated_at)"
        " WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 201)"
        " SELECT 'c' || n.i, pattern, timezone, target, created_at, updated_at FROM cron_schedules, n"
    )
    raw("UPDATE cron_schedules SET retired_at = updated_at, next_run_at = updated_at WHERE name = 'tidy'")
    crons = store.schedules.crons
    assert (crons.replan(), crons.replan()) == (201, 0)
    assert {cron.next_run_at for cron in all_pages(crons.list, limit=500)} == {at("2026-02-03T13:00Z")}


def test_an_instant_that_is_due_this_moment_is_not_planned_anew(
    store: StateStore, raw: Raw, frozen_clock: FrozenClock
) -> None:
    """schedules C-31: whatever the zone's data say now; a millisecond later it would be another."""
    now = frozen_clock.now()
    for name, due in (("now", now), ("later", now + timedelta(milliseconds=1))):
        put(store, name)
        raw("UPDATE cron_schedules SET next_run_at = ? WHERE name = ?", due, name)
    assert store.schedules.crons.replan() == 1
    assert [(claim.cron_name, claim.scheduled_for) for claim in claimed(store)] == [("now", now)]


def test_replan_makes_plans_again_whose_override_another_program_changed(every_backend: StateStore, raw: Raw) -> None:
    """schedules C-31, C-37: it need not wait for the next claim."""
    crons, overrides = every_backend.schedules.crons, every_backend.schedules.overrides
    for name in ("off", "often", "plain", "rare"):
        put(every_backend, name)
    overrides.put("off", enabled=False)
    overrides.put("often", schedule="*/5 * * * *")
    overrides.put("rare", schedule="0 0 1 1 *")
    raw("DELETE FROM cron_overrides")
    assert (crons.replan(), crons.replan()) == (3, 0)
    assert {cron.next_run_at for cron in crons.list()} == {at("2026-02-03T13:00Z")}


def test_plans_are_looked_through_in_portions(every_backend: StateStore, raw: Raw) -> None:
    """schedules C-31: however many crons there are."""
    raw(
        "INSERT INTO cron_schedules (name, pattern, target, created_at, updated_at) "
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 201) "
        "SELECT 'c' || i, '@daily', 'x', ?, ? FROM n",
        at("2026-02-03T12:00Z"),
        at("2026-02-03T12:00Z"),
    )
    assert every_backend.schedules.crons.replan() == 201


def test_a_transaction_that_is_undone_defines_nothing(every_backend: StateStore) -> None:
    """schedules C-32."""
    kept = put(every_backend, "kept")
    with undone(every_backend) as tx:
        put(tx, "new")
        put(tx, "kept", pattern="@daily")
        tx.schedules.crons.retire("kept")
    assert every_backend.schedules.crons.find("new") is None
    assert every_backend.schedules.crons.get("kept") == kept


def test_crons_put_at_once_under_one_name_are_one(every_backend: StateStore) -> None:
    """schedules C-11: nobody gets an error."""
    put(every_backend, "other")
    outcomes = together([lambda n=n: put(every_backend, target=f"t{n}") for n in range(8)])  # type: ignore[misc]
    assert {outcome.target for outcome in outcomes} == {f"t{n}" for n in range(8)}  # type: ignore[union-attr]
    assert len(every_backend.schedules.crons.list()) == 2


def test_an_override_and_a_new_cron_at_once_make_the_plan_of_both(every_backend: StateStore) -> None:
    """schedules C-10, O-7: whoever comes second plans with what the first one said."""
    for n in range(12):
        name = f"c{n}"
        together(
            [
                lambda name=name: put(every_backend, name, enabled=False),  # type: ignore[misc]
                lambda name=name: every_backend.schedules.overrides.put(name, enabled=True, schedule="7 * * * *"),  # type: ignore[misc]
            ]
        )
        assert every_backend.schedules.crons.get(name).next_run_at == at("2026-02-03T13:07Z")


@pytest.mark.parametrize(
    "act",
    [
        lambda crons: crons.put("tidy", CronSpec("0 0 2 1 *", "deploy")),
        lambda crons: crons.sync({"configured": CronSpec("0 0 2 1 *", "deploy")}),
        lambda crons: crons.replan("tidy"),
    ],
    ids=["put", "sync", "replan"],
)
def test_a_plan_that_waited_for_an_override_is_made_with_it(
    every_backend: StateStore, raw: Raw, act: Callable[[Any], Any]
) -> None:
    """schedules C-11, C-15, O-7: what was said while it waited for the cron's row holds, not what was before."""
    put(every_backend, pattern="0 0 1 1 *")
    every_backend.schedules.crons.sync({"configured": CronSpec("0 0 1 1 *", "deploy")})
    with ThreadPoolExecutor(1) as pool:
        with every_backend.transaction() as tx:
            for name in ("tidy", "configured"):
                tx.schedules.overrides.put(name, schedule="*/5 * * * *")
            waiting = pool.submit(act, every_backend.schedules.crons)
            wait_until_blocked(raw)
        waiting.result()
    plans = {cron.next_run_at for cron in every_backend.schedules.crons.list()}
    assert plans == {at("2026-02-03T12:35Z")}


BAD_SPECS = [
    ({"pattern": "61 * * * *"}, "pattern"),
    ({"pattern": ""}, "pattern"),
    ({"timezone": "+02:00"}, "timezone"),
    ({"timezone": "x" * 65}, "timezone"),
    ({"target": ""}, "target"),
    ({"target": "x" * 1025}, "target"),
    ({"target_kind": "shell"}, "target_kind"),
    ({"catch_up": "some"}, "catch_up"),
    ({"overlap": None}, "overlap"),
    ({"grace_seconds": -1}, "grace_seconds"),
    ({"grace_seconds": 604_801}, "grace_seconds"),
    ({"grace_seconds": True}, "grace_seconds"),
    ({"enabled": 1}, "enabled"),
    ({"payload": {"x": float("nan")}}, "payload"),
    ({"payload": "x" * 65_537}, "payload"),
]


@with_each(("changed", "named"), BAD_SPECS)
def test_a_cron_is_defined_in_sound_words(state_store: StateStore, changed: dict[str, Any], named: str) -> None:
    """schedules C-34."""
    with pytest.raises(InvalidValue, match=f"^{named}"):
        put(state_store, **changed)
    assert state_store.schedules.crons.list(retired=None).items == ()


def test_what_is_asked_about_crons_is_in_bounds(state_store: StateStore, frozen_clock: FrozenClock) -> None:
    """schedules C-34."""
    crons, naive = state_store.schedules.crons, frozen_clock.now().replace(tzinfo=None)
    put(state_store, "x" * 200, target="x" * 1024, payload="x" * 65_534, grace_seconds=604_800)
    calls: list[tuple[str, Any]] = [
        ("name", lambda: put(state_store, "")),
        ("name", lambda: put(state_store, " ")),
        ("name", lambda: put(state_store, "x" * 201)),
        ("name", lambda: put(state_store, "a\nb")),
        ("spec", lambda: crons.put("a", {"pattern": "@daily"})),  # type: ignore[arg-type]
        ("enabled", lambda: crons.put("a", HOURLY, enabled=None)),  # type: ignore[arg-type]
        ("next_run_at", lambda: crons.put("a", HOURLY, next_run_at=naive)),
        ("limit", lambda: crons.list(limit=0)),
        ("limit", lambda: crons.list(limit=501)),
        ("origin", lambda: crons.list(origin="file")),  # type: ignore[arg-type]
        ("due_before", lambda: crons.list(due_before=naive)),
        ("enabled", lambda: crons.list(enabled=1)),  # type: ignore[arg-type]
        ("retired", lambda: crons.list(retired="yes")),  # type: ignore[arg-type]
        ("page_token", lambda: crons.list(page_token="x")),
        ("owner", lambda: crons.take_due(owner="")),
        ("limit", lambda: crons.take_due(owner="me", limit=0)),
        ("limit", lambda: crons.take_due(owner="me", limit=101)),
        ("lease", lambda: crons.take_due(owner="me", lease=timedelta(milliseconds=999))),
        ("lease", lambda: crons.take_due(owner="me", lease=timedelta(hours=24, seconds=1))),
        ("lease", lambda: crons.take_due(owner="me", lease=60)),  # type: ignore[arg-type]
        ("backfill_window", lambda: crons.take_due(owner="me", backfill_window=timedelta(days=32))),
        ("backfill_window", lambda: crons.take_due(owner="me", backfill_window=timedelta(days=-1))),
        ("last_run_at", lambda: crons.update_run("a", expected_next_run_at=None, last_run_at=naive, next_run_at=None)),
    ]
    for named, call in calls:
        with pytest.raises(InvalidValue, match=f"^{named}: "):
            call()
    with pytest.raises(PayloadTooLarge, match="error"):
        crons.update_run("x" * 200, expected_next_run_at=None, last_run_at=None, next_run_at=None, error="x" * 16_384)
    assert len(crons.list(retired=None)) == 1


def test_needless_blanks_of_a_pattern_are_not_stored(state_store: StateStore) -> None:
    """schedules X-2: the tabs of a crontab and the newline of a file are blanks."""
    assert put(state_store, pattern=" 0\t3  * * *\n").pattern == "0 3 * * *"
    assert state_store.schedules.overrides.put("tidy", schedule="30\t3 * * *\n").schedule == "30 3 * * *"


def test_words_of_a_newer_version_are_read_as_they_are(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """schedules C-34: and a cron that catches up in a way we do not know is fired once."""
    put(store)
    raw("UPDATE cron_schedules SET catch_up = 'weekly', overlap = 'queue', target_kind = 'queue', origin = 'api'")
    found = store.schedules.crons.get("tidy")
    assert (found.catch_up, found.overlap, found.target_kind, found.origin) == ("weekly", "queue", "queue", "api")
    frozen_clock.set(at("2026-02-03T16:30Z"))
    assert [claim.scheduled_for for claim in claimed(store)] == [at("2026-02-03T13:00Z")]
    assert claimed(store) == []


def test_the_summary_and_the_whole_differ_by_what_is_large(store: StateStore) -> None:
    """schedules C-33."""
    cron = put(store, payload={"x": 1})
    [summary] = store.schedules.crons.list().items
    assert cron.model_dump(exclude={"payload", "error"}) == summary.model_dump()


def test_defining_again_is_three_statements(database: Database) -> None:
    """schedules C-11: the row locked, looked at, then written."""
    with recorded(database) as (store, sent):
        put(store)
        sent.clear()
        put(store, target="other")
    assert [text.split()[0] for text in sent] == ["BEGIN", "SELECT", "SELECT", "UPDATE", "COMMIT"]
