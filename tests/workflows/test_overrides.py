"""Kill switches of workflows."""

from __future__ import annotations

import pytest
from support.workflows.steps import TRIGGER, Raw, all_pages, started, together

from lastlight_state.errors import Conflict, InvalidValue, PayloadTooLarge
from lastlight_state.store import StateStore
from lastlight_state.testing import FrozenClock


def test_a_workflow_without_an_override_is_enabled(store: StateStore) -> None:
    """workflows W-95."""
    overrides = store.workflows.overrides
    assert overrides.is_enabled("deploy")
    assert overrides.find("deploy") is None
    assert overrides.list().items == ()


def test_a_switch_holds_what_was_said_last(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-95: all fields are overwritten, also by nothing."""
    overrides = store.workflows.overrides
    off = overrides.put("deploy", enabled=False, by="ana", reason="the region is down")
    assert (off.enabled, off.updated_by, off.reason) == (False, "ana", "the region is down")
    assert off.updated_at == frozen_clock.now()
    assert overrides.find("deploy") == off
    assert not overrides.is_enabled("deploy")
    frozen_clock.advance(seconds=1)
    on = overrides.put("deploy", enabled=True)
    assert (on.enabled, on.updated_by, on.reason, on.updated_at) == (True, None, None, frozen_clock.now())
    assert overrides.is_enabled("deploy")
    assert overrides.list().items == (on,)


def test_a_switch_is_of_one_name_exactly(store: StateStore) -> None:
    """workflows W-95."""
    store.workflows.overrides.put("deploy", enabled=False)
    assert store.workflows.overrides.is_enabled("Deploy")
    assert store.workflows.overrides.is_enabled("deploy ")


def test_clearing_goes_back_to_enabled(store: StateStore) -> None:
    """workflows W-95: an unknown name is no error, and others stay as they are."""
    overrides = store.workflows.overrides
    for name in ("deploy", "other"):
        overrides.put(name, enabled=False)
    assert [overrides.clear("deploy"), overrides.clear("deploy"), overrides.clear("nothing")] == [True, False, False]
    assert (overrides.is_enabled("deploy"), overrides.is_enabled("other")) == (True, False)
    assert overrides.find("deploy") is None


def test_switches_are_listed_by_name(store: StateStore) -> None:
    """workflows W-95."""
    for name in ("b", "\u00e9", "a", "C", "b2"):
        store.workflows.overrides.put(name, enabled=False)
    listed = all_pages(store.workflows.overrides.list, limit=2)
    assert [override.name for override in listed] == ["C", "a", "b", "b2", "\u00e9"]
    with pytest.raises(InvalidValue, match="page_token"):
        store.workflows.overrides.list(page_token="x")


def test_a_workflow_that_is_switched_off_starts_no_run(store: StateStore) -> None:
    """workflows W-22, W-95."""
    runs, overrides = store.workflows.runs, store.workflows.overrides
    running, failed = started(store), started(store)
    runs.finish(failed.id, "failed")
    overrides.put("deploy", enabled=False)
    for begin in (
        lambda: started(store),
        lambda: runs.ensure("key", "deploy", trigger=TRIGGER, phase="plan"),
        lambda: runs.restart(failed.id, by="ana", reason="again"),
    ):
        with pytest.raises(Conflict) as caught:
            begin()
        assert caught.value.code == "workflow_disabled"
    assert len(runs.list()) == 2
    assert store.workflows.executions.start("deploy:plan", run_id=running.id).outcome == "running"
    started(store, workflow_name="other")
    overrides.clear("deploy")
    started(store)
    assert runs.restart(failed.id, by="ana", reason="again").status == "running"


def test_a_workflow_that_is_switched_off_keeps_no_other_from_starting(store: StateStore) -> None:
    """workflows W-95: nor does it change why another is refused."""
    runs = store.workflows.runs
    failed, cancelled = started(store), started(store)
    runs.finish(failed.id, "failed")
    runs.cancel(cancelled.id, by="ana", reason="no more")
    store.workflows.overrides.put("other", enabled=False)
    assert runs.restart(failed.id, by="ana", reason="again").status == "running"
    with pytest.raises(Conflict) as caught:
        started(store, parent_run_id=cancelled.id)
    assert caught.value.code == "parent_cancelled"


def test_a_switch_that_says_on_lets_runs_start(store: StateStore) -> None:
    """workflows W-95: or anew, and is no reason for a refusal."""
    runs = store.workflows.runs
    failed, cancelled = started(store), started(store)
    runs.finish(failed.id, "failed")
    runs.cancel(cancelled.id, by="ana", reason="no more")
    store.workflows.overrides.put("deploy", enabled=True)
    assert started(store).status == "running"
    assert runs.restart(failed.id, by="ana", reason="again").status == "running"
    with pytest.raises(Conflict) as caught:
        started(store, parent_run_id=cancelled.id)
    assert caught.value.code == "parent_cancelled"


def test_its_time_never_moves_back(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-5."""
    first = store.workflows.overrides.put("deploy", enabled=False)
    frozen_clock.advance(seconds=-60)
    assert store.workflows.overrides.put("deploy", enabled=True).updated_at == first.updated_at


def test_switches_thrown_at_once_leave_one_row(every_backend: StateStore, raw: Raw) -> None:
    """workflows W-95: one upsert each, no error."""
    overrides = every_backend.workflows.overrides
    people = [f"person-{n}" for n in range(8)]
    thrown = together([lambda by=by: overrides.put("deploy", enabled=False, by=by) for by in people])  # type: ignore[misc]
    assert {override.updated_by for override in thrown if not isinstance(override, BaseException)} == set(people)
    assert raw("SELECT count(*) FROM workflow_overrides") == [(1,)]


def test_a_switch_is_said_in_sound_words(store: StateStore) -> None:
    """workflows W-1, W-2, W-3, W-4, case 64."""
    put, wide = store.workflows.overrides.put, "\U0001f4a1"
    assert put(wide * 64, enabled=False, by=wide * 32, reason="x" * 2048).name == wide * 64
    for name, by in ((wide * 64 + "x", None), ("deploy", wide * 32 + "x"), ("", None), ("a\0", None), ("\ud800", None)):
        with pytest.raises(InvalidValue):
            put(name, enabled=False, by=by)
    with pytest.raises(InvalidValue, match="enabled"):
        put("deploy", enabled=0)  # type: ignore[arg-type]
    with pytest.raises(PayloadTooLarge):
        put("deploy", enabled=False, reason="x" * 2049)
    assert len(store.workflows.overrides.list()) == 1


def test_the_row_of_another_program_counts(store: StateStore, raw: Raw) -> None:
    """workflows W-95: rows of the seed's own columns."""
    off = "0" if raw.name == "sqlite" else "false"
    raw(f"INSERT INTO workflow_overrides (name, enabled, updated_at) VALUES ('deploy', {off}, ?)", STAMP)
    raw("INSERT INTO workflow_overrides (name, updated_at) VALUES ('other', ?)", STAMP)
    assert not store.workflows.overrides.is_enabled("deploy")
    assert store.workflows.overrides.is_enabled("other")
    found = store.workflows.overrides.find("deploy")
    assert found is not None
    assert (found.enabled, found.updated_by, found.reason) == (False, None, None)


STAMP = "2026-01-02T03:04:05.678Z"
