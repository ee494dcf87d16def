"""Claimable runs, the oldest sign of life first: running runs and due paused runs, merged.

Both are found by partial indexes that hold live runs only, so ended runs cost nothing, and sorted when asked for: an
index in the order of heartbeats would make every heartbeat write an entry in each index of the table on Postgres.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeAlias

import sqlalchemy as sa

from lastlight_state.db import pages
from lastlight_state.db.beside import Narrow
from lastlight_state.db.filtered import Filtered
from lastlight_state.db.records import Page
from lastlight_state.db.statements import number
from lastlight_state.db.unit import Unit
from lastlight_state.db.windows import Placed, Window, parted, placed, window
from lastlight_state.errors import CorruptData
from lastlight_state.workflows.arguments import Provenance
from lastlight_state.workflows.claims import kinds
from lastlight_state.workflows.claims.kinds import ABANDONED, DUE, KIND, OFFERED, PAUSED, RUNNING, SEEN, TAKEABLE
from lastlight_state.workflows.claims.records import ClaimableRun
from lastlight_state.workflows.kernel import live, sweeps
from lastlight_state.workflows.kernel.claims import KEPT
from lastlight_state.workflows.tables import RUNS

_PROVENANCE = tuple(Provenance.__dataclass_fields__)
_SHOWN = (
    RUNS.c.id,
    RUNS.c.workflow_name,
    RUNS.c.claim_epoch,
    RUNS.c.claim_owner,
    RUNS.c.previous_owner,
    RUNS.c.heartbeat_at,
    RUNS.c.restart_count,
    RUNS.c.max_restarts,
    RUNS.c.cancel_requested_at,
    *(RUNS.c[name] for name in _PROVENANCE),
)
#: The key of a claimable run.
_KEY = ("seen_at", "id")
_RUNNING = Narrow("ix_workflow_runs_running", ("workflow_name",), only=RUNNING)
_WAKE = Narrow("ix_workflow_runs_wake", ("workflow_name", "wake_at"), only=PAUSED)


#: The names of workflows to look at; None for all.
Names = Sequence[str] | None

_Read: TypeAlias = Callable[[Narrow, Sequence[Any], int], sa.Select[Any]]


def page(
    unit: Unit, now: dict[str, Any], grace: timedelta, names: Names, limit: int, page_token: str | None
) -> Page[ClaimableRun]:
    """A page of claimable runs, those at their restart limit included. ``now`` is `moment` with this ``grace``."""
    asked = ["claimable", grace.total_seconds(), names]
    found = _window(unit, LISTED, now, names, pages.key(asked, page_token, (datetime, str)), limit)
    items, damaged = parted(found.rows, _claimable)
    token = None if found.last is None else pages.encode_token(asked, found.last)
    return Page(items=items, next_page_token=token, damaged=damaged)


def candidates(unit: Unit, now: dict[str, Any], names: Names, after: list[Any] | None, limit: int) -> Window:
    """The next ``limit`` runs that may be taken, after this key."""
    return _window(unit, TAKEN_NEXT, now, names, after, limit)


def spent(unit: Unit, now: dict[str, Any], names: Names, limit: int) -> sweeps.Found:
    """The ids of the abandoned runs that nobody is to go on with, those that were silent for longest first."""
    statement, given = SPENT.of({"workflow_name": names}, False, limit)
    rows, in_all = unit.sound(statement, {**now, **given})
    return sweeps.Found([row["id"] for row in rows], in_all)


@dataclass(frozen=True)
class Claimable:
    """A run that `take_next` would take, of these workflows; None for all."""

    names: tuple[str, ...] | None

    def is_there(self, unit: Unit, now: datetime) -> bool:
        """Whether there is one at this moment."""
        at, last = kinds.moment(now), None
        while self.names != ():
            found = _window(unit, SOUND_NEXT, at, self.names, last, 1)
            if any(not isinstance(row, CorruptData) for row in found.rows):
                return True
            last = found.last
            if last is None:
                return False
        return False


class Ranges(Filtered):
    """A statement over both. ``running`` is the condition on running runs; due runs may be left out.

    Its filter is ``workflow_name``; `of` also takes whether it goes on after a key, and the limit.
    """

    def __init__(self, shown: Sequence[Any], running: sa.ColumnElement[bool], *, due: bool = True) -> None:
        super().__init__(
            partial(self._merged, self._range),
            partial(self._merged, self._range_beside),
            workflow_name=RUNS.c.workflow_name.in_,
        )
        self._shown = shown
        self._running = running
        self._due = due

    def _merged(self, read: _Read, named: Sequence[Any], paged: bool, limit: int) -> sa.Select[Any]:
        after = (pages.after((SEEN.element, RUNS.c.id), descending=False),) if paged else ()
        ranges = [read(_RUNNING, (RUNNING, self._running, *named, *after), limit)]
        if self._due:
            ranges.append(read(_WAKE, (DUE, *named, *after), limit))
        merged = sa.union_all(*(sa.select(one.subquery()) for one in ranges)).subquery()
        return sa.select(merged).order_by(merged.c.seen_at, merged.c.id).limit(number(limit))

    def _range(self, _index: Narrow, conditions: Sequence[Any], limit: int) -> sa.Select[Any]:
        shown = sa.select(*self._shown, SEEN).where(*conditions)
        return shown.order_by(SEEN, RUNS.c.id).limit(number(limit))

    def _range_beside(self, index: Narrow, conditions: Sequence[Any], limit: int) -> sa.Select[Any]:
        finding = live.finding(index)
        shown = finding.select((*self._shown, SEEN), conditions)
        return shown.order_by(*map(finding.found, (SEEN, RUNS.c.id))).limit(number(limit))


LISTED = Ranges((*_SHOWN, KIND), sa.or_(OFFERED, ABANDONED))
TAKEN_NEXT = Ranges((RUNS.c.id,), TAKEABLE)
#: The same with what a take reads: a run in which that is damaged is not taken.
SOUND_NEXT = Ranges(KEPT, TAKEABLE)
SPENT = Ranges((RUNS.c.id,), kinds.SPENT, due=False)


def _window(unit: Unit, ranges: Ranges, now: dict[str, Any], names: Names, key: list[Any] | None, limit: int) -> Window:
    values = now if key is None else {**now, **pages.after_values(key)}

    def read(size: int) -> Placed:
        statement, given = ranges.of({"workflow_name": names}, key is not None, size)
        return placed(unit.readable(statement, {**values, **given}), _KEY)

    return window(read, limit)


def _claimable(row: dict[str, Any]) -> ClaimableRun:
    left = max(row["max_restarts"] - row["restart_count"], 0)
    return ClaimableRun.of(
        {
            "run_id": row["id"],
            "workflow_name": row["workflow_name"],
            "kind": row["kind"],
            "epoch": row["claim_epoch"],
            "last_owner": row["claim_owner"] or row["previous_owner"],
            "heartbeat_at": row["heartbeat_at"],
            "seen_at": row["seen_at"],
            "restart_count": row["restart_count"],
            "restarts_left": left,
            "at_limit": row["kind"] == "abandoned" and not left and row["cancel_requested_at"] is None,
            "cancel_requested": row["cancel_requested_at"] is not None,
            "provenance": Provenance(**{name: row[name] for name in _PROVENANCE}),
        }
    )
