"""The chat reader: threads from turns, messages from logs or from messaging."""

from __future__ import annotations

import os
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from support.maintenance.threads import KEY, conversation, logged, reads_the_table, turn
from support.sent import recorded
from support.workflows.plans import plan_of
from support.workflows.steps import Raw

from lastlight_state.db.lists import pages
from lastlight_state.db.lists.pages import encode_token
from lastlight_state.errors import InvalidValue, NotFound
from lastlight_state.files.agent_log import Tokens
from lastlight_state.maintenance.chats import KNOWN
from lastlight_state.messaging import ConversationKey
from lastlight_state.testing import Database, FrozenClock
from lastlight_state.workflows import Trigger, Usage

USAGE = Usage(turns=1, input_tokens=10, output_tokens=5, cache_read_input_tokens=2, cost_usd=Decimal("0.000001"))


def pruned(raw: Raw, session_id: str) -> None:
    """Take a messaging session and its messages away, as pruning does."""
    raw("INSERT INTO maintenance_permits (receipt_id) VALUES ('r')")
    raw("DELETE FROM messaging_messages WHERE session_id = ?", session_id)
    raw("DELETE FROM messaging_sessions WHERE id = ?", session_id)
    raw("DELETE FROM maintenance_permits")


def test_the_turns_of_a_conversation_are_one_thread(store: Any, frozen_clock: FrozenClock) -> None:
    """agent-log L-101."""
    session = conversation(store, ("user", "Hi"), ("assistant", "é" * 5_000), ("user", "And?"), log="chat-1")
    first = frozen_clock.now()
    turn(store, session.id, "chat-1", usage=USAGE)
    frozen_clock.advance(seconds=5)
    turn(store, session.id, "chat-1", usage=USAGE, owner="acme", repo="widget")
    store.workflows.executions.start("deploy:plan", trigger=Trigger(session.id, type="chat"))
    [thread] = store.maintenance.chats.list()
    assert thread == store.maintenance.chats.get(session.id)
    assert (thread.trigger_id, thread.agent_session_id, thread.platform) == (session.id, "chat-1", KEY.platform)
    assert (thread.first_activity_at, thread.last_activity_at) == (first, frozen_clock.now())
    assert (thread.turn_count, thread.cost_usd, thread.repo) == (2, Decimal("0.000002"), "acme/widget")
    assert thread.tokens == Tokens(input=20, output=10, cache_read=4)
    assert thread.last_assistant_preview == "é" * 4_000


def test_threads_beside_each_other_show_each_their_own(store: Any) -> None:
    """agent-log L-101: log, place and last message."""
    found: list[tuple[Any, ...]] = []
    for name in ("one", "two"):
        session = store.messaging.sessions.create(ConversationKey(f"on {name}", "c", "u"))
        store.messaging.messages.append(session.id, role="assistant", content=name)
        turn(store, session.id, f"chat-{name}", owner="acme", repo=name)
        found.append((session.id, f"chat-{name}", f"on {name}", f"acme/{name}", name))
    turn(store, "empty", "chat-empty")
    found.append(("empty", "chat-empty", None, None, None))
    assert {
        (one.trigger_id, one.agent_session_id, one.platform, one.repo, one.last_assistant_preview)
        for one in store.maintenance.chats.list()
    } == set(found)


def test_a_thread_without_a_log_shows_what_messaging_stored(store: Any) -> None:
    """agent-log L-102."""
    session = conversation(store, ("user", "Hi"), ("assistant", "Hello"), ("user", "Bye"), log="chat-1")
    turn(store, session.id, "chat-1")
    chats = store.maintenance.chats
    assert chats.log_path(session.id) is None
    first = chats.messages(session.id, limit=2)
    assert (first.source, [message.content for message in first.messages], first.at_end) == (
        "database",
        ["Hi", "Hello"],
        False,
    )
    rest = chats.messages(session.id, limit=2, after=first.cursor)
    assert ([message.content for message in rest.messages], rest.at_end) == (["Bye"], True)
    end = chats.messages(session.id, after=rest.cursor)
    assert (end.source, end.messages, end.cursor) == ("database", (), rest.cursor)


def test_a_thread_with_a_log_shows_it_page_by_page(store: Any, state_dir: Path) -> None:
    """agent-log L-102."""
    session = conversation(store, ("user", "only in the database"), log="chat-1")
    turn(store, session.id, "chat-1")
    path = logged(state_dir, "chat-1", "first")
    logged(state_dir, "chat-1", "second")
    chats = store.maintenance.chats
    assert chats.log_path(session.id) == path
    first = chats.messages(session.id, limit=1)
    assert (first.source, [message.content for message in first.messages]) == ("log", ["first"])
    rest = chats.messages(session.id, after=first.cursor)
    assert ([message.content for message in rest.messages], rest.at_end) == (["second"], True)


def test_no_other_file_shows_in_a_chat(every_backend: Any, state_dir: Path) -> None:
    """agent-log L-102: not of the directory, not of sub-agents, not the same id where other agents work."""
    session = conversation(every_backend, log="chat-1")
    turn(every_backend, session.id, "chat-1")
    mine = logged(state_dir, "chat-1", "mine")
    logged(state_dir, "chat-2", "another's")
    mine.with_name("agent-1.jsonl").write_bytes(mine.read_bytes().replace(b"mine", b"sub-agent"))
    elsewhere = logged(state_dir, "chat-1", "in a sandbox", cwd="/work")
    os.utime(mine, (1, 1))
    assert elsewhere.stat().st_mtime > 1
    found = every_backend.maintenance.chats.messages(session.id)
    assert [message.content for message in found.messages] == ["mine"]
    mine.unlink()
    assert every_backend.maintenance.chats.messages(session.id).source == "none"


def test_a_thread_whose_messaging_session_is_gone_is_still_listed(
    every_backend: Any, database: Database, state_dir: Path
) -> None:
    """agent-log L-103: and its log is read through the execution's session id."""
    session = conversation(every_backend, ("assistant", "Hello"), log="chat-1")
    turn(every_backend, session.id, "chat-1")
    database.clock.advance(seconds=1)
    turn(every_backend, session.id)  # in flight or failed early: without a log of its own
    logged(state_dir, "chat-1", "still here")
    pruned(Raw(database), session.id)
    chats = every_backend.maintenance.chats
    [thread] = chats.list()
    assert (thread.trigger_id, thread.turn_count, thread.agent_session_id) == (session.id, 2, "chat-1")
    assert (thread.platform, thread.last_assistant_preview) == (None, None)
    assert [message.content for message in chats.messages(session.id).messages] == ["still here"]


def test_an_unknown_thread_is_not_found(store: Any) -> None:
    """agent-log L-102: a messaging session without a turn is no thread either."""
    session = conversation(store, ("user", "Hi"))
    chats = store.maintenance.chats
    for call in (chats.get, chats.messages, chats.log_path):
        for trigger_id in ("unknown", session.id):
            with pytest.raises(NotFound):
                call(trigger_id)


def test_a_log_name_that_names_no_file_is_no_log(every_backend: Any, database: Database) -> None:
    """agent-log L-102: as other programs may have stored it."""
    session = conversation(every_backend, ("user", "Hi"))
    turn(every_backend, session.id)
    Raw(database)("UPDATE messaging_sessions SET agent_session_id = '../../x'")
    assert every_backend.maintenance.chats.log_path(session.id) is None
    assert every_backend.maintenance.chats.messages(session.id).source == "database"


def test_pages_show_each_thread_once_newest_activity_first(every_backend: Any, frozen_clock: FrozenClock) -> None:
    """agent-log L-101: also when all turns began in one millisecond."""
    for number in range(12):
        turn(every_backend, f"t{number % 4}")
        if number == 7:
            frozen_clock.advance(seconds=1)
    turn(every_backend, "t2")
    chats = every_backend.maintenance.chats
    seen, token = [], None
    while True:
        page = chats.list(limit=1, page_token=token)
        seen += [thread.trigger_id for thread in page]
        token = page.next_page_token
        if token is None:
            break
    assert seen == [thread.trigger_id for thread in chats.list()]
    assert seen[0] == "t2"
    assert sorted(seen) == ["t0", "t1", "t2", "t3"]


def test_a_page_of_threads_costs_one_statement_more_than_the_threads(database: Database) -> None:
    """agent-log L-101: that asks for what else is known of them, however many there are."""
    with recorded(database) as (store, sent):
        counts = []
        for many in (1, 20):
            for number in range(many):
                turn(store, f"t-{many}-{number}")
            for look in (store.workflows.usage.list_threads, store.maintenance.chats.list):
                sent.clear()
                look()
                counts.append(sum("SELECT" in statement for statement in sent))
    assert counts == [2, 3] * 2


def test_cursors_and_tokens_that_are_none_of_ours_are_refused(every_backend: Any) -> None:
    """agent-log L-101, L-102."""
    turn(every_backend, "t")
    chats = every_backend.maintenance.chats
    for token in ("%", encode_token(["others"], ["a", "b"])):
        with pytest.raises(InvalidValue):
            chats.list(page_token=token)
    for cursor in ("%", *(pages.pack(part) for part in (["log", 1], ["database", 0], ["database", True], ["x"]))):
        with pytest.raises(InvalidValue):
            chats.messages("t", after=cursor)
    assert chats.messages("t", after=pages.pack(["database", 1])).at_end
    for limit in (0, 501):
        with pytest.raises(InvalidValue):
            chats.list(limit=limit)
        with pytest.raises(InvalidValue):
            chats.messages("t", limit=limit)


def test_a_cursor_goes_on_where_it_was_made(every_backend: Any, state_dir: Path) -> None:
    """agent-log L-102: not in the other source, where places mean something else."""
    session = conversation(every_backend, ("user", "one"), ("user", "two"), log="chat-1")
    turn(every_backend, session.id, "chat-1")
    chats = every_backend.maintenance.chats
    first = chats.messages(session.id, limit=1)
    path = logged(state_dir, "chat-1", "prompt")
    rest = chats.messages(session.id, after=first.cursor)
    assert (rest.source, [message.content for message in rest.messages]) == ("database", ["two"])
    logged_page = chats.messages(session.id, limit=1)
    path.unlink()
    with pytest.raises(NotFound):
        chats.messages(session.id, after=logged_page.cursor)


CROWD = (
    "INSERT INTO executions (id, trigger_type, trigger_id, skill, started_at) "
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4000) "
    "SELECT 'e' || i, 'chat', 't' || (i % 400), CASE WHEN i % 4 = 0 THEN 'wf:plan' ELSE 'chat' END, ? FROM n"
)


def test_what_is_known_of_threads_is_read_by_indexes_alone(database: Database) -> None:
    """agent-log L-101: of each thread its newest turn, whatever the number of its turns."""
    raw = Raw(database)
    raw(CROWD, database.clock.now())
    raw("ANALYZE")
    statement, values = KNOWN.of(["t1", "t2", "t3"])
    plan = plan_of(database, database.open(), statement, values, in_order=True)
    assert not reads_the_table(plan), plan
    assert "ix_executions_chat" in plan.text, plan
    assert not re.search(r"(?<!Incremental )Sort  \(|TEMP B-TREE FOR ORDER", plan.text), plan
    assert all("started_at" in keys for keys in re.findall("Presorted Key: (.*)", plan.text)), plan
