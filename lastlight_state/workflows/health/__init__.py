"""Health: the state of runs at this moment, derived from one snapshot. Writes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from lastlight_state.db import valid
from lastlight_state.db.records import Page
from lastlight_state.db.repository import Repository
from lastlight_state.db.statements import RowT
from lastlight_state.db.unit import Found, Unit
from lastlight_state.db.windows import damaged_row
from lastlight_state.errors import CorruptData
from lastlight_state.workflows import checks as shared, words
from lastlight_state.workflows.arguments import NodeRef
from lastlight_state.workflows.health import statements as sql
from lastlight_state.workflows.health.records import RunState, UnhealthyRun
from lastlight_state.workflows.health.state import Facts, OwnerAlive, PendingQuestions, derive
from lastlight_state.workflows.health.statements import EarliestRow, JudgedRow

_LIVE = {"statuses": list(words.LIVE)}


class Health(Repository):
    """``store.workflows.health``"""

    def get_state(self, run_id: str, *, owner_alive: OwnerAlive | None = None) -> RunState:
        """The state of a run, what it waits for, and what is wrong with it.

        ``owner_alive(owner)`` is called for an owner whose lease is over, for programs that can look at its process. No
        transaction is open meanwhile, unless the caller has opened one. Raises `NotFound`, `CorruptData`.
        """
        now = self._now()

        def work(unit: Unit) -> Facts | CorruptData | None:
            row = unit.row(sql.ONE, {"run_id": run_id})
            return None if row is None else _facts(unit, [row])[0]

        facts = self._viewing(work)
        if facts is None:
            raise valid.not_found("workflow_run", run_id)
        if isinstance(facts, CorruptData):
            raise facts
        return derive(facts, now, owner_alive)

    def list_unhealthy(
        self, *, workflow_names: Sequence[str] | None = None, limit: int = 50, page_token: str | None = None
    ) -> Page[UnhealthyRun]:
        """The unhealthy runs among the next ``limit`` live runs, of all workflows or of these, newest first.

        A page looks at ``limit`` runs, so it may hold few or none of them although more follow: go on until there is no
        token. Ended runs are not read.
        """
        valid.page_limit(limit)
        given = {**_LIVE, "workflow_names": shared.some_workflows(workflow_names)}
        now = self._now()

        def work(unit: Unit) -> Page[UnhealthyRun]:
            page = sql.LIVE.page(unit, lambda row: row, limit=limit, page_token=page_token, given=given)
            found = [*zip(page.items, _facts(unit, page.items), strict=True)]
            judged = [_judged(row, facts, now) for row, facts in found if isinstance(facts, Facts)]
            damaged = [damaged_row(facts) for _, facts in found if isinstance(facts, CorruptData)]
            return Page(
                items=tuple(run for run in judged if run.state.unhealthy),
                next_page_token=page.next_page_token,
                damaged=(*page.damaged, *damaged),
            )

        return self._viewing(work)


def _facts(unit: Unit, rows: Sequence[JudgedRow]) -> list[Facts | CorruptData]:
    """Return the facts of at most 500 runs, in three statements for all; for a run that cannot be read, why."""
    if not rows:
        return []
    ids = [row["id"] for row in rows]
    damaged: dict[str, CorruptData] = {}
    questions: dict[str, tuple[PendingQuestions, ...]] = {}
    for family in sql.QUESTIONS:
        for found in _sound(unit.readable(*family.of(ids)), damaged):
            run_id = found["run_id"]
            questions[run_id] = (*questions.get(run_id, ()), _questions(found))
    silent = {row["run_id"]: row["silent_since"] for row in _sound(unit.readable(*sql.SILENT.of(ids)), damaged)}
    return [
        damaged.get(row["id"]) or _facts_of(row, silent.get(row["id"]), questions.get(row["id"], ())) for row in rows
    ]


def _facts_of(row: JudgedRow, silent_since: datetime | None, questions: tuple[PendingQuestions, ...]) -> Facts:
    return Facts(
        status=row["status"],
        workflow_name=row["workflow_name"],
        started_at=row["started_at"],
        updated_at=row["updated_at"],
        transition_seq=row["transition_seq"],
        restart_count=row["restart_count"],
        max_restarts=row["max_restarts"],
        claim_owner=row["claim_owner"],
        lease_expires_at=row["lease_expires_at"],
        wake_at=row["wake_at"],
        pause_reason=row["pause_reason"],
        waiting_for=row["waiting_for"],
        correlation_id=row["correlation_id"],
        cancel_requested_at=row["cancel_requested_at"],
        deadline_at=row["deadline_at"],
        queued_at=row["queued_at"],
        status_since=row["status_since"],
        disabled_since=row["disabled_since"],
        silent_since=silent_since,
        questions=questions,
    )


def _sound(found: Found[RowT], damaged: dict[str, CorruptData]) -> Iterator[RowT]:
    """Return the rows that can be read. The others are noted with their run."""
    for at, row in enumerate(found.rows):
        if isinstance(row, CorruptData):
            for run_id in found.columns(at, ["run_id"]) or ():
                damaged[run_id] = row
        else:
            yield row


def _questions(found: EarliestRow) -> PendingQuestions:
    return PendingQuestions(
        kind=found["kind"],
        id=found["id"],
        node=None if found["node_id"] is None else NodeRef(found["node_id"], found["iteration"]),
        label=found["label"],
        asked_at=found["asked_at"],
        expires_at=found["expires_at"],
        count=found["count"],
        first_expiry=found["first_expiry"],
    )


def _judged(row: JudgedRow, facts: Facts, now: datetime) -> UnhealthyRun:
    return UnhealthyRun(
        id=row["id"],
        workflow_name=row["workflow_name"],
        trigger_id=row["trigger_id"],
        started_at=row["started_at"],
        state=derive(facts, now),
    )
