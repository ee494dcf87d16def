"""Health: the state of runs at this moment, derived from one snapshot. Writes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from lastlight_state.db import valid
from lastlight_state.db.records import Page
from lastlight_state.db.repository import Repository
from lastlight_state.db.unit import Found, Unit
from lastlight_state.db.windows import damaged_row
from lastlight_state.errors import CorruptData
from lastlight_state.workflows import checks as shared, words
from lastlight_state.workflows.arguments import NodeRef
from lastlight_state.workflows.health import statements as sql
from lastlight_state.workflows.health.records import RunState, UnhealthyRun
from lastlight_state.workflows.health.state import Facts, OwnerAlive, PendingQuestions, derive

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
            page = sql.LIVE.page(unit, dict, limit=limit, page_token=page_token, given=given)
            found = [*zip(page.items, _facts(unit, page.items), strict=True)]
            judged = [_judged(row, facts, now) for row, facts in found if isinstance(facts, Facts)]
            damaged = [damaged_row(facts) for _, facts in found if isinstance(facts, CorruptData)]
            return Page(
                items=tuple(run for run in judged if run.state.unhealthy),
                next_page_token=page.next_page_token,
                damaged=(*page.damaged, *damaged),
            )

        return self._viewing(work)


def _facts(unit: Unit, rows: Sequence[dict[str, Any]]) -> list[Facts | CorruptData]:
    """The facts of at most 500 runs, with three more statements for all of them; or which of them cannot be read."""
    if not rows:
        return []
    ids = [row["id"] for row in rows]
    damaged: dict[str, CorruptData] = {}
    questions: dict[str, tuple[PendingQuestions, ...]] = {}
    for family in sql.QUESTIONS:
        for found in _sound(unit.readable(*family.of(ids)), damaged):
            run_id = found.pop("run_id")
            questions[run_id] = (*questions.get(run_id, ()), _questions(found))
    silent = {row["run_id"]: row["silent_since"] for row in _sound(unit.readable(*sql.SILENT.of(ids)), damaged)}
    names = (*sql.STORED, "status_since", "disabled_since")
    return [
        damaged.get(row["id"])
        or Facts(
            **{name: row[name] for name in names},
            silent_since=silent.get(row["id"]),
            questions=questions.get(row["id"], ()),
        )
        for row in rows
    ]


def _sound(found: Found, damaged: dict[str, CorruptData]) -> Iterator[dict[str, Any]]:
    """The rows that can be read. The others are noted with their run."""
    for at, row in enumerate(found.rows):
        if isinstance(row, CorruptData):
            for run_id in found.columns(at, ["run_id"]) or ():
                damaged[run_id] = row
        else:
            yield row


def _questions(found: dict[str, Any]) -> PendingQuestions:
    node_id, iteration = found.pop("node_id"), found.pop("iteration")
    return PendingQuestions(node=None if node_id is None else NodeRef(node_id, iteration), **found)


def _judged(row: dict[str, Any], facts: Facts, now: datetime) -> UnhealthyRun:
    shown = {name: row[name] for name in ("id", "workflow_name", "trigger_id", "started_at")}
    return UnhealthyRun(**shown, state=derive(facts, now))
