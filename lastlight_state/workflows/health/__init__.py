"""Health: the current state of runs, derived from one snapshot of the database. Writes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from lastlight_state.db import valid
from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.lists.pages import damaged_row
from lastlight_state.db.repository import Repository
from lastlight_state.db.rows.records import Page
from lastlight_state.db.rows.statements import Family, Row, RowT, constant, number, statement_of
from lastlight_state.db.schema.indexes import through
from lastlight_state.db.units.unit import FoundRows, Unit
from lastlight_state.errors import CorruptData
from lastlight_state.workflows import checks as shared, words
from lastlight_state.workflows.arguments import NodeRef
from lastlight_state.workflows.health.state import (
    Facts,
    OwnerAlive,
    PendingQuestions,
    RunState,
    UnhealthyRun,
    derive,
    waits_for_worker,
)
from lastlight_state.workflows.shared.claims import LEASE_END
from lastlight_state.workflows.shared.executions import IN_FLIGHT, label_of
from lastlight_state.workflows.shared.questions import is_pending
from lastlight_state.workflows.shared.run_rows import BY_LIVE_STATUS, live_covering
from lastlight_state.workflows.shared.workers import UNSERVED, Workforce, read_workforce
from lastlight_state.workflows.tables import APPROVALS, EXECUTIONS, OVERRIDES, REQUESTS, RUNS, TRANSITIONS

# The statements of `health`: they read the facts from which the state of one run or a page of runs is derived.


#: The columns of a run that its state is derived from.
STORED = (
    "status",
    "workflow_name",
    "started_at",
    "updated_at",
    "transition_seq",
    "restart_count",
    "max_restarts",
    "claim_owner",
    "lease_expires_at",
    "wake_at",
    "pause_reason",
    "waiting_for",
    "correlation_id",
    "cancel_requested_at",
    "deadline_at",
    "queued_at",
    "app_version",
)

_status_since = (
    sa.select(TRANSITIONS.c.at)
    .where(
        TRANSITIONS.c.run_id == RUNS.c.id,
        sa.or_(TRANSITIONS.c.from_status.is_(None), TRANSITIONS.c.from_status != TRANSITIONS.c.to_status),
    )
    .order_by(TRANSITIONS.c.seq.desc())
    .limit(number(1))
    .scalar_subquery()
    .label("status_since")
)
_disabled_since = (
    sa.select(OVERRIDES.c.updated_at)
    .where(OVERRIDES.c.name == RUNS.c.workflow_name, OVERRIDES.c.enabled == sa.false())
    .scalar_subquery()
    .label("disabled_since")
)
#: `updated_at` is in no index of live runs, and slow to read on SQLite. So it is read only for runs that need it:
#: running runs without a lease.
_has_no_lease = sa.and_(RUNS.c.status == constant("running"), RUNS.c.lease_expires_at.is_(None))
_READ = {
    "lease_expires_at": LEASE_END.label("lease_expires_at"),
    "updated_at": sa.case((_has_no_lease, RUNS.c.updated_at)).label("updated_at"),
}
_STORED = (_READ.get(name, RUNS.c[name]) for name in STORED)
_SHOWN: tuple[sa.ColumnElement[Any], ...] = (RUNS.c.id, RUNS.c.trigger_id, *_STORED, _status_since, _disabled_since)

ONE = statement_of(sa.select(*_SHOWN).where(RUNS.c.id == sa.bindparam("run_id")))
MANY = Family("run", lambda ids: sa.select(*_SHOWN).where(RUNS.c.id.in_(ids)))
#: Live runs: one range of an index for each live status, so ended runs cost nothing.
LIVE = Listing(
    "live_runs",
    _SHOWN,
    order=(RUNS.c.started_at, RUNS.c.id),
    spread={"statuses": RUNS.c.status, "workflow_names": RUNS.c.workflow_name},
    worded=("statuses",),
    leading="statuses",
    covering=live_covering(BY_LIVE_STATUS),
)


def _earliest(kind: str, run_id: sa.Column[str], asked_at: sa.Column[Any], name: sa.Column[Any], index: str) -> Family:
    table = run_id.table
    of_run: Mapping[str, Any] = {"partition_by": run_id}

    def select(ids: Sequence[sa.BindParameter[Any]]) -> sa.Select[Any]:
        placed = sa.select(
            run_id.label("run_id"),
            constant(kind).label("kind"),
            *(table.c[name] for name in ("id", "node_id", "iteration", "expires_at")),
            label_of(run_id, table.c.node_id, table.c.iteration),
            name.label("name"),
            asked_at.label("asked_at"),
            sa.func.count().over(**of_run).label("count"),
            sa.func.min(table.c.expires_at).over(**of_run).label("first_expiry"),
            sa.func.row_number().over(order_by=(asked_at, table.c.id), **of_run).label("place"),
        ).where(run_id.in_(ids), is_pending(table))
        found = through(placed, table, index).subquery()
        shown = (column for column in found.c if column.name != "place")
        return sa.select(*shown).where(found.c.place == number(1))

    return Family("run", select)


#: The first pending question of each run and the number of all, by kind.
QUESTIONS = (
    _earliest("approval", APPROVALS.c.workflow_run_id, APPROVALS.c.created_at, APPROVALS.c.gate, "ix_approvals_run"),
    _earliest(
        "human_request", REQUESTS.c.run_id, REQUESTS.c.requested_at, REQUESTS.c.node_id, "ix_human_requests_summary"
    ),
)

_last_sign = sa.func.coalesce(EXECUTIONS.c.heartbeat_at, EXECUTIONS.c.started_at)


def _silent(ids: Sequence[sa.BindParameter[Any]]) -> sa.Executable:
    run_id = EXECUTIONS.c.workflow_run_id
    oldest = sa.select(run_id.label("run_id"), sa.func.min(_last_sign).label("silent_since"))
    return through(oldest, EXECUTIONS, "ix_executions_signs").where(run_id.in_(ids), IN_FLIGHT).group_by(run_id)


#: The oldest last sign of life among the executions in flight of each run: a heartbeat, or else the start.
SILENT: Family[tuple[str, datetime]] = Family("run", _silent, tuple)


_LIVE = {"statuses": list(words.LIVE)}


class Health(Repository):
    """``store.workflows.health``: derive the current state of runs and list unhealthy ones."""

    def get_state(self, run_id: str, *, owner_alive: OwnerAlive | None = None) -> RunState:
        """Return the state of a run, what it waits for, and what is wrong with it.

        If the lease of the run's owner has expired, ``owner_alive(owner)`` is called: a program that can see the
        owner's process returns whether it is alive. No transaction is open during the call, unless the caller has
        opened one. Raises `NotFound`, `CorruptData`.
        """
        now = self._now()

        def work(unit: Unit) -> Facts | CorruptData | None:
            row = unit.row(ONE, {"run_id": run_id})
            return None if row is None else _facts(unit, [row], now)[0]

        facts = self._viewing(work)
        if facts is None:
            raise valid.not_found("workflow_run", run_id)
        if isinstance(facts, CorruptData):
            raise facts
        return derive(facts, now, owner_alive)

    def get_states(self, run_ids: Sequence[str]) -> dict[str, RunState]:
        """Return the states of up to 500 runs by id, as `get_state` returns each.

        Leaves out runs that do not exist or cannot be read.
        """
        ids = valid.several("run_ids", run_ids)
        valid.at_most("run_ids", ids, 500)
        sought = [valid.lookup_text("run_ids", run_id) for run_id in ids]
        now = self._now()

        def work(unit: Unit) -> dict[str, RunState]:
            rows = unit.without_damaged(unit.rows_or_errors(*MANY.of(sought)).rows)
            facts = zip(rows, _facts(unit, rows, now), strict=True)
            return {row["id"]: derive(found, now) for row, found in facts if isinstance(found, Facts)}

        return self._viewing(work) if sought else {}

    def list_unhealthy(
        self, *, workflow_names: Sequence[str] | None = None, limit: int = 50, page_token: str | None = None
    ) -> Page[UnhealthyRun]:
        """Return the unhealthy runs among the next ``limit`` live runs of ``workflow_names`` or of all, newest first.

        A page looks at ``limit`` runs, so it may be short or empty although more follow: go on until there is no page
        token. Ended runs are not read.
        """
        valid.page_limit(limit)
        given = {**_LIVE, "workflow_names": shared.some_workflows(workflow_names)}
        now = self._now()

        def work(unit: Unit) -> Page[UnhealthyRun]:
            page = LIVE.page(unit, limit=limit, page_token=page_token, given=given)
            found = [*zip(page.items, _facts(unit, page.items, now), strict=True)]
            judged = [_unhealthy_run(row, facts, now) for row, facts in found if isinstance(facts, Facts)]
            damaged = [damaged_row(facts) for _, facts in found if isinstance(facts, CorruptData)]
            return Page(
                items=tuple(run for run in judged if run.state.unhealthy),
                next_page_token=page.next_page_token,
                damaged=(*page.damaged, *damaged),
            )

        return self._viewing(work)


def _facts(unit: Unit, rows: Sequence[Row], now: datetime) -> list[Facts | CorruptData]:
    """Return the facts of at most 500 runs, in few statements for all; for a run that cannot be read, why."""
    if not rows:
        return []
    ids = [row["id"] for row in rows]
    damaged: dict[str, CorruptData] = {}
    questions: dict[str, tuple[PendingQuestions, ...]] = {}
    for family in QUESTIONS:
        for found in _sound(unit.rows_or_errors(*family.of(ids)), damaged):
            run_id = found["run_id"]
            questions[run_id] = (*questions.get(run_id, ()), _questions(found))
    silent = dict(_sound(unit.rows_or_errors(*SILENT.of(ids)), damaged))
    facts = [
        damaged.get(row["id"]) or _facts_of(row, silent.get(row["id"]), questions.get(row["id"], ())) for row in rows
    ]
    if not any(isinstance(one, Facts) and waits_for_worker(one, now) for one in facts):
        return facts
    force = read_workforce(unit, now)
    return [_with_shortage(one, force, now) if isinstance(one, Facts) else one for one in facts]


def _with_shortage(facts: Facts, force: Workforce, now: datetime) -> Facts:
    """Add to a run's facts the reason why no worker takes the run, if the run waits for a worker."""
    if not waits_for_worker(facts, now):
        return facts
    short = force.shortage(facts.workflow_name, facts.app_version)
    waits = facts.status != "queued" or short.reason in UNSERVED  # a queued run with a worker only waits for its turn
    return replace(facts, shortage=short) if waits else facts


def _facts_of(row: Row, silent_since: datetime | None, questions: tuple[PendingQuestions, ...]) -> Facts:
    stored = {name: row[name] for name in (*STORED, "status_since", "disabled_since")}
    return Facts(**stored, silent_since=silent_since, questions=questions)


def _sound(found: FoundRows[RowT], damaged: dict[str, CorruptData]) -> Iterator[RowT]:
    """Yield the rows that can be read. Put an error for each other row into ``damaged``, under its run id."""
    for at, row in enumerate(found.rows):
        if isinstance(row, CorruptData):
            for run_id in found.columns(at, ["run_id"]) or ():
                damaged[run_id] = row
        else:
            yield row


def _questions(found: Row) -> PendingQuestions:
    return PendingQuestions(
        kind=found["kind"],
        id=found["id"],
        node=None if found["node_id"] is None else NodeRef(found["node_id"], found["iteration"]),
        label=found["label"] or found["name"],
        asked_at=found["asked_at"],
        expires_at=found["expires_at"],
        count=found["count"],
        first_expiry=found["first_expiry"],
    )


def _unhealthy_run(row: Row, facts: Facts, now: datetime) -> UnhealthyRun:
    return UnhealthyRun(
        id=row["id"],
        workflow_name=row["workflow_name"],
        trigger_id=row["trigger_id"],
        started_at=row["started_at"],
        state=derive(facts, now),
    )
