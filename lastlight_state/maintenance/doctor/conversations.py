"""Checks of conversations: orphans, pointers, gaps, words, silent sessions, and contradicting rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import sqlalchemy as sa

from lastlight_state.conversations.arguments import Limits
from lastlight_state.conversations.shared.references import OWNING, REFERRING
from lastlight_state.conversations.shared.statuses import last_sign
from lastlight_state.conversations.state import derive_state
from lastlight_state.conversations.tables import (
    BRANCHES,
    CHANGES,
    DELIVERIES,
    LINKS,
    MESSAGES,
    PROGRESSIONS,
    SESSIONS,
    TRANSITIONS,
)
from lastlight_state.db.rows.statements import bind, constant, number, statement_of
from lastlight_state.maintenance.doctor.check import MOST, CheckContext, Fault, Finding, Snapshot, make_finding
from lastlight_state.maintenance.prune.sweeps.orphans import LEAST_DAYS
from lastlight_state.workflows.tables import RUNS

ORPHANS, POINTERS, SEQUENCE, STUCK, AGREEMENT = "DOC-08", "DOC-09", "DOC-12", "DOC-15", "DOC-16"

_s, _b, _m, _p, _l, _t = SESSIONS.c, BRANCHES.c, MESSAGES.c, PROGRESSIONS.c, LINKS.c, TRANSITIONS.c

#: How long a new row may be without an owner, because it may still get one.
_NEW = timedelta(days=LEAST_DAYS)
#: The health states of silent running sessions, and whether such a session may be ended.
_SILENT = {"process_dead": True, "orphaned": True, "stalled": False}
#: How long a session is silent before `reap` ends it by default.
_REAPED = timedelta(hours=24)


def _nowhere(*conditions: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    return sa.not_(sa.exists(sa.select(number(1)).where(*conditions)))


def _orphan_fault(table: sa.Table, message: str, referring: Iterable[sa.Column[Any]]) -> Fault:
    old = table.c.created_at < bind("now", table.c.created_at)
    find = sa.select(table.c.id).where(old, *(_nowhere(column == table.c.id) for column in referring))
    return Fault(
        ORPHANS, "info", table, message, find, f"lastlight-state prune --kind orphans --keep-days {LEAST_DAYS}"
    )


_UNOWNED = (
    _orphan_fault(MESSAGES, "no order, session, branch or inbox has them", REFERRING),
    _orphan_fault(PROGRESSIONS, "no session or branch has them", OWNING),
)


def orphans(look: CheckContext, snapshot: Snapshot) -> Iterator[Finding]:
    """Yield messages and orders without an owner. Only for a deep examination, because it reads every row."""
    before = CheckContext(look.backend, look.settings, look.now - _NEW, look.deep)
    for fault in _UNOWNED if look.deep and DELIVERIES.name in snapshot.tables else ():
        yield from fault.look(before, snapshot)


def _outside(pool: sa.Column[Any], pointer: sa.Column[Any], *conditions: sa.ColumnElement[bool]) -> Fault:
    table: sa.Table = pointer.table
    in_pool = (_l.progression_id == pool, _l.message_id == pointer)
    find = sa.select(table.c.id).where(pointer.is_not(None), *conditions, _nowhere(*in_pool))
    return Fault(POINTERS, "warning", table, f"{pointer.name} is not in the pool of the session", find)


_POINTERS = (
    _outside(_s.progression_id, _s.first_msg_id),
    _outside(_s.progression_id, _s.last_msg_id),
    #: A fork has its parent's system message. The parent may be in another session.
    _outside(_s.progression_id, _b.system_msg_id, _s.id == _b.session_id, _b.parent_branch_id.is_(None)),
    Fault(
        POINTERS,
        "info",
        SESSIONS,
        "workflow_run_id names a run that is not there",
        sa.select(_s.id, _s.workflow_run_id).where(
            _s.workflow_run_id.is_not(None), _nowhere(RUNS.c.id == _s.workflow_run_id)
        ),
    ),
)


def pointers(look: CheckContext, snapshot: Snapshot) -> Iterator[Finding]:
    """Yield findings about broken references in sessions and branches."""
    for fault in _POINTERS:
        yield from fault.look(look, snapshot)


def _gap(table: sa.Table) -> Fault:
    seq, session_id = table.c.seq, table.c.session_id
    span = sa.func.max(seq) - sa.func.min(seq) + number(1)
    find = sa.select(session_id).group_by(session_id).having(sa.func.count() != span)
    return Fault(SEQUENCE, "error", table, "numbers are missing between the first and the last of a session", find)


def _beyond(counter: sa.Column[Any], table: sa.Table) -> Fault:
    last = sa.select(sa.func.max(table.c.seq)).where(table.c.session_id == _s.id).scalar_subquery()
    message = f"{counter.name} is beyond the last number of {table.name}"
    return Fault(SEQUENCE, "error", SESSIONS, message, sa.select(_s.id).where(counter > last))


#: A trimmed feed begins at a later number, and may be empty.
SEQUENCES = (
    _gap(CHANGES),
    _gap(TRANSITIONS),
    _beyond(_s.change_seq, CHANGES),
    _beyond(_s.transition_seq, TRANSITIONS),
)

_last = TRANSITIONS.alias("last")
_last_seq = sa.select(sa.func.max(_t.seq)).where(_t.session_id == _s.id, _t.branch_id.is_(None)).scalar_subquery()
AGREEMENTS = (
    Fault(
        AGREEMENT,
        "error",
        SESSIONS,
        "the status is not the one that the last transition led to",
        sa.select(_s.id, _s.status, _last.c.status.label("last_status"))
        .select_from(SESSIONS.join(_last, sa.and_(_last.c.session_id == _s.id, _last.c.seq == _last_seq)))
        .where(_last.c.status != _s.status),
    ),
)


class RunningSession(NamedTuple):
    """A running session, with the columns that decide its health."""

    id: str
    status: str
    invocation_kind: str | None
    artifacts_path: str | None
    created_at: datetime
    started_at: datetime | None
    last_message_at: datetime | None
    heartbeat_at: datetime | None
    message_count: int


_size = sa.select(_p.next_ord - _p.start_ord).where(_p.id == _s.progression_id).scalar_subquery()
_RUNNING = statement_of(
    sa.select(
        *(_s[name] for name in "id status invocation_kind artifacts_path".split()),
        *(_s[name] for name in "created_at started_at last_message_at heartbeat_at".split()),
        _size.label("message_count"),
    )
    .where(_s.status == constant("running"))
    .order_by(_s.last_message_at.nulls_first(), _s.id)
    .limit(number(MOST)),
    RunningSession,
)


_d = DELIVERIES.c
#: Finds open deliveries that many readers took and none acknowledged.
STUCKS = (
    Fault(
        STUCK,
        "warning",
        DELIVERIES,
        "open, and taken more than 5 times",
        sa.select(_d.owner, _d.ord).where(_d.acked_at.is_(None), _d.takes > number(5)),
    ),
)


def silent(look: CheckContext, snapshot: Snapshot) -> Iterator[Finding]:
    """Yield findings for running sessions that have shown no sign of life within the default limits."""
    rows = snapshot.unit.readable_rows(_RUNNING)[0] if SESSIONS.name in snapshot.tables else []
    facts = {row.id: {**row._asdict(), "artifact_contract": None} for row in rows}
    health = {key: derive_state(given, look.now, Limits())["health"] for key, given in facts.items()}
    signs = {row.id: last_sign(row.created_at, row.started_at, row.last_message_at, row.heartbeat_at) for row in rows}
    for state, may_end in _SILENT.items():
        samples = [session_id for session_id, found_state in health.items() if found_state == state]
        if samples:
            remedy = _reap_command(look.now - max(signs[one] for one in samples)) if may_end else None
            yield make_finding(STUCK, "warning", str(SESSIONS.name), f"running, and {state}", samples, remedy)


def _reap_command(silence: timedelta) -> str:
    """Return the command that ends sessions that have shown no sign of life for this long."""
    if silence > _REAPED:
        return "lastlight-state reap"
    return f"lastlight-state reap --older-than {max(1, int(silence.total_seconds()) // 60)}m"
