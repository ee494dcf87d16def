"""Tool calls: every invocation of a tool, with its input, output, status and latency.

A call with a ``call_id`` is stored once. So if a task attempt is replayed, it finds the earlier result.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, TypedDict

import sqlalchemy as sa

from lastlight_state import codec
from lastlight_state.clock import aware_utc
from lastlight_state.db import valid
from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.rows.records import Page
from lastlight_state.db.rows.statements import Row, bind, columns_of, constant, every_column_of, statement_of
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import AlreadyExists, LostRace
from lastlight_state.journal import models
from lastlight_state.journal.arguments import TaskAttempt, ToolCallFilter, ToolOutcome
from lastlight_state.journal.models import TOOL_CALLS
from lastlight_state.journal.records import ToolCall, ToolCallSummary
from lastlight_state.journal.shared import Numbered, Stream

_LIMITS = limits_of(TOOL_CALLS)


class ToolOutcomeColumns(TypedDict):
    """The end of a call, as columns."""

    status: str
    finished_at: datetime | None
    duration_ms: int | None
    output_ref: str | None
    output: str | None
    error: str | None


class ToolCallDraft(ToolOutcomeColumns):
    """The row of a tool call to store. It has no number yet."""

    run_id: str
    node_id: str | None
    iteration: int
    attempt: int
    execution_id: str | None
    call_id: str | None
    tool_name: str
    started_at: datetime
    input: str | None


_c = TOOL_CALLS.c
_RUN = _c.run_id == bind("run_id", _c.run_id)
_OUTCOME = ("status", "finished_at", "duration_ms", "output_ref", "output", "error")
_COLUMNS, _SUMMARY = every_column_of(ToolCall, TOOL_CALLS), columns_of(ToolCallSummary, TOOL_CALLS)

STREAM = Stream("tool_calls", TOOL_CALLS)
INSERT = STREAM.chains(
    [column.name for column in _COLUMNS if column.name not in ("run_id", "seq")],
    returning=_COLUMNS,
)
GET = statement_of(sa.select(*_COLUMNS).where(_RUN, _c.seq == bind("seq", _c.seq)), ToolCall)
FIND = statement_of(sa.select(*_COLUMNS).where(_RUN, _c.call_id == bind("call_id", _c.call_id)), ToolCall)
FINISH = statement_of(
    sa.update(TOOL_CALLS)
    .where(_RUN, _c.seq == bind("seq", _c.seq), _c.status == constant(models.RUNNING))
    .values({name: bind(name, _c[name]) for name in _OUTCOME})
    .returning(*_COLUMNS),
    ToolCall,
)

_FILTERS = {
    "run_id": _RUN,
    **{name: _c[name] == bind(name, _c[name]) for name in ("node_id", "iteration", "attempt", "tool_name", "status")},
    #: Matches calls that still run. Repeats the predicate of the partial index over open calls.
    "open": _c.finished_at.is_(None),
}
NEWEST = Listing("tool_calls", _SUMMARY, order=(_c.seq,), filters=_FILTERS, row=ToolCallSummary)
BY_TASK = Listing(
    "tool_calls.by_task",
    _SUMMARY,
    order=(_c.iteration, _c.attempt, _c.seq),
    filters=_FILTERS,
    descending=False,
    row=ToolCallSummary,
)


class ToolCalls(Numbered):
    """``store.journal.tool_calls``: store, finish and list the tool calls of runs."""

    _stream = STREAM

    def create(
        self,
        run_id: str,
        tool_name: str,
        *,
        task: TaskAttempt | None = None,
        call_id: str | None = None,
        input: Any = None,  # noqa: A002 - the column's name
        at: datetime | None = None,
    ) -> ToolCall:
        """Store a tool call that begins. If one with the same ``call_id`` is stored, return that call, finished or not.

        Raises `AlreadyExists` for another tool or input under that ``call_id``, `NotFound` for an unknown run, and
        `PayloadTooLarge` for an input of more than 256 KiB.
        """
        row = self._row(run_id, tool_name, task, call_id, input, at)
        return self._store_call(run_id, row)

    def record(
        self,
        run_id: str,
        tool_name: str,
        outcome: ToolOutcome,
        *,
        task: TaskAttempt | None = None,
        call_id: str | None = None,
        input: Any = None,  # noqa: A002
        started_at: datetime | None = None,
    ) -> ToolCall:
        """Store a tool call that has ended already. Otherwise like `create` and `finish`."""
        row = self._row(run_id, tool_name, task, call_id, input, started_at)
        return self._store_call(run_id, {**row, **_outcome_columns(outcome, self._now(), row["started_at"])})

    def finish(self, run_id: str, seq: int, outcome: ToolOutcome) -> ToolCall:
        """End a running tool call. If the call has ended with an equal outcome, return the stored call.

        The latency is the given one, else the time from the call's start to its end, never negative. Raises `LostRace`
        with the stored ``call`` if it has ended with another outcome, and `NotFound`. Raises `PayloadTooLarge` for an
        output of more than 256 KiB: store it elsewhere, and give ``output_ref``.
        """
        found = self.get(run_id, seq)
        values = {"run_id": run_id, "seq": seq, **_outcome_columns(outcome, self._now(), found.started_at)}
        if found.status == models.RUNNING:
            ended = self._change_row(FINISH, values, repeatable=True)
            if ended is not None:
                return ended
            found = self.get(run_id, seq)
        if _compared_values(found, outcome) != _compared_values(outcome, outcome):
            raise LostRace(f"tool call {seq} of run {run_id!r} has ended {found.status}", call=found)
        return found

    def get(self, run_id: str, seq: int) -> ToolCall:
        """Return the tool call with this number. Raises `NotFound`."""
        values = {"run_id": valid.lookup_text("run_id", run_id), "seq": valid.number("seq", seq)}
        return self._get_row(GET, values, kind=models.TOOL_CALL, key=(run_id, seq))

    def find(self, run_id: str, call_id: str) -> ToolCall | None:
        """Return the tool call with this ``call_id``, or None."""
        values = {"run_id": valid.lookup_text("run_id", run_id), "call_id": valid.lookup_text("call_id", call_id)}
        return self._find(FIND, values)

    def list(
        self, run_id: str, *, where: ToolCallFilter | None = None, limit: int = 50, page_token: str | None = None
    ) -> Page[ToolCallSummary]:
        """Return a page of a run's tool calls, newest first.

        With a node, the calls are in the order of the node's attempts.
        """
        given = _filters(run_id, where)
        listing = NEWEST if given["node_id"] is None else BY_TASK
        return self._page(listing, given, limit, page_token)

    def count(self, run_id: str, *, where: ToolCallFilter | None = None) -> int:
        """Return how many of the run's tool calls pass these filters."""
        given = _filters(run_id, where)
        return self._reading(lambda unit: NEWEST.count(unit, given))

    def _row(
        self, run_id: str, tool_name: str, task: Any, call_id: str | None, given: Any, at: datetime | None
    ) -> ToolCallDraft:
        attempt = valid.argument_group("task", task, TaskAttempt) if task is not None else None
        return {
            "run_id": valid.identifier("run_id", run_id, _LIMITS.run_id),
            "node_id": None if attempt is None else valid.identifier("task.node_id", attempt.node_id, _LIMITS.node_id),
            "iteration": 0 if attempt is None else valid.number("task.iteration", attempt.iteration),
            "attempt": 1 if attempt is None else valid.number("task.attempt", attempt.attempt, least=1),
            "execution_id": None
            if attempt is None
            else valid.optional("task.execution_id", attempt.execution_id, _LIMITS.execution_id),
            "call_id": valid.optional("call_id", call_id, _LIMITS.call_id),
            "tool_name": valid.identifier("tool_name", tool_name, _LIMITS.tool_name),
            "status": models.RUNNING,
            "started_at": self._now() if at is None else aware_utc("at", at),
            "input": _encode_optional("input", given, _LIMITS.input),
            "finished_at": None,
            "duration_ms": None,
            "output_ref": None,
            "output": None,
            "error": None,
        }

    def _store_call(self, run_id: str, row: ToolCallDraft) -> ToolCall:
        if row["call_id"] is None:
            return self._append(run_id, self._chained, lambda unit: _insert(unit, row))
        return self._append(run_id, self._writing, lambda unit: _insert_once(unit, row), repeatable=True)


def _insert(unit: Unit, row: ToolCallDraft) -> ToolCall:
    return ToolCall.of(STREAM.insert_returning(unit, INSERT, row))


def _insert_once(unit: Unit, row: ToolCallDraft) -> ToolCall:
    STREAM.lock_counter(unit, row["run_id"])
    stored = unit.row(FIND, row)
    if stored is None:
        return _insert(unit, row)
    given = None if row["input"] is None else codec.decode(row["input"])
    if (stored.tool_name, codec.canonical(stored.input)) != (row["tool_name"], codec.canonical(given)):
        problem = "already exists with another tool or input"
        raise AlreadyExists(models.TOOL_CALL, row["call_id"], problem=problem, seq=stored.seq)
    return stored


def _outcome_columns(outcome: Any, now: datetime, started_at: datetime) -> ToolOutcomeColumns:
    """Check an outcome, and return its columns. The duration defaults to the time since ``started_at``."""
    given = valid.argument_group("outcome", outcome, ToolOutcome)
    at = now if given.at is None else aware_utc("outcome.at", given.at)
    lasted = max(at - started_at, timedelta(0)) // timedelta(milliseconds=1)
    return {
        "status": valid.word("outcome.status", given.status, models.TOOL_STATUSES),
        "finished_at": at,
        "duration_ms": lasted if given.duration_ms is None else valid.number("outcome.duration_ms", given.duration_ms),
        "output_ref": valid.optional("outcome.output_ref", given.output_ref, _LIMITS.output_ref),
        "output": _encode_optional("outcome.output", given.output, _LIMITS.output),
        "error": _encode_optional("outcome.error", given.error, _LIMITS.error),
    }


def _compared_values(found: ToolCall | ToolOutcome, outcome: ToolOutcome) -> Any:
    """Return the values of ``found`` that must equal those of ``outcome``.

    The duration is compared only if it is given.
    """
    told = [found.status, found.output_ref, codec.canonical(found.output), codec.canonical(found.error)]
    return told if outcome.duration_ms is None else [*told, found.duration_ms]


def _filters(run_id: str, where: ToolCallFilter | None) -> Row:
    asked = ToolCallFilter() if where is None else valid.argument_group("where", where, ToolCallFilter)
    return {
        "run_id": valid.lookup_text("run_id", run_id),
        "node_id": valid.optional("where.node_id", asked.node_id, _LIMITS.node_id),
        "iteration": None if asked.iteration is None else valid.number("where.iteration", asked.iteration),
        "attempt": None if asked.attempt is None else valid.number("where.attempt", asked.attempt, least=1),
        "tool_name": valid.optional("where.tool_name", asked.tool_name, _LIMITS.tool_name),
        "status": None
        if asked.status is None
        else valid.word("where.status", asked.status, models.TOOL_STATUSES | {models.RUNNING}),
        "open": {} if asked.status == models.RUNNING else None,
    }


def _encode_optional(where: str, value: Any, most: int) -> str | None:
    return None if value is None else codec.encode(where, value, max_bytes=most)
