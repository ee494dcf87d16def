"""Works of `sessions` that make the active session of a key, while others may do the same at the same time.

The row of the old session and the unique index over active sessions let one caller make the new session; the others
find it. If the new session was retired again before they could read it, the whole unit is repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from lastlight_state.codec import digest
from lastlight_state.db.unit import Unit
from lastlight_state.errors import AlreadyExists, LostRace, StateError
from lastlight_state.messaging import session_statements as sql
from lastlight_state.messaging.records import MessagingSession, ResumedSession
from lastlight_state.messaging.session_checks import NewSession
from lastlight_state.messaging.words import SESSION

T = TypeVar("T")

#: Each lost race is a session that somebody else made and somebody ended, so that the others get on. With a handful of
#: callers who make and end sessions without a pause, one call in thousands loses six times in a row.
REPEATS = 100


def settled(attempt: Callable[[], T]) -> T:
    """Run a unit, and repeat it up to a hundred times while it raises `LostRace`."""
    for _ in range(REPEATS):
        try:
            return attempt()
        except LostRace:
            continue
    return attempt()


def replace_idle(unit: Unit, row: NewSession) -> ResumedSession:
    """Retire the key's session if it is still idle, and insert a new one unless an active one exists."""
    replaced = unit.value(sql.RETIRE_IDLE, row)
    made = unit.find(MessagingSession.of, sql.INSERT, row)
    if made is not None:
        return resumed(made, created=True, replaced=replaced)
    winner = unit.find(MessagingSession.of, sql.FIND_KEY, row)
    if winner is None:
        raise LostRace("the active session of the key was retired while it was looked up")
    return resumed(winner)


def replace(unit: Unit, row: NewSession) -> MessagingSession:
    """Retire the key's session, idle or not, and insert a new one."""
    unit.value(sql.RETIRE, row)
    made = unit.find(MessagingSession.of, sql.INSERT, row)
    if made is not None:
        return made
    if _is_taken(unit, row):
        raise AlreadyExists(SESSION, row["id"])
    raise LostRace("another session of the key was made while the old one was retired")


def replace_in_turn(unit: Unit, row: NewSession) -> MessagingSession:
    """`replace` under a named lock of the key, for callers that have lost a race once.

    They queue on the lock, so that they cannot lose to each other again. The first try does not queue, because races
    are rare.
    """
    unit.named_lock(f"messaging_key:{digest([row['platform'], row['channel_id'], row['thread'], row['user_id']])}")
    return replace(unit, row)


def refusal(unit: Unit, row: NewSession) -> StateError:
    """The error for an insert that returned no row."""
    if _is_taken(unit, row):
        return AlreadyExists(SESSION, row["id"])
    active = unit.find(MessagingSession.of, sql.FIND_KEY, row)
    if active is not None:
        return AlreadyExists(SESSION, active.id, problem="is the active session of this key")
    return LostRace("the active session of the key was retired while it was looked up")


def resumed(session: MessagingSession, *, created: bool = False, replaced: str | None = None) -> ResumedSession:
    """The result of `resume`."""
    return ResumedSession.of({"session": session, "created": created, "replaced": replaced})


def _is_taken(unit: Unit, row: NewSession) -> bool:
    return unit.row(sql.VERSION, {"session_id": row["id"]}) is not None
