"""The SQL statements of `sessions`, the checks of its arguments, and the creation of sessions under concurrency."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from itertools import combinations
from typing import Any, TypedDict, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from lastlight_state import codec
from lastlight_state.codec import digest
from lastlight_state.db import valid
from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.repository import UNSET
from lastlight_state.db.rows.statements import Row, Statement, bind, columns_of, every_column_of, number, statement_of
from lastlight_state.db.schema.declarations import depth_of, limits_of
from lastlight_state.db.schema.indexes import through
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import AlreadyExists, LostRace, StateError
from lastlight_state.messaging.models import (
    ACTIVE_NOW,
    NEWEST_ACTIVITY,
    SESSION,
    SESSIONS,
    THIS_SESSION,
    at_place,
    is_active,
)
from lastlight_state.messaging.records import (
    ConversationKey,
    MessagingSession,
    MessagingSessionSummary,
    ResumedSession,
    ThreadPlace,
)

COLUMNS = every_column_of(MessagingSession, SESSIONS)
SUMMARY = columns_of(MessagingSessionSummary, SESSIONS)
CHANGEABLE = ("title", "metadata", "agent_session_id")

_cutoff = bind("cutoff", SESSIONS.c.last_activity_at)
_this_user = SESSIONS.c.user_id == bind("user_id", SESSIONS.c.user_id)
_this_key = sa.and_(at_place(), _this_user)
_idle = SESSIONS.c.last_activity_at < _cutoff
_one_more = SESSIONS.c.version + number(1)


def _newest(*conditions: sa.ColumnElement[bool], order: Iterable[Any]) -> Statement[MessagingSession]:
    shown = sa.select(*COLUMNS).where(*conditions).order_by(*order).limit(number(1))
    return statement_of(shown, MessagingSession)


def _retire_update(*conditions: sa.ColumnElement[bool], returning: Iterable[Any]) -> sa.Executable:
    """Return an UPDATE that ends active sessions. No statement makes an ended session active again."""
    return (
        sa.update(SESSIONS)
        .where(is_active(), *conditions)
        .values(
            active=sa.false(),
            version=_one_more,
            deactivated_at=bind("at", SESSIONS.c.deactivated_at),
            deactivated_reason=bind("reason", SESSIONS.c.deactivated_reason),
        )
        .returning(*returning)
    )


GET = statement_of(sa.select(*COLUMNS).where(THIS_SESSION), MessagingSession)
VERSION = statement_of(sa.select(SESSIONS.c.version).where(THIS_SESSION))
#: The caller checks if the session is idle. With that condition in the statement, Postgres would choose the index of
#: the place, and read all active sessions there.
FIND_KEY = statement_of(sa.select(*COLUMNS).where(_this_key, is_active()), MessagingSession)
FIND_PLACE_FRESH = _newest(at_place(), is_active(), SESSIONS.c.last_activity_at >= _cutoff, order=NEWEST_ACTIVITY)
FIND_AGENT = _newest(
    SESSIONS.c.agent_session_id == bind("agent_session_id", SESSIONS.c.agent_session_id),
    order=(SESSIONS.c.created_at.desc(), SESSIONS.c.id.desc()),
)

#: Inserts nothing if the id is taken or the key has an active session.
INSERT = statement_of(
    insert(SESSIONS)
    .values(
        **{name: bind(name, SESSIONS.c[name]) for name in ("id", "platform", "channel_id", "thread_id", "user_id")},
        created_at=bind("at", SESSIONS.c.created_at),
        last_activity_at=bind("at", SESSIONS.c.last_activity_at),
        message_count=number(0),
        active=sa.true(),
    )
    .on_conflict_do_nothing()
    .returning(*COLUMNS),
    MessagingSession,
)

RETIRE_IDLE = statement_of(_retire_update(_this_key, _idle, returning=[SESSIONS.c.id]))
RETIRE = statement_of(_retire_update(_this_key, returning=[SESSIONS.c.id]))
CLOSE = statement_of(_retire_update(THIS_SESSION, returning=COLUMNS), MessagingSession)

_idle_ids = through(
    sa.select(SESSIONS.c.id).where(is_active(), _idle), SESSIONS, "ix_messaging_sessions_active_place"
)  # else SQLite reads all inactive sessions, which are older
_oldest_idle = (  # a CTE, which Postgres runs once: a subquery may run again, and then finds other rows
    _idle_ids.order_by(SESSIONS.c.last_activity_at, SESSIONS.c.id)
    .limit(sa.bindparam("limit", type_=sa.Integer))
    .with_for_update(skip_locked=True, key_share=True)
    .cte("oldest")
)
#: Rows locked by others are skipped, because they are about to become fresh or inactive.
CLOSE_IDLE = statement_of(_retire_update(SESSIONS.c.id.in_(sa.select(_oldest_idle.c.id)), returning=[SESSIONS.c.id]))

TOUCH = statement_of(
    sa.update(SESSIONS).where(THIS_SESSION).values(last_activity_at=ACTIVE_NOW).returning(SESSIONS.c.last_activity_at)
)

_agent = SESSIONS.c.agent_session_id
ENSURE_AGENT = statement_of(
    sa.update(SESSIONS)
    .where(THIS_SESSION)
    .values(
        agent_session_id=sa.func.coalesce(_agent, bind("proposed", _agent)),
        version=sa.case((_agent.is_(None), _one_more), else_=SESSIONS.c.version),
    )
    .returning(_agent)
)


def _change_statement(names: Iterable[str]) -> Statement[MessagingSession]:
    return statement_of(
        sa.update(SESSIONS)
        .where(THIS_SESSION, SESSIONS.c.version == bind("expected", SESSIONS.c.version))
        .values(version=_one_more, **{name: bind(name, SESSIONS.c[name]) for name in names})
        .returning(*COLUMNS),
        MessagingSession,
    )


#: The UPDATE statements, by the names of the columns that a call changes.
UPDATE = {
    frozenset(names): _change_statement(names)
    for size in range(1, len(CHANGEABLE) + 1)
    for names in combinations(CHANGEABLE, size)
}

LIST = Listing(
    "messaging_sessions",
    SUMMARY,
    order=(SESSIONS.c.last_activity_at, SESSIONS.c.id),
    filters={
        "platform": SESSIONS.c.platform == bind("platform", SESSIONS.c.platform),
        "channel_id": SESSIONS.c.channel_id == bind("channel_id", SESSIONS.c.channel_id),
        "user_id": _this_user,
        "only_active": is_active(),
        "only_inactive": sa.or_(SESSIONS.c.active == sa.false(), SESSIONS.c.active.is_(None)),
    },
    through="ix_messaging_sessions_activity",
    row=MessagingSessionSummary,
)


# Checks of callers' arguments about sessions. Each returns parameters of statements.

_LIMITS, _DEPTH = limits_of(SESSIONS), depth_of(SESSIONS.c.metadata)


class Place(TypedDict):
    """The parameters of a place; ``thread`` is empty outside a thread."""

    platform: str
    channel_id: str
    thread_id: str | None
    thread: str


class Key(Place):
    """The parameters of a conversation key."""

    user_id: str


class NewSession(Key):
    """The parameters of a session that may be made. Only ``resume`` looks at the ``cutoff``."""

    id: str
    at: datetime
    reason: str
    cutoff: datetime


def place(where: str, given: Any) -> Place:
    """Check a `ThreadPlace` and return its parameters. ``thread`` is empty outside a thread."""
    return _place(valid.argument_group(where, given, ThreadPlace))


def key(given: Any) -> Key:
    """Check a `ConversationKey` and return its parameters."""
    where = _place(valid.argument_group("key", given, ConversationKey))
    return {**where, "user_id": valid.identifier("user_id", given.user_id, _LIMITS.user_id)}


def changes(title: Any, metadata: Any, agent_session: Any) -> Row:
    """Check the arguments of an update, and return the columns that are not UNSET. None clears a column."""
    given: Row = {}
    if title is not UNSET:
        given["title"] = valid.optional_content("title", title, _LIMITS.title)
    if metadata is not UNSET:
        given["metadata"] = None if metadata is None else _metadata(metadata)
    if agent_session is not UNSET:
        given["agent_session_id"] = (
            None if agent_session is None else valid.session_id("agent_session_id", agent_session)
        )
    return given


def list_filters(platform: Any, channel_id: Any, user_id: Any, active: Any) -> Row:
    """Check the filters of a list of sessions, and return their parameters."""
    given = {"platform": platform, "channel_id": channel_id, "user_id": user_id}
    chosen: Row = {name: None if value is None else valid.lookup_text(name, value) for name, value in given.items()}
    if active is not None:
        chosen["only_active" if valid.flag("active", active) else "only_inactive"] = {}
    return chosen


def _place(given: ThreadPlace | ConversationKey) -> Place:
    thread_id = given.thread_id if given.thread_id != "" else None
    valid.optional("thread_id", thread_id, _LIMITS.thread_id)
    return {
        "platform": valid.identifier("platform", given.platform, _LIMITS.platform),
        "channel_id": valid.identifier("channel_id", given.channel_id, _LIMITS.channel_id),
        "thread_id": thread_id,
        "thread": thread_id or "",
    }


def _metadata(value: Any) -> str:
    return codec.encode("metadata", value, max_bytes=_LIMITS.metadata, max_depth=_DEPTH)


# Functions that create the active session of a key, while other callers may do the same concurrently.
#
# The row lock on the old session and the unique index over active sessions let one caller create the new session; the
# others find it. If the new session is retired again before they can read it, the whole transaction is retried.

T = TypeVar("T")

#: Most retries after a lost race. Each lost race means that another caller created and ended a session, so others make
#: progress. With a few callers that do so without a pause, one call in thousands loses six times in a row.
REPEATS = 100


def retry_lost_race(attempt: Callable[[], T]) -> T:
    """Call ``attempt`` and return its result. Retry up to a hundred times while it raises `LostRace`."""
    for _ in range(REPEATS):
        try:
            return attempt()
        except LostRace:
            continue
    return attempt()


def replace_idle(unit: Unit, row: NewSession) -> ResumedSession:
    """End the session of a conversation key if it is still idle. Insert a new one unless an active one exists.

    Raises `LostRace` if the active session was retired before it could be read.
    """
    replaced = unit.value(RETIRE_IDLE, row)
    made = unit.row(INSERT, row)
    if made is not None:
        return resume_result(made, created=True, replaced=replaced)
    winner = unit.row(FIND_KEY, row)
    if winner is None:
        raise LostRace("the active session of the key was retired while it was looked up")
    return resume_result(winner)


def replace(unit: Unit, row: NewSession) -> MessagingSession:
    """End the active session of a conversation key, idle or not, and insert a new one.

    Raises `AlreadyExists` if the new id is taken, and `LostRace` if another session of the key was created first.
    """
    unit.value(RETIRE, row)
    made = unit.row(INSERT, row)
    if made is not None:
        return made
    if _is_taken(unit, row):
        raise AlreadyExists(SESSION, row["id"])
    raise LostRace("another session of the key was made while the old one was retired")


def replace_under_lock(unit: Unit, row: NewSession) -> MessagingSession:
    """Run `replace` while holding a named lock for the key. For callers that have lost a race once.

    Such callers queue for the lock, so that they cannot lose to each other again. The first try takes no lock, because
    races are rare.
    """
    unit.named_lock(f"messaging_key:{digest([row['platform'], row['channel_id'], row['thread'], row['user_id']])}")
    return replace(unit, row)


def refusal(unit: Unit, row: NewSession) -> StateError:
    """Return the error for an INSERT of a session that returned no row."""
    if _is_taken(unit, row):
        return AlreadyExists(SESSION, row["id"])
    active = unit.row(FIND_KEY, row)
    if active is not None:
        return AlreadyExists(SESSION, active.id, problem="is the active session of this key")
    return LostRace("the active session of the key was retired while it was looked up")


def resume_result(session: MessagingSession, *, created: bool = False, replaced: str | None = None) -> ResumedSession:
    """Return the result of `resume` for a session."""
    return ResumedSession.of({"session": session, "created": created, "replaced": replaced})


def _is_taken(unit: Unit, row: NewSession) -> bool:
    return unit.row(VERSION, {"session_id": row["id"]}) is not None
