"""The only code that changes the status of a session or branch. It runs under the session's row lock.

The status change, its row in the history and its feed entry are written in one transaction.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple, TypedDict

import sqlalchemy as sa

from lastlight_state import codec
from lastlight_state.conversations import checks, words
from lastlight_state.conversations.arguments import Reason
from lastlight_state.conversations.lifecycle_records import Transition
from lastlight_state.conversations.shared.feeds import entry_parameters, feed_chain, write_entry
from lastlight_state.conversations.shared.sessions import MOVED
from lastlight_state.conversations.tables import BRANCHES, SESSIONS, TRANSITIONS
from lastlight_state.db import valid
from lastlight_state.db.news.listeners import Listeners
from lastlight_state.db.rows.statements import Values, bind, every_column_of, number, statement_of
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.ids import new_id

_LIMITS = limits_of(TRANSITIONS)


class HeldSession(NamedTuple):
    """A session as a unit that locks it finds it."""

    id: str
    status: str | None
    transition_seq: int
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    ended_at_is_approximate: bool
    last_message_at: datetime | None
    owner: str | None
    heartbeat_at: datetime | None

    @property
    def last_sign(self) -> datetime:
        """Return when the session gave its last sign of life, its creation at least."""
        return last_sign(self.created_at, self.started_at, self.last_message_at, self.heartbeat_at)


class HeldBranch(NamedTuple):
    """A branch of a session that is locked."""

    id: str
    session_id: str
    status: str | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


class StatusReason(TypedDict):
    """Why a status changes, as statements name it."""

    reason_code: str | None
    reason_summary: str | None
    evidence: str | None
    source: str
    actor: str | None


_s, _b, _t = SESSIONS.c, BRANCHES.c, TRANSITIONS.c
#: The columns of a `Transition`.
COLUMNS = every_column_of(Transition, TRANSITIONS)
_THIS = _s.id == bind("session_id", _s.id)

#: The session columns that a change of status sets besides the status itself.
_SET = (
    "status_reason",
    "started_at",
    "ended_at",
    "ended_at_is_approximate",
    "last_message_at",
    "owner",
    "heartbeat_at",
)
_TIMES = ("started_at", "ended_at")

LOCK = statement_of(
    sa.select(
        _s.id, _s.status, _s.transition_seq, _s.created_at, *(_s[name] for name in _SET if name != "status_reason")
    )
    .where(_THIS)
    .with_for_update(),
    HeldSession,
)
#: Needs no lock of its own: a branch's status changes only under its session's lock.
BRANCH = statement_of(
    sa.select(_b.id, _b.session_id, _b.status, _b.created_at, *(_b[name] for name in _TIMES)).where(
        _b.id == bind("branch_id", _b.id)
    ),
    HeldBranch,
)
_COUNTED = {"transition_seq": _s.transition_seq + number(1), **MOVED}
_MOVE = feed_chain(
    sa.update(SESSIONS)
    .where(_THIS)
    .values(status=bind("to", _s.status), **{name: bind(name, _s[name]) for name in _SET}, **_COUNTED)
    .returning(_s.id, _s.change_seq)
)
_COUNT = feed_chain(sa.update(SESSIONS).where(_THIS).values(**_COUNTED).returning(_s.id, _s.change_seq))
_MOVE_BRANCH = statement_of(
    sa.update(BRANCHES)
    .where(_b.id == bind("branch_id", _b.id))
    .values(status=bind("to", _b.status), **{name: bind(name, _b[name]) for name in _TIMES})
)
_RECORD = statement_of(
    sa.insert(TRANSITIONS).values({column.name: bind(column.name, column) for column in _t}).returning(*COLUMNS),
    Transition,
)


def reason(where: str, given: Any, status: str | None) -> StatusReason:
    """Check a caller's reason for a status change, and return its columns. The default code is the status's usual one.

    Raises `InvalidValue`.
    """
    why = valid.argument_group(where, given, Reason)
    code = words.USUAL_REASONS.get(status or "") if why.code is None else why.code
    evidence = why.evidence
    return {
        "reason_code": None if code is None else valid.word(f"{where}.code", code, words.REASONS),
        "reason_summary": valid.optional_content(f"{where}.summary", why.summary, _LIMITS.reason_summary),
        "evidence": None
        if evidence is None
        else codec.encode(f"{where}.evidence", evidence, max_bytes=_LIMITS.evidence),
        "source": valid.word(f"{where}.source", why.source, words.SOURCES),
        "actor": checks.name(f"{where}.actor", why.actor, _LIMITS.actor),
    }


def move(
    unit: Unit,
    listeners: Listeners,
    row: HeldSession,
    to: str,
    why: StatusReason,
    at: datetime,
    *,
    transition_id: str | None = None,
    **sets: Any,
) -> Transition:
    """Give the locked session ``row`` another status. ``sets`` are columns that this change sets."""
    values = {**row._asdict(), **_consequences(row, to, at), "status_reason": why["reason_code"], **sets}
    told = entry_parameters("status.changed", details={"from": row.status, "to": to})
    write_entry(unit, listeners, _MOVE, {**values, "session_id": row.id, "to": to, "at": at}, told)
    seq = row.transition_seq + 1
    return record(unit, row.id, to, why, previous=row.status, seq=seq, at=at, transition_id=transition_id)


def retire(
    unit: Unit, listeners: Listeners, row: HeldSession, to: str, why: StatusReason, at: datetime, *, seen: datetime
) -> Transition | None:
    """End the locked session ``row`` at its last sign of life, if that is still the one seen and it is running."""
    if row.status != words.RUNNING or row.last_sign != seen:
        return None
    return move(unit, listeners, row, to, why, at, ended_at=seen, ended_at_is_approximate=True)


def last_sign(created_at: datetime, *signs: datetime | None) -> datetime:
    """Return the last of these signs of life of a session, its creation at least."""
    return max([created_at, *(sign for sign in signs if sign is not None)])


def move_branch(
    unit: Unit,
    listeners: Listeners,
    row: HeldSession,
    branch: HeldBranch,
    to: str,
    why: StatusReason,
    at: datetime,
    **sets: Any,
) -> Transition:
    """Give a branch of the locked session ``row`` another status."""
    values = {**branch._asdict(), **_ends(branch, to, at), **sets}
    unit.change(_MOVE_BRANCH, {**values, "branch_id": branch.id, "to": to})
    told = entry_parameters("status.changed", branch_id=branch.id, details={"from": branch.status, "to": to})
    write_entry(unit, listeners, _COUNT, {"session_id": row.id, "at": at}, told)
    seq = row.transition_seq + 1
    return record(unit, row.id, to, why, previous=branch.status, seq=seq, at=at, branch_id=branch.id)


def record(
    unit: Unit,
    session_id: str,
    status: str,
    why: StatusReason,
    *,
    previous: str | None,
    seq: int,
    at: datetime,
    branch_id: str | None = None,
    transition_id: str | None = None,
) -> Transition:
    """Insert the history row of a status change. If ``transition_id`` is None, a new id is made."""
    values = {
        "id": new_id() if transition_id is None else transition_id,
        "session_id": session_id,
        "branch_id": branch_id,
        "seq": seq,
        "previous_status": previous,
        "status": status,
        "created_at": at,
        **why,
    }
    [recorded] = unit.rows(_RECORD, values)
    return recorded


def _consequences(row: HeldSession, to: str, at: datetime) -> Values:
    """Return the other columns that change with a session's status. Becoming running counts as activity."""
    if to != words.RUNNING:
        return {**_ends(row, to, at), "ended_at_is_approximate": False}
    last = row.last_message_at
    alive = {"last_message_at": at if last is None else max(last, at), "owner": None, "heartbeat_at": None}
    return {**_ends(row, to, at), **alive, "ended_at_is_approximate": False}


def _ends(row: HeldSession | HeldBranch, to: str, at: datetime) -> Values:
    started = row.started_at or (at if to == words.RUNNING else None)
    return {"started_at": started, "ended_at": at if to in words.TERMINAL else None}
