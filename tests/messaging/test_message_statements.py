from __future__ import annotations

from datetime import UTC, datetime

import pytest
from support.messaging.chat import said, started
from support.messaging.plans import Plans, excess
from support.workflows.steps import Raw

from lastlight_state import StateStore
from lastlight_state.messaging import deliveries as delivery, message_statements as sql
from lastlight_state.messaging.message_statements import Draft
from lastlight_state.testing import Database, FrozenClock

MANY = pytest.mark.parametrize("many", [4_000, pytest.param(100_000, marks=pytest.mark.soak)])

SAID_AT = datetime(2026, 1, 1, tzinfo=UTC)

SESSIONS = """
INSERT INTO messaging_sessions (id, platform, channel_id, user_id, created_at, last_activity_at)
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 101)
SELECT 's' || i, 'slack', 'C' || (i % 7), 'U' || i, ?, ? FROM n
"""
MESSAGES = """
INSERT INTO messaging_messages (session_id, role, content, timestamp, platform_message_id)
WITH RECURSIVE n(i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM n WHERE i < {last})
SELECT {session}, 'user', 'x', ?, CASE WHEN i % 2 = 0 THEN 'p' || i END FROM n
"""


@pytest.fixture
def plans(database: Database, raw: Raw, frozen_clock: FrozenClock, many: int, analyzed: bool) -> Plans:
    """Plans for one long conversation, which has ended: everything since was said in a hundred others."""
    now = frozen_clock.now()
    raw(SESSIONS, now, now)
    raw(MESSAGES.format(first=1, last=many, session="'s1'"), now)
    raw(MESSAGES.format(first=many + 1, last=2 * many, session="'s' || (2 + i % 100)"), now)
    if analyzed:
        raw("ANALYZE")
    values = {
        "session_id": "s1",
        "before": sql.GREATEST_ID,
        "after": many // 2,
        "limit": 50,
        "platform": "slack",
        "channel_id": "C1",
        "platform_message_id": "p8",
        "message_id": 7,
        "at": now,
    }
    return Plans(database, values)


@MANY
@pytest.mark.parametrize("analyzed", [True, False])
def test_a_window_of_a_conversation_is_read_from_its_own_index(plans: Plans, analyzed: bool) -> None:
    """messaging M-60, M-62: history, since and list, not walking through what others said meanwhile.

    Postgres without statistics may take a conversation for a handful of messages, and sort those.
    """
    for statement in (sql.BEFORE, sql.SUMMARIES_BEFORE, sql.SINCE):
        plan = plans.of(statement)
        assert "ix_messaging_messages_order" in plan
        sorts = (
            plans.backend.large_values_in_rows and statement is sql.SUMMARIES_BEFORE
        )  # one window, shown in two parts
        assert sorts or not (excess(plan) if analyzed else "Seq Scan" in plan), plan


@MANY
@pytest.mark.parametrize("analyzed", [True])
def test_deliveries_are_found_by_their_platform_id(plans: Plans) -> None:
    """messaging M-33, M-40, M-62: at any length of a conversation."""
    assert "ix_messaging_messages_platform_id" in plans.of(sql.FIND_PLATFORM_ID)
    assert "ix_messaging_messages_platform_id" in plans.of(*delivery.STORED.of(["p2", "p4"]))
    draft: Draft = {"role": "user", "content": "x", "timestamp": SAID_AT, "platform_message_id": "p2"}
    for counted in {False, plans.backend.writes_in_ctes}:
        assert "ix_messaging_messages_platform_id" in plans.of(*delivery.insert_unless_there([draft], counted=counted))


def test_a_list_of_messages_selects_no_full_content(every_backend: StateStore) -> None:
    """messaging M-39."""
    text = sql.SUMMARIES_BEFORE.on(every_backend.backend).sql
    windows = 2 if every_backend.backend.large_values_in_rows else 1
    beginning = "substr(messaging_messages.content, 1, 280) AS preview"
    length = "length(messaging_messages.content) AS content_chars"
    assert (text.count(beginning), text.count(length)) == (windows, windows)
    rest = text.replace(beginning, "").replace(length, "").replace("content_chars", "")
    assert rest.count("content") == rest.count("content) > 2000")


@pytest.mark.parametrize("messages", [3, pytest.param(50, marks=pytest.mark.soak)])
def test_long_messages_are_listed_by_their_beginning(every_backend: StateStore, messages: int) -> None:
    """messaging M-39."""
    session = started(every_backend)
    content = "é" * 2**19
    said(every_backend, session.id, *[content] * messages)
    listed = every_backend.messaging.messages.list(session.id)
    assert {(found.preview, found.content_chars) for found in listed} == {("é" * 280, 2**19)}
    assert len(listed) == messages
