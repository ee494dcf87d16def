"""Conversation sessions: each has a pool of all messages of a conversation, and branches over the pool."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from lastlight_state import codec
from lastlight_state.clock import aware_utc
from lastlight_state.conversations import words
from lastlight_state.conversations.arguments import NewSession, SessionFilter, SessionPatch
from lastlight_state.conversations.records import ConversationSession, SessionSummary
from lastlight_state.conversations.sessions import checks
from lastlight_state.conversations.shared import deleting, orders, sessions, statuses, storing
from lastlight_state.conversations.shared.feeds import entry_parameters, feed_chain, write_entry
from lastlight_state.conversations.shared.sessions import SUMMARY, apply_merge_patch, refuse_fork_keys
from lastlight_state.conversations.tables import SESSIONS, TRANSITIONS
from lastlight_state.db import valid
from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.news.listeners import Listeners
from lastlight_state.db.repository import Repository
from lastlight_state.db.rows.records import Page, needed_columns
from lastlight_state.db.rows.statements import Row, Statement, bind, every_column_of, number, statement_of
from lastlight_state.db.rows.writes import Chain, cache_statements, insert_computed
from lastlight_state.db.schema.base import later_of
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import AlreadyExists, StaleVersion
from lastlight_state.ids import new_id

# Statements that read, insert and update sessions.


_c = SESSIONS.c
_THIS = _c.id == bind("session_id", _c.id)

#: The columns of a `ConversationSession`: those that lists leave out come last.
_IN_LISTS = needed_columns(SessionSummary)
COLUMNS = [
    *SUMMARY,
    *(column for column in every_column_of(ConversationSession, SESSIONS) if column.name not in _IN_LISTS),
]

GET = statement_of(sa.select(*COLUMNS).where(_THIS), ConversationSession)
#: How many changes of status an earlier session of this id left: its history outlives it, and is continued.
_FORMER = (
    sa.select(sa.func.coalesce(sa.func.max(TRANSITIONS.c.seq), number(0)))
    .where(TRANSITIONS.c.session_id == bind("id", _c.id))
    .scalar_subquery()
)
INSERT = feed_chain(
    insert_computed(
        SESSIONS,
        {column.name: bind(column.name, column) for column in SESSIONS.columns}
        | {"transition_seq": bind("transition_seq", _c.transition_seq) + _FORMER},
    )
    .on_conflict_do_nothing()
    .returning(_c.id, _c.change_seq, _c.transition_seq)
)
#: The version and the metadata of a session.
LOCK: Statement[tuple[int, Any]] = statement_of(
    sa.select(_c.version, _c.node_metadata).where(_THIS).with_for_update(), tuple
)
_at = bind("at", _c.updated_at)
TOUCH = statement_of(
    sa.update(SESSIONS)
    .where(_THIS)
    .values(
        last_message_at=later_of(sa.func.coalesce(_c.last_message_at, _at), _at),
        updated_at=later_of(_c.updated_at, _at),
    )
    .returning(_c.last_message_at)
)


@cache_statements
def update(names: frozenset[str], *, versioned: bool) -> Chain:
    """Return a chain that sets the named columns of a session and writes a feed entry.

    With ``versioned``, the row changes only if it has the ``expected`` version.
    """
    conditions = [_THIS, _c.version == bind("expected", _c.version)] if versioned else [_THIS]
    values: Row = {name: bind(name, _c[name]) for name in sorted(names)}
    counted = {"version": _c.version + number(1), "change_seq": _c.change_seq + number(1)}
    changed = sa.update(SESSIONS).where(*conditions).values(**counted, **values)
    return feed_chain(changed.returning(_c.id, _c.change_seq))


_EQUAL = (
    "user",
    "project",
    "agent_session_id",
    "workflow_run_id",
    "invocation_kind",
    "source_kind",
    "agent_name",
    "playbook_name",
    "show_topic",
    "show_play_name",
)
LIST = Listing(
    "sessions",
    SUMMARY,
    order=(_c.updated_at, _c.id),
    filters={
        **{name: _c[name] == bind(name, _c[name]) for name in _EQUAL},
        "updated_since": _c.updated_at >= bind("updated_since", _c.updated_at),
    },
    spread={"statuses": _c.status},
    worded=("statuses",),
    row=SessionSummary,
)


_LIMITS = limits_of(SESSIONS)

#: The default session to create: all fields empty.
_PLAIN = NewSession()
_UPDATED = entry_parameters("session.updated")
_HOLD = frozenset({"hold_reason", "updated_at"})


class Sessions(Repository):
    """``store.conversations.sessions``"""

    def create(self, session: NewSession = _PLAIN) -> ConversationSession:
        """Create a session, with a new message pool unless ``progression_id`` names an existing one.

        Raises `AlreadyExists` if the session's id is stored, and `NotFound` for an unknown pool.
        """
        row = checks.row(session, self._now())
        return self._writing(lambda unit: insert_session(unit, self._listeners, row))

    def ensure(self, session: NewSession) -> ConversationSession:
        """Create a session unless its id is stored, and return the stored session, unchanged.

        Raises `AlreadyExists` if the stored session differs in a field that the caller gives. The error's ``fields``
        name the differences.
        """
        row = checks.row(session, self._now())

        def look(unit: Unit) -> ConversationSession:
            stored = unit.row(GET, {"session_id": row["id"]})
            if stored is None:
                return insert_session(unit, self._listeners, row)
            if fields := _differing_fields(vars(stored), row, session):
                problem = f"already exists with another {', '.join(fields)}"
                raise AlreadyExists(words.SESSION, row["id"], problem=problem, fields=tuple(fields))
            return stored

        return storing.ensure_row(lambda: self._writing(look, repeatable=True))

    def get(self, session_id: str) -> ConversationSession:
        """Return the session. Raises `NotFound`."""
        values = {"session_id": valid.lookup_text("session_id", session_id)}
        return self._get_row(GET, values, kind=words.SESSION, key=session_id)

    def find(self, session_id: str) -> ConversationSession | None:
        """Return the session, or None."""
        return self._find(GET, {"session_id": valid.lookup_text("session_id", session_id)})

    def list(
        self, *, where: SessionFilter | None = None, limit: int = 50, page_token: str | None = None
    ) -> Page[SessionSummary]:
        """Return a page of sessions, the last updated first, without metadata."""
        return self._page(LIST, checks.filters(where), limit, page_token)

    def count(self, *, where: SessionFilter | None = None) -> int:
        """Return the number of sessions that match the filter (None: all sessions)."""
        given = checks.filters(where)
        return self._reading(lambda unit: LIST.count(unit, given))

    def update(self, session_id: str, patch: SessionPatch, *, expect_version: int | None = None) -> ConversationSession:
        """Set the given fields of a session, all or none. None clears a field. An empty patch changes nothing.

        Raises `NotFound`, and `StaleVersion` if the session does not have version ``expect_version``.
        """
        found = valid.lookup_text("session_id", session_id)
        expected = None if expect_version is None else valid.number("expect_version", expect_version)
        changes = checks.changes(patch, self._now())
        if changes:
            chain = update(frozenset(changes), versioned=expected is not None)
            values = {**changes, "session_id": found, "expected": expected, "at": self._now()}
            if self._chained(lambda unit: write_entry(unit, self._listeners, chain, values, _UPDATED)) is not None:
                return self.get(session_id)
        stored = self.get(session_id)
        if expected is not None and (changes or stored.version != expected):
            raise StaleVersion(words.SESSION, session_id, expected=expected, found=stored.version)
        return stored

    def merge_metadata(self, session_id: str, patch: dict[str, Any]) -> ConversationSession:
        """Merge an object into a session's metadata (RFC 7396): null removes a key, objects are merged.

        Concurrent merges of different keys are all kept. Raises `NotFound`, and `CorruptData` if the stored metadata
        are not an object.
        """
        found, given = valid.lookup_text("session_id", session_id), valid.argument_group("patch", patch, dict)
        refuse_fork_keys("patch", given)
        given = codec.decode(codec.encode("patch", given, max_bytes=_LIMITS.node_metadata))
        now = self._now()

        def merge(unit: Unit) -> ConversationSession:
            stored = unit.row(LOCK, {"session_id": found})
            if stored is None:
                raise valid.not_found(words.SESSION, session_id)
            _, before = stored
            metadata = codec.encode_merged(
                "node_metadata", apply_merge_patch(before, given), max_bytes=_LIMITS.node_metadata
            )
            chain = update(frozenset({"node_metadata", "updated_at"}), versioned=False)
            values = {"session_id": found, "node_metadata": metadata, "updated_at": now, "at": now}
            write_entry(unit, self._listeners, chain, values, _UPDATED)
            return _stored_session(unit, found)

        return self._writing(merge, repeatable=True)

    def touch(self, session_id: str, *, at: datetime | None = None) -> datetime:
        """Set a session's times of the last message and last update to ``at`` (default: now), unless they are later.

        Returns the time of the last message. Raises `NotFound`.
        """
        values = {
            "session_id": valid.lookup_text("session_id", session_id),
            "at": self._now() if at is None else aware_utc("at", at),
        }
        moved: datetime | None = self._once(lambda unit: unit.value(TOUCH, values), repeatable=True)
        if moved is None:
            raise valid.not_found(words.SESSION, session_id)
        return moved

    def hold(self, session_id: str, reason: str | None) -> ConversationSession:
        """Exclude a session from every prune, with a reason. A ``reason`` of None ends the hold. Raises `NotFound`."""
        now = self._now()
        values = {
            "session_id": valid.lookup_text("session_id", session_id),
            "hold_reason": None if reason is None else valid.identifier("reason", reason, _LIMITS.hold_reason),
            "updated_at": now,
            "at": now,
        }
        chain = update(_HOLD, versioned=False)
        self._chained(lambda unit: write_entry(unit, self._listeners, chain, values, _UPDATED), repeatable=True)
        return self.get(session_id)

    def delete(self, session_id: str) -> bool:
        """Delete a session permanently, with its branches, its feed, and orders and messages that nothing else uses.

        Shared data stay: an order that another session has, and a message that another order holds, a pointer names, or
        an open delivery refers to. The session's status history stays, as do vector chunks, which are derived data. A
        later import does not restore the session. Returns False if the session does not exist. Raises `Conflict`:
        ``not_ended`` while it is pending or running, ``held``, or ``forked`` while another session has forks of its
        branches.
        """
        found, now = valid.lookup_text("session_id", session_id), self._now()
        return self._writing(lambda unit: deleting.session(unit, found, now))


def insert_session(unit: Unit, listeners: Listeners, row: checks.SessionDraft) -> ConversationSession:
    """Insert a session, with a new message pool unless the row names one, and write its status history and feed.

    Raises `AlreadyExists`, and `NotFound` for an unknown pool.
    """
    named: Any = row["progression_id"]
    pool: str = new_id() if named is None else named
    if named is None:
        orders.create(unit, orders.fresh(pool, (row["created_at"], row["created_at_unix"])))
    else:
        orders.lock_orders(unit, [pool])
    values = {**row, "progression_id": pool, "at": row["created_at"]}
    made = write_entry(unit, listeners, INSERT, values, entry_parameters("session.created"))
    if made is None:
        raise AlreadyExists(words.SESSION, row["id"])
    if row["status"] is not None:
        why, seq, at = row["why"], made["transition_seq"], row["created_at"]
        statuses.record(unit, row["id"], row["status"], why, previous=None, seq=seq, at=at)
    if named is not None:
        sessions.refresh_ends(unit, pool)
    return _stored_session(unit, row["id"])


def _stored_session(unit: Unit, session_id: str) -> ConversationSession:
    [found] = unit.rows(GET, {"session_id": session_id})
    return found


def _differing_fields(stored: Mapping[str, Any], row: Mapping[str, Any], given: NewSession) -> list[str]:
    """Return the names of the fields that the caller gives and whose stored values differ."""
    times = [name for name, value in vars(given.times).items() if value is not None]
    named = ("name", "user", "progression_id", "status", *checks.BELONGS, *checks.PROVENANCE)
    texts = [name for name in named if row[name] not in (None, words.LIVE)]
    fields = [name for name in (*texts, *times) if stored[name] != row[name]]
    return fields + [
        name
        for name in ("node_metadata", "extra", "artifact_contract", "artifact_verification")
        if row[name] is not None and codec.canonical(stored[name]) != codec.canonical(codec.decode(row[name]))
    ]
