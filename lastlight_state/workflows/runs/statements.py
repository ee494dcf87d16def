"""The SQL statements of `runs`, and the row of a new run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, TypedDict

import sqlalchemy as sa

from lastlight_state.db.lists.covering import Covering, NarrowIndex
from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.rows.statements import Family, Row, Statement, bind, columns_of, constant, number, statement_of
from lastlight_state.db.rows.writes import Chain, cache_statements
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import AlreadyExists, Conflict, NotFound, StateError
from lastlight_state.keys import compose_key
from lastlight_state.workflows import repos
from lastlight_state.workflows.checks import TriggerColumns
from lastlight_state.workflows.records import EnsuredRun, RunDetail, RunSummary, WorkflowRun
from lastlight_state.workflows.shared import run_rows
from lastlight_state.workflows.shared.executions import SUMS, of_runs
from lastlight_state.workflows.shared.run_rows import BY_LIVE_STATUS, DETAIL, NEW_COLUMNS, LockedRun, lock_statement
from lastlight_state.workflows.shared.transitions import transition_chain
from lastlight_state.workflows.tables import EXECUTIONS, OVERRIDES, RUNS, TRANSITIONS
from lastlight_state.workflows.words import GRACE, LIVE

_PARENT = RUNS.alias("parent")

_enabled = ~sa.exists().where(
    OVERRIDES.c.name == bind("workflow_name", RUNS.c.workflow_name), OVERRIDES.c.enabled == sa.false()
)
_parent_takes_children = sa.and_(
    _PARENT.c.id == bind("parent_run_id", RUNS.c.parent_run_id),
    _PARENT.c.status != constant("cancelled"),
    _PARENT.c.cancel_requested_at.is_(None),
)


@cache_statements
def create(names: frozenset[str]) -> Chain[WorkflowRun]:
    """Return the statement that inserts a run with these columns, and its first transition.

    It inserts nothing if the workflow is switched off, or if the parent is missing, cancelled or asked to cancel. It
    locks the parent's row, as a cancel does. So either a cancel of the tree finds the new child, or the insert finds
    the cancel. Each combination of columns has its own statement; columns not named keep their defaults.
    """
    stated = [column.name for column in RUNS.c if column.name in names]
    values = sa.select(*(bind(name, RUNS.c[name]) for name in stated)).where(_enabled)
    if "parent_run_id" in names:
        values = values.where(_parent_takes_children).with_for_update(key_share=True, of=_PARENT)
    head = sa.insert(RUNS).from_select(stated, values).returning(*NEW_COLUMNS)
    return transition_chain(head, WorkflowRun, from_status=sa.null())


class EndedRun(LockedRun):
    """A locked run that may be restarted."""

    workflow_name: str
    error: str | None


IS_DISABLED = statement_of(
    sa.select(OVERRIDES.c.name).where(
        OVERRIDES.c.name == sa.bindparam("workflow_name"), OVERRIDES.c.enabled == sa.false()
    )
)
#: A run with the states of its nodes, and the digest of what it was created with.
FIND_KEY = statement_of(
    sa.select(*DETAIL, RUNS.c.create_digest).where(
        RUNS.c.workflow_name == sa.bindparam("workflow_name"),
        RUNS.c.run_key == sa.bindparam("run_key"),
    )
)

#: Locks a run that may be restarted.
LOCK_ENDED = lock_statement(EndedRun)

SET_TRACE = statement_of(
    sa.update(RUNS)
    .where(RUNS.c.id == sa.bindparam("run_id"))
    .values(trace_id=sa.bindparam("trace_id"), span_id=sa.bindparam("span_id"))
)

#: Returns the epoch of the claim that ended a run.
ENDED_BY = statement_of(
    sa.select(TRANSITIONS.c.claim_epoch)
    .where(
        TRANSITIONS.c.run_id == sa.bindparam("run_id"),
        TRANSITIONS.c.to_status == sa.bindparam("status"),
        TRANSITIONS.c.from_status != TRANSITIONS.c.to_status,  # not a note
    )
    .order_by(TRANSITIONS.c.seq.desc())
    .limit(number(1))
)

#: The columns of a `RunSummary`, without its totals.
SUMMARY = columns_of(RunSummary, RUNS)

_newest = (RUNS.c.started_at, RUNS.c.id)

_BY_REPO = NarrowIndex("ix_workflow_runs_repo", ("owner", "repo"))

#: The covering index for lists of run summaries, for databases that keep large values inside the rows. Without these
#: filters no join is needed.
COVERED = Covering(
    "ix_workflow_runs_summary",
    ("started_at", "id"),
    {
        "workflow_names": NarrowIndex("idx_workflow_runs_name_started", ("workflow_name",)),
        "owned_repo": _BY_REPO,
        "owned_repos": _BY_REPO,
    },
)


def _run_listing(
    covering: Covering,
    *,
    leading: str | None = None,
    walked: Sequence[str] = (),
    always: Sequence[sa.ColumnElement[bool]] = (),
) -> Listing[RunSummary]:
    return Listing(
        "runs",
        SUMMARY,
        order=_newest,
        spread={"statuses": RUNS.c.status, "workflow_names": RUNS.c.workflow_name},
        worded=("statuses",),
        leading=leading,
        walked=walked,
        filters={
            "since": RUNS.c.started_at >= bind("since", RUNS.c.started_at),
            "until": RUNS.c.started_at < bind("until", RUNS.c.started_at),
            "triggered_by": RUNS.c.triggered_by == bind("triggered_by", RUNS.c.triggered_by),
            "bare_repo": repos.bare(RUNS),
        },
        either={"owned_repo": repos.spellings(RUNS)},
        several={"owned_repos": repos.either_spelling(RUNS), "any_repos": repos.any_spelling(RUNS)},
        always=always,
        through=covering.index,
        covering=covering,
        row=RunSummary,
    )


#: Runs in any status. A page by status of ended runs reads all runs from the newest on and skips others.
LIST = _run_listing(COVERED, walked=("statuses",))
#: Runs in live statuses only. Each status is one range of an index, so that ended runs cost nothing.
LIVE_LIST = _run_listing(replace(COVERED, found_by={"": BY_LIVE_STATUS}), leading="statuses")

#: Runs without a live status: ended runs, and runs in a status that this version does not know.
OTHERS_LIST = _run_listing(COVERED, always=(RUNS.c.status.not_in([constant(word) for word in LIVE]),))


def listing_of(chosen: Mapping[str, Any]) -> Listing[RunSummary]:
    """Return the list for these filters."""
    statuses = chosen.get("statuses")
    return LIST if statuses is None or not set(statuses) <= set(LIVE) else LIVE_LIST


def _totals(ids: Sequence[sa.BindParameter[Any]]) -> Statement:
    run_id = EXECUTIONS.c.workflow_run_id
    return Statement(*of_runs((run_id, *SUMS), run_id.in_(ids), by_run=True))


#: The sums of the executions of each run.
TOTALS = Family("run", _totals)

_children = sa.select(RUNS.c.id).where(RUNS.c.id == sa.bindparam("run_id")).cte("tree", recursive=True)
_tree = _children.union(sa.select(RUNS.c.id).where(RUNS.c.parent_run_id == _children.c.id))
#: A run and its descendants by ascending id. A cycle of parents ends, because UNION keeps each id once.
TREE = statement_of(sa.select(_tree.c.id).order_by(_tree.c.id))


class ProvenanceColumns(TypedDict):
    """The provenance of a run: its workflow's file, the code and the trace."""

    workflow_path: str | None
    workflow_hash: str | None
    vcs_type: str | None
    vcs_root: str | None
    vcs_revision: str | None
    app_version: str | None
    trace_id: str | None
    span_id: str | None


class RunFacts(TriggerColumns, ProvenanceColumns):
    """The facts that the creator of a run gives."""

    id: str
    workflow_name: str
    current_phase: str
    status: str
    context: str | None
    scratch: str | None
    parent_run_id: str | None
    max_restarts: int
    wake_at: datetime | None
    deadline_at: datetime | None


class NewRun(RunFacts):
    """The row of a new run. Columns that are not in it, or None, keep their defaults."""

    phase_history: str
    restart_count: int
    phase_count: int
    transition_seq: int
    claim_epoch: int
    status_reason: str
    started_at: datetime
    updated_at: datetime
    queued_at: datetime | None
    lease_expires_at: datetime | None
    run_key: str | None
    create_digest: str | None


def new_row(now: datetime, facts: RunFacts, *, offered: bool) -> NewRun:
    """Return the row of a new run. An ``offered`` or queued run gets no lease for its creator."""
    queued = facts["status"] == "queued"
    return {
        "phase_history": "[]",
        "restart_count": 0,
        "phase_count": 0,
        "transition_seq": 1,
        "claim_epoch": 0,
        "status_reason": "run.created",
        "started_at": now,
        "updated_at": now,
        "queued_at": now if queued else None,
        "lease_expires_at": None if queued or offered else now + GRACE,
        "run_key": None,
        "create_digest": None,
        **facts,
    }


def first_transition(row: NewRun) -> Row:
    """Return the parameters of the transition that records a run's creation."""
    return {
        "to_status": row["status"],
        "reason": row["status_reason"],
        "detail": None,
        "actor": row["triggered_by"],
        "source": "engine",
        "presented_epoch": None,
        "at": row["started_at"],
    }


# How runs are created, once per id or key, and the errors for a run that was not created.


def find_or_insert(unit: Unit, row: NewRun) -> EnsuredRun | None:
    """Find the run with the key of ``row``, or insert it.

    Return None if neither happened because the insert was refused.
    """
    unit.named_lock(compose_key("run_key", row["workflow_name"], str(row["run_key"]), by=":"))
    found = find(unit, row)
    if found is not None:
        return found
    made = insert(unit, row)
    return None if made is None else EnsuredRun.of({"run": made, "created": True})


def find(unit: Unit, row: NewRun) -> EnsuredRun | None:
    """Return the run with the key of ``row``, or None.

    Raises `AlreadyExists` if that run was created with other content.
    """
    found = unit.row(FIND_KEY, row)
    if found is None:
        return None
    if found.pop("create_digest") != row["create_digest"]:
        raise AlreadyExists(
            "workflow_run", found["id"], problem="has this key with another content", run_key=row["run_key"]
        )
    return EnsuredRun.of({"run": RunDetail.of(found), "created": False})


def insert(unit: Unit, row: NewRun) -> WorkflowRun | None:
    """Insert a run and return it as a read would return it. Return None if the statement inserted nothing."""
    stated = {name: value for name, value in row.items() if value is not None}
    return unit.chain(create(frozenset(stated)), stated | first_transition(row))


def refusal(unit: Unit, row: NewRun) -> StateError:
    """Return the error that explains why the statement inserted no run."""
    parent = row["parent_run_id"]
    if parent is None or unit.row(IS_DISABLED, row) is not None:
        return disabled_error(row["workflow_name"])
    if unit.row(run_rows.EXISTS, {"run_id": parent}) is None:
        return NotFound("workflow_run", parent, reason="given as parent")
    return Conflict(
        f"run {parent!r} is cancelled or was asked to be, and cannot get children",
        code="parent_cancelled",
        parent_run_id=parent,
    )


def disabled_error(workflow_name: str) -> Conflict:
    """Return the error for a workflow that is switched off."""
    return Conflict(
        f"workflow {workflow_name!r} is switched off", code="workflow_disabled", workflow_name=workflow_name
    )
