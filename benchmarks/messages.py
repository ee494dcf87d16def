"""Chat: one message with its counter; the newest twenty."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from benchmarks.databases import Side
from benchmarks.goals import goal
from benchmarks.measure import Result, compare
from lastlight_state.messaging import ConversationKey

CONTENT = "The build is green again, and the colour is back. " * 20


def results(side: Side) -> Iterator[Result]:
    """Append, history, and the fast path of resume."""
    messaging = side.store.messaging
    key = ConversationKey("slack", "C1", "U1", "T1")
    session = messaging.sessions.resume(key).session.id
    other = messaging.sessions.resume(ConversationKey("slack", "C1", "U2", "T1")).session.id
    update = (
        "UPDATE messaging_sessions SET message_count = coalesce(message_count, 0) + 1, last_activity_at = ? "
        "WHERE id = ? RETURNING id"
    )
    insert = "INSERT INTO messaging_messages (session_id, role, content, timestamp) VALUES (?, ?, ?, ?) RETURNING id"
    yield compare(
        "post message",
        side.name,
        lambda: messaging.messages.append(session, role="user", content=CONTENT),
        side.unit((update, lambda: (side.now(), other)), (insert, lambda: (other, "user", CONTENT, side.now()))),
        goal=goal("post message", side.name),
    )
    numbers = count()
    keyed = (
        "INSERT INTO messaging_messages (session_id, role, content, timestamp, platform_message_id) "
        "SELECT ?, ?, ?, ?, ? WHERE NOT EXISTS (SELECT 1 FROM messaging_messages WHERE session_id = ? "
        "AND platform_message_id = ? AND role = ?) RETURNING id"
    )

    def row() -> tuple[object, ...]:
        platform_id = f"theirs-{next(numbers)}"
        return other, "user", CONTENT, side.now(), platform_id, other, platform_id, "user"

    yield compare(
        "post message with an id",
        side.name,
        lambda: messaging.messages.append(
            session, role="user", content=CONTENT, platform_message_id=f"ours-{next(numbers)}"
        ),
        side.unit((update, lambda: (side.now(), other)), (keyed, row)),
        goal=goal("post message with an id", side.name),
    )
    history = (
        "SELECT id, session_id, role, content, timestamp, platform_message_id FROM messaging_messages "
        "WHERE session_id = ? ORDER BY id DESC LIMIT 20"
    )
    yield compare(
        "history of 20",
        side.name,
        lambda: messaging.messages.history(session, limit=20),
        side.read(history, lambda: (session,)),
        goal=goal("history of 20", side.name),
    )
