"""Rows that plain SQL has damaged: marked in lists, passed by sweeps, named by `get`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from support.guards import unguarded
from support.scratch import THINGS

from lastlight_state.backends.base import Checkout, Mode
from lastlight_state.backends.facts import Unreadable
from lastlight_state.db.rows.statements import statement_of
from lastlight_state.errors import CorruptData
from lastlight_state.journal import NewEvent
from lastlight_state.messaging import ConversationKey
from lastlight_state.store import StateStore
from lastlight_state.testing import Database
from lastlight_state.workflows import Gate, Trigger
from lastlight_state.workflows.arguments import RunOptions

#: A value for a column of `workflow_runs` that cannot be read, by database and column.
DAMAGE = {
    "sqlite": [
        ("repo", "CAST(x'61ff' AS TEXT)"), ("repo", "x'00ff'"), ("issue_number", "'many'"), ("started_at", "'soon'"),
        ("started_at", "5"), ("triggered_by", "CAST(x'ff' AS TEXT)"),
    ],
    "postgresql": [("started_at", "'infinity'"), ("updated_at", "'-infinity'"), ("finished_at", "'infinity'")],
}  # fmt: skip


def runs(store: StateStore, count: int = 5) -> None:
    for n in range(count):
        store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p", options=RunOptions(id=f"run-{n}"))


def damage(database: Database, column: str, value: str) -> None:
    unguarded(database).execute(f"UPDATE workflow_runs SET {column} = {value} WHERE id = 'run-2'")


@pytest.mark.parametrize("which", range(6))
def test_a_list_marks_a_row_that_cannot_be_read_and_shows_all_others(database: Database, which: int) -> None:
    """house H-52: with its table, key and column, whatever the size of a page."""
    store = database.open()
    runs(store)
    column, value = DAMAGE[database.name][which % len(DAMAGE[database.name])]
    damage(database, column, value)
    for limit in (1, 2, 50):
        counted = store.metrics.damaged_rows
        shown, damaged = pages(store, limit)
        assert sorted(shown) == ["run-0", "run-1", "run-3", "run-4"], limit
        assert damaged == {("workflow_runs", "run-2", column)}, limit
        assert store.metrics.damaged_rows > counted, limit
    with pytest.raises(CorruptData) as refused:
        store.workflows.runs.get("run-2")
    assert (refused.value.table, refused.value.key, refused.value.column) == ("workflow_runs", "run-2", column)


def pages(store: StateStore, limit: int) -> tuple[list[str], set[tuple[str, Any, str]]]:
    """The ids that all pages of the list show, and the damage that they tell."""
    shown: list[str] = []
    damaged: set[tuple[str, Any, str]] = set()
    token = None
    while True:
        page = store.workflows.runs.list(limit=limit, page_token=token)
        shown += [run.id for run in page]
        damaged |= {(row.table, row.key, row.column) for row in page.damaged}
        token = page.next_page_token
        if token is None:
            return shown, damaged


def test_taking_the_next_run_passes_one_that_cannot_be_read(database: Database) -> None:
    """house H-52: a sweep reaches those behind it."""
    store = database.open()
    runs(store, 3)
    value = "'infinity'" if database.name == "postgresql" else "'soon'"
    unguarded(database).execute(f"UPDATE workflow_runs SET deadline_at = {value} WHERE id = 'run-0'")
    database.clock.advance(seconds=7200)
    taken = store.workflows.claims.take_next(owner="w", limit=3)
    assert {"run-1", "run-2"} <= {claim.run_id for claim in taken}


def test_expiring_gates_passes_one_that_cannot_be_read(database: Database) -> None:
    """house H-52."""
    store = database.open()
    runs(store, 3)
    due = database.clock.now()
    for n in range(3):
        store.workflows.approvals.create(f"run-{n}", Gate("g", "Sure?", id=f"ap-{n}"))
    database.clock.advance(seconds=3600)
    late = "'-infinity'" if database.name == "postgresql" else "'0000'"
    raw = unguarded(database)
    raw.execute(f"UPDATE workflow_approvals SET expires_at = {late} WHERE id = 'ap-0'")
    for n in (1, 2):
        moment = due.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        raw.execute(f"UPDATE workflow_approvals SET expires_at = '{moment}' WHERE id = 'ap-{n}'")
    assert {"ap-1", "ap-2"} <= set(store.workflows.approvals.expire_due())


#: A value that no column of a time can hold.
NEVER = {"sqlite": "'soon'", "postgresql": "'infinity'"}


def broken(database: Database, table: str, column: str, key: str) -> None:
    """Put a value into a column of a time that cannot be read."""
    unguarded(database).execute(f"UPDATE {table} SET {column} = {NEVER[database.name]} WHERE id = '{key}'")


def test_taking_one_run_passes_bad_rows_at_the_head(database: Database) -> None:
    """house H-52: also where they fill the limit."""
    store = database.open()
    runs(store, 4)
    for n in range(3):
        broken(database, "workflow_runs", "cancel_requested_at", f"run-{n}")
    database.clock.advance(seconds=7200)
    [claim] = store.workflows.claims.take_next(owner="w", limit=1)
    assert claim.run_id == "run-3"
    assert store.workflows.claims.take_next(owner="w", limit=1) == ()


def test_admitting_one_run_passes_bad_rows_at_the_head_of_the_line(database: Database) -> None:
    """house H-52: they keep their places."""
    store = database.open()
    for n in range(5):
        options = RunOptions(id=f"run-{n}", status="queued")
        store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p", options=options)
    for n in range(3):
        broken(database, "workflow_runs", "cancel_requested_at", f"run-{n}")
    admit = store.workflows.queue.admit_next
    assert [claim.run_id for claim in admit(cap=9, owner="w", limit=1)] == ["run-3"]
    assert [claim.run_id for claim in admit(cap=9, owner="w", limit=9)] == ["run-4"]
    assert admit(cap=9, owner="w", limit=1) == ()


def test_a_sweep_reaches_rows_behind_bad_ones_that_fill_its_limit(database: Database) -> None:
    """house H-52: rows that can be read but not worked on, as well."""
    store = database.open()
    for n in range(4):
        spent = RunOptions(id=f"run-{n}", max_restarts=0)
        store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p", options=spent)
        store.workflows.claims.take(f"run-{n}", owner="gone")
        queued = RunOptions(id=f"queued-{n}", status="queued")
        store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p", options=queued)
        soon = database.clock.now() + timedelta(minutes=1)
        store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p", options=RunOptions(id=f"gated-{n}"))
        store.workflows.approvals.create(f"gated-{n}", Gate("g", "Sure?", id=f"ap-{n}", expires_at=soon))
    database.clock.advance(seconds=7200)
    for n in range(3):
        broken(database, "workflow_runs", "updated_at", f"run-{n}")
        broken(database, "workflow_runs", "updated_at", f"queued-{n}")
        broken(database, "workflow_runs", "updated_at", f"gated-{n}")
    assert store.workflows.queue.expire(timedelta(minutes=1), reason="old", limit=1) == ("queued-3",)
    assert store.workflows.approvals.expire_due(limit=1) == ("ap-3",)
    assert store.workflows.claims.give_up(limit=1) == ("run-3",)


def test_messages_behind_one_that_cannot_be_read_are_given(database: Database) -> None:
    """house H-52: to pollers and prompts; a page of the list names the damaged one."""
    store = database.open()
    session = store.messaging.sessions.create(ConversationKey("chat", "c", "u"), session_id="ms").id
    messages = store.messaging.messages
    for n in range(5):
        messages.append(session, role="user", content=f"message {n}")
    ids = [message.id for message in messages.since(session, after=0)]
    raw = unguarded(database)
    for bad in ids[1:4]:
        raw.execute(f"UPDATE messaging_messages SET timestamp = {NEVER[database.name]} WHERE id = {bad}")
    assert [message.id for message in messages.since(session, after=ids[0], limit=1)] == [ids[4]]
    assert [message.id for message in messages.history(session, limit=2)] == [ids[0], ids[4]]
    page = messages.list(session, limit=50)
    assert [message.id for message in page] == [ids[4], ids[0]]
    assert [row.key for row in page.damaged] == ids[3:0:-1]


def test_a_follower_goes_on_behind_an_event_that_cannot_be_read(database: Database) -> None:
    """house H-52: it is logged, and its number is not given again."""
    store = database.open()
    runs(store, 1)
    store.journal.events.append_many("run-0", [NewEvent("e", {"n": n}) for n in range(3)])
    unguarded(database).execute("UPDATE run_events SET payload = '[1]' WHERE seq = 1")
    assert [event.seq for event in store.journal.events.follow("run-0", idle_timeout=0)] == [0, 2]


@pytest.mark.parametrize("order", ["newest", "active_first"])
def test_every_order_of_a_list_goes_on_behind_keys_that_cannot_be_read(database: Database, order: Any) -> None:
    """house H-52: page by page."""
    store = database.open()
    runs(store)
    for n in (1, 2, 3):
        broken(database, "workflow_runs", "started_at", f"run-{n}")
    shown, damaged, token = [], set(), None
    while True:
        page = store.workflows.runs.list(order=order, limit=1, page_token=token)
        shown += [run.id for run in page]
        damaged |= {row.key for row in page.damaged}
        token = page.next_page_token
        if token is None:
            break
    assert sorted(shown) == ["run-0", "run-4"]
    assert damaged == {"run-1", "run-2", "run-3"}


def test_a_number_that_only_the_database_can_hold_is_damage(postgres_database: Database) -> None:
    """house H-52: the driver's JSON parser raises for it, and hides no other value of the row or the list."""
    store = postgres_database.open()
    runs(store, 2)
    postgres_database.raw().execute("""UPDATE workflow_runs SET scratch = '{"n": 1e5000}' WHERE id = 'run-0'""")
    with pytest.raises(CorruptData) as refused:
        store.workflows.runs.get("run-0")
    assert (refused.value.key, refused.value.column) == ("run-0", "scratch")
    with Checkout(Mode.READ, store.backend) as checkout:
        [row] = store.backend.fetch_rows(checkout.driver.execute("SELECT 'x', '1e5000'::jsonb, NULL::jsonb, 5"))
    assert (row[0], str(row[1]), row[2:]) == ("x", "1" + "0" * 5000, (None, 5))
    assert isinstance(row[1], Unreadable)


def test_json_of_another_shape_is_damage(database: Database) -> None:
    """house H-52: a list where an object must be."""
    store = database.open()
    runs(store, 2)
    database.raw().execute("UPDATE workflow_runs SET node_statuses = '[1]' WHERE id = 'run-0'")
    with pytest.raises(CorruptData) as refused:
        store.workflows.runs.get("run-0")
    assert (refused.value.table, refused.value.key, refused.value.column) == (
        "workflow_runs",
        "run-0",
        "node_statuses",
    )
    assert store.workflows.runs.get("run-1").node_statuses is None


def test_a_run_whose_question_cannot_be_read_hides_no_unhealthy_runs(database: Database) -> None:
    """house H-52: it is named, and the others are judged."""
    store = database.open()
    runs(store, 3)
    for n in range(3):
        store.workflows.approvals.create(f"run-{n}", Gate("g", "Sure?", id=f"ap-{n}"))
    database.clock.advance(seconds=7200)
    broken(database, "workflow_approvals", "created_at", "ap-1")
    page = store.workflows.health.list_unhealthy()
    assert sorted(run.id for run in page) == ["run-0", "run-2"]
    assert [row.key for row in page.damaged] == ["ap-1"]


c = THINGS.c
FIRST = statement_of(sa.select(c.id, c.at).order_by(c.id).limit(sa.bindparam("limit", type_=sa.Integer)))
UNKEYED = statement_of(sa.select(c.kind.label("run_id"), c.id.concat("").label("name"), c.at))


def things(store: StateStore, names: str) -> None:
    """Rows of these names, the first of them damaged."""
    with store.transaction() as tx:
        moment = datetime(2026, 2, 3, tzinfo=UTC)
        tx.connection.execute(sa.insert(THINGS), [{"id": name, "at": moment, "kind": "kind"} for name in names])
        value = NEVER[tx.connection.dialect.name]
        tx.connection.exec_driver_sql(f"UPDATE scratch_things SET at = {value} WHERE id = '{names[0]}'")


def test_rows_behind_a_damaged_one_fill_the_limit_as_far_as_there_are_any(scratch: StateStore) -> None:
    """house H-52."""
    things(scratch, "abcde")

    def first(limit: int) -> str:
        found = scratch._scope.read(lambda unit: unit.first_readable_rows(FIRST, {}, limit))
        return "".join(row["id"] for row in found)

    assert [first(limit) for limit in (1, 2, 4, 5, 9)] == ["b", "bc", *["bcde"] * 3]


def test_a_damaged_row_without_its_primary_key_is_known_by_one_name(scratch: StateStore) -> None:
    """house H-52."""
    things(scratch, "a")
    with pytest.raises(CorruptData) as refused:
        scratch._scope.read(lambda unit: unit.rows(UNKEYED))
    assert (refused.value.key, refused.value.column) == ("a", "at")
