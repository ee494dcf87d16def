"""Checks of mailboxes, checkpoint threads, chats and schedules."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta

import sqlalchemy as sa

from lastlight_state.checkpoints.models import VALUES
from lastlight_state.db.rows.statements import bind, constant, number, statement_of
from lastlight_state.errors import StateError
from lastlight_state.files.agent_log.paths import is_safe_id
from lastlight_state.files.mailbox import Mailboxes, MailboxInfo
from lastlight_state.files.mailbox.arguments import DEFAULT_POLICY
from lastlight_state.files.mailbox.folder import INBOUND_DB
from lastlight_state.files.mailbox.shared.files import deadline
from lastlight_state.maintenance.doctor.check import (
    MOST,
    CheckContext,
    Fault,
    Finding,
    Snapshot,
    every,
    make_finding,
    row_text,
)
from lastlight_state.messaging.models import MESSAGES, SESSIONS, is_active
from lastlight_state.schedules.crons.statements import IS_ON
from lastlight_state.schedules.fires.health import health
from lastlight_state.schedules.models import FIRES, IS_RUNNING, NEXT_RUN_AT, OVERRIDES, SCHEDULES, WITH_OVERRIDE

# Checks of mailboxes: wrong numbers, unreadable files, claims of dead agents.

SEQUENCE, MAILBOX_STUCK = "DOC-12", "DOC-15"

#: How many mailboxes are examined without ``deep``: those whose hosts wrote last.
NEWEST = 200


def numbers(look: CheckContext, _: Snapshot) -> Iterator[Finding]:
    """Find mailboxes that violate the rules for message numbers and series, or that cannot be read."""
    wrong: list[str] = []
    unreadable: list[str] = []
    mailboxes = _open_mailboxes(look)
    for info in _looked_at(mailboxes, look):
        name = f"{info.group}/{info.session}"
        try:
            with deadline(look.settings):
                told = mailboxes.host(info.group, info.session).verify()
        except StateError as error:
            unreadable.append(f"{name}: {error}"[:300])
        else:
            wrong += [f"{name} {one.file} {one.message_id}: {one.problem}" for one in told]
    if unreadable:
        yield make_finding(SEQUENCE, "error", "mailboxes", "mailboxes cannot be read", unreadable)
    if wrong:
        yield make_finding(SEQUENCE, "error", "mailboxes", "messages break the rules of their mailbox", wrong)


def claims(look: CheckContext, _: Snapshot) -> Iterator[Finding]:
    """Find messages that an agent claimed long ago and whose agent has shown no sign of life since."""
    stuck: list[str] = []
    mailboxes, before = _open_mailboxes(look), look.now - DEFAULT_POLICY.silent_after
    for info in _looked_at(mailboxes, look):
        if info.heartbeat_at is None or info.heartbeat_at < before:
            with suppress(StateError), deadline(look.settings):  # `numbers` reports unreadable mailboxes
                held = mailboxes.host(info.group, info.session).sweep.claims()
                old = [one.message_id for one in held if one.claimed_at is not None and one.claimed_at < before]
                stuck += [f"{info.group}/{info.session} {message_id}" for message_id in old]
    if stuck:
        message = "taken by an agent that gives no sign of life: the host's `sweep` gives them back"
        yield make_finding(MAILBOX_STUCK, "warning", "mailboxes", message, stuck)


def _open_mailboxes(look: CheckContext) -> Mailboxes:
    return Mailboxes(look.settings.mailboxes, settings=look.settings.model_copy(update={"read_only": True}))


def _looked_at(mailboxes: Mailboxes, look: CheckContext) -> list[MailboxInfo]:
    infos = list(every(mailboxes.list))
    return infos if look.deep else heapq.nlargest(NEWEST, infos, key=_write_time)


def _write_time(info: MailboxInfo) -> float:
    with suppress(OSError):  # vanished meanwhile
        return (info.path / INBOUND_DB).lstat().st_mtime
    return 0.0


# Checks of threads of checkpoints: values that cannot be rebuilt.

_SEQUENCE = "DOC-12"

_c, _base = VALUES.c, VALUES.alias("base")
#: How many numbers a value is after its last complete value. Clearing the lowest bit of it gives the number of the
#: base.
_behind = _c.number - _c.anchor


def _has_no_base(at: sa.ColumnElement[int]) -> sa.ColumnElement[bool]:
    line = (_base.c[name] == _c[name] for name in ("thread_id", "namespace", "channel"))
    there = sa.select(number(1)).where(*line, _base.c.number == at, _base.c.encoding != constant("same"))
    return sa.not_(sa.exists(there))


def _fault(encoding: str, at: sa.ColumnElement[int], message: str) -> Fault:
    find = sa.select(*VALUES.primary_key).where(_c.encoding == constant(encoding), _has_no_base(at))
    return Fault(_SEQUENCE, "error", VALUES, message, find)


SEQUENCES = (
    _fault(
        "change",
        _c.anchor + _behind.op("&")(_behind - number(1)),
        "a value is a change since one that is not there",
    ),
    _fault("same", _c.number, "a value is the same as one that is not there"),
)


# Checks of chat sessions: counts, places with two active sessions, idle sessions, unsafe log names.

LOGS, CHAT_STUCK, AGREEMENT = "DOC-10", "DOC-15", "DOC-16"

#: How long an active session is silent before it counts as idle.
_IDLE = timedelta(days=30)

_chat_sessions = SESSIONS.c
_PLACE = (
    _chat_sessions.platform,
    _chat_sessions.channel_id,
    sa.func.coalesce(_chat_sessions.thread_id, sa.literal_column("''")),
    _chat_sessions.user_id,
)
_message_count = (
    sa.select(sa.func.count()).select_from(MESSAGES).where(MESSAGES.c.session_id == _chat_sessions.id).scalar_subquery()
)

AGREEMENTS = (
    Fault(
        AGREEMENT,
        "warning",
        SESSIONS,
        "message_count is not the number of its messages",
        sa.select(_chat_sessions.id).where(_chat_sessions.message_count != _message_count),
    ),
    Fault(
        AGREEMENT,
        "error",
        SESSIONS,
        "a user has several active sessions in one place",
        sa.select(sa.func.min(_chat_sessions.id))
        .where(is_active())
        .group_by(*_PLACE)
        .having(sa.func.count() > number(1)),
    ),
    Fault(
        AGREEMENT,
        "info",
        SESSIONS,
        "retired as a duplicate when the database was migrated: its messages were not joined with the other one's",
        sa.select(_chat_sessions.id).where(_chat_sessions.deactivated_reason == constant("duplicate")),
    ),
)


_IDLING = Fault(
    CHAT_STUCK,
    "info",
    SESSIONS,
    "active, and silent for thirty days: `sessions.close_idle` ends it",
    sa.select(_chat_sessions.id).where(
        is_active(), _chat_sessions.last_activity_at < bind("now", _chat_sessions.last_activity_at)
    ),
)
_NAMING = statement_of(
    sa.select(_chat_sessions.id, _chat_sessions.agent_session_id)
    .where(_chat_sessions.agent_session_id.is_not(None))
    .order_by(_chat_sessions.last_activity_at.desc(), _chat_sessions.id.desc())
    .limit(number(MOST))
)


def idle(look: CheckContext, snapshot: Snapshot) -> Iterator[Finding]:
    """Yield a finding for active sessions without recent messages."""
    yield from _IDLING.look(CheckContext(look.backend, look.settings, look.now - _IDLE, look.deep), snapshot)


def unsafe_names(_: CheckContext, snapshot: Snapshot) -> Iterator[Finding]:
    """Yield a finding for agent session ids that cannot be file names of logs."""
    rows = snapshot.unit.rows(_NAMING) if SESSIONS.name in snapshot.tables else []
    unsafe = [row_text(row) for row in rows if not is_safe_id(row["agent_session_id"])]
    if unsafe:
        yield make_finding(LOGS, "warning", str(SESSIONS.name), "agent_session_id cannot be the name of a log", unsafe)


ORPHANS, STUCK = "DOC-08", "DOC-15"

#: How long a cron may be overdue before it is reported.
_LATE = timedelta(hours=1)
#: How many fires must fail in a row before it is reported.
_STREAK = 3
#: How many crons one health query reads.
_PIECE = 200


def _nowhere(named: sa.Column[str]) -> sa.ColumnElement[bool]:
    return sa.not_(sa.exists(sa.select(number(1)).where(named == OVERRIDES.c.name)))


#: Finds overrides of unknown crons. Crons may be kept elsewhere: then their fires show their names.
UNKNOWN = Fault(
    ORPHANS,
    "info",
    OVERRIDES,
    "no schedule has this name, and no cron of this name has fired",
    sa.select(OVERRIDES.c.name).where(_nowhere(SCHEDULES.c.name), _nowhere(FIRES.c.cron_name)),
)

STUCKS = (
    Fault(
        STUCK,
        "warning",
        FIRES,
        "running, and its lease is over: a scheduler takes it with `fires.take_stale`",
        sa.select(FIRES.c.id).where(IS_RUNNING, FIRES.c.lease_until < bind("now", FIRES.c.lease_until)),
    ),
    Fault(
        STUCK,
        "warning",
        SCHEDULES,
        "switched on, and cannot be planned: its error says why",
        sa.select(SCHEDULES.c.name)
        .select_from(WITH_OVERRIDE)
        .where(IS_ON, SCHEDULES.c.next_run_at.is_(None), SCHEDULES.c.planned_with.is_not(None)),
    ),
)

_OVERDUE = Fault(
    STUCK,
    "warning",
    SCHEDULES,
    "due for more than an hour: does a scheduler poll with `crons.take_due`?",
    sa.select(SCHEDULES.c.name)
    .select_from(WITH_OVERRIDE)
    .where(IS_ON, bind("now", SCHEDULES.c.next_run_at) > NEXT_RUN_AT),
)
_NAMES = statement_of(
    sa.select(SCHEDULES.c.name)
    .select_from(WITH_OVERRIDE)
    .where(IS_ON, SCHEDULES.c.error_json.is_not(None))
    .order_by(SCHEDULES.c.name)
    .limit(number(MOST))
)


def find_stuck_crons(look: CheckContext, snapshot: Snapshot) -> Iterator[Finding]:
    """Find crons that are long overdue, and crons that fail repeatedly."""
    if not {SCHEDULES.name, OVERRIDES.name, FIRES.name} <= snapshot.tables:
        return
    yield from _OVERDUE.look(CheckContext(look.backend, look.settings, look.now - _LATE, look.deep), snapshot)
    names = [row["name"] for row in snapshot.unit.rows(_NAMES)]
    failing = []
    for at in range(0, len(names), _PIECE):
        told = health(snapshot.unit, names[at : at + _PIECE])
        failing += [name for name, one in told.items() if one.failure_streak >= _STREAK]
    if failing:
        yield make_finding(
            STUCK, "warning", str(SCHEDULES.name), f"the last {_STREAK} fires or more have failed", failing
        )
