"""Runs begin."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from support.workflows.steps import Raw, started, undone

from lastlight_state import StateStore
from lastlight_state.errors import AlreadyExists, Conflict, CorruptData, InvalidValue, NotFound, PayloadTooLarge
from lastlight_state.testing import Database, FrozenClock
from lastlight_state.workflows import Provenance, Trigger, WorkflowRun

KIB = 1024


def nested(depth: int) -> Any:
    """An object of so many levels."""
    value: Any = {}
    for _ in range(depth - 1):
        value = {"a": value}
    return value


def test_a_created_run_is_what_a_later_get_gives(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-22."""
    at = frozen_clock.now()
    run = started(
        store,
        context={"title": "é", "numbers": [1, 2.5, None, True]},
        scratch={"step": {"n": 0}},
        id="run-1",
        max_restarts=5,
        deadline_at=at + timedelta(days=1),
        provenance=Provenance(workflow_path="deploy.yaml", vcs_revision="abc", trace_id="t", span_id="s"),
    )
    assert store.workflows.runs.get("run-1") == run
    assert (run.status, run.status_reason, run.transition_seq, run.restart_count) == ("running", "run.created", 1, 0)
    assert (run.trigger_id, run.trigger_type, run.triggered_by, run.trigger_actor_type) == (
        "t-1",
        "webhook",
        "ana",
        "github",
    )
    assert (run.owner, run.repo, run.issue_number, run.max_restarts) == ("acme", "widget", 7, 5)
    assert (run.started_at, run.updated_at, run.finished_at, run.deadline_at) == (at, at, None, at + timedelta(days=1))
    assert (run.workflow_path, run.vcs_revision, run.trace_id, run.span_id) == ("deploy.yaml", "abc", "t", "s")
    assert (run.phase_history, run.phase_count, run.current_phase, run.node_statuses) == ((), 0, "plan", None)


def test_what_was_not_given_is_empty(store: StateStore) -> None:
    """workflows W-22."""
    run = store.workflows.runs.create("deploy", trigger=Trigger("t-1"), phase="plan")
    assert store.workflows.runs.get(run.id) == run
    assert (run.context, run.scratch, run.owner, run.parent_run_id, run.run_key) == (None, None, None, None, None)
    assert (run.max_restarts, run.claim_epoch, run.claim_owner, run.wake_at) == (3, 0, None, None)


def test_a_running_run_has_thirty_seconds_of_grace_a_queued_one_a_place(
    store: StateStore, frozen_clock: FrozenClock
) -> None:
    """workflows W-22."""
    at = frozen_clock.now()
    running, queued = started(store), started(store, status="queued", not_before=at + timedelta(hours=1))
    assert (running.lease_expires_at, running.queued_at) == (at + timedelta(seconds=30), None)
    assert (queued.lease_expires_at, queued.queued_at, queued.wake_at) == (None, at, at + timedelta(hours=1))


def test_creation_is_the_first_transition(store: StateStore, raw: Raw) -> None:
    """workflows W-11."""
    assert raw.transitions(started(store).id) == [(None, "running", "run.created")]
    queued = started(store, status="queued")
    assert raw.transitions(queued.id) == [(None, "queued", "run.created")]
    raw.check_history(queued.id)


def test_a_used_id_is_refused_and_the_first_run_stays(store: StateStore, raw: Raw) -> None:
    """workflows W-22."""
    first = started(store, id="run-1", context={"a": 1})
    with pytest.raises(AlreadyExists) as taken:
        started(store, id="run-1", context={"a": 2})
    assert (taken.value.kind, taken.value.key) == ("workflow_run", "run-1")
    assert store.workflows.runs.get("run-1") == first
    assert len(raw.transitions("run-1")) == 1


def test_a_parent_must_be_there(store: StateStore, raw: Raw) -> None:
    """workflows W-13, W-22."""
    with pytest.raises(NotFound) as missing:
        started(store, parent_run_id="nobody")
    assert (missing.value.kind, missing.value.key) == ("workflow_run", "nobody")
    assert not raw("SELECT 1 FROM workflow_runs")
    parent = started(store)
    assert started(store, parent_run_id=parent.id).parent_run_id == parent.id


def test_a_disabled_workflow_begins_nothing(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """workflows W-22, W-95."""
    existing = started(store)
    raw(
        "INSERT INTO workflow_overrides (name, enabled, updated_at) VALUES (?, ?, ?)",
        "deploy",
        False,
        frozen_clock.now(),
    )
    with pytest.raises(Conflict) as refused:
        started(store)
    assert (refused.value.code, refused.value.details["workflow_name"]) == ("workflow_disabled", "deploy")
    assert raw("SELECT id FROM workflow_runs") == [(existing.id,)]
    assert started(store, workflow_name="other").status == "running"
    raw("UPDATE workflow_overrides SET enabled = ?", True)
    assert started(store).status == "running"


def test_restart_limits_have_bounds(store: StateStore) -> None:
    """workflows W-22."""
    for most in (0, 100):
        assert started(store, max_restarts=most).max_restarts == most


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"max_restarts": 101}, "max_restarts"),
    ({"max_restarts": -1}, "max_restarts"),
    ({"max_restarts": True}, "max_restarts"),
    ({"status": "paused"}, "status"),
    ({"trigger": Trigger("t", type="email")}, "trigger.type"),  # type: ignore[arg-type]
    ({"trigger": Trigger("t", actor_type="robot")}, "trigger.actor_type"),  # type: ignore[arg-type]
    ({"trigger": Trigger("t", issue_number=-1)}, "trigger.issue_number"),
    ({"trigger": Trigger(" ")}, "trigger.id"),
    ({"phase": ""}, "phase"),
    ({"workflow_name": "a\nb"}, "workflow_name"),
    ({"deadline_at": datetime(2026, 1, 1)}, "deadline_at"),  # noqa: DTZ001
    ({"not_before": "soon"}, "not_before"),
    ({"context": {"a": [1, float("inf")]}}, "context.a[1]"),
    ({"context": nested(33)}, "context.a" + ".a" * 31),
    ({"scratch": [1]}, "scratch"),
    ({"scratch": {"a": {1: 2}}}, "scratch.a"),
]


def test_what_may_not_be_stored_is_refused_by_name(store: StateStore, raw: Raw) -> None:
    """workflows W-1, W-2, W-3."""
    for given, where in REFUSED:
        with pytest.raises(InvalidValue) as refused:
            started(store, **given)
        assert (given, refused.value.where) == (given, where)
    assert not raw("SELECT 1 FROM workflow_runs")


def test_a_word_outside_the_vocabulary_names_the_vocabulary(store: StateStore) -> None:
    """workflows W-1."""
    with pytest.raises(InvalidValue) as refused:
        started(store, trigger=Trigger("t", type="email"))  # type: ignore[arg-type]
    assert refused.value.details["permitted"] == ("api", "chat", "cli", "cron", "webhook")


def test_contents_at_their_limit_are_stored_and_one_byte_more_is_not(store: StateStore) -> None:
    """workflows W-3: bytes, not characters."""
    for part, limit in {"context": 256 * KIB, "scratch": 64 * KIB}.items():
        text = "é" * ((limit - len('{"a":""}')) // 2)
        given: dict[str, Any] = {part: {"a": text}}
        assert getattr(started(store, **given), part) == {"a": text}
        given[part]["a"] += "x"
        with pytest.raises(PayloadTooLarge) as refused:
            started(store, **given)
        assert (refused.value.where, refused.value.limit, refused.value.actual) == (part, limit, limit + 1)
        assert "é" not in str(refused.value)


def test_a_context_may_be_as_deep_as_the_limit(store: StateStore) -> None:
    """workflows W-3."""
    assert started(store, context=nested(32)).context == nested(32)


def test_times_in_any_zone_are_kept_as_milliseconds_of_utc(store: StateStore) -> None:
    """workflows W-5."""
    deadline = datetime(2026, 5, 1, 12, 0, 0, 123_999, tzinfo=timezone(timedelta(hours=2)))
    run = started(store, deadline_at=deadline)
    assert run.deadline_at == datetime(2026, 5, 1, 10, 0, 0, 123_000, tzinfo=UTC)
    assert store.workflows.runs.get(run.id).deadline_at == run.deadline_at


def test_a_run_in_a_transaction_that_raises_never_was(store: StateStore, raw: Raw) -> None:
    """workflows case 55."""
    with undone(store) as tx:
        run = started(tx)
        assert tx.workflows.runs.get(run.id) == run
    with pytest.raises(NotFound):
        store.workflows.runs.get(run.id)
    assert not raw("SELECT 1 FROM run_transitions")


def test_a_refused_run_leaves_its_transaction_usable(store: StateStore) -> None:
    """workflows W-118."""
    first = started(store, id="run-1")
    with store.transaction() as tx:
        with pytest.raises(AlreadyExists):
            started(tx, id="run-1")
        with pytest.raises(NotFound):
            started(tx, parent_run_id="nobody")
        assert tx.workflows.runs.get("run-1") == first
        second = started(tx)
    assert store.workflows.runs.get(second.id) == second


def test_a_trace_is_noted_without_touching_anything_else(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-108."""
    run = started(store)
    frozen_clock.advance(seconds=5)
    store.workflows.runs.set_trace(run.id, trace_id="trace", span_id=None)
    expected = run.model_copy(update={"trace_id": "trace", "span_id": None})
    assert store.workflows.runs.get(run.id) == expected


def test_a_run_is_found_or_not(store: StateStore) -> None:
    """workflows W-205."""
    run = store.workflows.runs.create("w", trigger=Trigger("t", type="cli"), phase="p", context={"a": 1})
    assert store.workflows.runs.find(run.id) == run
    assert store.workflows.runs.find("nobody") is None


def test_unknown_runs_are_not_found(store: StateStore) -> None:
    """workflows W-13."""
    runs = store.workflows.runs
    for call in (
        lambda: runs.get("nothing"),
        lambda: runs.set_trace("nothing", trace_id="t", span_id="s"),
        lambda: runs.merge_scratch("nothing", {"a": 1}),
        lambda: runs.finish("nothing", "succeeded"),
        lambda: runs.cancel("nothing", by="ana", reason="stop"),
        lambda: runs.cancel("nothing", by="ana", reason="stop", scope="tree"),
        lambda: runs.request_cancel("nothing", by="ana", reason="stop"),
        lambda: runs.restart("nothing", by="ana", reason="again"),
        lambda: runs.allow_restarts("nothing", 5, by="ana", reason="more"),
    ):
        with pytest.raises(NotFound) as missing:
            call()
        assert (missing.value.kind, missing.value.key) == ("workflow_run", "nothing")


def test_a_run_goes_to_json_and_back(store: StateStore) -> None:
    """house H-10: records travel."""
    run = started(store, context={"a": [1, None]}, deadline_at=datetime(2026, 5, 1, tzinfo=UTC))
    assert WorkflowRun.model_validate_json(run.model_dump_json()) == run


def test_a_row_with_broken_json_breaks_no_list(store: StateStore, raw: Raw, database: Database) -> None:
    """workflows W-21: only SQLite can hold such text; Postgres holds numbers that Python reads in no form."""
    sound = started(store, context={"a": 1})
    for column in ("context", "scratch", "phase_history"):
        insert = f"INSERT INTO workflow_runs ({_NEEDED}, {column}) VALUES (?, 'deploy', 't', 'plan', ?, ?, ?)"
        broken = "{broken"
        if database.name == "postgresql":
            with pytest.raises(Exception, match="json"):
                raw(insert, column, sound.started_at, sound.started_at, broken)
            broken = "[1e5000]"
        raw(insert, column, sound.started_at, sound.started_at, broken)
        with pytest.raises(CorruptData) as corrupt:
            store.workflows.runs.get(column)
        assert (corrupt.value.table, corrupt.value.key, corrupt.value.column) == ("workflow_runs", column, column)
    assert len(store.workflows.runs.list()) == len(raw("SELECT id FROM workflow_runs"))
    assert store.workflows.runs.get(sound.id) == sound


_NEEDED = "id, workflow_name, trigger_id, current_phase, started_at, updated_at"
