"""Every public method of every repository, called with what nobody would expect, on both databases at once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from support.hostile import Call, calls

from lastlight_state.messaging import ConversationKey, MessageDraft
from lastlight_state.migrations.metadata import METADATA
from lastlight_state.schedules import CronSpec
from lastlight_state.store import StateStore
from lastlight_state.testing import FrozenClock, PostgresTemplate, SqliteTemplate
from lastlight_state.workflows import Gate, NodeRef, PhaseEntry, Question, Trigger
from lastlight_state.workflows.arguments import ExecutionOptions, RunOptions

#: Arguments by name: the rows that `fill` makes, and words that are refused before anything else is looked at.
KNOWN: dict[str, Any] = {
    "run_id": "run-1", "workflow_name": "wf", "trigger": Trigger(type="cli", id="t-1"), "trigger_id": "t-1",
    "execution_id": "ex-1", "node": NodeRef("n-1"), "node_id": "n-1", "approval_id": "ap-1", "request_id": "hr-1",
    "gate": Gate("review", "Sure?", id="ap-2"), "by": "ana", "reason": "because", "owner": "worker-1",
    "entry": PhaseEntry("build", True), "session_id": "ms-1", "content": "hello", "role": "user",
    "spec": CronSpec("0 9 * * *", "wf"), "cron_name": "nightly", "pattern": "0 9 * * *",
    "target": "/nowhere/there.db", "folder": "/proc/nowhere/backup",
    "since": datetime(2026, 1, 1, tzinfo=UTC), "loop_id": "l-1", "iteration": 0, "limit": 5, "claim": None,
}  # fmt: skip


def fill(store: StateStore) -> None:
    """Rows of every kind, with the same ids in every database."""
    w = store.workflows
    w.runs.create("wf", trigger=KNOWN["trigger"], phase="p", scratch={"a": 1}, options=RunOptions(id="run-1"))
    w.nodes.put("run-1", NodeRef("n-1"), state="pending")
    w.executions.start("wf:skill", run_id="run-1", options=ExecutionOptions(id="ex-1"))
    w.loops.put("run-1", "l-1", iteration=0)
    w.approvals.create("run-1", Gate("gate", "Sure?", id="ap-1"))
    w.human_requests.create("run-1", Question(NodeRef("n-2"), "text", "Which?", id="hr-1"))
    w.overrides.put("wf", enabled=True, by="ana")
    store.messaging.sessions.create(ConversationKey("chat", "c", "u", "t"), session_id="ms-1")
    store.messaging.messages.append_many("ms-1", [MessageDraft("user", "hi"), MessageDraft("assistant", "yes")])
    store.schedules.crons.put("nightly", KNOWN["spec"])
    store.schedules.overrides.put("nightly", enabled=True)


class Undone(Exception):
    """Ends a transaction that nobody wants to keep."""


def undo() -> None:
    raise Undone


@pytest.fixture
def both(
    sqlite_template: SqliteTemplate, postgres_template: PostgresTemplate, tmp_path: Any, frozen_clock: FrozenClock
) -> Iterator[tuple[StateStore, StateStore]]:
    """A store on each database, with the same rows."""
    folders = tmp_path / "s", tmp_path / "p"
    for folder in folders:
        folder.mkdir()
    with (
        sqlite_template.fresh(folders[0], frozen_clock) as sqlite,
        postgres_template.fresh(folders[1], frozen_clock) as postgres,
    ):
        stores = sqlite.open(), postgres.open()
        for store in stores:
            fill(store)
        yield stores


#: The share of calls that every run makes; `make soak` makes the others.
SEED = 11


def attack(stores: tuple[StateStore, StateStore], share: float, seed: int) -> tuple[int, list[Any]]:
    """How many calls were made, and what went wrong: another error than ours, unlike outcomes, something stored."""
    before = [contents(store) for store in stores]
    wrong: list[Any] = []
    made = 0
    for call in calls(stores[0], KNOWN, share=share, seed=seed):
        made += 1
        outcomes = [outcome(call, store) for store in stores]
        if outcomes[0] != outcomes[1] or outcomes[0][0].startswith("!"):
            wrong.append((call.path, call.attacked, f"{type(call.arguments.get(call.attacked)).__name__}", outcomes))
    wrong += [(name, "stored") for name, rows in before[0].items() if contents(stores[0])[name] != rows]
    wrong += [(name, "stored") for name, rows in before[1].items() if contents(stores[1])[name] != rows]
    return made, wrong


def outcome(call: Call, store: StateStore) -> tuple[str, str]:
    """What came of a call that is undone afterwards. One that failed must have undone itself."""
    found = ("", "")
    if call.path.startswith("maintenance."):
        return call.on(store)
    try:
        with store.transaction() as tx:
            found = call.on(tx)
            undo()
    except Undone:
        pass
    if found[0] not in ("made", "MisuseError"):  # which some calls are inside a transaction, whatever they are given
        alone = call.on(store)  # each call a unit of its own: the same error, and nothing stored
        assert alone == found or alone[0] == "made", (call.path, found, alone)
    return found


def contents(store: StateStore) -> dict[str, list[Any]]:
    """Every row of every table, as text."""
    found = {}
    with store.view() as view:
        connection = view._context.scope.unit.backend.connection(view._context.scope.unit.checkout)  # type: ignore[attr-defined]
        for table in METADATA.sorted_tables:
            if table.name == "maintenance_receipts":  # a prune that removed nothing, and had no wrong argument, says so
                continue
            found[table.name] = sorted(map(repr, connection.execute(table.select()).all()))
    return found


def test_a_hostile_argument_is_the_librarys_own_error_and_the_same_on_both_databases(
    both: tuple[StateStore, StateStore],
) -> None:
    """backends B-86: only `StateError`, nothing stored, equal outcome and equal text."""
    made, wrong = attack(both, share=0.015, seed=SEED)
    assert not wrong, "\n".join(map(str, wrong[:20]))
    assert made > 400


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(4))
def test_tens_of_thousands_of_hostile_arguments(both: tuple[StateStore, StateStore], seed: int) -> None:
    """backends B-86."""
    made, wrong = attack(both, share=0.25, seed=seed)
    assert not wrong, "\n".join(map(str, wrong[:20]))
    assert made > 10_000
