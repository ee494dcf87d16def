"""DOC-08, DOC-12, DOC-15, DOC-16 and DOC-17: rows that contradict other rows, each found by a statement."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from lastlight_state.clock import iso_text
from lastlight_state.conversations.tables import BRANCHES, LINKS, PROGRESSIONS
from lastlight_state.db.rows.statements import among, bind, constant, number, statement_of
from lastlight_state.journal.models import EVENTS, FRAMES, SIGNALS, TOOL_CALLS
from lastlight_state.maintenance.doctor import conversations, domains
from lastlight_state.maintenance.doctor.check import (
    Check,
    CheckContext,
    Fault,
    Finding,
    Snapshot,
    make_finding,
    of_faults,
    row_text,
)
from lastlight_state.maintenance.prune.kinds import RUNS_KIND
from lastlight_state.maintenance.upkeep.counters import COUNTERS, Counter
from lastlight_state.maintenance.upkeep.run_leases import LACKS_ITS_LEASE, RUNNING
from lastlight_state.messaging.models import MESSAGES, SESSIONS
from lastlight_state.migrations import read_state
from lastlight_state.receipts import models as receipt_words
from lastlight_state.receipts.models import PERMITS, RECEIPTS
from lastlight_state.workflows.shared.claims import LEASE_END
from lastlight_state.workflows.shared.executions import OVERSTATED
from lastlight_state.workflows.shared.workers import UNSERVED
from lastlight_state.workflows.tables import APPROVALS, EXECUTIONS, LEASES, REQUESTS, RUNS, TRANSITIONS, WORKERS
from lastlight_state.workflows.words import LIVE, TERMINAL
from lastlight_state.workflows.workers.waiting import waiting_workflows

ORPHANS, SEQUENCE, STUCK, AGREEMENT, LEFT = "DOC-08", "DOC-12", "DOC-15", "DOC-16", "DOC-17"

_PENDING = constant("pending")
_LATE = "pending, and its run has ended"
_NOW = bind("now", RUNS.c.updated_at)

_RAISE = "lastlight-state repair --counters"

#: The columns of the journal with numbers.
_NUMBERS = (EVENTS.c.seq, SIGNALS.c.seq, FRAMES.c.frame_no, TOOL_CALLS.c.seq)


def _exists(*conditions: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    return sa.exists(sa.select(number(1)).where(*conditions))


def _orphan(child: sa.Column[Any], parent: sa.Column[Any]) -> Fault:
    missing = sa.not_(_exists(parent == child))
    find = sa.select(child.label("key")).where(child.is_not(None), missing).distinct()
    message = f"rows name a row of {parent.table.name} that is not there"
    return Fault(ORPHANS, "error", child.table, message, find)


_ORPHANS = [*(_orphan(child, RUNS.c.id) for child in RUNS_KIND.children), _orphan(MESSAGES.c.session_id, SESSIONS.c.id)]


def _gap(seq: sa.Column[Any]) -> Fault:
    table: sa.Table = seq.table
    run_id = table.c.run_id
    span = sa.func.max(seq) - sa.func.min(seq) + number(1)
    find = sa.select(run_id).group_by(run_id).having(sa.func.count() != span)
    return Fault(SEQUENCE, "error", table, "numbers are missing between the first and the last of a run", find)


def _behind(counter: Counter) -> Fault:
    find = sa.select(counter.key).where(counter.own, counter.behind)
    message = f"{counter.name} is behind: the next number has been given already"
    return Fault(SEQUENCE, "error", counter.column.table, message, find, _RAISE)


_last_transition = sa.select(sa.func.max(TRANSITIONS.c.seq)).where(TRANSITIONS.c.run_id == RUNS.c.id).scalar_subquery()
_links = (
    sa.select(sa.func.count()).select_from(LINKS).where(LINKS.c.progression_id == PROGRESSIONS.c.id).scalar_subquery()
)
_outside = _exists(
    LINKS.c.progression_id == PROGRESSIONS.c.id,
    sa.or_(LINKS.c.ord < PROGRESSIONS.c.start_ord, LINKS.c.ord >= PROGRESSIONS.c.next_ord),
)
_frames = FRAMES.alias("all_frames")
_first_frame = sa.select(sa.func.min(_frames.c.frame_no)).where(_frames.c.run_id == FRAMES.c.run_id).scalar_subquery()
_SEQUENCES = [
    *map(_gap, _NUMBERS),
    *(_behind(counter) for counter in COUNTERS if counter.column is not PROGRESSIONS.c.next_ord),
    _gap(TRANSITIONS.c.seq),
    Fault(
        SEQUENCE,
        "error",
        FRAMES,
        "the first frame of a run is a change since one that is not there",
        sa.select(FRAMES.c.run_id, FRAMES.c.frame_no).where(
            FRAMES.c.encoding == constant("delta"), FRAMES.c.frame_no == _first_frame
        ),
    ),
    Fault(
        SEQUENCE,
        "error",
        RUNS,
        "transition_seq is beyond the number of the last transition",
        sa.select(RUNS.c.id).where(RUNS.c.transition_seq > sa.func.coalesce(_last_transition, number(0))),
    ),
    Fault(
        SEQUENCE,
        "error",
        PROGRESSIONS,
        "the positions of its links are not those from start_ord to before next_ord",
        sa.select(PROGRESSIONS.c.id).where(
            sa.or_(PROGRESSIONS.c.next_ord - PROGRESSIONS.c.start_ord != _links, _outside)
        ),
        _RAISE,
    ),
]


def _of_ended_run(table: sa.Table, run_id: sa.Column[Any]) -> sa.Select[Any]:
    ended = _exists(RUNS.c.id == run_id, among(RUNS.c.status, TERMINAL))
    return sa.select(table.c.id).where(table.c.status == _PENDING, ended)


_no_question = sa.and_(
    sa.not_(_exists(APPROVALS.c.workflow_run_id == RUNS.c.id, APPROVALS.c.status == _PENDING)),
    sa.not_(_exists(REQUESTS.c.run_id == RUNS.c.id, REQUESTS.c.status == _PENDING)),
)
_STUCK = [
    Fault(
        STUCK,
        "warning",
        RUNS,
        "running, and the lease of its worker is over: a worker takes it with `claims.take_next`",
        sa.select(RUNS.c.id).where(RUNS.c.status == constant("running"), LEASE_END < _NOW),
    ),
    Fault(
        STUCK,
        "warning",
        RUNS,
        "paused for a question, and none is pending",
        sa.select(RUNS.c.id).where(
            RUNS.c.status == constant("paused"), RUNS.c.pause_reason == constant("gate"), _no_question
        ),
    ),
    Fault(STUCK, "warning", APPROVALS, _LATE, _of_ended_run(APPROVALS, APPROVALS.c.workflow_run_id)),
    Fault(STUCK, "warning", REQUESTS, _LATE, _of_ended_run(REQUESTS, REQUESTS.c.run_id)),
    Fault(
        STUCK,
        "info",
        APPROVALS,
        "pending past its time: `approvals.expire_due` ends it",
        sa.select(APPROVALS.c.id).where(APPROVALS.c.status == _PENDING, APPROVALS.c.expires_at < _NOW),
    ),
    Fault(
        STUCK,
        "info",
        REQUESTS,
        "pending past its time: `human_requests.expire_due` ends it",
        sa.select(REQUESTS.c.id).where(REQUESTS.c.status == _PENDING, REQUESTS.c.expires_at < _NOW),
    ),
    Fault(
        STUCK,
        "info",
        WORKERS,
        "workers that ended without a word: killed, or long cut off from the database",
        sa.select(WORKERS.c.name).where(WORKERS.c.expires_at < bind("now", WORKERS.c.expires_at)),
        "lastlight-state prune --kind workers",
    ),
    *domains.STUCKS,
]


def _find_waiting_workflows(look: CheckContext, snapshot: Snapshot) -> Iterator[Finding]:
    """Find workflows whose runs no worker claims."""
    if not {RUNS.name, WORKERS.name, LEASES.name} <= snapshot.tables:
        return
    told: dict[str, list[str]] = {"warning": [], "info": []}
    for one in waiting_workflows(snapshot.unit, look.now):
        runs = f"{one.runs} {'run' if one.runs == 1 else 'runs'} since {iso_text(one.since)}"
        told["warning" if one.reason in UNSERVED else "info"].append(f"{one.workflow_name}: {runs}, {one.why}")
    for severity, samples in told.items():
        if samples:
            message = "runs wait for a worker for more than a minute: is it down, or its workflow misspelt?"
            busy = "runs wait for a worker for more than a minute"
            yield make_finding(STUCK, severity, str(WORKERS.name), message if severity == "warning" else busy, samples)


#: Triggers maintain `run_leases`. It differs only if somebody switches the triggers off or writes its rows.
_LEASES = [
    Fault(
        AGREEMENT,
        "error",
        RUNS,
        "running, and its row in run_leases is missing or does not fit: only `claims.take` by its id finds it in time",
        sa.select(RUNS.c.id).where(LACKS_ITS_LEASE),
        _RAISE,
    ),
    Fault(
        AGREEMENT,
        "warning",
        LEASES,
        "of a run that is not running: remove these rows",
        sa.select(LEASES.c.run_id).where(sa.not_(_exists(RUNS.c.id == LEASES.c.run_id, RUNNING))),
    ),
]

_parent, _order, _inherited = BRANCHES.alias("parent"), PROGRESSIONS.alias("own"), PROGRESSIONS.alias("inherited")
_forks = BRANCHES.join(_parent, _parent.c.id == BRANCHES.c.parent_branch_id)
_AGREEMENT = [
    Fault(
        AGREEMENT,
        "error",
        RUNS,
        "the status is not the one that the last transition led to",
        sa.select(RUNS.c.id, RUNS.c.status, TRANSITIONS.c.to_status)
        .join(TRANSITIONS, sa.and_(TRANSITIONS.c.run_id == RUNS.c.id, TRANSITIONS.c.seq == RUNS.c.transition_seq))
        .where(TRANSITIONS.c.to_status != RUNS.c.status),
    ),
    Fault(
        AGREEMENT,
        "warning",
        RUNS,
        "live, and restarted more often than its limit permits",
        sa.select(RUNS.c.id).where(among(RUNS.c.status, LIVE), RUNS.c.restart_count > RUNS.c.max_restarts),
    ),
    Fault(
        AGREEMENT,
        "warning",
        EXECUTIONS,
        "tokens or costs beyond what an execution can use: they count nothing in totals",
        sa.select(EXECUTIONS.c.id).where(OVERSTATED),
    ),
    Fault(
        AGREEMENT,
        "error",
        BRANCHES,
        "fork_depth is not one more than that of its parent, as in a circle of parents",
        sa.select(BRANCHES.c.id).select_from(_forks).where(BRANCHES.c.fork_depth != _parent.c.fork_depth + number(1)),
    ),
    Fault(
        AGREEMENT,
        "error",
        BRANCHES,
        "forked_at_ord is past the end of its parent's history, or not where its own order begins",
        sa.select(BRANCHES.c.id)
        .select_from(
            _forks.join(_order, _order.c.id == BRANCHES.c.progression_id).join(
                _inherited, _inherited.c.id == _parent.c.progression_id
            )
        )
        .where(
            sa.or_(BRANCHES.c.forked_at_ord > _inherited.c.next_ord, BRANCHES.c.forked_at_ord != _order.c.start_ord)
        ),
    ),
]

_SILENT = sa.select(RECEIPTS.c.id).where(
    RECEIPTS.c.state == constant("running"), RECEIPTS.c.updated_at <= bind("silent", RECEIPTS.c.updated_at)
)


def _find_leftovers(look: CheckContext, snapshot: Snapshot) -> Iterator[Finding]:
    if RECEIPTS.name in snapshot.tables:
        values = {"silent": look.now - receipt_words.SILENCE}
        silent = [row_text(row) for row in snapshot.unit.rows(statement_of(_SILENT), values)]
        if silent:
            message = "work is marked as running, and its owner has been silent for ten minutes"
            remedy = f"lastlight-state prune --resume {silent[0]}"
            yield make_finding(LEFT, "warning", str(RECEIPTS.name), message, silent, remedy)
        permits = [row_text(row) for row in snapshot.unit.rows(statement_of(sa.select(PERMITS.c.receipt_id)))]
        if permits:
            yield make_finding(
                LEFT, "error", str(PERMITS.name), "leave to delete was committed: remove these rows", permits
            )
    if read_state(look.backend).unfinished_copy:
        yield make_finding(LEFT, "error", "copy", "a copy into this database was begun and has not ended", ["copy"])


CHECKS = (
    of_faults(ORPHANS, [*_ORPHANS, domains.UNKNOWN], conversations.orphans),
    of_faults(SEQUENCE, [*_SEQUENCES, *conversations.SEQUENCES, *domains.SEQUENCES], domains.numbers),
    of_faults(
        STUCK,
        [*_STUCK, *conversations.STUCKS],
        _find_waiting_workflows,
        conversations.silent,
        domains.find_stuck_crons,
        domains.idle,
        domains.claims,
    ),
    of_faults(AGREEMENT, [*_AGREEMENT, *_LEASES, *domains.AGREEMENTS, *conversations.AGREEMENTS]),
    Check(LEFT, rows=_find_leftovers),
)
