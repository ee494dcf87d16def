"""Workers: processes that drive runs of their workflows and report to the database while they look for work.

A worker reports the workflows that it serves when it begins, and again while it looks for work. The claims record which
runs it drives. A program that takes runs without reporting is not in these lists, but the runs that it holds are known.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from datetime import datetime
from functools import partial

import sqlalchemy as sa

from lastlight_state import codec
from lastlight_state.clock import to_millis
from lastlight_state.db import valid
from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.repository import Repository
from lastlight_state.db.rows.records import Page, with_values
from lastlight_state.db.rows.statements import Family, Row, constant, every_column_of, statement_of
from lastlight_state.db.rows.writes import upsert
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.workflows import checks
from lastlight_state.workflows.shared.run_rows import through_live_index
from lastlight_state.workflows.shared.workers import PATIENCE
from lastlight_state.workflows.tables import RUNS, WORKERS
from lastlight_state.workflows.workers.records import WaitingWorkflow, WorkerStatus
from lastlight_state.workflows.workers.waiting import waiting_workflows

_LIMITS = limits_of(WORKERS)

_COLUMNS = every_column_of(WorkerStatus, WORKERS)
_this = WORKERS.c.name == sa.bindparam("name")

ANNOUNCE = statement_of(
    upsert(
        WORKERS,
        tuple(column.name for column in _COLUMNS),
        key=("name",),
        replacing=lambda new: {
            **{column.name: new[column.name] for column in _COLUMNS if column.name != "name"},
            "started_at": sa.case(
                (sa.and_(WORKERS.c.host == new.host, WORKERS.c.pid == new.pid), WORKERS.c.started_at),
                else_=new.started_at,
            ),
        },
    )
)
FIND = statement_of(sa.select(*_COLUMNS).where(_this), WorkerStatus)
REMOVE = statement_of(sa.delete(WORKERS).where(_this))
LIST = Listing("workflow_workers", _COLUMNS, order=(WORKERS.c.name,), descending=False, row=WorkerStatus)


def _driven(names: Sequence[sa.BindParameter[str]]) -> sa.Executable:
    found = through_live_index(sa.select(RUNS.c.id, RUNS.c.claim_owner))
    return found.where(RUNS.c.status == constant("running"), RUNS.c.claim_owner.in_(names)).order_by(RUNS.c.id)


#: The runs that these workers hold.
DRIVEN: Family[tuple[str, str]] = Family("owner", _driven, tuple)


class Workers(Repository):
    """``store.workflows.workers``: report, list and remove workers, and list workflows that wait for one."""

    def announce(
        self, name: str, *, workflow_names: Sequence[str], slots: int = 1, app_versions: Sequence[str] | None = None
    ) -> None:
        """Report that this process drives runs of these workflows, at most ``slots`` at a time, under ``name``.

        ``name`` is the ``owner`` of its claims. Call this when the process begins, and again while it looks for work:
        90 seconds after the last call the worker counts as ended. A `Worker` calls this by itself.
        """
        now = self._now()
        values: Row = {
            "name": valid.identifier("name", name, _LIMITS.name),
            "host": socket.gethostname()[: _LIMITS.host],
            "pid": os.getpid(),
            "slots": valid.number("slots", slots, least=1),
            "started_at": now,
            "seen_at": now,
            "expires_at": to_millis(now + PATIENCE),
            "workflow_names": _list("workflow_names", checks.several_workflows(workflow_names)),
            "app_versions": _list("app_versions", checks.some_versions(app_versions)),
        }
        self._once(lambda unit: unit.rows(ANNOUNCE, values), repeatable=True)

    def remove(self, name: str) -> bool:
        """Delete the row of a worker that has ended. Returns false if there was no worker of this name."""
        values = {"name": valid.lookup_text("name", name)}
        return self._once(lambda unit: unit.change(REMOVE, values), repeatable=True) > 0

    def get(self, name: str) -> WorkerStatus:
        """Return the status of a worker, even one that counts as ended but was not removed. Raises `NotFound`."""
        values, now = {"name": valid.lookup_text("name", name)}, self._now()

        def work(unit: Unit) -> WorkerStatus | None:
            worker = unit.row(FIND, values)
            return None if worker is None else _at(worker, now, _held_by(unit, [name]))

        found = self._viewing(work)
        if found is None:
            raise valid.not_found("worker", name)
        return found

    def list(self, *, limit: int = 50, page_token: str | None = None) -> Page[WorkerStatus]:
        """Return a page of workers by name. It includes workers that count as ended but were not removed."""
        valid.page_limit(limit)
        now = self._now()

        def work(unit: Unit) -> Page[WorkerStatus]:
            page = LIST.page(unit, limit=limit, page_token=page_token)
            held = _held_by(unit, [worker.name for worker in page.items])
            items = tuple(_at(worker, now, held) for worker in page.items)
            return Page(items=items, next_page_token=page.next_page_token, damaged=page.damaged)

        return self._viewing(work)

    def list_waiting(self) -> tuple[WaitingWorkflow, ...]:
        """Return the workflows whose runs wait for a worker, the longest wait first.

        A run waits for a worker if it has been free for more than a minute: offered, due, abandoned by its holder, or
        queued while no worker serves its workflow. A workflow has one item for each reason why its runs wait.
        """
        return self._viewing(partial(waiting_workflows, now=self._now()))


def _list(name: str, values: Sequence[str] | None) -> str | None:
    """Encode the values as a sorted JSON array without duplicates. Return None for None."""
    most: int = getattr(_LIMITS, name)
    return None if values is None else codec.encode(name, sorted(set(values)), max_bytes=most)


def _held_by(unit: Unit, names: Sequence[str]) -> dict[str, list[str]]:
    held: dict[str, list[str]] = {name: [] for name in names}
    if names:
        statement, values = DRIVEN.of(names)
        for run_id, owner in unit.rows(statement, values):
            held[owner].append(run_id)
    return held


def _at(worker: WorkerStatus, now: datetime, held: dict[str, list[str]]) -> WorkerStatus:
    """Return the worker as it is now, with the runs that it holds."""
    return with_values(worker, run_ids=tuple(held[worker.name]), is_gone=worker.expires_at < now)
