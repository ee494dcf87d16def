"""What calls cost: how many statements they are, and what the planner does with them."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from support.conversations.talk import begun, numbered, said
from support.each import with_each
from support.workflows.plans import plan_of
from support.workflows.steps import Raw

from lastlight_state import AsyncStateStore, StateStore
from lastlight_state.conversations import changes, messages, progressions, sessions
from lastlight_state.conversations.exchange import statements as exchange
from lastlight_state.conversations.lifecycle import statements as lifecycle
from lastlight_state.conversations.lineage import FORKS
from lastlight_state.conversations.shared import branching
from lastlight_state.conversations.vectors import statements as vectors
from lastlight_state.testing import Database, racing

LARGE = ("node_metadata", "content", "embedding,", "extra")


def statements(store: StateStore, call: Any) -> int:
    """How many statements a call sends; rows that are inserted together are one more, which is not counted."""
    with racing(store) as race:
        call()
    return len(race.statements)


@pytest.mark.parametrize("rows", [1_000, pytest.param(100_000, marks=pytest.mark.soak)])
def test_an_append_and_a_fork_cost_the_same_for_any_history(every_backend: StateStore, raw: Raw, rows: int) -> None:
    """conversations CV-17, CV-22."""
    c = every_backend.conversations
    branch = begun(every_backend, *numbered(0, 10))

    def append(*texts: str) -> int:
        return statements(every_backend, lambda: c.branches.append("main", said(*texts)))

    short = append("a0", "a1"), append(*(f"b{i}" for i in range(50)))
    fork = statements(every_backend, lambda: c.lineage.fork("main"))
    length = c.branches.get("main").length
    raw("UPDATE progressions SET next_ord = ? WHERE id = ?", length + rows, branch.progression_id)
    raw(_MANY, length, length + rows, branch.progression_id)
    assert (append("c0", "c1"), append(*(f"d{i}" for i in range(50)))) == short
    assert short[0] == short[1] <= 9
    assert statements(every_backend, lambda: c.lineage.fork("main")) == fork <= 8
    assert len(c.branches.tail("main", 50)) == 50


def test_a_page_with_rows_is_one_look(every_backend: StateStore) -> None:
    """conversations CV-5, CV-10: only where it is empty, somebody asks whether there is what it is a page of."""
    c = every_backend.conversations
    branch = begun(every_backend, "a")
    for page in (
        lambda: c.progressions.ids(branch.progression_id),
        lambda: c.messages.uses("a"),
        lambda: c.changes.after(branch.session_id),
    ):
        assert statements(every_backend, page) == 1


_MANY = (
    "WITH RECURSIVE n(i) AS (SELECT CAST(? AS INTEGER) UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?) "
    "INSERT INTO progression_links (progression_id, ord, message_id) SELECT ?, i, 'm0' FROM n"
)

LISTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "messages": (messages.LIST, {}),
    "messages by role": (messages.LIST, {"roles": ["user", "tool"]}),
    "messages by sender": (messages.LIST, {"sender": "ana"}),
    "sessions": (sessions.LIST, {}),
    "sessions by status": (sessions.LIST, {"statuses": ["running"]}),
    "sessions by project": (sessions.LIST, {"project": "p"}),
    "sessions by user": (sessions.LIST, {"user": "ana"}),
    "transitions": (lifecycle.HISTORY, {"session_id": "s"}),
    "sessions updated": (changes.UPDATED, {"since": datetime(2026, 1, 1, tzinfo=UTC)}),
    "changes": (changes.LIST, {"session_id": "s", "after_seq": 7}),
    "inbox": (exchange.INBOX, {"owner": "o", "open": True, "after_ord": 7}),
    "inbox of a sender": (exchange.INBOX, {"owner": "o", "sender": "ana"}),
    "deliveries": (exchange.DELIVERED, {"message_id": "m"}),
    "outbox": (exchange.OUTBOX, {"sender": "ana"}),
    "members": (exchange.MEMBER_LIST, {"channel": "c"}),
    "links": (progressions.LINKED, {"progression_id": "p"}),
    "uses": (progressions.CONTAINING, {"message_id": "m"}),
    "forks": (FORKS, {"parent_branch_id": "b"}),
    "namespaces": (vectors.NAMESPACE_LIST, {}),
    "chunks": (vectors.LIST, {"namespace": "n"}),
    "chunks of a document": (vectors.OF_DOCUMENT, {"namespace": "n", "document_id": "d"}),
}


@with_each("name", LISTS)
def test_a_list_reads_no_large_column_and_scans_nothing(database: Database, name: str) -> None:
    """conversations CV-5."""
    store = database.open(migrate=True)
    listing, chosen = LISTS[name]
    statement, values = listing._statement(chosen, None, 51)
    sql = statement.on(store.backend).sql
    assert [column for column in LARGE if column in sql] == []
    plan = plan_of(database, store, statement, values, in_order=True)
    assert not plan.scans_the_table, plan


def test_what_holds_a_message_is_found_by_indexes(database: Database) -> None:
    """conversations CV-10: and positions of a history by the key."""
    store = database.open(migrate=True)
    used = {"message_id": "m", "after_kind": "", "after_id": "", "after_ord": -2, "limit": 51}
    plan = plan_of(database, store, messages.USES, used, in_order=True)
    assert [line for line in plan.text.splitlines() if "SCAN " in line and "held" not in line] == []
    assert "Seq Scan" not in plan.text
    placed = branching.position_parameters([{"id": "p", "branch_id": "b", "ord": 1}])
    assert not plan_of(database, store, branching.ORDER, placed, in_order=True).scans_the_table


def test_a_reader_finds_what_it_takes_by_an_index(database: Database) -> None:
    """conversations CV-34: however many deliveries are done."""
    store = database.open(migrate=True)
    values = {"owner": "o", "sender": "ana", "at": database.clock.now(), "limit": 5}
    for statement in (exchange.FREE, exchange.FREE_OF_SENDER):
        plan = plan_of(database, store, statement, values, in_order=True)
        assert "ix_exchange_deliveries_open" in str(plan)


def test_who_waits_looks_at_the_inboxes_alone_that_somebody_waits_for(database: Database) -> None:
    """conversations CV-35: however many there are."""
    store = database.open(migrate=True)
    plan = plan_of(database, store, exchange.HEADS, {"owners": '[{"id": "o"}]'}, in_order=True)
    assert not plan.scans_the_table, plan


def test_a_delivery_is_looked_up_by_its_owner_and_message(sqlite_database: Database) -> None:
    """conversations CV-33: at the cost of one, to however many the message was delivered."""
    store = sqlite_database.open()
    values = {"owners": '[{"id": "o"}]', "message_id": "m", "at": sqlite_database.clock.now()}
    plan = str(plan_of(sqlite_database, store, exchange.PLACE, values))
    assert re.search(r"SEARCH exchange_deliveries .*(message_id=\? AND owner=\?|owner=\? AND message_id=\?)", plan), (
        plan
    )


async def _talk(opened: StateStore) -> list[Any]:
    store = AsyncStateStore(opened)
    c = store.conversations
    session = await c.sessions.create()
    branch = await c.branches.create(session.id)
    await c.branches.append(branch.id, said("a", "b"))
    fork = await c.lineage.fork(branch.id, at=1)
    await c.branches.append(fork.id, said("c"))
    return [one.message.id for one in await c.branches.history(fork.id)]


def test_the_same_from_coroutines(every_backend: StateStore) -> None:
    """conversations CV-21, CV-23."""
    assert asyncio.run(_talk(every_backend)) == ["a", "c"]
