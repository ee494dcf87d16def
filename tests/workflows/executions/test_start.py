"""Executions begin: of a run, of a node, of a chat message; or are skipped."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from support.sent import recorded
from support.workflows.steps import TRIGGER, Raw, started, together

from lastlight_state.errors import AlreadyExists, Conflict, InvalidValue, NotFound, PayloadTooLarge
from lastlight_state.store import StateStore
from lastlight_state.testing import Database, FrozenClock
from lastlight_state.workflows import Execution, ExecutionOptions, NodeRef, Trigger

CHAT = Trigger("thread-1", actor="ana", actor_type="slack")


def test_an_execution_has_the_trigger_of_its_run(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-50."""
    run = started(store)
    execution = store.workflows.executions.start("deploy:plan", run_id=run.id, session_id="s-1")
    assert (execution.trigger_type, execution.trigger_id) == ("webhook", TRIGGER.id)
    assert (execution.owner, execution.repo, execution.issue_number) == ("acme", "widget", 7)
    assert (execution.triggered_by, execution.trigger_actor_type) == ("ana", "github")
    assert (execution.run_id, execution.skill, execution.session_id) == (run.id, "deploy:plan", "s-1")
    assert (execution.started_at, execution.finished_at) == (frozen_clock.now(), None)
    assert (execution.success, execution.outcome) == (None, "running")


def test_what_start_returns_is_what_is_stored(store: StateStore) -> None:
    """workflows W-50."""
    options = ExecutionOptions(
        id="e-1",
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
        cached=True,
        vcs_pointer="abc123",
        work_dir="/srv/work",
        details={"why": ["é", 1.5, None]},
    )
    execution = store.workflows.executions.start("deploy:plan", run_id=started(store).id, options=options)
    assert store.workflows.executions.get("e-1") == execution
    assert execution.started_at == options.started_at
    assert (execution.cached, execution.vcs_pointer, execution.work_dir) == (True, "abc123", "/srv/work")
    assert execution.details == options.details


def test_an_execution_goes_to_json_and_back(store: StateStore) -> None:
    """workflows W-50."""
    execution = store.workflows.executions.start("deploy:plan", run_id=started(store).id)
    assert Execution.model_validate_json(execution.model_dump_json()) == execution


def test_a_chat_turn_has_a_trigger_and_no_run(store: StateStore) -> None:
    """workflows W-50."""
    execution = store.workflows.executions.start("chat", trigger=CHAT)
    assert (execution.trigger_type, execution.trigger_id, execution.run_id) == ("chat", "thread-1", None)
    assert (execution.triggered_by, execution.trigger_actor_type, execution.attempt) == ("ana", "slack", None)


def test_an_execution_without_a_run_says_what_set_it_off(store: StateStore) -> None:
    """workflows W-50."""
    executions = store.workflows.executions
    with pytest.raises(InvalidValue, match="trigger: missing"):
        executions.start("chat")
    with pytest.raises(InvalidValue, match=r"trigger\.type: missing"):
        executions.start("deploy:plan", trigger=CHAT)
    with pytest.raises(InvalidValue, match="node: must not be given without a run_id"):
        executions.start("chat", trigger=CHAT, node=NodeRef("n"))
    assert executions.list().items == ()


def test_a_trigger_cannot_contradict_that_of_the_run(store: StateStore) -> None:
    """workflows W-50."""
    with pytest.raises(InvalidValue, match="trigger"):
        store.workflows.executions.start("deploy:plan", run_id=started(store).id, trigger=CHAT)


def test_a_run_that_does_not_say_its_type_is_asked_for_its_earlier_executions(store: StateStore, raw: Raw) -> None:
    """workflows W-50: an adopted run has no trigger type, but its executions have one."""
    executions = store.workflows.executions
    adopted = started(store, trigger=Trigger("t-3"))
    raw.execution(adopted.id)
    unsaid = started(store, trigger=Trigger("t-2"))
    assert executions.start("deploy:plan", run_id=unsaid.id).trigger_type == "unknown"
    assert executions.start("deploy:plan", run_id=adopted.id).trigger_type == "webhook"


def test_an_unknown_run_gets_no_execution(store: StateStore) -> None:
    """workflows W-13."""
    executions = store.workflows.executions
    for node in (None, NodeRef("n")):
        with pytest.raises(NotFound) as started_none:
            executions.start("deploy:plan", run_id="nobody", node=node)
        with pytest.raises(NotFound) as skipped_none:
            executions.skip("deploy:plan", run_id="nobody", node=node, reason="off")
        for error in (started_none.value, skipped_none.value):
            assert (error.kind, error.key) == ("workflow_run", "nobody")
    assert executions.list().items == ()


def test_only_a_running_run_executes(store: StateStore) -> None:
    """workflows W-50."""
    queued, failed, cancelled = (started(store, status="queued").id for _ in range(3))
    store.workflows.runs.finish(failed, "failed")
    store.workflows.runs.cancel(cancelled, by="ana", reason="no")
    for run_id, status in ((queued, "queued"), (failed, "failed"), (cancelled, "cancelled")):
        for node in (None, NodeRef("n")):
            with pytest.raises(Conflict) as caught:
                store.workflows.executions.start("deploy:plan", run_id=run_id, node=node)
            details = (caught.value.code, caught.value.details["found"], caught.value.details["allowed"])
            assert details == ("run_status", status, ("running",))
    assert store.workflows.executions.list().items == ()


def test_a_used_id_is_refused_and_the_first_execution_stays(store: StateStore) -> None:
    """workflows W-50."""
    run = started(store)
    options = ExecutionOptions(id="e-1")
    first = store.workflows.executions.start("deploy:plan", run_id=run.id, options=options)
    each: list[dict[str, Any]] = [{"run_id": run.id}, {"run_id": run.id, "node": NodeRef("n")}, {"trigger": CHAT}]
    for given in each:
        with pytest.raises(AlreadyExists) as caught:
            store.workflows.executions.start("chat", options=options, **given)
        assert (caught.value.kind, caught.value.key) == ("execution", "e-1")
    assert store.workflows.executions.get("e-1") == first


def test_attempts_count_by_node_and_iteration(store: StateStore) -> None:
    """workflows W-50."""
    executions, run = store.workflows.executions, started(store)
    nodes = [NodeRef("a"), NodeRef("a"), NodeRef("a", 1), NodeRef("b"), NodeRef("a")]
    begun = [executions.start("deploy:a", run_id=run.id, node=node) for node in nodes]
    assert [execution.attempt for execution in begun] == [1, 2, 1, 1, 3]
    assert [(execution.node_id, execution.iteration) for execution in begun[2:4]] == [("a", 1), ("b", 0)]
    sibling = executions.start("deploy:a", run_id=started(store).id, node=NodeRef("a"))
    assert sibling.attempt == 1


def test_an_attempt_that_only_the_node_has_counted_is_not_counted_again(store: StateStore, raw: Raw) -> None:
    """workflows W-50: its execution may be that of another program."""
    executions, run, node = store.workflows.executions, started(store), NodeRef("a")
    executions.start("deploy:a", run_id=run.id, node=node)
    raw("UPDATE run_nodes SET last_attempt = 2")
    assert executions.start("deploy:a", run_id=run.id, node=node).attempt == 3


def test_an_attempt_that_only_an_execution_has_counted_counts_for_its_own_node(store: StateStore, raw: Raw) -> None:
    """workflows W-50: another program wrote them, and none of the nodes."""
    executions, run, other = store.workflows.executions, started(store), started(store)
    counted = {(run.id, "a", 0): 3, (run.id, "a", 1): 8, (run.id, "b", 0): 7, (other.id, "a", 0): 9}
    for (run_id, node_id, iteration), attempt in counted.items():
        values = (node_id, iteration, attempt, raw.execution(run_id))
        raw("UPDATE executions SET node_id = ?, iteration = ?, attempt = ? WHERE id = ?", *values)
    for (run_id, node_id, iteration), attempt in counted.items():
        started_now = executions.start("deploy:a", run_id=run_id, node=NodeRef(node_id, iteration))
        assert started_now.attempt == attempt + 1


def test_concurrent_starts_of_a_node_get_different_attempts(every_backend: StateStore) -> None:
    """workflows W-50."""
    executions, run = every_backend.workflows.executions, started(every_backend)

    def start() -> int | None:
        return executions.start("deploy:a", run_id=run.id, node=NodeRef("a")).attempt

    for before in range(0, 20, 4):
        assert set(together([start] * 4)) == {before + 1, before + 2, before + 3, before + 4}
    attempts = [item.attempt for item in executions.list(run_id=run.id, node=NodeRef("a"), limit=500)]
    assert attempts == list(range(1, 21))


def test_an_execution_starts_in_one_statement_and_an_attempt_in_two(database: Database) -> None:
    """workflows W-102."""
    with recorded(database) as (store, sent):
        run = started(store)
        for node, statements in ((None, 1), (NodeRef("n"), 2)):
            store.workflows.executions.start("deploy:a", run_id=run.id, node=node)
            sent.clear()
            store.workflows.executions.start("deploy:a", run_id=run.id, node=node)
            assert len([sql for sql in sent if not sql.startswith(("BEGIN", "COMMIT"))]) == statements


def test_a_skip_begins_and_ends_at_once(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-50, W-52: one insert."""
    run = started(store)
    skipped = store.workflows.executions.skip("deploy:lint", run_id=run.id, reason="nothing changed")
    assert (skipped.outcome, skipped.success, skipped.stop_reason) == ("skipped", False, "skipped")
    assert skipped.started_at == skipped.finished_at == frozen_clock.now()
    assert (skipped.error, skipped.duration_ms, skipped.attempt) == ("nothing changed", 0, None)
    assert store.workflows.executions.get(skipped.id) == skipped


def test_a_skipped_attempt_is_counted(store: StateStore) -> None:
    """workflows W-50."""
    executions, run = store.workflows.executions, started(store)
    executions.skip("deploy:a", run_id=run.id, node=NodeRef("a"), reason="off")
    assert executions.start("deploy:a", run_id=run.id, node=NodeRef("a")).attempt == 2


LIMITS = {"skill": 256, "session_id": 200, "node": 256, "id": 256}


def sized(size: int) -> str:
    """A text of that many bytes in characters of four, but for its end."""
    return "\U0001f4a1" * (size // 4) + "x" * (size % 4)


def start_with(store: StateStore, run_id: str, sizes: dict[str, int]) -> Execution:
    return store.workflows.executions.start(
        sized(sizes["skill"]),
        run_id=run_id,
        node=NodeRef(sized(sizes["node"])),
        session_id="x" * sizes["session_id"],
        options=ExecutionOptions(id=sized(sizes["id"])),
    )


def test_texts_at_their_limits_are_stored(store: StateStore) -> None:
    """workflows W-2, case 64."""
    run = started(store, trigger=Trigger(sized(512), type="api"), id=sized(256))
    execution = start_with(store, run.id, LIMITS)
    stored = store.workflows.executions.get(execution.id)
    assert stored == execution
    assert {len(text.encode()) for text in (stored.id, stored.skill, run.id)} == {256}


def test_a_text_one_byte_past_its_limit_is_refused(store: StateStore) -> None:
    """workflows W-2, case 64."""
    run = started(store)
    for long, limit in LIMITS.items():
        with pytest.raises(InvalidValue, match=long) as caught:
            start_with(store, run.id, {**LIMITS, long: limit + 1})
        assert (caught.value.details["limit"], caught.value.details["actual"]) == (limit, limit + 1)
    assert store.workflows.executions.list().items == ()


def test_names_that_no_database_should_hold_are_refused(store: StateStore) -> None:
    """workflows W-2, W-4."""
    executions, run = store.workflows.executions, started(store)
    each: list[dict[str, Any]] = []
    for bad in ("", "  ", "a\0b", "a\nb", "\ud800"):
        each += [{"skill": bad}, {"session_id": bad}, {"node": NodeRef(bad)}, {"options": ExecutionOptions(id=bad)}]
    for given in each:
        with pytest.raises(InvalidValue):
            executions.start(**{"skill": "deploy:a", "run_id": run.id, **given})
    assert executions.list().items == ()


def test_times_without_a_zone_and_truths_that_are_numbers_are_refused(store: StateStore) -> None:
    """workflows W-1, W-5."""
    run = started(store)
    naive = datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None)
    for options, where in ((ExecutionOptions(started_at=naive), "started_at"), (ExecutionOptions(cached=1), "cached")):  # type: ignore[arg-type]
        with pytest.raises(InvalidValue, match=where):
            store.workflows.executions.start("deploy:a", run_id=run.id, options=options)


def test_details_have_their_limit(store: StateStore) -> None:
    """workflows W-3."""
    run = started(store)
    most = "x" * (64 * 1024 - 2)
    kept = store.workflows.executions.start("deploy:a", run_id=run.id, options=ExecutionOptions(details=most))
    assert kept.details == most
    with pytest.raises(PayloadTooLarge):
        store.workflows.executions.start("deploy:a", run_id=run.id, options=ExecutionOptions(details=most + "x"))


def test_an_execution_in_a_transaction_that_fails_never_was(store: StateStore) -> None:
    """workflows W-17."""
    run = started(store)

    def give_up() -> None:
        with store.transaction() as tx:
            tx.workflows.executions.start("deploy:a", run_id=run.id)
            raise RuntimeError("changed my mind")

    with pytest.raises(RuntimeError, match="changed my mind"):
        give_up()
    assert store.workflows.executions.list().items == ()
