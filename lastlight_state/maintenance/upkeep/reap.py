"""Ends running sessions of conversations whose processes died without ending their session.

Heartbeats, messages and changes of status are a session's signs of life. A session that has shown none for a day, or
for the time that the caller gives, is ended as of its last sign of life. A transition states the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any, Literal

import sqlalchemy as sa

from lastlight_state.clock import exact_iso_text, iso_text
from lastlight_state.conversations.arguments import Reason
from lastlight_state.conversations.lifecycle.statements import LAST_SIGN
from lastlight_state.conversations.lifecycle_records import StaleSession
from lastlight_state.conversations.shared import statuses
from lastlight_state.conversations.tables import SESSIONS
from lastlight_state.conversations.words import RUNNING, SILENT as SILENT_STATUS
from lastlight_state.db import valid
from lastlight_state.db.repository import Context, Repository
from lastlight_state.db.rows.records import Record
from lastlight_state.db.rows.statements import bind, constant, exactly, statement_of
from lastlight_state.db.schema.columns import parse_time
from lastlight_state.db.units.unit import Unit
from lastlight_state.maintenance.shared import jobs
from lastlight_state.receipts import Receipt, Receipts, steps

# The plan of reaping.


class ReapPlan(Record):
    """The sessions that reaping would end at this moment. Nothing is written for a plan.

    ``running`` counts all running sessions, and ``retired`` counts those that would be ended. ``sessions`` are the
    first 500 sessions that would be ended, the longest silent first.
    """

    running: int
    retired: int
    sessions: tuple[StaleSession, ...]


# Statements that find sessions without a sign of life.

#: How many sessions one statement reads.
LOOK = 100

_s = SESSIONS.c
_running = _s.status == constant(RUNNING)
_sign = LAST_SIGN.element
_after = sa.tuple_(exactly("after_at", _s.created_at), bind("after_id", _s.id))

#: Finds the next running sessions after a position that have been silent since a cutoff, the longest silent first.
SILENT = statement_of(
    sa.select(_s.id, _s.owner, LAST_SIGN)
    .where(_running, _sign < bind("cutoff", _s.created_at), sa.tuple_(_sign, _s.id) > _after)
    .order_by(_sign, _s.id)
    .limit(sa.bindparam("limit", type_=sa.Integer)),
    StaleSession,
)
COUNT = statement_of(sa.select(sa.func.count()).select_from(SESSIONS).where(_running))


#: The status of a session that is ended for showing no sign of life.
End = Literal["aborted", "failed"]
ENDS = ("aborted", "failed")
#: How long a session must be silent by default, and the longest time that a caller may give.
USUAL, LONGEST = timedelta(hours=24), timedelta(days=36_500)
#: How many sessions a plan names at most.
SAMPLES = 500

#: The position of a search: the last sign of life and the id of the last session found.
Place = tuple[str, str]
START: Place = ("0001-01-01T00:00:00.000Z", "")


class Reap(Repository):
    """Ends running sessions that show no sign of life: ``store.maintenance.reap``."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._receipts = Receipts(context)

    def plan(self, *, older_than: timedelta = USUAL) -> ReapPlan:
        """Return the running sessions without a sign of life for longer than ``older_than``.

        Reads one snapshot and writes nothing.
        """
        cutoff = self._cutoff(older_than)
        return self._viewing(lambda unit: _reap_plan(unit, cutoff))

    def run(self, *, older_than: timedelta = USUAL, to: End = "aborted", actor: str | None = None) -> Receipt:
        """End silent sessions at their last sign of life, in short transactions, and return the receipt.

        Each session gets one transition with the reason ``session.stale.no_heartbeat``. A session that shows a sign of
        life after the search is not ended, and counts as ``skipped``. Another call continues an interrupted one. Raises
        `Conflict` ``already_running`` while another call runs.
        """
        status, cutoff = valid.word("to", to, ENDS), self._cutoff(older_than)
        policy = {"cutoff": cutoff, "to": status}
        receipt = self._receipts.begin("reap", scope="sessions", policy=policy, owner=jobs.owner(), actor=actor)

        def step(receipt: Receipt) -> tuple[Receipt, bool]:
            found = self._reading(lambda unit: _next(unit, cutoff, receipt.cursor or START))
            if not found:
                return receipt, False
            return self._writing(lambda unit: self._batch(unit, receipt, found, status)), True

        return jobs.run_steps(self._receipts, receipt, step, again="the same command")

    def _cutoff(self, older_than: timedelta) -> str:
        now = self._now()
        return iso_text(now - valid.duration("older_than", older_than, most=LONGEST))

    def _batch(self, unit: Unit, receipt: Receipt, found: Sequence[StaleSession], status: str) -> Receipt:
        steps.confirm(unit, receipt)
        now, counts = self._now(), Counter(receipt.counts)
        why = statuses.reason("reason", Reason(SILENT_STATUS, source="system", actor=receipt.actor), status)
        for one in sorted(found, key=lambda one: one.id):  # in the order of ids, in which all calls lock sessions
            rows, _ = unit.readable_rows(statuses.LOCK, {"session_id": one.id})
            seen = one.last_sign
            done = [statuses.retire(unit, self._listeners, row, status, why, now, seen=seen) for row in rows]
            counts["retired" if any(done) else "skipped"] += 1
        return steps.step(unit, receipt, counts=counts, cursor=_place(found[-1]), at=now)


def _reap_plan(unit: Unit, cutoff: str) -> ReapPlan:
    samples: list[StaleSession] = []
    retired = 0
    for found in _stale_sessions(unit, cutoff):
        retired += len(found)
        samples += found[: SAMPLES - len(samples)]
    return ReapPlan(running=unit.value(COUNT), retired=retired, sessions=tuple(samples))


def _stale_sessions(unit: Unit, cutoff: str) -> Iterator[list[StaleSession]]:
    found = _next(unit, cutoff, START)
    while found:
        yield found
        found = _next(unit, cutoff, _place(found[-1]))


def _next(unit: Unit, cutoff: str, after: Any) -> list[StaleSession]:
    moment, key = after
    values = {"cutoff": parse_time(cutoff), "after_at": parse_time(moment), "after_id": key}
    found = unit.first_readable_rows(SILENT, values, LOOK)
    if found:
        jobs.confirm_after((found[-1].last_sign, found[-1].id), (values["after_at"], key))
    return found


def _place(last: StaleSession) -> Place:
    return exact_iso_text(last.last_sign), last.id
